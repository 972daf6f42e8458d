"""Calibration: what is computed from a file, and the measurement itself between two CPU ranks."""

import json
import math
import sys
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest
import torch
import torch.distributed as dist

from analyzers.errors import UnreadableCalibration, install_hint
from analyzers.run.calibration import (
    CalibratedLinks,
    Calibration,
    calibration_row,
    peak_busbw_gbps,
    read_calibration,
    to_json,
)
from analyzers.run.layout import trace_files
from analyzers.trace.collective_calls import KINDS, bus_factor
from analyzers.units import binary_size
from tests.support.kineto_files import write_run
from tests.support.launching import run_here
from tracer.cli import main
from tracer.commands import calibrate as command
from tracer.commands.options import message_size
from tracer.config import COLLECTIVES, CalibrateConfig, CalibrationPlan
from tracer.errors import TracerError
from tracer.launching.elastic import rank_environment
from tracer.recording.link_rates import LinkMember, link_of
from tracer.views.sections.results.calibration import calibration_text
from tracer.workload import calibrate
from tracer.workload.calibrate import OPERATIONS, Buffers, DefaultGroup, TimedCollective

CPU = ["calibrate", "--device", "cpu", "--ranks", "2"]
MIB = 2**20


def table(*rows: tuple[str, int, int, int]) -> Calibration:
    return Calibration(rows=[calibration_row(kind, size, None, nbytes, ns) for kind, size, nbytes, ns in rows])


# Bus factors and bandwidths


