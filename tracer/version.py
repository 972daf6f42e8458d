"""The version of the toolkit, as setup.cfg reads it."""

from __future__ import annotations

VERSION = "0.1.0"
