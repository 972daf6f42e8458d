"""Damaged, truncated, foreign and hostile databases: a line each, or all that is sound with what is lost."""

import gzip
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import analyzers
from analyzers.errors import AnalysisError, TooLarge, UnreadableTrace
from analyzers.notices import Code
from analyzers.nsys import database as reading
from tests.support import nsys_exports as nsys
from tests.support.nsys_exports import ROUNDS, ranks, write

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def changed(*statements: str):
    """An export after some SQL of another's."""

    def make(path: Path) -> None:
        with closing(sqlite3.connect(write(path, ranks()))) as database, database:
            for statement in statements:
                database.execute(statement)

    return make


def cut(nbytes: int):
    return lambda path: path.write_bytes(write(path, ranks()).read_bytes()[:nbytes])


def zeroed(path: Path) -> None:
    data = bytearray(write(path, ranks()).read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)


def beside(suffix: str):
    def make(path: Path) -> None:
        write(path, ranks())
        path.with_name(path.name + suffix).write_bytes(b"unfinished")

    return make


def without(*names: str):
    return lambda path: write(path, ranks(), without=names)


def many_processes(path: Path) -> None:
    kernels = [nsys.kernel(rank, nsys.GEMM, 1, 0, 9) for rank in range(1_100)]
    write(path, {KERNEL: kernels})


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE runs (id, metric)")


def misspelt(text: bytes):
    """A schema in which a table's name has other bytes."""

    def make(path: Path) -> None:
        path.write_bytes(
            write(path, ranks()).read_bytes().replace(b"TABLE NVTX_EVENTS", b"TABLE NVTX" + text + b"EVENTS")
        )

    return make


RENAMED = f"ALTER TABLE {KERNEL} RENAME TO kernels"


