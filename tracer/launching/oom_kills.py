"""Processes killed by the kernel for want of memory, by cgroup."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from analyzers.paths import read_text

CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# By hierarchy: the file that counts, of cgroups version 2 (cgroup-v2.rst, memory.events) and 1 (cgroup-v1/memory.rst).
COUNTERS = {"": "memory.events", "memory": "memory.oom_control"}


def oom_kills() -> int | None:
    """Return how many processes of this one's cgroup the kernel has killed so far; None where it does not say."""
    with suppress(OSError, ValueError):
        for line in read_text(OWN).splitlines():
            _, controllers, path = line.split(":", 2)
            for hierarchy in COUNTERS.keys() & controllers.split(","):
                root = CGROUPS / hierarchy
                # A container has its own cgroup where others have the root.
                for folder in (root / path.lstrip("/"), root):
                    with suppress(OSError):
                        if count := re.search(
                            r"^oom_kill (\d+)$", read_text(folder / COUNTERS[hierarchy]), re.MULTILINE
                        ):
                            return int(count[1])
    return None
