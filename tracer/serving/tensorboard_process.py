"""TensorBoard as a process that answers no foreign name.

`python -m tracer.serving.tensorboard_process FLAGS`, with the path below which it serves in the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from tracer.serving.files import LOOPBACK, names_this_machine
from tracer.serving.tensorboard import ROOT

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def for_this_machine(app: App) -> App:
    """Return an application that answers as another does, but to no request under a foreign name: DNS rebinding."""

    def answer(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        host, path = request.get("HTTP_HOST"), request.get("PATH_INFO", "")
        status = HTTPStatus.MISDIRECTED_REQUEST
        if names_this_machine([host] if host else None):
            if path.isascii() and path.isprintable():
                return app(request, start)
            status = HTTPStatus.NOT_FOUND  # which TensorBoard would say on stderr, with what steers a terminal
        start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain")])
        return [f"Only {LOOPBACK} is served here\n".encode()]

    return answer


def refusing(handler: type[Any]) -> type[Any]:
    """Return a handler of requests that takes no target but a path, and logs nothing: stderr is for people."""

    class Refusing(handler):  # type: ignore[misc]  # werkzeug's, which has no types here
        def parse_request(self) -> bool:
            is_read: bool = super().parse_request()
            if is_read and not self.path.startswith("/"):
                self.send_error(HTTPStatus.BAD_REQUEST)
                return False
            return is_read

        def log_request(self, *_: Any) -> None:
            """It would parse what is no path."""

        def log(self, *_: Any) -> None:
            pass

    return Refusing


def _server(app: App, flags: Any) -> Any:
    from tensorboard import program

    server = program.create_port_scanning_werkzeug_server(for_this_machine(app), flags)
    server.RequestHandlerClass = refusing(server.RequestHandlerClass)
    return server


def main(flags: list[str]) -> int:
    """Serve until interrupted; returns TensorBoard's exit code."""
    # Every user may read what TensorBoard says of itself in /tmp, if not for the mask.
    os.umask(0o077)
    root = os.environ.pop(ROOT)
    from tensorboard import default, main_lib, program

    main_lib.global_init()
    board = program.TensorBoard(plugins=default.get_plugins(), server_class=_server)
    board.configure(("tensorboard", *flags, "--path_prefix", root))
    code: int = board.main()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