@pytest.mark.parametrize(
    ("collective", "factors"),
    [
        ("all_reduce", (1.0, 1.5, 1.75)),
        *((kind, (0.5, 0.75, 0.875)) for kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")),
        *((kind, (1.0, 1.0, 1.0)) for kind in ("broadcast", "reduce", "send_recv")),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(collective, factors):
    assert tuple(bus_factor(collective, size) for size in (2, 4, 8)) == factors


def test_what_has_no_bus_bandwidth_is_an_error():
    with pytest.raises(ValueError, match="barrier"):
        bus_factor("barrier", 4)


def test_bandwidths_are_bytes_over_nanoseconds():
    row = calibration_row("all_reduce", 4, "float32", 64 * MIB, 325_000)
    assert row.algbw_gbps == 64 * MIB / 325_000
    assert row.busbw_gbps == pytest.approx(309.7, abs=0.1)


# Between measured sizes

CURVE = [(4096 * 4**power, 10_000 + 4096 * 4**power // 300) for power in range(9)]
MEASURED = table(*(("all_reduce", 4, nbytes, ns) for nbytes, ns in CURVE))


@pytest.mark.parametrize("nbytes", [4096, 5000, 16384, 100_000, 9_461_800, 26_494_976, 200 * MIB, 256 * MIB])
def test_time_is_a_power_of_size_between_neighbours(nbytes):
    low, high = next((a, b) for a, b in pairwise(CURVE) if a[0] <= nbytes <= b[0])
    power = math.log(high[1] / low[1]) / math.log(high[0] / low[0])
    time_ns = low[1] * (nbytes / low[0]) ** power
    assert peak_busbw_gbps(MEASURED, "all_reduce", 4, nbytes) == pytest.approx(nbytes / time_ns * 1.5)


def test_a_measured_size_is_its_own_row():
    for row in MEASURED.rows:
        assert peak_busbw_gbps(MEASURED, "all_reduce", 4, row.bytes) == pytest.approx(row.busbw_gbps)


def test_what_was_not_measured_is_none():
    assert peak_busbw_gbps(MEASURED, "all_gather", 4, MIB) is None
    assert peak_busbw_gbps(MEASURED, "all_reduce", 2, MIB) is None
    assert peak_busbw_gbps(MEASURED, "all_reduce", 4, 4095) is None
    assert peak_busbw_gbps(MEASURED, "all_reduce", 4, 0) is None


def test_only_a_large_message_stands_for_larger_ones():
    assert peak_busbw_gbps(MEASURED, "all_reduce", 4, 2**40) == pytest.approx(MEASURED.rows[-1].busbw_gbps)
    assert peak_busbw_gbps(table(("broadcast", 2, 64 * MIB, 1000)), "broadcast", 2, 65 * MIB) is not None
    assert peak_busbw_gbps(table(("broadcast", 2, 64 * MIB - 1, 1000)), "broadcast", 2, 65 * MIB) is None


def test_order_and_repetition_of_rows_do_not_matter():
    shuffled = table(("broadcast", 2, 4096, 300), ("broadcast", 2, 1024, 100), ("broadcast", 2, 4096, 100))
    assert peak_busbw_gbps(shuffled, "broadcast", 2, 4096) == pytest.approx(4096 / 200)
    assert peak_busbw_gbps(shuffled, "broadcast", 2, 1024) == pytest.approx(1024 / 100)


# Files


def test_a_file_by_hand_needs_four_things_a_row(tmp_path):
    file = tmp_path / "links.json"
    row = {"collective": "all_reduce", "group_size": 8, "bytes": 1024, "time_ns": 2048.4, "busbw_gbps": 1e9}
    file.write_text(json.dumps({"schema": "tracer.calibration/1", "rows": [row], "from": "nccl-tests"}))
    found = read_calibration(file)
    assert found.links is None
    assert found.rows == [calibration_row("all_reduce", 8, None, 1024, 2048)]
    assert found.rows[0].busbw_gbps == 0.875


def test_what_is_written_is_what_is_read(tmp_path):
    links = CalibratedLinks(["NVIDIA H200"] * 4, "nccl", "P2P/CUMEM", 478.1, "NVML: 18 NVLinks")
    written = msgspec.structs.replace(MEASURED, links=links)
    (tmp_path / "links.json").write_text(to_json(written))
    assert read_calibration(tmp_path / "links.json") == written


ROW = '{"collective": "all_reduce", "group_size": 2, "bytes": 4, "time_ns": 5}'
HEAD = '{"schema": "tracer.calibration/1", "rows": '


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "\xff\xfe",
        "[" * 100_000,
        '{"schema": "tracer.calibration/1"}',
        f'{{"rows": [{ROW}]}}',
        f'{{"schema": "tracer.run/1", "rows": [{ROW}]}}',
        HEAD + "[]}",
        HEAD + "[1]}",
        f'{HEAD}[{ROW}], "links": 3}}',
        *(
            HEAD + "[" + ROW.replace(*change) + "]}"
            for change in [
                ("all_reduce", "all_reduced\\n\\u001b[31m"),
                ("all_reduce", "barrier"),
                ('"group_size": 2', '"group_size": 1'),
                ('"group_size": 2', '"group_size": "2"'),
                ('"bytes": 4', '"bytes": 0'),
                ('"bytes": 4', '"bytes": 4.5'),
                ('"bytes": 4', '"bytes": 1e400'),
                ('"time_ns": 5', '"time_ns": 0'),
                ('"time_ns": 5', '"time_ns": -5'),
                ('"time_ns": 5', '"time_ns": 1e300'),
                ('"time_ns": 5', '"time_ns": null'),
                (', "time_ns": 5', ""),
            ]
        ),
    ],
)
def test_what_is_no_calibration_is_one_line_with_its_name(tmp_path, content):
    file = tmp_path / "links.json"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(UnreadableCalibration) as refused:
        read_calibration(file)
    assert str(refused.value).startswith(str(file))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def test_files_that_are_not_there_or_are_folders_are_one_line(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UnreadableCalibration, match="cannot be read"):
            read_calibration(path)


def test_a_runs_calibration_is_not_taken_for_a_trace(tmp_path):
    run = write_run(tmp_path / "run", [0, 1], 2)
    (run / "links.json").write_text(to_json(MEASURED))
    assert [file.name.split(".")[0] for file in trace_files(run)] == ["rank0", "rank1"]


# What is shown


def test_sizes_are_exact_under_the_right_name():
    shown = {0: "0 B", 1000: "1,000 B", 1024: "1 KiB", 4098: "4,098 B", 16 * MIB: "16 MiB", 2**30: "1 GiB"}
    assert {nbytes: binary_size(nbytes) for nbytes in shown} == shown


def test_the_table_draws_bus_bandwidth_over_size():
    links = CalibratedLinks(["GPU\x1b[31m"] * 2, "nccl", "P2P", 20.0, "NVML")
    rows = table(("broadcast", 2, 1024, 1024), ("broadcast", 2, 4096, 410), ("all_reduce", 2, 1024, 2**30)).rows
    shown = calibration_text(Calibration(links=links, rows=rows)).splitlines()
    assert shown[0] == "2 x GPU\N{REPLACEMENT CHARACTER}[31m · nccl · P2P"
    assert shown[1] == "link's own rate: 20 GB/s one way (NVML)"
    assert shown[4].split() == ["broadcast", "2", "-", "1", "KiB", "1.0", "1.00", "1.00", "███▎"]
    assert shown[5].split()[-1] == "█" * 32
    assert shown[7].split()[-1] == "▏"
    assert shown[-3] == "broadcast peaks at 9.99 GB/s of bus bandwidth, 4 KiB, 50 % of the link"


# The command


@pytest.fixture(scope="module")
def measured(second_tier, tmp_path_factory):
    file = tmp_path_factory.mktemp("calibration") / "out" / "links.json"
    file.parent.mkdir()
    file.write_text("replaced with --force")
    done = run_here(*CPU, "--min", "1000", "--max", "64K", "--factor", "8", "-o", str(file), "--force")
    assert done.returncode == 0, done.stderr
    return file, done


def test_every_collective_is_measured_at_every_size(measured):
    file, done = measured
    found = read_calibration(file)
    assert {row.collective for row in found.rows} == set(COLLECTIVES)
    for collective in COLLECTIVES:
        sizes = [row.bytes for row in found.rows if row.collective == collective]
        # Where the curve bends at 8000, also between.
        assert sizes in ([1000, 8000, 64000], [1000, 2000, 8000, 22000, 64000])
    assert {(row.group_size, row.dtype) for row in found.rows} == {(2, "float32")}
    assert (found.links.backend, found.links.transport, found.links.limit_gbps) == ("gloo", None, None)
    assert "gloo" in found.links.source
    assert done.stdout == calibration_text(found)
    assert "between 2 CPU ranks" in done.stderr
    assert [entry.name for entry in file.parent.iterdir()] == ["links.json"]


def test_a_calibration_is_not_overwritten_without_force(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "links.json").write_text("precious")
    assert main(CPU) == 1
    assert (
        capsys.readouterr().err
        == "tracer: links.json already exists: give --force to replace it, or choose another name\n"
    )
    assert (tmp_path / "links.json").read_text() == "precious"


def test_json_is_the_file_and_the_ranks_measure_what_was_asked_for(tmp_path, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(command, "calibrate", lambda config: asked.append(config) or MEASURED)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "links.json").write_text("replaced with --force")
    tiny = ["--collectives", "broadcast", "--min", "4K", "--max", "4K", "--dtype", "bfloat16"]
    assert main([*CPU, *tiny, "--force", "--json"]) == 0
    assert capsys.readouterr().out == (tmp_path / "links.json").read_text() == to_json(MEASURED) + "\n"
    assert asked == [CalibrateConfig("cpu", 2, CalibrationPlan(("broadcast",), 4096, 4096, 2, "bfloat16"))]


def bent(*times_ns: int) -> list[int]:
    rows = table(*(("all_reduce", 2, 4096 << power, time_ns) for power, time_ns in enumerate(times_ns))).rows
    return [size // 4096 for size in calibrate.between_bends(rows)]


def test_a_curve_is_measured_more_closely_where_it_bends():
    assert bent(10, 20, 40, 80, 160) == []
    assert bent(10, 11, 22, 44) == []  # 1.4 and 2.8 times the smallest: its multiples are there
    # At 16 times the smallest a protocol begins that is twice as fast: 11 and 22 around it, less at its neighbours.
    assert bent(10, 20, 40, 80, 80, 160, 320) == [5, 11, 22]
    assert bent(10) == bent(10, 20) == bent() == []
    assert len(bent(*(10, 30) * 20)) == calibrate.BETWEEN


def test_sizes_between_are_measured_too_and_rows_are_by_size(alone, monkeypatch):
    times = {4096: 10, 16384: 30, 65536: 40}
    monkeypatch.setattr(calibrate, "_time_ns", lambda operation, group: times.get(operation.nbytes, 20))
    rows = calibrate.measure(CalibrationPlan(("all_reduce",), 4096, 65536, 4), alone, silent).rows
    assert [row.bytes for row in rows] == [4096, 8192, 16384, 32768, 65536]
    assert [row.time_ns for row in rows] == [10, 20, 30, 20, 40]


def test_a_row_has_the_type_that_was_sent(alone):
    (row,) = calibrate.measure(CalibrationPlan(("broadcast",), 4096, 4096, 2, "bfloat16"), alone, silent).rows
    assert (row.collective, row.bytes, row.dtype) == ("broadcast", 4096, "bfloat16")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("--min 1M --max 4K", 2, "--min 1 MiB is larger than --max 4 KiB"),
        ("--min 32M", 2, "--min 32 MiB is larger than --max 16 MiB"),
        ("--factor 1", 2, "--factor 1"),
        ("--collectives all_reduce,allgather", 2, "'allgather' is not one of all_reduce, "),
        ("--collectives ,", 2, "'' is not one of"),
        ("--gpus 2", 2, "--gpus counts GPUs"),
    ],
)
def test_arguments_that_make_no_sense_are_one_line(tmp_path, capsys, arguments, code, said):
    assert main([*CPU, *arguments.split(), "-o", str(tmp_path / "links.json")]) == code
    out, err = capsys.readouterr()
    assert said in err
    assert (out, err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_one_device_has_no_links(tmp_path, capsys):
    assert main(["calibrate", "--ranks", "1", "-o", str(tmp_path / "links.json")]) == 1
    assert "one device has no links" in capsys.readouterr().err


@pytest.mark.slow
def test_too_little_memory_is_one_line(tmp_path):
    sizes = ["--min", "4K", "--max", "4000000000G", "--factor", "1048576"]
    done = run_here(*CPU, *sizes, "--collectives", "all_reduce", "-o", str(tmp_path / "links.json"))
    assert done.returncode == 1
    (_, last) = done.stderr.splitlines()
    assert last.startswith("tracer: rank 1 has too little free memory for messages of ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("written", "nbytes"),
    [("4096", 4096), ("4K", 4096), ("4k", 4096), ("16M", 16 * MIB), ("1G", 2**30), ("1", 1)],
)
def test_sizes_are_written_as_for_nccl_tests(written, nbytes):
    assert message_size(written) == nbytes


@pytest.mark.parametrize("written", ["", "0", "-1", "4KB", "1.5M", "K", "4T", "9" * 30, "99999999999G", "nan"])
def test_what_is_no_size_is_a_usage_error(written, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*CPU, f"--min={written}"])
    assert ended.value.code == 2
    assert ": give a size such as 4096, 4K, 16M or 1G" in capsys.readouterr().err


def test_plans_grow_by_the_factor_up_to_the_largest():
    assert CalibrationPlan(("all_reduce",), 4096, 4 * 4096, 2).sizes == [4096, 8192, 16384]
    assert CalibrationPlan(("all_reduce",), 1000, 3999, 2).sizes == [1000, 2000]
    assert CalibrationPlan(("all_reduce",), 8, 8, 4).sizes == [8]


# Measuring, in a group that is only this process


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield torch.device("cpu")
    dist.destroy_process_group()


def silent(label: str, done: int, total: int) -> None:
    pass


def prepare(collective: str, group: DefaultGroup, nbytes: int, dtype: torch.dtype) -> TimedCollective:
    buffers = Buffers(torch.zeros(nbytes + group.size, dtype=dtype), torch.zeros(nbytes + group.size, dtype=dtype))
    return OPERATIONS[collective](nbytes, buffers=buffers, group=group)


def arrived(collective: str, group: DefaultGroup, operation: TimedCollective, dtype: torch.dtype) -> torch.Tensor:
    """What must come out on one rank, worked out from all ranks' sources without any of the code's shortcuts."""
    elements = operation.source.numel()
    modulus = max(min(256 // group.size, 127), 2)
    sent = [torch.tensor([(i % 251 * 7 + rank) % modulus for i in range(elements)]) for rank in range(group.size)]
    share = elements // group.size
    own = slice(group.rank * share, (group.rank + 1) * share)
    return {
        "all_reduce": lambda: sum(sent),
        "broadcast": lambda: sent[0],
        "all_gather": lambda: torch.cat(sent),
        "reduce_scatter": lambda: sum(sent)[own],
        "all_to_all": lambda: torch.cat([part[own] for part in sent]),
        "send_recv": lambda: sent[0],
    }[collective]().to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("size", [2, 3, 8])
def test_right_results_hold_and_any_wrong_element_shows(collective, dtype, size):
    for nbytes in (4, 1000, 10_000):
        group = DefaultGroup(1, size, torch.device("cpu"))
        operation = prepare(collective, group, nbytes, dtype)
        expected = arrived(collective, group, operation, dtype)
        operation.result.copy_(expected)
        assert all(map(calibrate._holds, operation.expected)), (collective, nbytes)
        for place in {0, len(expected) // 2, len(expected) - 1}:
            operation.result.copy_(expected)
            operation.result[place] += 1
            assert not all(map(calibrate._holds, operation.expected)), (collective, nbytes, place)


def test_a_share_in_the_wrong_place_shows():
    group = DefaultGroup(1, 4, torch.device("cpu"))
    operation = prepare("all_gather", group, 4096, torch.float32)
    expected = arrived("all_gather", group, operation, torch.float32)
    operation.result.copy_(expected.roll(operation.source.numel()))
    assert not all(map(calibrate._holds, operation.expected))


@pytest.mark.parametrize(("collective", "group_size"), [("all_reduce", 4), ("all_to_all", 4), ("send_recv", 2)])
def test_bytes_are_what_nccl_tests_counts(collective, group_size):
    operation = prepare(collective, DefaultGroup(3, 4, torch.device("cpu")), 4096, torch.float32)
    assert (operation.nbytes, operation.group_size) == (4096, group_size)
    for kind, factor in {"all_gather": 4, "reduce_scatter": 1, "all_to_all": 1}.items():
        operation = prepare(kind, DefaultGroup(3, 4, torch.device("cpu")), 4096, torch.float32)
        assert operation.source.nbytes * factor == operation.nbytes == 4096


def test_a_wrong_result_is_an_error_and_no_row(alone, monkeypatch):
    monkeypatch.setattr(calibrate, "_fill", lambda data, period: data.fill_(3))
    plan = CalibrationPlan(("broadcast",), 4096, 4096, 2)
    with pytest.raises(TracerError, match="broadcast of 4 KiB gave a wrong result on rank 0"):
        calibrate.measure(plan, alone, silent)


def test_what_a_backend_lacks_is_left_out_and_said(alone, monkeypatch):
    def lacking(*tensors: torch.Tensor) -> None:
        raise RuntimeError("ProcessGroupGloo does not support reduce_scatter\nException raised from ...")

    monkeypatch.setattr(dist, "reduce_scatter_tensor", lacking)
    plan = CalibrationPlan(("reduce_scatter", "all_gather"), 4096, 4096, 2)
    found = calibrate.measure(plan, alone, silent)
    assert [row.collective for row in found.rows] == ["all_gather"]
    (note,) = found.notes
    assert note.startswith("reduce_scatter is left out: gloo of torch ")
    assert note.endswith("says ProcessGroupGloo does not support reduce_scatter")


def test_sizes_that_a_group_cannot_share_are_measured_once(alone):
    found = calibrate.measure(CalibrationPlan(("all_reduce",), 1, 16, 2), alone, silent)
    assert [row.bytes for row in found.rows] == [4, 8, 16]


@pytest.mark.parametrize(("iteration_ns", "count"), [(10, 1000), (1_000_000, 16), (10**9, 5)])
def test_iterations_adapt_to_what_one_takes(monkeypatch, iteration_ns, count):
    asked = []

    def block_ns(run: Callable[[], object], group: DefaultGroup, iterations: int) -> int:
        asked.append(iterations)
        return iterations * iteration_ns

    monkeypatch.setattr(calibrate, "_block_ns", block_ns)
    assert calibrate._time_ns(idle(), DefaultGroup(0, 1, torch.device("cpu"))) == iteration_ns
    assert asked == [calibrate.PROBES, *[count] * calibrate.BLOCKS]


def test_a_host_that_stalls_for_a_moment_does_not_slow_the_links(monkeypatch):
    times = iter([3_000, 5_000, 90_000, 5_200])
    monkeypatch.setattr(calibrate, "_block_ns", lambda run, group, iterations: next(times) * iterations)
    assert calibrate._time_ns(idle(), DefaultGroup(0, 1, torch.device("cpu"))) == 5_200


def idle() -> TimedCollective:
    nothing = torch.empty(0)
    return TimedCollective(0, 1, nothing, nothing, lambda: None, ())


# Links


class FakeNvml(SimpleNamespace):
    """As much of pynvml as is asked: GPUs by uuid, each with NVLinks to whom (None: a switch), and PCIe."""

    NVML_NVLINK_MAX_LINKS, NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK, NVML_SUCCESS = 4, 2, 0, 0
    NVML_FI_DEV_NVLINK_GET_SPEED, NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON = 164, 90
    NVML_NVLINK_DEVICE_TYPE_GPU, NVML_NVLINK_DEVICE_TYPE_SWITCH = 0, 2

    class NVMLError(Exception):
        pass

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid.removeprefix("GPU-") not in self.nvlinks:
            raise self.NVMLError("Not Found")
        return uuid.removeprefix("GPU-")

    def nvmlDeviceGetPciInfo(self, gpu):  # noqa: N802
        return SimpleNamespace(busId=gpu)

    def nvmlDeviceGetP2PStatus(self, one, other, index):  # noqa: N802
        return 0 if {other, None} & set(self.nvlinks[one]) else 5

    def nvmlDeviceGetNvLinkState(self, gpu, number):  # noqa: N802
        if number >= len(self.nvlinks[gpu]):
            raise self.NVMLError("Invalid Argument")
        return 1

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu, number):  # noqa: N802
        return 2 if self.nvlinks[gpu][number] is None else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu, number):  # noqa: N802
        return SimpleNamespace(busId=self.nvlinks[gpu][number])

    def nvmlDeviceGetFieldValues(self, gpu, fields):  # noqa: N802
        return [SimpleNamespace(nvmlReturn=3), SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=26562))]

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu):  # noqa: N802
        return self.generation

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu):  # noqa: N802
        return 16


