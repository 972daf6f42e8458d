"""What several hosts wrote of one run, put together."""

import msgspec
import pytest

from analyzers.errors import UnusableRun
from analyzers.run.controls import Controls, control
from analyzers.run.layout import find
from analyzers.run.manifest import DeviceState, Manifest, Memory, joined, read_manifest
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
    found = joined([host("b", 2, 3, notes=["ended", "b's"]), host("a", 0, 1, notes=["ended"])])
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


def test_states_of_devices_are_read_as_they_were_written_and_older_files_have_none(tmp_path):
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(host("a", 0, 1)))
    assert read_manifest(tmp_path) == (host("a", 0, 1), [])
    (tmp_path / "run.json").write_text('{"schema": "tracer.run/1", "world_size": 2}')
    older, warnings = read_manifest(tmp_path)
    assert (older.device_states, warnings) == (None, [])
    assert joined([older]).device_states is None


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
        assert not any(file.alone for file in found.files)
        assert found.manifest.hosts == ["host0", "host1"]


def test_folders_of_two_recordings_are_refused(folders, tmp_path):
    folders("a", "b")
    with pytest.raises(UnusableRun, match=r"ranks0-1 and .*ranks2-3: are of different recordings"):
        find(tmp_path / "run")
