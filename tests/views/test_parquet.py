"""Rows of runs as Parquet: the report's own, read back by pandas and by DuckDB."""

import shutil
import sys

import msgspec
import pandas as pd
import pytest

from tests.support.commands import fails
from tests.support.samples import SAMPLES, reported
from tracer.cli import main
from tracer.views.parquet import ROWS_SCHEMA, TABLES

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[parquet]'")
pytestmark = pytest.mark.usefixtures("remembered")

# Kinds of parallelism, ranks and devices of which different columns are null.
NAMES = ["every-collective4", "resnet18-ddp2-sick", "resnet18-ddp1", "resnet18-dp4"]


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        assert main(["export", str(SAMPLES / name), "-o", str(tmp_path / "runs.parquet")]) == 0
    return tmp_path / "runs.parquet"


def rows(name: str, table: str) -> list[dict]:
    document = reported(SAMPLES / name)
    return [{"run": name} | msgspec.to_builtins(parts[-1]) for parts in TABLES[table][1](document)]


@pytest.mark.parametrize("table", TABLES)
def test_pandas_reads_all_runs_of_a_table_as_one(folder, table):
    frame = pd.read_parquet(folder / table)
    expected = [row for name in NAMES for row in rows(name, table)]
    assert frame.columns[:3].tolist() == ["run", "rank", "step"]
    assert sorted(frame["run"]) == sorted(row["run"] for row in expected)
    for column in set(frame.columns) & {"span_ns", "ns", "gain_ns", "caused_ns", "transfer_ns", "start_ns"}:
        known = sorted(row[column] for row in expected if row.get(column) is not None)
        assert (table == "collectives" and column == "start_ns") or sorted(frame[column].dropna()) == known


def test_columns_are_flat_and_typed_though_one_run_has_none_of_them(folder):
    windows, advice = (pd.read_parquet(folder / table) for table in ("windows", "advice"))
    idle = windows.filter(regex=r"^idle_\w+_ns$").sum(axis=1)
    assert (idle == windows["idle_ns"]).all()
    assert windows["span_ns"].dtype == "int64" and windows["typical"].dtype == "bool"
    assert set(windows["device"]) >= {"0", "3"}
    sick = advice[advice["run"] == "resnet18-ddp2-sick"]
    assert sick["rank"].tolist()[0] == 1 and sick["step"].isna().all()


def test_duckdb_reads_it_with_a_line(folder):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")
    found = duckdb.sql(
        f"select run, rank, sum(caused_ns) from '{folder}/waiting/*.parquet' group by all order by 3 desc"
    ).fetchall()
    expected = {}
    for name in NAMES:
        for row in rows(name, "waiting"):
            expected[name, row["rank"]] = expected.get((name, row["rank"]), 0) + row["caused_ns"]
    assert {(run, rank): caused for run, rank, caused in found} == expected
    late = duckdb.sql(
        f"select rank from '{folder}/collectives/*.parquet' where run = 'resnet18-ddp2-sick' "
        "group by rank order by sum(wait_ns) limit 1"
    ).fetchall()
    assert late == [(1,)]


def test_a_file_says_its_schema_and_is_the_same_each_time(folder, tmp_path):
    import pyarrow.parquet

    file = folder / "charges" / "resnet18-ddp1.parquet"
    assert pyarrow.parquet.read_schema(file).metadata[b"schema"].decode() == ROWS_SCHEMA
    before = file.read_bytes()
    assert main(["export", str(SAMPLES / "resnet18-ddp1"), "-o", str(folder), "--force"]) == 0
    assert file.read_bytes() == before


def test_nothing_is_overwritten_in_part(folder, capsys):
    capsys.readouterr()
    (folder / "windows" / "resnet18-ddp1.parquet").unlink()
    code, err = fails(capsys, "export", str(SAMPLES / "resnet18-ddp1"), "-o", str(folder))
    assert code == 1 and "--force" in err
    assert not (folder / "windows" / "resnet18-ddp1.parquet").exists()


def test_what_it_cannot_do_is_a_line(tmp_path, monkeypatch, capsys):
    output = str(tmp_path / "runs.parquet")
    code, err = fails(capsys, "export", str(SAMPLES / "resnet18-ddp1"), "-o", output, "--ranks", "0")
    assert code == 2 and "--ranks" in err
    shutil.copytree(SAMPLES / "resnet18-ddp1", tmp_path / "_copy")
    code, err = fails(capsys, "export", str(tmp_path / "_copy"), "-o", output)
    assert code == 1 and "rename" in err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, err = fails(capsys, "export", str(SAMPLES / "resnet18-ddp1"), "-o", output)
    assert code == 1 and "pip install 'tracer-toolkit[parquet]'" in err