@pytest.fixture
def link(monkeypatch, tmp_path):
    """The link under GPUs of one host (or of two), as NCCL's log and a fake NVML have it."""

    def found(lines, nvlinks, hosts=1, generation=5, sys_class=tmp_path):
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(nvlinks=nvlinks, generation=generation))
        log = tmp_path / "nccl.1.log"
        log.write_text("".join(f"h:1:1 [0] NCCL INFO {line}\n" for line in lines))
        members = [LinkMember(f"host{number % hosts}", "GPU", uuid) for number, uuid in enumerate(nvlinks)]
        return link_of("nccl", members, [log], sys_class)

    return found


P2P = ["Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"]
SHM = ["Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct"]
SWITCHED = {"a": [None] * 4, "b": [None] * 4}


def test_p2p_over_a_switch_has_all_nvlinks(link):
    found = link(P2P, SWITCHED)
    assert (found.transport, found.source) == ("P2P/CUMEM", "NVML: 4 NVLinks, 26.56 GB/s each")
    assert found.limit_gbps == pytest.approx(4 * 26.562)


def test_nvlinks_to_gpus_outside_the_group_do_not_count(link):
    assert link(P2P, {"a": ["b", "b", "c"], "b": ["a", "a", "d"]}).limit_gbps == pytest.approx(2 * 26.562)


