"""Server of a few files, on loopback only.

A request is answered only if it came to the loopback address under that name (another name may have been made to lead
here by whoever owns it: DNS rebinding), if it holds the site's token (every user of this machine reaches the address),
and only with a file that was listed before.
"""

from __future__ import annotations

import mimetypes
import re
import shutil
import socket
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from analyzers.paths import open_file
from tracer.errors import TracerError

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
_NAMES = frozenset({LOOPBACK, "localhost"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::\d*)?")
# Python's own table: a system's may call JavaScript plain text, as Windows' registry does on some machines.
_TYPES = mimetypes.MimeTypes()
# 128 bits, as a name of 22 characters.
_TOKEN_BYTES = 16
_LAST_PORT = 65535
# How many ports behind a taken one are tried.
_TRIES = 100


def new_root() -> str:
    """Return a path that only those know who are told: `/` and a token."""
    return f"/{token_urlsafe(_TOKEN_BYTES)}"


@dataclass(frozen=True)
class Site:
    """Files by the paths of their URLs below the root, and the other origin, if any, whose pages may read them.

    `policy` is the content-security policy of all of them, if they do not bring their own.
    """

    files: Mapping[str, Path]
    reader: str | None = None
    policy: str | None = None
    root: str = field(default_factory=new_root, repr=False)


def files_of(folder: Path) -> dict[str, Path]:
    """Return a folder's files by their URLs' paths, `/` for its index, without links that lead out."""
    root = folder.resolve()
    inside = (path for path in sorted(root.rglob("*")) if path.is_file() and path.resolve().is_relative_to(root))
    files = {f"/{path.relative_to(root).as_posix()}": path for path in inside}
    return files | ({"/": files["/index.html"]} if "/index.html" in files else {})


@contextmanager
def server(site: Site, port: int, *, or_next: bool) -> Iterator[ThreadingHTTPServer]:
    """Serve a site on a port of the loopback address, or (`or_next`) the next that is free; closed at the end.

    Raises TracerError.
    """
    bound = _bound(site, port, or_next)
    try:
        yield bound
    finally:
        bound.server_close()


def _bound(site: Site, port: int, or_next: bool) -> ThreadingHTTPServer:
    return _first_bound(lambda number: _Server((LOOPBACK, number), partial(_Handler, site)), port, or_next)


def free_port(port: int, or_next: bool = True) -> int:
    """Return a port of the loopback address that is free, or the next where `or_next` allows it. Raises TracerError."""
    with _first_bound(lambda number: socket.create_server((LOOPBACK, number)), port, or_next) as free:
        return int(free.getsockname()[1])


def _first_bound(bind: Callable[[int], T], port: int, or_next: bool) -> T:
    last = min(port + _TRIES, _LAST_PORT) if or_next else port
    for number in range(port, last + 1):
        try:
            return bind(number)
        except OSError as error:
            reason = error.strerror or error
    raise TracerError(f"port {port} of {LOOPBACK}: {reason}; give another with --port, or end what has it")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # On Windows it would share a port that another program serves on.
    allow_reuse_address = sys.platform != "win32"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; the base answers 501 to all else."""

    server_version, sys_version = "tracer", ""
    timeout = 30  # seconds, after which a request that does not end is let go

    def __init__(self, site: Site, *request: Any) -> None:
        self.site = site
        super().__init__(*request)

    def do_GET(self) -> None:
        """A file."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """What there is to say of a file."""
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        if not names_this_machine(self.headers.get_all("Host")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, f"Only {LOOPBACK} is served here")
            return
        path = _path(self.path)
        inside = path is not None and path.startswith(f"{self.site.root}/")
        file = self.site.files.get(path[len(self.site.root) :]) if path is not None and inside else None
        try:
            opened = open_file(file) if file is not None else None
        except OSError:
            opened = None
        if file is None or opened is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with opened:
            self._send_headers(file, opened.seek(0, 2))
            opened.seek(0)
            if with_body:
                shutil.copyfileobj(opened, self.wfile)

    def _send_headers(self, file: Path, length: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _TYPES.guess_type(file.name)[0] or "application/octet-stream")
        self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if self.site.policy is not None:
            self.send_header("Content-Security-Policy", self.site.policy)
        if self.site.reader is not None:
            self.send_header("Access-Control-Allow-Origin", self.site.reader)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing: stderr is for people."""


def names_this_machine(hosts: list[str] | None, also: Collection[str] = (), *, any_address: bool = False) -> bool:
    """Whether a request's Host names this machine's loopback address, under whatever port (a tunnel may have another).

    `also` are further names, in small letters. `any_address` allows every address in figures: only a name can be made
    to lead elsewhere.
    """
    match = _HOST.fullmatch(hosts[0]) if hosts is not None and len(hosts) == 1 else None
    if match is None:
        return False
    name = match[1].lower()
    return name in _NAMES or name in also or (any_address and _is_address(name.strip("[]")))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _path(target: str) -> str | None:
    """The path of a request's target, None for what is none: a whole URL names a host of its own."""
    try:
        return unquote(urlsplit(target).path) if target.startswith("/") else None
    except ValueError:
        return None
