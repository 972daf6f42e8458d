"""Ports of this machine: which nobody listens on, and who answers."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

from tracer.serving.files import LOOPBACK


def free_port() -> int:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        return free.getsockname()[1]


def answers(port: int) -> bool:
    """Whether there is a server of pages at a port, whatever it says."""
    try:
        urllib.request.urlopen(f"http://{LOOPBACK}:{port}/").close()
    except urllib.error.HTTPError:
        pass  # its root is not told
    except OSError:
        return False
    return True
