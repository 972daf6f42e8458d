"""Options in the pages of docs/commands: each command's own, and those that several share."""

from __future__ import annotations

import os
import re
from argparse import Action, ArgumentParser
from collections import Counter
from collections.abc import Collection
from functools import cache
from unittest import mock

from tracer.cli import build_parser

HELP_WIDTH = 100

# Arguments, each behind what --help says of it.
Group = dict[str, Action]


@cache
def parsers() -> dict[str, ArgumentParser]:
    """The parser of each subcommand, by name."""
    (subparsers,) = [action for action in build_parser()._actions if isinstance(action.choices, dict)]
    return dict(subparsers.choices)


def explained(actions: Collection[Action], title: str | None = None) -> str:
    """What --help says of a group's arguments, on a terminal of HELP_WIDTH columns that knows no color."""
    with mock.patch.dict(os.environ, COLUMNS=str(HELP_WIDTH), PYTHON_COLORS="0"):
        formatter = ArgumentParser()._get_formatter()
        formatter.start_section(title)
        formatter.add_arguments(actions)
        formatter.end_section()
        return formatter.format_help().strip("\n")


@cache
def groups_of(command: str) -> dict[str, Group]:
    """The arguments of a command, by the titles of their groups; without --help, which all have."""
    return {
        str(group.title): {explained([action]): action for action in group._group_actions if action.dest != "help"}
        for group in parsers()[command]._action_groups
    }


@cache
def shared_groups() -> dict[str, Group]:
    """Arguments that several commands explain in the same words, in the groups that they have in the first of them."""
    found = [
        (title, words, action)
        for command in parsers()
        for title, group in groups_of(command).items()
        for words, action in group.items()
    ]
    times = Counter(words for _, words, _ in found)
    groups: dict[str, Group] = {}
    for title, words, action in found:
        if times.pop(words, 1) > 1:
            groups.setdefault(title, {})[words] = action
    return groups


def own_options(command: str) -> str:
    """What a command's page says of options: its own by group, and where those are that it shares."""
    groups, shared = groups_of(command).items(), shared_groups().items()
    elsewhere = {words for _, group in shared for words in group}
    own = [(title, [action for words, action in group.items() if words not in elsewhere]) for title, group in groups]
    text = _block("\n\n".join(explained(actions, title) for title, actions in own if actions))
    mine = {words for _, group in groups for words in group}
    links = [_link(title, group, mine & group.keys()) for title, group in shared if mine & group.keys()]
    return f"{text}\n\nAlso {', '.join(links)}." if links else text


def shared_options() -> str:
    """What the page of shared options says of them, group by group."""
    sections = []
    for title, group in shared_groups().items():
        name = _name(title)
        block = _block(explained(group.values(), title if title != name else None))
        sections.append(f"## {name}\n\n{block}")
    return "\n\n".join(sections)


def _link(title: str, group: Group, taken: Collection[str]) -> str:
    """A link to a shared group, with the options that are meant where a command does not have all of them."""
    named = {words: f"`{action.option_strings[-1]}`" for words, action in group.items() if action.option_strings}
    options, others = ([named[words] for words in named if (words in taken) is has] for has in (True, False))
    which = f"without {', '.join(others)}" if len(others) < len(options) else ", ".join(options)
    which = f" ({which})" if others else ""
    return f"[{_name(title)}](README.md#{_name(title).lower().replace(' ', '-')}){which}"


def _name(title: str) -> str:
    """What a group is called: its title up to what explains it."""
    return re.split(r" \(|,", title)[0]


def _block(text: str) -> str:
    return f"```\n{text}\n```"
