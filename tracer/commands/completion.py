"""Shell completion: commands, options, their values, and paths of runs and files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tracer.errors import TracerError

SHELLS = ("bash", "zsh", "tcsh")
MISSING = "shell completion needs shtab: pip install shtab"
# A RUN is a folder, or a trace in one: other files are not offered.
_RUN = {"bash": "_tracer_runs", "zsh": "_files -g '*.(json|json.gz|sqlite)(-.)'", "tcsh": "f"}
_PREAMBLE = {
    "bash": """\
_tracer_runs() {
  compgen -d -- "$1"
  compgen -f -X '!*.json' -- "$1"
  compgen -f -X '!*.json.gz' -- "$1"
  compgen -f -X '!*.sqlite' -- "$1"
}
"""
}


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that completes a program's command line. Raises TracerError."""
    try:
        import shtab
    except ImportError as error:
        raise TracerError(MISSING) from error
    from tracer.commands.options import here, run_place

    for action in _actions(parser):
        if action.type is run_place:
            action.complete = _RUN  # type: ignore[attr-defined]  # shtab's own
        elif action.type is here:
            is_folder = action.metavar == "DIR"
            action.complete = shtab.DIRECTORY if is_folder else shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell, preamble=_PREAMBLE.get(shell, "")))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _actions(subparser)
