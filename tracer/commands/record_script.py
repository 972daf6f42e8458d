"""`tracer record SCRIPT`: record somebody's own training, which nobody changed."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from analyzers.command_lines import redacted_command
from analyzers.errors import AnalysisError
from analyzers.units import count
from tracer.atomic_files import refuse_folder
from tracer.commands.options import (
    begin_line,
    devices_of,
    host_count,
    pick_devices,
    plan_of,
    read_here,
    say,
    script_progress,
    terminal,
    torchrun_options,
)
from tracer.config import Plan
from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.launching import Outcome, Ranks, Script

DEFAULTS = Plan()


def run_script(options: argparse.Namespace) -> int:
    """Run the script, recorded; return its exit code. Its stdout is its own: ours is on stderr."""
    from analyzers.run import MANIFEST
    from tracer.launching import Recording, Script, quiet_launcher, record_script

    script = Script(tuple(options.script))
    script.check()
    ranks = _ranks(options, script)
    plan = _plan(options)
    output = (options.output or Path("traces") / script.name).absolute()
    refuse_folder(output, options.force, MANIFEST)
    quiet_launcher()
    shown = shlex.join(redacted_command(script.words))
    _say(f"recording {shown} into {output}: {_in_words(ranks, plan)}")
    recording = Recording(script, ranks, plan, output, options.force, _once(options, ranks))
    outcome = record_script(recording, _say, script_progress(_say))
    # Whoever read stderr may have gone: the exit code is the script's all the same.
    with suppress(OSError):
        _say_outcome(outcome, plan.keep)
    return outcome.exit_code


def _ranks(options: argparse.Namespace, script: Script) -> Ranks | None:
    """Return the ranks to launch; None for a command that launches its own. Raises UsageError."""
    from tracer.launching import Ranks

    torchrun = torchrun_options(options)
    if not script.is_command:
        host_count(options)
        device, count = pick_devices(options)
        return Ranks(device, count, torchrun)
    given = [name for name in ("gpus", "ranks", "device") if getattr(options, name) is not None]
    if given or torchrun:
        option = f"--{given[0]}" if given else torchrun[0].partition("=")[0]
        raise UsageError(
            f"{script.words[0]} starts its own ranks: give {option} to it, or name the Python file alone, and tracer "
            "starts them"
        )
    return None


def _in_words(ranks: Ranks | None, plan: Plan) -> str:
    """Say how many ranks are started, on what, and how many training steps of each are recorded."""
    if ranks is None:
        device, _ = devices_of(None, None, None)
        return f"up to {plan.total(device)} training steps of each rank that it starts"
    where = "on the CPU" if ranks.device == "cpu" else "one on each GPU" if ranks.processes > 1 else "on one GPU"
    host = " of this host" if ranks.torchrun else ""
    return f"{count(ranks.processes, 'rank')}{host}, {where}; {plan.total(ranks.device)} training steps of each"


def _once(options: argparse.Namespace, ranks: Ranks | None) -> str:
    """Return the command that records one rank; empty where there is no other, or the user has said how many."""
    if ranks is None or ranks.processes == 1 or ranks.torchrun or options.gpus is not None or options.ranks is not None:
        return ""
    own = [*options.own_words, "--ranks" if ranks.device == "cpu" else "--gpus", "1"]
    return shlex.join(redacted_command(["tracer", *own, *options.script]))


def _plan(options: argparse.Namespace) -> Plan:
    plan = replace(plan_of(options, DEFAULTS), every=options.every, keep=options.keep or DEFAULTS.keep)
    if options.keep is not None and options.every is None:
        raise UsageError("--keep requires --every N")
    plan.check()
    return plan


def _say(text: str) -> None:
    """Print one line on stderr, among the script's own."""
    begin_line()
    say(f"tracer: {text}")


def _say_outcome(outcome: Outcome, keep: int) -> None:
    from analyzers.run import OF_HOST

    for line in outcome.said:
        _say(line)
    if not outcome.recorded:
        return
    newest, count = outcome.recorded[-1], len(outcome.recorded)
    _say(f"recorded {newest}" + (f", the last of {count}; {min(keep, count)} are kept" if count > 1 else ""))
    is_part = bool(OF_HOST.fullmatch(newest.name))
    _report(newest, is_part, outcome.said)
    if is_part:
        _say("these are this host's ranks; with the other hosts' folders beside them they are one run")
        _say(f"next: tracer report {shlex.quote(str(newest.parent))}")


def _report(recording: Path, is_part: bool, said: Sequence[str]) -> None:
    """Print the report on stderr, since stdout is the script's; of a part of a run the verdict alone."""
    from analyzers.reporting import report
    from tracer.views.sections import first_screen_text

    try:
        summary = read_here(recording)
        for note in summary.manifest.notes if summary.manifest else []:
            if note not in said:
                _say(note)
        found = report(summary)
    except AnalysisError as error:
        _say(error.for_shell)
        return
    if is_part:
        _say(f"{found.summary.verdict}")
    else:
        sys.stderr.write(first_screen_text(found, str(recording), *terminal(sys.stderr)))
