"""What several hosts wrote of one run, put together."""

import json

import msgspec
import pytest

from analyzers.errors import UnusableRun
from analyzers.notices import Code
from analyzers.run.controls import Controls, control
from analyzers.run.layout import find
from analyzers.run.manifest import DeviceState, Epoch, Manifest, Memory, join_launches, join_manifests, read_manifest
from analyzers.run.parallelism import (
    Parallelism,
    RecordedMesh,
    RecordedPipeline,
    StyledModules,
    joined_parallelism,
)
from tests.support.kineto_files import write_run


def host(name, *ranks, job="a", notes=()):
    samples = {rank: [[1000 + rank]] for rank in ranks}
    return Manifest(
        id=job,
        hosts=[name],
        host_of_rank={str(rank): name for rank in ranks},
        devices=[f"device of {rank}" for rank in ranks],
        world_size=4,
        controls=Controls(unprofiled=control(samples), reasons={"nosync": "scripts have none"}),
        memory=Memory("torch", {str(rank): rank for rank in ranks}),
        device_states={
            str(rank): [DeviceState(0, "H200", 1, sm_mhz=1000 + rank, reasons=["sw_power_cap"])] for rank in ranks
        },
        notes=list(notes),
    )


def test_hosts_are_one_run_in_the_order_of_their_ranks():
    found = join_manifests([host("b", 2, 3, notes=["ended", "b's"]), host("a", 0, 1, notes=["ended"])])
    assert found.hosts == ["a", "b"]
    assert list(found.host_of_rank.items()) == [("0", "a"), ("1", "a"), ("2", "b"), ("3", "b")]
    assert found.devices == [f"device of {rank}" for rank in range(4)]
    assert found.controls.unprofiled.steps_ns == {str(rank): [[1000 + rank]] for rank in range(4)}
    assert found.controls.reasons == {"nosync": "scripts have none"}
    assert found.memory.peak_bytes == {str(rank): rank for rank in range(4)}
    assert {rank: [state.sm_mhz for state in states] for rank, states in found.device_states.items()} == {
        str(rank): [1000 + rank] for rank in range(4)
    }
    assert found.notes == ["ended", "b's"]


def test_launches_of_one_program_are_one_run():
    """Timed steps of all, the greatest memory, a round of device states each; the rest is the launch's that is kept."""
    first = Manifest(
        id="a",
        hosts=["north"],
        versions={"torch": "2"},
        profiler={"rounds": 1, "kept_rounds": {"full": 1}},
        controls=Controls(unprofiled=control({0: [[4, 5]]}, [[7, 8]])),
        memory=Memory("torch", {"0": 9}),
        device_states={"0": [DeviceState(0, "card", 1)]},
        epochs=[Epoch(0, 1, 1, None, None, 0.1)],
        notes=["all say so", "a light window failed"],
    )
    second = msgspec.structs.replace(
        first,
        id="b",
        hosts=["south"],
        versions={"torch": "3"},
        controls=Controls(unprofiled=control({0: [[6]]}, [[7]])),
        memory=Memory("torch", {"0": 8}),
        epochs=[],
        notes=["all say so"],
    )
    joined = join_launches([first, second], 1)
    assert (joined.id, joined.hosts, joined.hosts_of_launches) == ("b", ["south"], [["north"], ["south"]])
    assert joined.controls == Controls(unprofiled=control({0: [[4, 5], [6]]}, [[7, 8], [7]], by_launch=True))
    assert joined.memory == first.memory
    assert joined.epochs == first.epochs
    assert joined.device_states == {"0": [DeviceState(0, "card", 1), DeviceState(0, "card", 2)]}
    assert joined.profiler == second.profiler | {"launches": 2, "kept_launch": 2}
    assert joined.notes == [
        "controls are of 2 launches, a block each; the traces are of launch 2",
        "launches differ in their hosts, versions: intervals of the controls have that in them",
        "all say so",
        "launch 1: a light window failed",
    ]


