"""Fuzzing of whole commands: each file that they read, damaged, and the law of how they end.

A command ends with 0, or with 1 and one line that names the file; within its CPU seconds and its memory, without a
traceback, and it writes nothing outside its own folder. Of a file with a checksum, a report has the whole one's
figures, or says what was lost.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tarfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from analyzers.run.manifest import SWEEP
from tests.support.mutators import (
    ARCHIVES,
    CALIBRATIONS,
    ENTRIES,
    MANIFESTS,
    REPORTS,
    SWEEPS,
    TRACES,
    UNSEALED,
    mutated,
)
from tests.support.samples import SAMPLES
from tests.support.sweeping import write_cell, write_sweep
from tracer.cli import main
from tracer.reading.cache import identity

MOST_CPU_S = 20
MOST_BYTES = 1 << 30
_ZSTANDARD_BLOCK = 1 << 17
RUN = SAMPLES / "skew-memory"


def _by_one(*commands: str) -> tuple[str, ...]:
    """Commands that read in this process alone."""
    return tuple(f"{words} --workers 1" for words in commands)


OF_RUN = _by_one(
    "report {run} --json --html {out}/p.html",
    "report {run} --full",
    "report {run} --csv {out}",
    "compare {run} {other} --html {out}/p.html",
    "whatif {run} --json",
    "export {run} -o {out}/p.pftrace",
    "plot {run} --kind breakdown -o {out}/p.svg",
    "plot {run} --kind timeline -o {out}/p.svg",
)
OF_REPORT = _by_one(
    "compare {file} {whole} --json",
    "compare {whole} {file} --full",
    "compare {whole} {file} --html {out}/p.html",
)
OF_LINKS = _by_one(
    "report {run} --links {file} --json",
    "whatif {run} --links {file} --json",
    "plot {run} --kind bandwidth --links {file} -o {out}/p.svg",
    "export {run} --links {file} -o {out}/p.pftrace",
)
OF_SWEEP = (
    "sweep --report {run} -o {out}/study",
    "sweep --report {run} --json",
    *_by_one("compare {run} {run} --json"),
)


@dataclass(frozen=True)
class Kind:
    """Files of one kind: what they are called in a folder, the whole ones, and which commands read them."""

    name: str
    file: str
    documents: list[bytes]
    commands: tuple[str, ...]
    folder: Path = RUN


def kinds(folder: Path) -> dict[str, Kind]:
    """All kinds, whose whole files are made in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    report, cache = folder / "whole.json", folder / "cache"
    with _kept_in(cache), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        main(["report", str(RUN), "--json", "-o", str(report), "--force"])
        main(["report", str(RUN), "--html", str(folder / "p.html"), "--force"])
    trace = gzip.decompress((RUN / "rank0.json.gz").read_bytes())
    manifests = [path.read_bytes() for path in sorted(SAMPLES.glob("*/run.json"))]
    links = [path.read_bytes() for path in sorted(SAMPLES.glob("*/links.json"))]
    entry = sorted(cache.glob("*.rank"))[0]
    cells = [write_cell(folder / "sweep", strategy, gpus, 8) for strategy, gpus in (("single", 1), ("ddp", 2))]
    sweep = write_sweep(folder / "sweep", cells)
    listed = [
        Kind(TRACES, "rank0.json", [trace], OF_RUN),
        Kind(MANIFESTS, "run.json", manifests, OF_RUN),
        Kind(REPORTS, "report.json", [report.read_bytes()], OF_REPORT),
        Kind(CALIBRATIONS, "links.json", links, (*OF_LINKS, *OF_RUN)),
        Kind(SWEEPS, SWEEP, [(sweep / SWEEP).read_bytes()], OF_SWEEP, sweep),
        Kind(ENTRIES, f"cache/{entry.name}", [entry.read_bytes()], OF_RUN),
        Kind(ARCHIVES, "rank0.json.gz", [*_archives(trace)], OF_RUN),
        Kind(UNSEALED, "rank0.json.gz", [_zstandard(trace), _tar(trace)], OF_RUN),
    ]
    return {kind.name: kind for kind in listed}


def _archives(trace: bytes) -> Iterator[bytes]:
    yield gzip.compress(trace, mtime=0)
    for how in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", how) as archive:
            archive.writestr(zipfile.ZipInfo("rank0.json"), trace, how)
        yield file.getvalue()


