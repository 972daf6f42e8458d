"""Rows of runs as Parquet: the report's tables, read back by pandas and by DuckDB."""

import shutil
import sys

import pandas as pd
import pytest

from analyzers.reporting import TABLES
from tests.support.commands import fails
from tests.support.samples import SAMPLES, reported
from tracer.cli import main
from tracer.views.rows import ROWS_SCHEMA
from tracer.views.rows.folder import run_key

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[parquet]'")
pytestmark = pytest.mark.usefixtures("remembered")

# Kinds of parallelism, ranks and devices of which different columns are null.
NAMES = ["every-collective4", "resnet18-ddp2-sick", "resnet18-ddp1", "resnet18-dp4"]


def key(name: str, folder) -> str:
    return run_key(SAMPLES / name, folder)


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        assert main(["export", str(SAMPLES / name), "-o", str(tmp_path / "runs.parquet")]) == 0
    return tmp_path / "runs.parquet"


def test_pandas_reads_all_runs_of_a_table_as_one_with_the_frames_columns(folder):
    for name, table in TABLES.items():
        found = pd.read_parquet(folder / name)
        keys = ["run", "rank", "step"]
        assert found.columns.tolist() == [*keys, *(column for column in table.columns if column not in keys)]
        for run in NAMES:
            records, own = [*table.records(reported(SAMPLES / run))], found[found["run"] == key(run, folder)]
            assert len(own) == len(records)
            for place, (column, (_, kind)) in enumerate(table.columns.items()):
                expected = [kind(record[place]) for record in records if record[place] is not None]
                assert own[column].dropna().tolist() == expected, (name, column)


def test_columns_are_typed_though_one_run_has_none_of_them(folder):
    windows, advice = (pd.read_parquet(folder / table) for table in ("windows", "advice"))
    idle = windows.filter(regex=r"^idle_\w+_ns$").sum(axis=1)
    assert (idle == windows["idle_ns"]).all()
    assert windows["span_ns"].dtype == "int64" and windows["typical"].dtype == "bool"
    assert set(windows["device"]) >= {"0", "3"}
    sick = advice[advice["run"] == key("resnet18-ddp2-sick", folder)]
    assert sick["rank"].tolist()[0] == 1 and sick["step"].isna().all()
    assert (sick["interval_ns_low"].dropna() <= sick["gain_ns"].dropna()).all()


def test_duckdb_reads_it_with_a_line(folder):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")
    found = duckdb.sql(f"select run, rank, sum(caused_ns) from '{folder}/waiting/*.parquet' group by all").fetchall()
    expected = {}
    for name in NAMES:
        for row in reported(SAMPLES / name).waiting:
            place = key(name, folder), row.rank
            expected[place] = expected.get(place, 0) + row.caused_ns
    assert {(run, rank): caused for run, rank, caused in found} == expected
    late = duckdb.sql(
        f"select rank from '{folder}/members/*.parquet' where run like '%resnet18-ddp2-sick' "
        "group by rank order by sum(wait_ns) limit 1"
    ).fetchall()
    assert late == [(1,)]


def test_runs_of_one_name_stand_beside_each_other_by_their_paths(tmp_path):
    places = ["0001/trace", "a/b+trace", "a+b/trace", "_0002/trace"]
    runs = tmp_path / "runs.parquet"
    for place in places * 2:
        run = tmp_path / place
        if not run.exists():
            shutil.copytree(SAMPLES / "resnet18-ddp1", run)
        assert main(["export", str(run), "-o", str(runs), "--force"]) == 0
    (tmp_path / "elsewhere").mkdir()
    assert main(["export", str(tmp_path / places[0]), "-o", str(tmp_path / "elsewhere" / "runs.parquet")]) == 0
    windows = pd.read_parquet(runs / "windows")
    assert windows["run"].value_counts().to_dict() == dict.fromkeys(places, len(windows) // len(places))
    outside = pd.read_parquet(tmp_path / "elsewhere" / "runs.parquet" / "windows")
    assert set(outside["run"]) == {str((tmp_path / places[0]).resolve())}
    assert (runs / "windows" / "0001+trace.parquet").exists()
    assert run_key(tmp_path, runs) == str(tmp_path.resolve())


def the_file(folder, table: str):
    (file,) = (folder / table).glob("*resnet18-ddp1.parquet")
    return file


def test_a_file_says_its_schema_and_is_the_same_each_time(folder):
    import pyarrow.parquet

    file = the_file(folder, "charges")
    assert pyarrow.parquet.read_schema(file).metadata[b"schema"].decode() == ROWS_SCHEMA
    before = file.read_bytes()
    assert main(["export", str(SAMPLES / "resnet18-ddp1"), "-o", str(folder), "--force"]) == 0
    assert file.read_bytes() == before


def test_nothing_is_overwritten_in_part(folder, capsys):
    capsys.readouterr()
    missing = the_file(folder, "windows")
    missing.unlink()
    code, err = fails(capsys, "export", str(SAMPLES / "resnet18-ddp1"), "-o", str(folder))
    assert code == 1 and "--force" in err
    assert not missing.exists()


def test_what_it_cannot_do_is_a_line(tmp_path, monkeypatch, capsys):
    output = str(tmp_path / "runs.parquet")
    code, err = fails(capsys, "export", str(SAMPLES / "resnet18-ddp1"), "-o", output, "--ranks", "0")
    assert code == 2 and "--ranks" in err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, err = fails(capsys, "export", str(SAMPLES / "resnet18-ddp1"), "-o", output)
    assert code == 1 and "pip install 'tracer-toolkit[parquet]'" in err
