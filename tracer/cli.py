"""Command line: subcommands, and how errors end."""

from __future__ import annotations

import argparse
import codecs
import gc
import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from tracer.commands import COMMANDS, RECORD, SHELLS, command, completion_script
from tracer.errors import RankFailed, TracerError
from tracer.own_python import collect_rarely
from tracer.second_reading import read_twice
from tracer.version import VERSION

PROGRAM = "tracer"
# Commands that start trainings, which inherit the environment. To start its threads takes numpy as long as the rest of
# its import, and a report has no algebra for them.
TRAINS = {"record", "sweep", "calibrate", "doctor"}
# How streams handle characters that they cannot encode.
IN_ASCII = "tracer-ascii"


class Parser(argparse.ArgumentParser):
    """One whose errors are one line, with what was probably meant."""

    def error(self, message: str) -> NoReturn:
        """End with 2, and say why."""
        from tracer.views import plain_lines

        listed = "commands" if self.prog == PROGRAM else "options"
        self.exit(2, f"{self.prog}: {' '.join(plain_lines(message))} ({self.prog} --help lists the {listed})\n")

    def check_options(self, words: Sequence[str]) -> None:
        """End with 2 at the first word that argparse would take for an option and that is none."""
        for word in words:
            name = word.partition("=")[0]
            if name.startswith("--") and " " not in name and name not in self._option_string_actions:
                self.error(f"there is no option {name}{_meant(name, self._option_string_actions)}")

    def check_unknown(self, words: Sequence[str]) -> None:
        """End with 2 where words are left that no option and no argument takes."""
        for word in words:
            self.error(f"there is no option {word}" if word.startswith("-") else f"it takes no argument {word}")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if not choices or value in choices:
            return
        if not action.option_strings and self.prog == PROGRAM:
            self.error(f"there is no command {value}{_meant(value, choices)}")
        self.error(f"{_named(action)} {value}: it takes {', '.join(choices)}{_meant(value, choices)}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> object:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            # The message begins with the value.
            self.error(f"{_named(action)} {error.message}".strip())
        except TracerError as error:
            self.error(f"{_named(action)} {error.for_shell}".strip())


class _PrintCompletion(argparse.Action):
    """The option that prints a script for a shell, instead of running a command."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, option: object = None
    ) -> None:
        try:
            print(completion_script(build_parser(), str(values)))
        except TracerError as error:
            parser.exit(_fail(error.exit_code, error.for_shell))
        parser.exit()


def _named(action: argparse.Action) -> str:
    """Return an option as it is spelled in full; nothing for a RUN, which stands without a name."""
    return action.option_strings[-1] if action.option_strings else ""


def _meant(typed: object, known: Iterable[str]) -> str:
    """Ask whether the most similar of the known words was meant; say nothing where none is similar."""
    import difflib

    similar = difflib.get_close_matches(str(typed).lower(), list(known), n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def build_parser(only: str | None = None) -> Parser:
    """The parser of all subcommands, each with its options; of one alone where only that is asked for.

    The others then have a name and a line of help: importing what their options are made of takes ten times as long.
    """
    parser = Parser(
        prog=PROGRAM, description="Measure where the time of distributed PyTorch training goes.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"tracer {VERSION}")
    parser.add_argument(
        "--print-completion",
        choices=SHELLS,
        action=_PrintCompletion,
        help="print the script for completion in this shell",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, line in COMMANDS.items():
        if only not in (None, name):
            subparsers.add_parser(name, help=line)
            continue
        module = command(name)
        subparser = subparsers.add_parser(name, help=line, description=module.__doc__, allow_abbrev=False)
        module.add_arguments(subparser)
        subparser.set_defaults(handler=module.run)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a subcommand, and in `script` a SCRIPT's words; ends with 2 where they make no sense."""
    command_arguments, script = _script_apart(arguments)
    # Before a subcommand stand only the program's own options, which end it.
    name = next(iter(command_arguments), "")
    parser = build_parser(only=name)
    subparser = _subparsers(parser).get(name, parser)
    subparser.check_options(command_arguments)
    options, unknown = parser.parse_known_args(command_arguments)
    subparser.check_unknown(unknown)
    options.script, options.own_words = script, command_arguments
    if script is not None and options.command != RECORD:
        parser.error(f"{options.command} runs no SCRIPT: leave out -- and the words after it")
    return options


def _subparsers(parser: Parser) -> dict[str, Parser]:
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(subparsers.choices)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code. Errors that a user can mend are one line on stderr."""
    _prepare_streams()
    collect_rarely()
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        code: int = read_twice(lambda: options.handler(options))
        sys.stdout.flush()
        return code
    except TracerError as error:
        lines = (error.message, *error.last_lines) if isinstance(error, RankFailed) else (error.for_shell,)
        return _fail(error.exit_code, *lines)
    except KeyboardInterrupt:
        return _fail(130, "interrupted")
    except BrokenPipeError:
        # The reader of stdout (head, less) has gone: nothing more to say, and nowhere to say it.
        _discard_stdout()
        return 141
    except OSError as error:
        if error.filename is not None:
            raise
        # Files are opened by name; what has none is the stream that the report goes to.
        _discard_stdout()
        return _fail(1, f"stdout: cannot be written ({error.strerror})")


def program() -> int:
    """Run the subcommand that this process was started for, and be quick to start and to end."""
    if not TRAINS & set(sys.argv[1:2]):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = main()
    # The interpreter would look through all that was imported once more.
    gc.freeze()
    return code


def _script_apart(arguments: Sequence[str]) -> tuple[Sequence[str], list[str] | None]:
    """The command's own arguments, and a SCRIPT's, None without one: argparse would read them all.

    Other commands than `record` have none, and what stands behind their `--` is for `parse` to refuse.
    """
    if list(arguments[:1]) == [RECORD]:
        own, script = command(RECORD).words_apart(arguments[1:])
        return [RECORD, *own], script
    if "--" not in arguments:
        return arguments, None
    dashes = list(arguments).index("--")
    return arguments[:dashes], list(arguments[dashes + 1 :])


def _prepare_streams() -> None:
    """What a closed stream would say is dropped, and what a stream's encoding lacks is shown in ASCII.

    On Windows a file that a stream is led to gets UTF-8, which JSON is in, and not the code page.
    """
    codecs.register_error(IN_ASCII, _in_ascii)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            is_file = sys.platform == "win32" and not stream.isatty() and "PYTHONIOENCODING" not in os.environ
            stream.reconfigure(encoding="utf-8" if is_file else None, errors=IN_ASCII)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Return what is written for characters that cannot be encoded, as codecs ask for it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from tracer.views import ASCII

    missing = error.object[error.start : error.end]
    return "".join(ASCII.get(character, "?") for character in missing), error.end


def _discard_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(code: int, *lines: str) -> int:
    """Say why, in lines of which each stays one, whatever a file's name holds."""
    from tracer.views import plain_lines

    print(
        "tracer: " + "\n".join("\N{REPLACEMENT CHARACTER}".join(plain_lines(line)) for line in lines), file=sys.stderr
    )
    return code