def _tar(data: bytes) -> bytes:
    member = tarfile.TarInfo("rank0.json")
    member.size = len(data)
    with tarfile.open(fileobj=(file := io.BytesIO()), mode="w") as archive:
        archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def _zstandard(data: bytes) -> bytes:
    """A frame of Zstandard whose blocks are stored as they are (RFC 8878), which needs no program that compresses."""
    frame = b"\x28\xb5\x2f\xfd\xa0" + len(data).to_bytes(4, "little")
    starts = range(0, len(data), _ZSTANDARD_BLOCK)
    for start in starts:
        block = data[start : start + _ZSTANDARD_BLOCK]
        frame += (len(block) << 3 | (start == starts[-1])).to_bytes(3, "little") + block
    return frame


@contextmanager
def _kept_in(cache: Path) -> Iterator[None]:
    with mock.patch.dict(os.environ, TRACER_CACHE=str(cache)), mock.patch.object(identity, "SETTLED_S", 0.0):
        yield


class TooSlow(BaseException):
    """A command went on beyond its CPU seconds; no handler of Exception takes it."""


def _too_slow(*_: object) -> None:
    raise TooSlow(f"more than {MOST_CPU_S} CPU seconds")


@contextmanager
def _bounded() -> Iterator[None]:
    """Bound what this process may take, from here on."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGPROF, _too_slow)
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_BYTES, before[1]))
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def judged(kind: Kind, number: int, seed: int, folder: Path) -> str:
    """How one case ends; what goes wrong begins with "wrong"."""
    chance = random.Random(f"{kind.name} {seed} {number}")
    done, data = mutated(kind.name, chance.choice(kind.documents), chance)
    case = folder / "case"
    shutil.rmtree(case, ignore_errors=True)
    run = Path(shutil.copytree(kind.folder, case / "run"))
    file, out = run / kind.file, case / "out"
    if kind.name == TRACES:
        (run / "rank0.json.gz").unlink()
    if kind.name == ENTRIES:
        file = case / kind.file
        file.parent.mkdir(mode=0o700)
        run = RUN
    out.mkdir()
    file.write_bytes(data)
    words = chance.choice(kind.commands).format(run=run, file=file, other=RUN, whole=folder / "whole.json", out=out)
    before = _listed(folder, out)
    with _kept_in(file.parent) if kind.name == ENTRIES else _kept_in(out / "cache"):
        # A run that is whole is refused by its name.
        said, printed = _ended(words.split(), [file.name, str(run), f"tracer: {run.name}: "])
    has_checksum = kind.name == ARCHIVES or (kind.name == ENTRIES and "forge" not in done)
    if said == "reported" and has_checksum and "--json" in words and words.startswith("report"):
        said = compared(json.loads(printed), json.loads((folder / "whole.json").read_text()))
    if not said.startswith("wrong") and (more := _listed(folder, out) - before) and kind.name != ENTRIES:
        said = f"wrong: wrote {sorted(map(str, more))}"
    return f"{said} ({done}: tracer {words})" if said.startswith("wrong") else said


def _listed(folder: Path, but: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.is_relative_to(but)}


def compared(report: dict[str, Any], whole: dict[str, Any]) -> str:
    """How a report ended, beside the whole run's: without a word it has the same figures."""
    is_silent = report["run"]["warnings"] == whole["run"]["warnings"]
    is_other = report["windows"] != whole["windows"]
    return "wrong: other figures, and no word of it" if is_silent and is_other else "reported"


def _ended(words: list[str], named: list[str]) -> tuple[str, str]:
    """Run a command in this process: how it ended, held against the law, and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err), _bounded():
            code = main(words)
    except (Exception, SystemExit, TooSlow) as error:
        frame = traceback.extract_tb(sys.exc_info()[2])[-1]
        return f"wrong: {type(error).__name__}: {error!s:.200} at {frame.filename}:{frame.lineno}", ""
    return _told(words, named, code, out.getvalue(), err.getvalue()), out.getvalue()


def _told(words: list[str], named: list[str], code: int, out: str, err: str) -> str:
    lines = err.splitlines()
    if "Traceback" in err or code not in (0, 1):
        return f"wrong: ended with {code}: {err[-300:]}"
    refusal = lines[-1] if lines else ""
    if code == 1 and not (refusal.startswith("tracer: ") and any(name in refusal for name in named)):
        return f"wrong: names no file: {lines}"
    if code == 0 and "--json" in words:
        try:
            json.loads(out, parse_constant=_no_json)
        except ValueError as error:
            return f"wrong: no JSON: {error}"
    return "reported" if code == 0 else "refused in a line"


def _no_json(constant: str) -> None:
    raise ValueError(constant)


def fuzz_commands(kind: str, numbers: range, seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """Judge these cases: how they went, and what went wrong, by number."""
    of = kinds(folder)[kind]
    went, wrong = Counter[str](), []
    for number in numbers:
        said = judged(of, number, seed, folder)
        went[said.partition(":")[0]] += 1
        wrong += [f"{number}: {said}"] if said.startswith("wrong") else []
    return went, wrong
