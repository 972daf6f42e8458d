"""Ranks and world sizes that cannot be: they cost themselves, in one line, and no more."""

import json

import msgspec
import pytest

import analyzers
from analyzers.collectives.measured import exchange
from analyzers.notices import Code
from analyzers.rank.summary import summary_of
from analyzers.ranks import MOST_RANKS, quoted
from analyzers.run.controls import Control, Controls, control, joined_controls
from analyzers.run.loading import hosts
from analyzers.run.manifest import Manifest, Memory, read_manifest
from tests.support.kineto_files import small_trace, write, write_run

NO_RANKS = [10**30, 2**63, 2**31, MOST_RANKS, -1, -(10**30), True, 1.5, "3", [0], {}]
NO_SIZES = [*(each for each in NO_RANKS if each != MOST_RANKS), MOST_RANKS + 1, 0]
KEYS = ["", "a", "-1", "1.5", "9" * 5000, "\u00b2", str(10**30)]


def said(run):
    return [str(warning) for warning in run.warnings if "distributedInfo" in str(warning)]


@pytest.mark.parametrize("rank", NO_RANKS, ids=repr)
def test_a_header_rank_that_cannot_be_is_left_aside_and_said(tmp_path, rank):
    write(tmp_path / "rank1.json", small_trace(rank, 2))
    write(tmp_path / "rank0.json", small_trace(0, 2))
    run = analyzers.load(tmp_path)
    assert [trace.rank for trace in run.ranks] == [0, 1]
    (line,) = said(run)
    assert line.startswith("rank1.json: ")
    assert len(line) < 200
    assert "\n" not in line
    assert analyzers.report(run).run.ranks == [0, 1]


@pytest.mark.parametrize("size", NO_SIZES, ids=repr)
def test_a_header_world_size_that_cannot_be_is_left_aside_and_said(tmp_path, size):
    run = analyzers.load(write(tmp_path / "rank0.json", small_trace(0, size)))
    (line,) = said(run)
    assert "world_size" in line
    assert exchange(summary_of(run)).world_size == 1
    assert analyzers.report(run).run.world_size == 1


@pytest.mark.parametrize("number", [10**30, 2**63, -(10**30), True, 1.5], ids=repr)
def test_groups_of_ranks_that_cannot_be_do_no_harm(tmp_path, number):
    trace = small_trace(0, 2)
    groups = [
        {"pg_name": "0", "ranks": [0, number], "pg_size": 2},
        {"pg_name": "1", "ranks": [0, 1], "pg_size": number},
    ]
    trace["distributedInfo"]["pg_config"] = groups
    assert analyzers.report(analyzers.load(write(tmp_path / "rank0.json", trace))).run.ranks == [0]


def test_a_header_that_says_nothing_of_ranks_is_no_fault(tmp_path):
    trace = small_trace(None)
    trace["distributedInfo"] = {"rank": None, "world_size": None}
    assert not said(analyzers.load(write(tmp_path / "rank0.json", trace)))


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:8])
def test_a_key_that_is_no_rank_costs_its_own_host(key):
    assert hosts(Manifest(hosts=["a", "b"], host_of_rank={"0": "a", key: "b"}), ()) == {0: "a"}


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:8])
def test_a_key_that_is_no_rank_costs_its_own_samples(key):
    good, bad = (
        control({0: [[10, 10]]}),
        Control({key: [[99]], "1": [[10]]}),
    )
    found = joined_controls([Controls(unprofiled=good), Controls(unprofiled=bad)]).unprofiled
    assert found.steps_ns == {"0": [[10, 10]], "1": [[10]]}


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:8])
def test_a_run_of_several_hosts_with_a_key_that_is_no_rank_is_reported(tmp_path, key):
    for name, ranks in (("a", [0, 1]), ("b", [2, 3])):
        folder = write_run(tmp_path / "run" / f"ranks{ranks[0]}-{ranks[1]}", ranks, 4)
        manifest = Manifest(
            id="one",
            hosts=[name],
            host_of_rank={str(ranks[0]): name, key: name},
            controls=Controls(unprofiled=Control({str(ranks[0]): [[10, 10]], key: [[10]]})),
        )
        (folder / "run.json").write_bytes(msgspec.json.encode(manifest))
    assert analyzers.report(analyzers.load(tmp_path / "run")).run.ranks == [0, 1, 2, 3]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:8])
@pytest.mark.parametrize("size", [2, 2**63])
def test_what_run_json_says_of_keys_that_are_no_ranks_is_left_aside_and_said(tmp_path, key, size):
    manifest = Manifest(
        world_size=size,
        host_of_rank={"0": "a", key: "b"},
        controls=Controls(unprofiled=Control({"0": [[10, 10]], key: [[99]]}), light=Control({}, {"1": [5], key: [9]})),
        memory=Memory("torch", {"1": 5, key: 99}),
        device_states={"0": [], key: []},
    )
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(manifest))
    found, notices = read_manifest(tmp_path)
    assert [*found.host_of_rank] == [*found.device_states] == ["0"]
    assert found.controls == Controls(unprofiled=Control({"0": [[10, 10]]}), light=Control({}, {"1": [5]}))
    assert found.memory.peak_bytes == {"1": 5}
    assert {notice.code for notice in notices} == {Code.RANK_IS_IMPOSSIBLE}
    assert f"{quoted(key)} can be no ranks: " in notices[-1].text
    assert len(notices) == (1 if size == 2 else 2)


@pytest.mark.parametrize("size", [10**12, 2**63, -4, 0])
def test_a_world_size_of_run_json_that_cannot_be_is_left_aside_and_said(tmp_path, size):
    write_run(tmp_path, [0, 1], 2)
    (tmp_path / "run.json").write_text(json.dumps({"schema": "tracer.run/1", "world_size": size}))
    run = analyzers.load(tmp_path)
    assert any(str(warning).startswith("run.json: world_size") for warning in run.warnings)
    assert analyzers.report(run).run.world_size == 2


def test_a_long_number_is_quoted_as_cut_short(tmp_path):
    run = analyzers.load(write(tmp_path / "rank0.json", small_trace(0, 10**30)))
    assert said(run)[0].endswith("world_size 10000000000000000000...")
