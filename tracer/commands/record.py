"""`tracer record`: record a training script, which nobody has to change, or a built-in workload, and report it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tracer.atomic_files import hidden_folder, refuse_folder
from tracer.commands.options import OPTIONS as HOST_OPTIONS
from tracer.commands.options import (
    add_device_arguments,
    add_host_arguments,
    add_step_arguments,
    add_workload_arguments,
    check_data,
    check_torch,
    check_workload,
    configuration,
    describe,
    here,
    positive,
    progress,
    read_here,
    say,
    script_apart,
    setup_of,
    terminal,
    torchrun_options,
)
from tracer.commands.record_script import run_script
from tracer.config import STRATEGIES, RecordConfig, sent
from tracer.errors import RankFailed, Stopped, UsageError
from tracer.views import rendered

USAGE = """tracer record [OPTION ...] train.py [ARGUMENT ...]
       tracer record [OPTION ...] -m package.train [ARGUMENT ...]
       tracer record [OPTION ...] torchrun ... train.py [ARGUMENT ...]
       tracer record [OPTION ...]"""
SCRIPT = """Python file or -m MODULE (a rank on each device), or a command that starts its own ranks (torchrun,
accelerate launch, python), with its arguments; without one: the built-in workload"""
EXAMPLES = """\
examples:
  tracer record --gpus 4 train.py --lr 0.1
  tracer record -o traces/mine torchrun --nproc-per-node 4 train.py"""
# Options that mean something where a SCRIPT is recorded; all others are the built-in workload's.
OF_SCRIPTS = {
    *("gpus", "device", "ranks", "wait", "warmup", "active", "light", "rounds", "every", "keep"),
    *("no_stacks", "output", "force", "script"),
    *(option.strip("-").replace("-", "_") for option in HOST_OPTIONS),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer record`, and its help's words on a SCRIPT."""
    parser.usage = USAGE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    # For its help: `words_apart` takes a SCRIPT's words out before arguments are parsed.
    parser.add_argument("script", nargs="*", metavar="SCRIPT", help=SCRIPT)
    add_device_arguments(parser)
    what = parser.add_argument_group("built-in workload, where no SCRIPT is given")
    what.add_argument("--strategy", choices=STRATEGIES, help="default: ddp; on one device single")
    what.add_argument("--batch", type=positive, metavar="N", help="samples per device (default: 128, on a CPU 32)")
    add_workload_arguments(parser)
    how = parser.add_argument_group("steps")
    add_step_arguments(how, "rounds of timed blocks (default: 8; on a CPU and of scripts 3)")
    how.add_argument("--no-stacks", action="store_true", help="leave out names of Python functions")
    how.add_argument("--every", type=positive, metavar="N", help="record a script again every so many steps")
    how.add_argument("--keep", type=positive, metavar="K", help="with --every: keep the newest K (default: 5)")
    add_host_arguments(parser)
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", type=here, metavar="DIR", help="folder to write (default: traces/NAME)")
    out.add_argument("--force", action="store_true", help="replace the folder if it exists")
    parser.set_defaults(unset=vars(parser.parse_args([])))


def words_apart(words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return the command's own words, and those of a SCRIPT, None without one."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    return script_apart(parser, words)


def run(options: argparse.Namespace) -> int:
    """Record, then report."""
    from analyzers.reporting import report
    from analyzers.run import MANIFEST
    from tracer.views.sections import epochs, first_screen_text

    if options.script is not None:
        return _run_script(options)
    check_workload("tracer record")
    if options.every or options.keep:
        raise UsageError("--every and --keep need a script: tracer record --every N SCRIPT")
    config = configuration(options, setup_of(options))
    output = options.output or Path("traces") / default_name(config)
    refuse_folder(output.absolute(), options.force, MANIFEST)
    check_data(config)
    say(f"recording {describe(config)} into {output}")
    if config.calibration is None and not options.no_calibrate:
        say("links are not calibrated: no collectives of torch.distributed between processes in this run")
    recorded = record(config, output.absolute(), options.force, torchrun_options(options))
    for recording in recorded:
        found = report(read_here(recording))
        path = options.output or recording.relative_to(Path.cwd())
        sys.stdout.write(first_screen_text(found, str(path), *terminal()))
        sys.stdout.write(rendered([epochs(found.run)], *terminal()))
    return 0


def _run_script(options: argparse.Namespace) -> int:
    check_torch("tracer record")
    for name, value in vars(options).items():
        if name not in OF_SCRIPTS and value != options.unset.get(name, value):
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} configures the built-in workload: leave it out, or pass the script an option of its own"
            )
    return run_script(options)


def default_name(config: RecordConfig) -> str:
    """Name the folder for a recording: `resnet18-ddp4`, on a CPU `resnet18-ddp2-cpu`."""
    return f"{config.model}-{config.strategy}{config.hosts * config.devices}" + (
        "-cpu" if config.device == "cpu" else ""
    )


def record(config: RecordConfig, output: Path, force: bool, torchrun: tuple[str, ...] = ()) -> list[Path]:
    """Run the ranks and put their traces and run.json into `output`, which appears only when all is written."""
    from tracer.launching import Job, launch, quiet_launcher, rank_arguments
    from tracer.recording import Finisher, take_notes

    quiet_launcher()
    with hidden_folder(output, say) as folder:
        finisher = Finisher(folder, output, force)
        try:
            with progress("step") as heard:
                arguments = rank_arguments("train", sent([config]), folder)
                launch(Job(arguments, config.device, config.processes, torchrun), folder, heard)
        except RankFailed as failure:
            # torch 2.14's gloo may abort a rank when its process ends: docs/dev/decisions/recording.md.
            if isinstance(failure, Stopped) or not finisher.take_complete():
                raise
            say(f"{failure.brief}, when the recording was complete")
        for note in take_notes(folder):
            say(note)
        return finisher.placed or finisher.take_complete()