def bomb(path: Path) -> None:
    """A table of a few pages that all have the next one for each of their 60 children: 60**18 rows."""
    size = 512
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA page_size = {size}")
        for table, columns in nsys.TABLES.items():
            database.execute(f"CREATE TABLE {table} ({', '.join(columns.split())})")
        database.execute(f"INSERT INTO {KERNEL} (start) VALUES (1)")
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (KERNEL,)).fetchone()
    data = path.read_bytes()
    leaf, pages = data[(root - 1) * size : root * size], [*range(len(data) // size + 1, len(data) // size + 19)]
    chain = [root, *pages]
    data = bytearray(data) + bytes(size * len(pages))
    for page, following in pairwise(chain):
        cells = b"".join(following.to_bytes(4, "big") + bytes([key]) for key in range(1, 61))
        begin = size - len(cells)
        head = b"\5\0\0" + (60).to_bytes(2, "big") + begin.to_bytes(2, "big") + b"\0" + following.to_bytes(4, "big")
        places = b"".join((begin + 5 * cell).to_bytes(2, "big") for cell in range(60))
        data[(page - 1) * size : page * size] = (head + places).ljust(begin, b"\0") + cells
    data[(chain[-1] - 1) * size :] = leaf
    data[28:32] = (len(data) // size).to_bytes(4, "big")
    path.write_bytes(data)


REFUSED = {
    "a table that never ends": (bomb, "too much work|more rows than"),
    "empty": (lambda path: path.write_bytes(b""), "not a trace"),
    "a head alone": (lambda path: path.write_bytes(b"SQLite format 3\0"), "damaged"),
    "garbage behind the head": (lambda path: path.write_bytes(b"SQLite format 3\0" + b"\x81" * 9_000), "damaged"),
    "cut within the first page": (cut(700), "damaged"),
    "cut in half": (cut(20_000), "damaged"),
    "pages of zeros": (zeroed, "damaged"),
    "packed": (lambda path: path.write_bytes(gzip.compress(write(path, ranks()).read_bytes())), "not packed or piped"),
    "a schema that is no text": (misspelt(b"\xff"), "damaged"),
    "a schema of several lines": (misspelt(b"\n"), "damaged"),
    "a journal": (beside("-journal"), "has not ended"),
    "a log": (beside("-wal"), "has not ended"),
    "another program's": (foreign, "none that Nsight Systems made"),
    "no strings": (without("StringIds"), "none that Nsight Systems made"),
    "no starts": (without(f"{KERNEL}.start"), f"{KERNEL} lacks start .*2026.2.1.210, schema 3.25.0"),
    "no texts": (without("NVTX_EVENTS.text"), "NVTX_EVENTS lacks text"),
    "no kernels": (without(KERNEL), "no device activity"),
    "a view of kernels": (changed(RENAMED, f"CREATE VIEW {KERNEL} AS SELECT * FROM kernels"), "no device activity"),
    "a virtual table": (
        changed(f"DROP TABLE {KERNEL}", f"CREATE VIRTUAL TABLE {KERNEL} USING fts5(start)"),
        "no device activity",
    ),
    "a computed column": (
        changed(
            RENAMED,
            f"CREATE TABLE {KERNEL} (globalPid, end, start AS (hex(zeroblob(999))))",
            f"INSERT INTO {KERNEL} SELECT globalPid, end FROM kernels",
        ),
        f"{KERNEL} lacks .*start",
    ),
    "a view of strings": (
        changed("ALTER TABLE StringIds RENAME TO s", "CREATE VIEW StringIds AS SELECT * FROM s"),
        "none that Nsight Systems made",
    ),
    "thousands of processes": (many_processes, "1,100 processes"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_export_is_refused_in_a_line(tmp_path, kind):
    make, words = REFUSED[kind]
    path = tmp_path / "report1.sqlite"
    make(path)
    with pytest.raises(AnalysisError, match=words) as refused:
        analyzers.load(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


HARMLESS = {
    "a trigger": (f"CREATE TRIGGER t AFTER INSERT ON {KERNEL} BEGIN SELECT 1; END",),
    "an index of expressions": (f"CREATE INDEX i ON {KERNEL} (abs(start))",),
    "a view beside": ("CREATE VIEW v AS SELECT randomblob(999999999)",),
    "a keyword": ('CREATE TABLE "order" ("group")',),
    "a name in quotes": ('CREATE TABLE "a "" b; --" (x)',),
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_else_is_in_a_database_is_passed_over(tmp_path, kind):
    path = tmp_path / "report1.sqlite"
    changed(*HARMLESS[kind])(path)
    assert [int(rank.events.on_device.sum()) for rank in analyzers.load(path).ranks] == [2 * ROUNDS + 1] * 2


ODD = {
    "a text": "start = 'soon'",
    "a number as text": "start = '12'",
    "nothing": "deviceId = NULL",
    "a fraction": "end = 2.5",
    "bytes": "streamId = x'00'",
    "a time beyond all": "end = 9223372036854775807",
}


@pytest.mark.parametrize("kind", ODD)
def test_rows_whose_values_are_none_are_left_out_and_said(tmp_path, kind):
    path = tmp_path / "report1.sqlite"
    changed(f"UPDATE {KERNEL} SET {ODD[kind]} WHERE rowid = 3")(path)
    run = analyzers.load(path)
    assert [int(rank.events.on_device.sum()) for rank in run.ranks] == [2 * ROUNDS, 2 * ROUNDS + 1]
    (said,) = [warning.text for warning in run.warnings if warning.code == Code.TRACE_INCOMPLETE]
    assert "not read: 1 rows of which a value is no whole number, or no time" in said


def test_payloads_that_fit_no_schema_are_said(tmp_path):
    path = tmp_path / "report1.sqlite"
    changed("UPDATE NVTX_EVENTS SET binaryData = x'0102' WHERE textId = 5")(path)
    run = analyzers.load(path)
    assert f"{2 * ROUNDS} payloads of NCCL's that fit no schema" in " ".join(said.text for said in run.warnings)


@pytest.mark.parametrize("change", ["offset = 1 << 60", "offset = -9", "type = 99", "name = NULL", "type = 'x'"])
def test_odd_schemas_give_no_wrong_sizes(tmp_path, change):
    path = tmp_path / "report1.sqlite"
    changed(f"UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET {change} WHERE schemaId = {nsys.MESSAGE} AND idx = 1")(path)
    calls = [call for rank in analyzers.load(path).ranks for call in rank.events.calls]
    assert {call.elements for call in calls} <= {-1, 2_000} | ({2 * nsys.COMMUNICATOR} if "-9" in change else set())


def test_a_database_in_another_encoding_is_read(tmp_path):
    source, path = write(tmp_path / "a.sqlite", ranks()), tmp_path / "b.sqlite"
    with closing(sqlite3.connect(source)) as written, closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA encoding = 'UTF-16'")
        database.executescript("\n".join(written.iterdump()))
    assert len(analyzers.load(path).ranks) == 2


def test_a_file_that_asks_for_too_much_work_or_rows_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "report1.sqlite", ranks())
    with monkeypatch.context() as limited:
        limited.setattr(reading, "_TICK", 10)
        limited.setattr(reading, "_FREE_TICKS", 20)
        with pytest.raises(UnreadableTrace, match="too much work"):
            analyzers.load(path)
    with monkeypatch.context() as limited:
        limited.setattr(reading, "_LEAST_ROW_BYTES", 1 << 20)
        with pytest.raises(UnreadableTrace, match="more rows than it has bytes"):
            analyzers.load(path)
    with pytest.raises(TooLarge, match="rows of it"):
        analyzers.load(path, memory=5_000)
