"""Ranks read by a real Dask cluster of processes, whose workers are killed."""

import marshal
import os
import pickle
import signal
import sys
from concurrent.futures import Future
from pathlib import Path

import dask
import distributed
import pytest

import analyzers.rank.summary
from analyzers.errors import LostRank
from analyzers.rank.summary import summarize_file
from analyzers.reporting.document import from_json
from analyzers.run.layout import find
from tests.support.generator import Run, write_run
from tracer.cli import main
from tracer.reading import dask_cluster as cluster

DDP4 = str(Path(__file__).resolve().parents[2] / "traces" / "resnet18-ddp4")
RUN = Run(ranks=6, steps=2, compute="aabb..", comm="..ccc.")
DEADLY = "rank4.json"


@pytest.fixture(scope="module")
def address():
    # One death is one too many here, and four by default: each costs a second.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as made,
    ):
        yield made.scheduler_address


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", RUN)


def report(capsys, *arguments: str) -> str:
    assert main(["report", *arguments, "--json"]) == 0
    return capsys.readouterr().out


def refusal(capsys, *arguments: str) -> str:
    assert main(["report", *arguments]) != 0
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Traceback" not in err, err
    return err


def dies_once(file, **wanted):
    """Reads a file, but the first worker to read this one is killed."""
    flag = file.path.parent / "killed"
    if file.path.name == DEADLY and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return summarize_file(file, **wanted)


def fails_once(file, **wanted):
    """Reads a file, but the first to read this one fails, as Dask's own bookkeeping has where a worker died."""
    flag = file.path.parent / "failed"
    if file.path.name == DEADLY and not flag.exists():
        flag.touch()
        raise ValueError("not enough values to unpack (expected 3, got 2)")
    return summarize_file(file, **wanted)


def dies_always(file, **wanted):
    if file.path.name == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    return summarize_file(file, **wanted)


@pytest.mark.slow
def test_a_cluster_reports_what_this_machine_does(address, capsys):
    assert report(capsys, DDP4, "--scheduler", address) == report(capsys, DDP4)


@pytest.mark.slow
def test_what_a_cluster_read_is_kept_here(address, capsys, tmp_path, monkeypatch):
    first = report(capsys, DDP4, "--scheduler", address)
    monkeypatch.setenv("TRACER_CACHE", str(tmp_path / "cache"))
    assert report(capsys, DDP4, "--scheduler", address) == first
    assert len([*(tmp_path / "cache").glob("*.rank")]) == 4
    # No worker is asked again, and this machine's processes have them too.
    monkeypatch.setattr(cluster.Cluster, "map", None)
    assert report(capsys, DDP4, "--scheduler", address) == first
    assert report(capsys, DDP4) == first


@pytest.mark.slow
def test_a_page_and_its_lanes_are_made_by_a_cluster_too(address, run, tmp_path, capsys):
    for name, more in (("here", ["--workers", "1"]), ("there", ["--scheduler", address])):
        report(capsys, str(run), "--html", str(tmp_path / name), *more)
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(address, run, capsys, monkeypatch):
    expected = report(capsys, str(run))
    monkeypatch.setattr(analyzers.rank.summary, "summarize_file", dies_once)
    assert report(capsys, str(run), "--scheduler", address) == expected
    assert (run / "killed").exists()


@pytest.mark.slow
def test_an_error_that_does_not_come_again_changes_nothing(address, run, capsys, monkeypatch):
    expected = report(capsys, str(run))
    monkeypatch.setattr(analyzers.rank.summary, "summarize_file", fails_once)
    assert report(capsys, str(run), "--scheduler", address) == expected
    assert (run / "failed").exists()


@pytest.mark.slow
def test_a_rank_that_kills_its_workers_is_lost_alone(address, run, capsys, monkeypatch):
    monkeypatch.setattr(analyzers.rank.summary, "summarize_file", dies_always)
    found = from_json(report(capsys, str(run), "--scheduler", address))
    assert found.run.ranks == [0, 1, 2, 3, 5]
    (lost,) = [warning for warning in found.run.notices if "killed" in str(warning)]
    assert str(lost).startswith(f"left out: {run / DEADLY}: the workers that read it were killed")