def test_secrets_that_somebody_wrote_into_run_json_are_read_by_nobody(tmp_path):
    """An older version redacted word by word, and another program may not redact at all."""
    written = {
        "command": ["env", "HF_TOKEN=hunter", "bash", "-c", "train.py --api-key hunter --eos_token '</s>'"],
        "environment": {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_PLUGIN_TOKEN": "hunter"},
        "settings": {"amp": "bf16", "seed": 0, "logger": {"api_key": "hunter", "compile": True}, "tags": ["x"]},
        "notes": ["the upload to https://me:hunter@host failed"],
    }
    (tmp_path / "run.json").write_text(json.dumps(written))
    read, warnings = read_manifest(tmp_path)
    assert warnings == [] and "hunter" not in str(msgspec.to_builtins(read))
    assert read.command == ["env", "HF_TOKEN=***", "bash", "-c", "train.py --api-key *** --eos_token '</s>'"]
    assert read.environment == {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_PLUGIN_TOKEN": "***"}
    assert read.settings == {"amp": "bf16", "seed": 0, "logger": {"api_key": "***", "compile": True}, "tags": ["x"]}
    assert read.notes == ["the upload to https://***@host failed"]


def test_states_of_devices_are_read_as_they_were_written_and_older_files_have_none(tmp_path):
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(host("a", 0, 1)))
    assert read_manifest(tmp_path) == (host("a", 0, 1), [])
    (tmp_path / "run.json").write_text('{"schema": "tracer.run/1", "world_size": 2}')
    older, warnings = read_manifest(tmp_path)
    assert (older.device_states, warnings) == (None, [])
    assert join_manifests([older]).device_states is None


@pytest.fixture
def folders(tmp_path):
    """Folders of two hosts' ranks, of one recording or of two."""

    def make(*jobs):
        made = []
        for place, (ranks, job) in enumerate(zip(([0, 1], [2, 3]), jobs, strict=True)):
            folder = write_run(tmp_path / "run" / f"ranks{ranks[0]}-{ranks[1]}", ranks, 4)
            (folder / "run.json").write_bytes(msgspec.json.encode(host(f"host{place}", *ranks, job=job)))
            made.append(folder)
        return made

    return make


def test_folders_are_one_run_within_their_folder_and_apart(folders, tmp_path):
    first, second = folders("a", "a")
    for where in (tmp_path / "run", [first, second], [second, first]):
        found = find(where)
        assert len(found.files) == 4
        assert found.manifest.hosts == ["host0", "host1"]


def test_folders_of_two_recordings_are_refused(folders, tmp_path):
    folders("a", "b")
    with pytest.raises(UnusableRun, match=r"ranks0-1 and .*ranks2-3 belong to different recordings"):
        find(tmp_path / "run")


def meshed(rank, ranks, layers=3):
    """What one rank of a pipeline says: a whole mesh, a slice that others do not have, its stage and layers."""
    whole = RecordedMesh(dims=["pp", "tp"], shape=[2, 2], ranks=[0, 1, 2, 3], groups={str(rank): ["a", f"b{rank}"]})
    flat = RecordedMesh(dims=["flat"], shape=[2], ranks=ranks, groups={str(rank): [f"f{ranks[0]}"]})
    return Parallelism(
        strategies=["tensor", "pipeline"],
        mesh=[whole, flat],
        tensor=[StyledModules(modules="layers.*.up", count=layers, styles=["ColwiseParallel"])],
        pipeline=RecordedPipeline(schedule="Schedule1F1B", stages=2, stages_of_rank={str(rank): [rank // 2]}),
    )


def test_what_ranks_say_of_parallelism_is_one():
    found = joined_parallelism([None, meshed(0, [0, 2]), meshed(2, [0, 2], layers=4), meshed(1, [1, 3])])
    whole, even, odd = found.mesh
    assert whole.groups == {"0": ["a", "b0"], "2": ["a", "b2"], "1": ["a", "b1"]}
    assert (even.ranks, set(even.groups), odd.ranks, set(odd.groups)) == ([0, 2], {"0", "2"}, [1, 3], {"1"})
    assert [(row.modules, row.count) for row in found.tensor] == [("layers.*.up", 4)]
    assert found.pipeline.stages_of_rank == {"0": [0], "2": [1], "1": [0]}
    assert found.strategies == ["tensor", "pipeline"]
    assert joined_parallelism([None, None]) is None


@pytest.mark.parametrize(
    "odd",
    [
        {"dims": ["tp"], "shape": [2], "ranks": [0]},
        {"dims": ["tp"], "shape": [2, 2], "ranks": [0, 1, 2, 3]},
        {"dims": ["tp"], "shape": [2], "ranks": [0, 0]},
        {"dims": ["tp"], "shape": [2], "ranks": [0, -1]},
        {"dims": ["tp"], "shape": [0], "ranks": []},
        {"dims": [None] * 10**5, "shape": [2**62] * 10**5, "ranks": [0]},
    ],
)
def test_a_mesh_that_contradicts_itself_is_left_aside_by_name(tmp_path, odd):
    good = {"dims": ["dp"], "shape": [2], "ranks": [0, 1], "groups": {"0": ["1"], "x": ["2"]}}
    parallelism = {"mesh": [odd, good], "pipeline": {"schedule": "A", "stages_of_rank": {"-1": [0], "1": [1]}}}
    (tmp_path / "run.json").write_text(json.dumps({"schema": "tracer.run/1", "parallelism": parallelism}))
    manifest, notices = read_manifest(tmp_path)
    (mesh,) = manifest.parallelism.mesh
    assert (mesh.dims, mesh.groups) == (["dp"], {"0": ["1"]})
    assert manifest.parallelism.pipeline.stages_of_rank == {"1": [1]}
    assert [notice.code for notice in notices] == [Code.RANK_IS_IMPOSSIBLE] * 2
    assert "mesh 0 has" in notices[1].text
    assert len(notices[1].text) < 300


def test_parallelism_of_another_kind_costs_the_manifest_alone(tmp_path):
    (tmp_path / "run.json").write_text('{"schema": "tracer.run/1", "parallelism": {"mesh": 3}}')
    manifest, (notice,) = read_manifest(tmp_path)
    assert manifest is None
    assert notice.code == Code.RUN_JSON_UNREADABLE
