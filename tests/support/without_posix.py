"""Windows as far as tracer sees it: its modules find neither what only POSIX has, nor /proc.

python -m tests.support.without_posix RUN    what COMMANDS print and write, as files of the current folder
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import io
import os
import signal
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

# Processes that are spawned begin by this module's name, too, and see the same.
IS_HIDDEN = "TRACER_TESTS_WITHOUT_POSIX"
OURS = ("analyzers", "tracer")
ABSENT = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
UNSEEN = ("/proc", "/sys")
# As Python's documentation has them ("Availability: Unix"), by how they begin.
POSIX_ALONE = {
    "os": """chown chroot confstr copy_file_range ctermid eventfd fchdir fchmod fchown fdatasync fork fpathconf fstatvfs
        getegid geteuid getgid getgroups getgrouplist getloadavg getpg getpriority getres getsid getuid getxattr
        initgroups killpg lchown listxattr lockf login_tty major makedev memfd minor mkfifo mknod nice openpty
        pathconf pidfd pipe2 posix_ pread pwrite readv register_at_fork removexattr sched_ sendfile set_blocking seteuid
        setegid setgid setgroups setpg setpriority setre setres setsid setuid setxattr splice statvfs sync sysconf
        tcget tcset ttyname uname unshare wait3 wait4 waitid writev O_ASYNC O_CLOEXEC O_DIRECT O_DSYNC O_EXLOCK
        O_LARGEFILE O_NDELAY O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC O_SHLOCK O_SYNC O_TMPFILE""",
    "signal": """alarm getitimer ITIMER pause pidfd_send pthread_ setitimer SIG_BLOCK SIG_SETMASK SIG_UNBLOCK SIGALRM
        SIGBUS SIGCHLD SIGCLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRT SIGSTKFLT
        SIGSTOP SIGSYS SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ
        siginterrupt sigpending sigtimedwait sigwait""",
}
MEMORY_BYTES = 64_000_000_000
# By the name of what they print. Two processes, which are started, read the first one's ranks.
COMMANDS: Mapping[str, str] = {
    "report.txt": "report RUN --workers 2 --html report.html",
    "report.json": "report RUN --workers 1 --json --notes",
    "full.txt": "report RUN --workers 1 --full",
    "compare.txt": "compare report.json RUN --workers 1 --html compare.html",
    "whatif.txt": "whatif RUN --workers 1",
    "plot.txt": "plot RUN --workers 1 --kind breakdown -o breakdown.svg",
}


class _Seen(ModuleType):
    """A module as ours see it: some names are others, some are missing."""

    def __init__(self, module: ModuleType, others: Mapping[str, object], missing: tuple[str, ...] = ()) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(_module=module, _missing=missing, **others)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(self._missing):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._module, name)


def _fill_memory_status(status: Any) -> int:
    struct.pack_into("Q", status, 8, MEMORY_BYTES)
    return struct.unpack_from("I", status)[0] == len(status)


def hide_posix() -> None:
    """Let modules of ours see Windows from now on."""
    kernel = SimpleNamespace(kernel32=SimpleNamespace(GlobalMemoryStatusEx=_fill_memory_status))
    seen = {
        "os": _Seen(os, {"name": "nt"}, tuple(POSIX_ALONE["os"].split())),
        "signal": _Seen(signal, {}, tuple(POSIX_ALONE["signal"].split())),
        "sys": _Seen(sys, {"platform": "win32"}),
        "ctypes": _Seen(ctypes, {"windll": kernel}),
    }
    importing = builtins.__import__

    def imported(name: str, globals: Any = None, *rest: Any, **more: Any) -> Any:  # noqa: A002  # its name is fixed
        is_ours = str((globals or {}).get("__name__")).partition(".")[0] in OURS
        return seen[name] if is_ours and name in seen else importing(name, globals, *rest, **more)

    builtins.__import__ = imported
    sys.modules.update(dict.fromkeys(ABSENT))
    sys.addaudithook(_refuse_unseen)


def _refuse_unseen(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(UNSEEN):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


def main(run: str) -> int:
    """Run all commands; the exit code of the first that fails."""
    from tracer.cli import main as tracer

    for name, words in COMMANDS.items():
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = tracer([run if word == "RUN" else word for word in words.split()])
        if code:
            return code
        Path(name).write_text(said.getvalue(), encoding="utf-8")
    return 0


if IS_HIDDEN in os.environ:
    hide_posix()
if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