def test_a_cluster_without_workers_is_a_line(run, capsys, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_S", 1.0)
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard_address": ":0", "port": 0}}
    with distributed.SpecCluster(workers={}, scheduler=scheduler) as made:
        assert "has no workers; start some with `dask worker" in refusal(
            capsys, str(run), "--scheduler", made.scheduler_address
        )


def test_no_scheduler_is_a_line(run, capsys, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_S", 1.0)
    assert "no Dask scheduler answers there" in refusal(capsys, str(run), "--scheduler", "tcp://127.0.0.1:9")


def test_without_dask_the_pip_line_is_said(run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'tracer-toolkit[cluster]'" in refusal(capsys, str(run), "--scheduler", "tcp://127.0.0.1:9")


def test_versions_that_do_not_match_are_a_line(address, run, capsys, monkeypatch):
    own = cluster.own_versions()
    monkeypatch.setattr(cluster, "own_versions", lambda: own | {"tracer": "9.9"})
    err = refusal(capsys, str(run), "--scheduler", address)
    assert "versions do not match: worker tcp://" in err and f"has tracer {own['tracer']} (here 9.9)" in err


def sees_nothing(paths):
    return cluster.own_versions(), paths


def test_a_folder_that_workers_do_not_see_is_a_line(address, run, capsys, monkeypatch):
    monkeypatch.setattr(cluster, "_said_by_worker", sees_nothing)
    err = refusal(capsys, str(run), "--scheduler", address)
    assert f"{run}: worker tcp://" in err and "does not see it" in err


def test_no_worker_sees_this_process_memory(run, capsys):
    assert "where --scheduler's workers cannot read it" in refusal(
        capsys, "memory://bucket/run", "--scheduler", "tcp://127.0.0.1:9"
    )


class Rubbish:
    """Unpickled only where it was made, as a class that another version has."""

    def __reduce__(self):
        return getattr, (os, "no_such_name")


def returns_rubbish(file, **wanted):
    return {DEADLY: Rubbish(), "rank1.json": "nonsense", "rank2.json": None}.get(file.path.name) or summarize_file(
        file, **wanted
    )


def raises_rubbish(file, **wanted):
    if file.path.name == DEADLY:
        raise OSError("disk of the worker")
    return summarize_file(file, **wanted)


def test_a_worker_that_returns_rubbish_costs_its_ranks(address, run, capsys, monkeypatch):
    monkeypatch.setattr(analyzers.rank.summary, "summarize_file", returns_rubbish)
    found = from_json(report(capsys, str(run), "--scheduler", address))
    assert found.run.ranks == [0, 2, 3, 5]
    lost = sorted(str(each) for each in found.run.notices if "left out" in str(each))
    assert "its worker returned no summary but a str" in lost[0]
    assert "on its worker" in lost[1]


def test_an_error_of_a_worker_is_not_the_schedulers(address, run, capsys, monkeypatch):
    monkeypatch.setattr(analyzers.rank.summary, "summarize_file", raises_rubbish)
    found = from_json(report(capsys, str(run), "--scheduler", address))
    assert found.run.ranks == [0, 1, 2, 3, 5]


def other_version(fn, wanted, file):
    return wanted | {"tracer": "9.9"}, b""


def test_a_worker_of_another_version_that_joined_later_costs_its_ranks(run, monkeypatch):
    monkeypatch.setattr(cluster, "_read", other_version)
    lost = list(cluster.Cluster(AtOnce(), "tcp://nowhere", lambda file: None).map(summarize_file, find(run).files))
    assert all("its worker has tracer 9.9 (here" in str(each) for each in lost)


@pytest.mark.slow
def test_a_worker_that_hangs_costs_what_it_has_in_hand(run, monkeypatch):
    monkeypatch.setattr(cluster, "HANG_S", 0.05)
    monkeypatch.setattr(cluster, "LOOK_S", 0.01)
    hanging = cluster.Cluster(Hanging(), "tcp://nowhere", lambda file: None)
    lost = list(hanging.map(summarize_file, find(run).files))
    assert all("its worker hangs" in str(each) for each in lost) and len(lost) == RUN.ranks


class AtOnce:
    """A client whose worker answers at once, and its executor."""

    def get_executor(self, pure):
        return self

    def nthreads(self):
        return {"worker": 1}

    def submit(self, fn, *given):
        future = Future()
        future.set_result(fn(*given))
        return future


class Hanging(AtOnce):
    """One whose worker never does."""

    def submit(self, *_):
        return Future()


def test_nothing_is_unpickled_but_what_workers_send(run, monkeypatch):
    """Files are read without pickle, marshal or eval, whatever they hold."""

    def refuse(*_, **__):
        raise AssertionError

    for module, names in ((pickle, ("load", "loads", "Unpickler")), (marshal, ("load", "loads"))):
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    file = find(run).files[0]
    text = file.path.read_bytes().replace(b"compute", b"\\u0080\\u0004cos\\nsystem")
    file.path.write_bytes(text)
    assert summarize_file(file)[0].rank == 0


class Deserted:
    """A client of a scheduler whose workers have gone, and its executor."""

    def get_executor(self, pure):
        return self

    def nthreads(self):
        return {}

    def submit(self, *_):
        return Future()


@pytest.mark.slow
def test_where_no_worker_is_left_what_remains_is_lost(run, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE_S", 0.0)
    monkeypatch.setattr(cluster, "LOOK_S", 0.01)
    deserted = cluster.Cluster(Deserted(), "tcp://nowhere", lambda file: None)
    files = find(run).files
    lost = list(deserted.map(summarize_file, files))
    assert all(isinstance(each, LostRank) for each in lost) and len(lost) == len(files)


@pytest.mark.parametrize("option", ["--scheduler=foo", "--scheduler=tcp://host", "--workers=0", "--workers=many"])
def test_what_reads_nothing_is_a_usage_error(run, option, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run), option])
    assert ended.value.code == 2 and option.partition("=")[2] in capsys.readouterr().err