def test_p2p_without_nvlink_is_pcie(link):
    found = link(P2P, {"a": [], "b": []})
    assert found.limit_gbps == pytest.approx(63.0, abs=0.1)
    assert found.source == "NVML: PCIe generation 5, 16 lanes"


def test_where_nccl_was_told_not_to_use_nvlink_it_is_not_claimed(link):
    found = link(SHM, SWITCHED, generation=4)
    assert found.transport == "SHM/direct"
    assert found.limit_gbps == pytest.approx(31.5, abs=0.1)


@pytest.mark.parametrize(
    ("lines", "nvlinks", "hosts", "why"),
    [
        ([], SWITCHED, 1, "names no transport"),
        (P2P + SHM, SWITCHED, 1, "more than one transport: P2P/CUMEM + SHM/direct"),
        (P2P, {"a": ["b"], "b": ["a"], "c": []}, 1, "some peers are joined by NVLink and some are not"),
        (["Channel 00/0 : 0[0] -> 1[1] via NET/Socket/0"], SWITCHED, 1, "between ranks of one host"),
        (["Channel 00/0 : 0[0] -> 1[1] via NET/IB/0"], SWITCHED, 2, "over unnamed network cards"),
    ],
)
def test_a_rate_that_is_not_known_is_null_with_a_reason(link, lines, nvlinks, hosts, why):
    found = link(lines, nvlinks, hosts)
    assert found.limit_gbps is None
    assert why in found.source


