"""TensorBoard as a process that answers no foreign name.

`python -m tracer.serving.tensorboard_process FLAGS`, with the path below which it serves in the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from tensorboard import default, main_lib, program
from werkzeug.serving import WSGIRequestHandler

from tracer.serving.files import names_this_machine
from tracer.serving.tensorboard import ROOT

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def for_this_machine(app: App) -> App:
    """Return an application that answers as another does, but to no request under a foreign name: DNS rebinding.

    Nor one for a path that TensorBoard, which has none such, would print on stderr with what steers a terminal.
    """

    def answer(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        host, path = request.get("HTTP_HOST"), request.get("PATH_INFO", "")
        if not names_this_machine([host] if host else None):
            return _refuse(start, HTTPStatus.MISDIRECTED_REQUEST)
        if not (path.isascii() and path.isprintable()):
            return _refuse(start, HTTPStatus.NOT_FOUND)
        return app(request, start)

    return answer


def _refuse(start: Callable[..., Any], status: HTTPStatus) -> Iterable[bytes]:
    start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain")])
    return [f"{status.description}\n".encode()]


class Requests(WSGIRequestHandler):
    """Takes no target but a path, as a whole URL names a host of its own, and logs nothing: stderr is for people."""

    protocol_version = "HTTP/1.1"  # as TensorBoard's own: connections are kept

    def parse_request(self) -> bool:
        """Whether the request is one to answer."""
        is_read = super().parse_request()
        if is_read and not self.path.startswith("/"):
            self.send_error(HTTPStatus.BAD_REQUEST)
            return False
        return is_read

    def log_request(self, *_: Any) -> None:
        """It would parse what is no path."""

    def log(self, *_: Any) -> None:
        """Nothing."""


def _server(app: App, flags: Any) -> Any:
    server = program.create_port_scanning_werkzeug_server(for_this_machine(app), flags)
    server.RequestHandlerClass = Requests
    return server


def main(flags: list[str]) -> int:
    """Serve until interrupted; returns TensorBoard's exit code."""
    # Every user may read what TensorBoard says of itself in /tmp, if not for the mask.
    os.umask(0o077)
    root = os.environ.pop(ROOT)
    main_lib.global_init()
    board = program.TensorBoard(plugins=default.get_plugins(), server_class=_server)
    board.configure(("tensorboard", *flags, "--path_prefix", root))
    code: int = board.main()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
