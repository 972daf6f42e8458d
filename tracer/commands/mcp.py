"""`tracer mcp`: answers for coding agents on runs below a folder, by the Model Context Protocol."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analyzers.errors import install_hint
from tracer.commands.options import here
from tracer.errors import TracerError
from tracer.own_python import safe_environment
from tracer.views import By

INSTRUCTIONS = """Says where the time of distributed PyTorch training goes, and what to change. Begin with summary;
follow its headline.code and advice[].code; look into one table; after a change record again, and compare. A figure
of low trust is not quoted: the headline's by headline.trust, a gain by its advice's own trust. Null is not known, and
not 0; at_most_ns is an upper limit, and no gain."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer mcp`."""
    parser.add_argument("root", type=here, metavar="ROOT", help="the folder of runs; nothing outside of it is read")


def run(options: argparse.Namespace) -> int:
    """Serve until stdin ends."""
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise TracerError(f"`tracer mcp` needs the protocol's SDK ({error}): {install_hint('mcp')}") from error

    root: Path = options.root.resolve()
    if not root.is_dir():
        raise TracerError(f"{options.root} is not a folder: give the one that your runs are in, such as traces")
    server = MCPServer("tracer", instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in Tools(root).all():
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
    server.run("stdio")
    return 0


class Tools:
    """What an agent may ask of the runs below a folder: each is a command, in a process of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def all(self) -> list[Callable[..., Any]]:
        """Return the tools."""
        return [self.summary, self.table, self.compare, self.whatif, self.doctor]

    def summary(self, run: str) -> str:
        """Say what a run's steps come to: main problem, remedy, trust, shares of the step, advice with gains. JSON."""
        return self._printed("report", self._place(run), "--json", "--summary")

    def table(self, run: str, by: By, limit: int | None = None) -> str:
        """Give the longest rows of one table, as many as 20 kB hold, or `limit`. JSON."""
        words = [] if limit is None else [f"--limit={limit}"]
        return self._printed("report", self._place(run), "--json", f"--by={by}", *words)

    def compare(self, a: str, b: str, fail_on: str | None = None) -> str:
        """Say what changed from run `a` to run `b`, by more than steps differ among themselves.

        `fail_on` is a condition such as `unprofiled_step_ns > 1.05*baseline`; a last line says that it holds.
        """
        words = [] if fail_on is None else [f"--fail-on={fail_on}"]
        return self._printed("compare", self._place(a), self._place(b), *words)

    def whatif(self, run: str, only: str | None = None) -> str:
        """Predict a run's step with other settings; `only` names scenarios, such as `buffers,links`. JSON."""
        words = [] if only is None else [f"--only={only}"]
        return self._printed("whatif", self._place(run), "--json", *words)

    def doctor(self) -> str:
        """Say what this machine can record, and what is missing for what. JSON."""
        return self._printed("doctor", "--json")

    def _place(self, run: str) -> str:
        """Return the path of a run. Raises ToolError where it is outside of the root."""
        from mcp.server.mcpserver.exceptions import ToolError

        from tracer.reading import leads_out

        try:
            path = (self._root / run).resolve()
        except (OSError, ValueError) as error:
            raise ToolError(f"{run!r} is no path ({error}): name a folder of traces below {self._root}") from error
        # Beside a file lie links.json and the like, which are read with it.
        folder = path if path.is_dir() else path.parent
        if not path.is_relative_to(self._root) or leads_out(folder, self._root) is not None:
            raise ToolError(f"{run} is not below {self._root}, or holds a link that leads out of it: name another run")
        if path.exists() and not (path.is_dir() or path.is_file()):
            raise ToolError(f"{run} is neither a folder nor a file: name another run")
        return str(path)

    def _printed(self, *words: str) -> str:
        """Return what a command prints, and what its condition comes to. Raises ToolError with its line of error."""
        from mcp.server.mcpserver.exceptions import ToolError

        if any("\0" in word for word in words):
            raise ToolError("an argument holds a null character: leave it out")
        done = subprocess.run(
            [sys.executable, "-m", "tracer", *words],
            env=os.environ | safe_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if not done.stdout:
            raise ToolError(done.stderr.strip())
        return done.stdout + done.stderr