def test_what_nvml_cannot_say_is_a_reason(link, monkeypatch, tmp_path):
    assert link(SHM, SWITCHED, generation=7).source == "the rate of PCIe generation 7 is not known here"
    members = [LinkMember("host0", "GPU", "elsewhere")] * 2
    assert link_of("nccl", members, [tmp_path / "nccl.1.log"]).source == "NVML does not say (Not Found)"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert link_of("nccl", members, [tmp_path / "nccl.1.log"]).source.endswith(install_hint("record"))


def test_network_cards_say_their_rate(link, tmp_path):
    for file, content in {
        "net/eth0/speed": "25000\n", "net/veth0/speed": "-1\n", "infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
    }.items():  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(content)
    via = "Channel 00/0 : 0[0] -> 1[1] [send] via NET/{}/0"
    socket = ["NET/Socket : Using [0]eth0:10.0.0.2<0>", via.format("Socket")]
    assert link(socket, SWITCHED, hosts=2).limit_gbps == 3.125
    infiniband = ["NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.2<0>", via.format("IB/0/GDRDMA")]
    assert link(infiniband, SWITCHED, hosts=2).limit_gbps == 50.0
    virtual = ["NET/Socket : Using [0]veth0:10.0.0.2<0>", via.format("Socket")]
    assert "no rate of its own" in link(virtual, SWITCHED, hosts=2).source
    two = ["NET/Socket : Using [0]eth0:10.0.0.2<0> [1]eth1:10.0.1.2<0>", via.format("Socket")]
    assert "over 2 network cards" in link(two, SWITCHED, hosts=2).source


def test_nccl_writes_its_log_only_where_the_user_has_not_asked_for_it(monkeypatch, tmp_path):
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    assert rank_environment("cuda", 2, tmp_path)["NCCL_DEBUG_FILE"] == str(tmp_path / "work" / "nccl.%p.log")
    assert not [name for name in rank_environment("cpu", 2, tmp_path) if name.startswith("NCCL")]
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    assert "NCCL_DEBUG_FILE" not in rank_environment("cuda", 2, tmp_path)


def test_kinds_are_those_of_the_report():
    assert set(COLLECTIVES) < set(KINDS)
