"""The command line: the list of subcommands, and how errors end."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from analyzers.errors import AnalysisError
from tracer.commands import record, report
from tracer.errors import TracerError
from tracer.version import VERSION

COMMANDS = (record, report)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="tracer", description="Measure where the time of distributed PyTorch training goes.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"tracer {VERSION}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.NAME, help=command.HELP, description=command.__doc__, allow_abbrev=False
        )
        command.add_arguments(subparser)
        subparser.set_defaults(handler=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code. Errors that a user can mend are one line on stderr."""
    options = build_parser().parse_args(arguments)
    try:
        code: int = options.handler(options)
        sys.stdout.flush()
        return code
    except AnalysisError as error:
        return _fail(str(error), 1)
    except TracerError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of stdout (head, less) has gone: nothing more to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _fail(message: str, code: int) -> int:
    sys.stdout.flush()
    print(f"tracer: {message}", file=sys.stderr)
    return code
