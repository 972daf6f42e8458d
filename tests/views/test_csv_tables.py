"""CSV cells that a spreadsheet would run as formulas, or that steer what reads them."""

import csv
import io
from contextlib import nullcontext

import pandas as pd
import pytest

from analyzers.reporting import TABLES
from tests.support.commands import remember_samples
from tests.support.hostile import named
from tests.support.samples import SAMPLES, reported
from tracer.cli import main
from tracer.commands import report as command
from tracer.views import csv_text

FORMULA = "=cmd|' /C calc'!A0"
HOSTILE = [
    FORMULA, "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\0=1", "\x1b[31m", " =1", "\u00a0=1", "\u2028=1",
    "\uff1d1", "\uff0b1", "\uff0d1", "\uff201", "a\r=1", "a\n=1", "\x7f=1", "\x85=1", "'=1",
]  # fmt: skip
SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"
DDP4 = SAMPLES / "resnet18-ddp4"


def cells(text: str) -> list[list[str]]:
    """As a spreadsheet takes them: whatever ends a line ends a row, unless it is quoted."""
    return list(csv.reader(io.StringIO(text, newline="")))


def is_harmless(cell: str) -> bool:
    return cell.isprintable() and cell.strip()[:1] not in tuple(SIGNS)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_cell_begins_a_formula_or_steers(hostile):
    frame = pd.DataFrame({"name": [hostile, "aten::mm"], hostile: [hostile, None], "ns": [-1, 2]})
    rows = cells(csv_text(frame))
    assert len(rows) == 3
    assert all(is_harmless(cell) for row in rows for cell in row[:2])
    assert [row[2] for row in rows] == ["ns", "-1", "2"]
    assert list(frame) == ["name", hostile, "ns"] and frame["name"][0] == hostile, "the caller's own was changed"


def test_what_is_harmless_and_what_is_a_number_stays():
    frame = pd.DataFrame({
        "name": ["aten::mm", "a = b", "layer-1", "\N{LATIN SMALL LETTER E WITH ACUTE}", 'q"', "a,b", ""],
        "mixed": [-1, -2.5, None, True, "x", [1, -2], float("nan")], "ms": [-0.5, 1e-9, 0, float("nan"), 1, 2, 3],
    })  # fmt: skip
    frame["kind"] = pd.Categorical(["x", "y", "x", "x", "x", "y", None])
    assert csv_text(frame) == frame.to_csv(index=False)


def test_the_samples_tables_are_what_they_were():
    for table in TABLES.values():
        frame = table.frame(reported(DDP4))
        assert csv_text(frame) == frame.to_csv(index=False)


def test_names_of_a_trace_are_harmless_in_the_commands_tables(tmp_path, monkeypatch):
    remember_samples(monkeypatch)
    monkeypatch.setattr(command, "_reported", lambda *_: nullcontext((named(reported(DDP4), FORMULA), None)))
    assert main(["report", str(DDP4), "--csv", str(tmp_path / "tables"), "-o", str(tmp_path / "text")]) == 0
    tables = {file.name: cells(file.read_text()) for file in (tmp_path / "tables").iterdir()}
    assert f"'{FORMULA}" in {cell for row in tables["collectives.csv"] for cell in row}
    for rows in tables.values():
        assert not any(cell.startswith("=") for row in rows for cell in row)


def test_every_command_writes_its_tables_so():
    package = SAMPLES.parent / "tracer"
    writers = [file.name for file in package.rglob("*.py") if ".to_csv(" in file.read_text()]
    assert writers == ["csv_tables.py"]
