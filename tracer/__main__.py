"""Start `tracer`, also as `python -m tracer`."""

import sys


def program() -> int:
    """Run the subcommand that this process was started for; its exit code.

    Importing takes longer than some commands, and Ctrl-C is no less likely in it than later.
    """
    try:
        from tracer.cli import program as run

        return run()
    except KeyboardInterrupt:
        print("tracer: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(program())
