"""Memory: what this machine has, and the budget of reading one rank.

machine    |################################|  RAM, or the least limit of a cgroup or of the process
readers    |#######|#######|                |  half of it, shared by the processes that read at once
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analyzers.errors import Option, TooLarge
from analyzers.paths import Place, read_text, size
from analyzers.units import megabytes

# What readers take of a machine; the rest is the system's, and the report's that is made of what they read.
SHARE = 0.5
# Where the system does not say what it has.
ASSUMED_BYTES = 8_000_000_000
_MEMORY_LIMITS = {"": "memory.max", "memory": "memory.limit_in_bytes"}


@dataclass
class Budget:
    """Bytes that reading one rank's file may take, and the most that it took; what is over raises TooLarge."""

    file: Place
    limit: int
    peak: int = 0

    def check(self, nbytes: int, why: str) -> None:
        """Raise TooLarge where more is needed than there is."""
        self.peak = max(self.peak, nbytes)
        if nbytes > self.limit:
            raise TooLarge(
                f"{self.file} ({megabytes(size(self.file))}): reading {why} takes more than {megabytes(self.limit)} "
                "of memory, the budget of one rank; give it more with ",
                Option("memory", "SIZE"),
                " or TRACER_MEMORY, or read fewer ranks at once with ",
                Option("workers", 1),
            )


def budget_of(memory: int | None, readers: int = 1) -> int:
    """Return the bytes that one rank may take: those given, else the share of each of so many readers."""
    return int(machine_memory() * SHARE) // max(readers, 1) if memory is None else memory


def machine_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process can have: the machine's, or the least limit of its cgroups and its own."""
    limits = [*(list(_installed(root)) or list(_of_system())), *_of_cgroups(root), *_of_process()]
    return min(limits, default=ASSUMED_BYTES)


def give_back() -> None:
    """Give the system the memory that was freed, which glibc keeps for what is asked of it next; elsewhere do nothing.

    Reading leaves as much freed as a rank's columns take, between pieces that are still used.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], object] | None:
    import ctypes  # which most who import this do without

    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def cores() -> int:
    """Return how many cores the machine has: as many ranks are read at once where nobody says otherwise."""
    import multiprocessing  # which most who import this do without

    return multiprocessing.cpu_count()


def _installed(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemTotal":
            yield int(value.split()[0]) * 1024


def _of_system() -> Iterator[int]:
    """The machine's memory where there is no /proc: as Windows or the C library of another system says it."""
    if sys.platform == "win32":
        import ctypes

        # A MEMORYSTATUSEX: its length, the load in percent, then bytes, those that are installed first.
        status = ctypes.create_string_buffer(struct.pack("I60x", 64), 64)
        if ctypes.windll.kernel32.GlobalMemoryStatusEx(status):
            yield struct.unpack_from("Q", status, 8)[0]
    else:
        with suppress(OSError, ValueError):
            yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _of_cgroups(root: Path) -> Iterator[int]:
    """Limits of this process's cgroup and of those around it, of versions 1 and 2 alike."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        kind = "memory" if "memory" in controllers.split(",") else controllers
        if kind not in _MEMORY_LIMITS:
            continue
        # In a container the path may be the host's, which is not seen here: its own limit is then at the top.
        parts = [part for part in path.strip("/").split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            folder = root.joinpath("sys/fs/cgroup", kind, *parts[:depth])
            yield from (int(text) for text in _lines(folder / _MEMORY_LIMITS[kind]) if text.isdecimal())


def _of_process() -> list[int]:
    if sys.platform == "win32":
        return []
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if soft == resource.RLIM_INFINITY else [soft]


def _lines(file: Path) -> list[str]:
    try:
        return read_text(file).splitlines()
    except OSError:
        return []
