"""Ports of this machine that nobody listens on."""

from __future__ import annotations

import socket

from tracer.serving.files import LOOPBACK


def free_port() -> int:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        return free.getsockname()[1]
