"""Environment variables of reading: the cache's folder, a rank's memory."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tracer.errors import UsageError

# The default of --memory, for what has no such option too.
MEMORY = "TRACER_MEMORY"
# The folder of the cache, instead of the one that the platform has for such; `off`: none.
CACHE = "TRACER_CACHE"
# No machine reads in more processes.
MOST_PROCESSES = 4096
# Of a value that makes no sense so much is shown.
LONGEST_SHOWN = 60
SIZES = "give a size such as 500MB or 4GB"
_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)\s*([kMGT]?B)", re.IGNORECASE)
_MEMORY_UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def cache_folder() -> Path | None:
    """Return the folder in which what ranks say is kept, None for none. Raises UsageError."""
    said = os.environ.get(CACHE)
    if said is None:
        return default_folder(os.environ, sys.platform)
    if said in ("", "off"):
        return None
    if not Path(said).is_absolute():
        raise UsageError(f"{CACHE}: {said!r} is neither an absolute path of a folder nor `off`")
    return Path(said)


def memory() -> int | None:
    """Return what reading one rank may take, in bytes. Raises UsageError."""
    said = os.environ.get(MEMORY)
    return memory_size(said, f"{MEMORY}: ") if said else None


def memory_size(text: str, named: str = "") -> int:
    """Parse a size of memory, `500MB` or `4GB`, in powers of 1000. Raises UsageError that begins with what is named."""
    match = _MEMORY.fullmatch(text.strip())
    nbytes = int(float(match[1]) * _MEMORY_UNITS[match[2].upper()]) if match is not None else 0
    if not nbytes:
        raise UsageError(f"{named}{text[:LONGEST_SHOWN] or repr(text)}: {SIZES}")
    return nbytes


def default_folder(environment: Mapping[str, str], platform: str) -> Path | None:
    """Return the user's folder for what can be made anew; None where the user has none."""
    if platform == "win32":
        local = environment.get("LOCALAPPDATA")
        return Path(local) / "tracer" / "cache" if local else None
    base = Path(environment.get("XDG_CACHE_HOME") or "")
    # By XDG's rules a relative path there counts for nothing.
    if platform != "darwin" and base.is_absolute():
        return base / "tracer"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if not home.is_absolute():
        return None  # it might lead into a run
    return home / "Library" / "Caches" / "tracer" if platform == "darwin" else home / ".cache" / "tracer"
