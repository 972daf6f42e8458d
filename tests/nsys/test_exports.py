"""Nsight Systems' exports: ranks, names, calls and sizes of small databases; laws over the real ones."""

import re
import sqlite3
from collections import Counter
from contextlib import closing

import numpy as np
import pytest

import analyzers
from analyzers.errors import UnreadableTrace, UnusableRun
from analyzers.notices import Code
from analyzers.rank.columns import activities
from analyzers.trace import STEP, Category, Kind
from tests.support import nsys_exports as nsys
from tests.support.nsys_exports import PUBLIC, ROUNDS, nvtx, ranks, write
from tests.support.samples import SAMPLES
from tracer.reading import Readers, read_lanes

TRUTH = {
    "h100_2gpu_1s": ([22_385_163, 22_444_359], 0),
    "mfu_2gpu_before": ([253_690_832, 256_095_624], 33),
    "mfu_2gpu_after": ([227_484_352, 227_608_953], 31),
}
SAMPLE = SAMPLES / "convnet-nsys1"
REAL = pytest.mark.skipif(not PUBLIC.is_dir(), reason="no shared folder")


def reported(path):
    return analyzers.report(analyzers.summarize(path))


@pytest.fixture
def two(tmp_path):
    return write(tmp_path / "report1.sqlite", ranks())


def test_a_process_is_a_rank_and_threads_are_its_own(two):
    run = analyzers.load(two)
    assert [(rank.rank, rank.owner.pid) for rank in run.ranks] == [(0, "100"), (1, "101")]
    for number, rank in enumerate(run.ranks):
        events = rank.events
        assert set(events.device[events.on_device].tolist()) == {number}
        assert set(events.thread[~events.on_device].tolist()) == {100 + number}
        assert events.start_ns.min() == nsys.EPOCH + 5
    assert {warning.code for warning in run.warnings} == {Code.RANKS_ARE_GUESSED, Code.RUN_JSON_MISSING}


def test_rows_have_the_names_and_categories_of_kinetos(two):
    events = analyzers.load(two).ranks[0].events
    named = zip(events.category.tolist(), events.name.tolist(), strict=True)
    counted = Counter((Category(category).name, events.names[code]) for category, code in named)
    assert {row: count for row, count in counted.items() if not row[1].startswith(STEP)} == {
        ("KERNEL", "sm90_gemm"): ROUNDS,
        ("KERNEL", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096>)"): ROUNDS + 1,
        ("LAUNCH", "cudaLaunchKernel"): ROUNDS,
        ("LAUNCH", "cuLaunchKernelEx"): ROUNDS,
        ("OPERATOR", "aten::mm"): ROUNDS,
        ("OPERATOR", "record_param_comms"): ROUNDS,
        ("ANNOTATION", "nccl:all_to_all"): ROUNDS,
        ("ANNOTATION", "forward"): ROUNDS,
    }
    assert set(events.forward[events.named("aten::mm")].tolist()) == {5}
    assert Counter(events.kind[events.on_device].tolist()) == {Kind.COMPUTE: ROUNDS, Kind.COMM: ROUNDS + 1}
    assert events.launched_ns[events.named("sm90")].tolist()[0] == nsys.EPOCH + 20


@pytest.mark.parametrize(
    ("text", "name", "is_operator"),
    [
        ("aten::copy_, op_id = 4", "aten::copy_", True),
        ("AddmmBackward0, seq = 3, op_id = 4, sizes = [[2, 3]]", "AddmmBackward0", True),
        ("FSDP::pre_forward (blocks.0, and more), op_id = 4", "FSDP::pre_forward (blocks.0, and more)", False),
        ("Optimizer.step#AdamW.step, op_id = 4", "Optimizer.step#AdamW.step", False),
        ("iteration, 5", "iteration, 5", False),
        ("prefill, seq = 2048", "prefill, seq = 2048", False),
    ],
)
def test_ranges_are_operators_or_annotations(tmp_path, text, name, is_operator):
    rows = ranks()
    rows["NVTX_EVENTS"].append(nvtx(0, 600, 700, text))
    events = analyzers.load(write(tmp_path / "a.sqlite", rows)).ranks[0].events
    (row,) = np.flatnonzero(events.start_ns == nsys.EPOCH + 600).tolist()
    assert events.names[events.name[row]] == name
    assert events.category[row] == (Category.OPERATOR if is_operator else Category.ANNOTATION)


def calls(report):
    """Kind, bytes, group and type of each collective, counted."""
    return Counter((row.kind, row.bytes, row.group_size, row.group_name, row.dtype) for row in report.collectives)


def test_sizes_and_groups_come_from_payloads(tmp_path):
    rows = ranks(lone=False)
    said = {("all_to_all", 2_000, 2, "0xfeedc0de12345678", "bytes"): ROUNDS}
    assert calls(reported(write(tmp_path / "a.sqlite", rows))) == said
    for row in rows["NVTX_EVENTS"]:  # as an export may write them: two digits a byte
        row["binaryData"] = row["binaryData"] and row["binaryData"].hex()
    assert calls(reported(write(tmp_path / "b.sqlite", rows))) == said


def test_of_an_uneven_all_to_all_the_splits_are_known_and_the_ranks_are_not(tmp_path):
    path = write(tmp_path / "a.sqlite", ranks(kept=9_000, lone=False))
    events = [rank.events for rank in analyzers.load(path).ranks]
    assert [call.split_in for one in events for call in one.calls] == [(9_000, 1_000), (1_000, 9_000)]
    assert {(row.kind, row.bytes) for row in reported(path).collectives} == {("all_to_all", None)}


def test_a_communicator_whose_making_was_not_recorded_is_all_ranks_if_there_is_no_other(tmp_path):
    rows = ranks(lone=False)
    rows["NVTX_EVENTS"] = [row for row in rows["NVTX_EVENTS"] if row.get("textId") != nsys.INIT]
    assert calls(reported(write(tmp_path / "a.sqlite", rows))) == {("all_to_all", 2_000, 2, "", "bytes"): ROUNDS}
    other = nsys.blob(nsys.WHOLE, 7, 64, 0)
    rows["NVTX_EVENTS"] += [nvtx(rank, 9_000, 9_010, nsys.ALL_REDUCE, other) for rank in (0, 1)]
    report = reported(write(tmp_path / "b.sqlite", rows))
    assert not report.collectives
    assert {row.why for row in report.unmatched} == {"the trace does not say between which ranks"}


@pytest.mark.parametrize(
    ("operation", "ran", "schema", "kind", "nbytes"),
    [
        (nsys.ALL_REDUCE, nsys.REDUCING, nsys.WHOLE, "all_reduce", 4_096),
        (nsys.ALL_GATHER, nsys.GATHERING, nsys.PART, "all_gather", 8_192),
    ],
)
def test_other_collectives_have_the_bytes_that_count(tmp_path, operation, ran, schema, kind, nbytes):
    rows = ranks(lone=False)
    for row in rows["NVTX_EVENTS"]:
        if row.get("text") == "nccl:all_to_all, op_id = 13":
            row["text"] = f"nccl:{kind}, op_id = 13"
    rows["NVTX_EVENTS"] = [row for row in rows["NVTX_EVENTS"] if row.get("textId") not in (nsys.SEND, nsys.RECV)]
    said = nsys.blob(schema, nsys.COMMUNICATOR, 4_096, *((0,) if schema == nsys.WHOLE else ()))
    inside = [row for row in rows["NVTX_EVENTS"] if row.get("text") == "record_param_comms, op_id = 12"]
    rows["NVTX_EVENTS"] += [
        nvtx(row["globalTid"] % 2, row["start"] + 20, row["start"] + 30, operation, said) for row in inside
    ]
    for row in rows["CUPTI_ACTIVITY_KIND_KERNEL"]:
        if row["demangledName"] == nsys.SEND_RECV:
            row["demangledName"] = ran
    report = reported(write(tmp_path / "a.sqlite", rows))
    assert calls(report) == {(kind, nbytes, 2, "0xfeedc0de12345678", "bytes"): ROUNDS}


def test_a_kernel_without_a_launch_is_of_the_kind_of_its_stream(two, tmp_path):
    assert [row.kind for row in reported(two).collectives] == ["all_to_all"] * (ROUNDS + 1)
    rows = ranks(payloads=False)
    for row in rows["NVTX_EVENTS"]:  # another kind on the same stream: nothing tells what the first was
        if row.get("text") == "nccl:all_to_all, op_id = 13" and row["start"] < 1_000:
            row["text"] = "nccl:gather"
    for rank in analyzers.load(write(tmp_path / "a.sqlite", rows)).ranks:
        events = rank.events
        assert events.call[events.on_device].tolist() == [-1] * (2 * ROUNDS + 1)


def test_a_recorded_event_says_what_was_waited_for(tmp_path):
    rows = ranks()
    rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"] = [
        {
            "start": 60,
            "end": 61,
            "deviceId": 0,
            "streamId": 24,
            "globalPid": nsys.pid(0),
            "syncType": 2,
            "eventSyncId": sync,
        }
        for sync in (7, 8)
    ]
    rows["CUPTI_ACTIVITY_KIND_CUDA_EVENT"] = [
        {"deviceId": 0, "streamId": 13, "correlationId": 44, "globalPid": nsys.pid(0), "eventSyncId": 7}
    ]
    syncs = analyzers.load(write(tmp_path / "a.sqlite", rows)).ranks[0].events.syncs
    assert syncs.wait_on_record.tolist() == [44, -1]
    assert syncs.wait_on_stream.tolist() == [13, -1]


def test_ranks_in_files_of_their_own_have_clocks_of_their_own(tmp_path):
    for rank in (0, 1):
        of_rank = (nsys.pid(rank), nsys.pid(rank) + 100 + rank)
        rows = {
            table: [row for row in each if row.get("globalPid", row.get("globalTid")) in of_rank]
            for table, each in ranks().items()
        }
        write(tmp_path / f"rank{rank}.sqlite", rows, began=nsys.EPOCH + 5 * rank)
    run = analyzers.load(tmp_path)
    assert [rank.rank for rank in run.ranks] == [0, 1]
    assert run.rank_source == "file"
    assert len({rank.header.host_name for rank in run.ranks}) == 2


def test_ranks_to_draw_are_named_by_the_numbers_that_reports_print(two):
    summary, by = analyzers.summarize(two), Readers(workers=1)
    for number in (0, 1):
        drawn = analyzers.lanes(read_lanes(summary, two, [number], by=by), analyzers.report(summary))
        assert {lane.rank for lane in drawn} == {number}


def started(rank, start, end, text, ended_by=None):
    """A range that starts and ends on its own; `ended_by` is the thread of another's rank that ends it."""
    by = None if ended_by is None else nsys.pid(ended_by) + 200
    return nvtx(rank, start, end, text) | {"eventType": 60, "endGlobalTid": by}


def test_ranges_that_start_and_end_on_one_thread_are_ranges(tmp_path):
    rows = ranks()
    begun = [1_000 * number + 37 * number**2 for number in range(ROUNDS)]
    for rank in (0, 1):
        rows["NVTX_EVENTS"] += [started(rank, at + 1, at + 950, "iteration") for at in begun]
        rows["NVTX_EVENTS"] += [started(rank, at + 1, at + 2_500, "prefetch", ended_by=rank) for at in begun]
    path = write(tmp_path / "a.sqlite", rows)
    for rank in analyzers.load(path).ranks:
        assert int(rank.events.named("iteration").sum()) == ROUNDS
        assert not rank.events.named("prefetch").any()
    report = analyzers.report(analyzers.summarize(path, steps="iteration"))
    assert {row.step for row in report.windows} == {*range(ROUNDS)}


def test_ranges_that_overlap_others_of_their_thread_change_no_figure(tmp_path):
    rows = ranks()
    plain = write(tmp_path / "a.sqlite", rows)
    for rank in (0, 1):  # none is the run's first event, from which times count
        rows["NVTX_EVENTS"] += [started(rank, at, at + 1_700, "request") for at in range(6, 6_000, 1_101)]
    overlapped = write(tmp_path / "b.sqlite", rows)
    plain, overlapped = (analyzers.report(analyzers.summarize(path, steps="forward")) for path in (plain, overlapped))
    assert overlapped.windows == plain.windows
    assert overlapped.collectives == plain.collectives


@pytest.mark.parametrize(("lacks", "trust"), [((), "fair"), (("NVTX_EVENTS",), "low")])
def test_where_no_step_is_marked_it_is_said_how_nsys_sees_one(tmp_path, lacks, trust):
    headline = reported(write(tmp_path / "a.sqlite", ranks(), without=lacks)).summary.headline
    assert headline.trust == trust
    said = " ".join([headline.why, *(one.remedy or "" for one in _warnings(tmp_path))])
    assert 'torch.cuda.nvtx.range_push("step")' in said
    assert "--steps step" in said
    assert "profiler.step()" not in said


@pytest.mark.parametrize("path", ["synthetic", *(pytest.param(name, marks=REAL) for name in TRUTH)])
def test_no_notice_of_an_export_asks_for_options_of_torch_profiler(tmp_path, path):
    rows = ranks()
    rows["NVTX_EVENTS"] += [nvtx(rank, 5, 9_000, "AddmmBackward0, seq = 5, op_id = 99") for rank in (0, 1)]
    path = write(tmp_path / "a.sqlite", rows) if path == "synthetic" else PUBLIC / f"{path}.sqlite"
    notices = _warnings(path)
    assert {Code.MODULES_NOT_TRACED, Code.FLOPS_ARE_NULL} & {one.code for one in notices}
    for one in notices:
        assert not re.search(r"with_stack|with_modules|record_shapes|profiler\.step", str(one)), one


def _warnings(folder):
    run = reported(folder).run
    return [*run.warnings, *run.notes]


def test_what_is_read_is_told_by_content_and_traces_of_kinetos_come_first(two, tmp_path):
    renamed = tmp_path / "rank0.json"
    two.rename(renamed)
    assert len(analyzers.load(renamed).ranks) == 2


@pytest.mark.parametrize("name", ["report1.nsys-rep", "report1.qdrep", "StringIds.parquet"])
def test_other_forms_are_refused_with_the_command_that_exports_them(tmp_path, name):
    (tmp_path / name).write_bytes(b"PAR1 or whatever")
    for path, refusal in ((tmp_path / name, UnreadableTrace), (tmp_path, UnusableRun)):
        with pytest.raises(refusal, match=r"`nsys export --type sqlite --include-blobs=true .*nsys-rep|qdrep`"):
            analyzers.load(path)


def test_what_an_export_lacks_is_said(tmp_path):
    rows = ranks(payloads=False)
    rows["META_DATA_EXPORT"] = [{"name": "EXPORT_PARAM_INCLUDE_BLOBS", "value": "false"}]
    path = write(tmp_path / "a.sqlite", rows)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE GPU_METRICS (timestamp, value)")
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end)")
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1, 2)")
    said = [
        warning.text
        for warning in analyzers.load(path).warnings
        if warning.code in (Code.EXPORT_LACKS, Code.TRACE_INCOMPLETE)
    ]
    assert len(said) == 3
    for text in ("--cuda-graph-trace=node", "--include-blobs=true", "metrics of GPUs"):
        assert any(text in one for one in said)


def _union_ns(path, device):
    """The length of the union of a device's kernels but NCCL's, as SQL alone says it."""
    sql = """
        WITH kernels AS (SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName
                         WHERE deviceId = ? AND value NOT LIKE '%nccl%'),
        reached AS (SELECT start, end, max(end) OVER
                    (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS past FROM kernels)
        SELECT sum(max(0, end - max(start, coalesce(past, start)))) FROM reached"""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        return database.execute(sql, (device,)).fetchone()[0]


@REAL
@pytest.mark.parametrize("name", TRUTH)
def test_compute_of_real_exports_is_the_union_in_sql_and_collectives_are_matched(name):
    path, (compute_ns, count) = PUBLIC / f"{name}.sqlite", TRUTH[name]
    report = reported(path)
    assert [row.compute_ns for row in report.windows] == compute_ns == [_union_ns(path, device) for device in (0, 1)]
    assert Counter((row.kind, len(row.members)) for row in report.collectives) == (
        {("all_to_all", 2): count} if count else {}
    )
    for row in report.windows:
        assert row.compute_ns + row.exposed_comm_ns + row.exposed_copy_ns + row.idle_ns == row.span_ns


@REAL
@pytest.mark.parametrize(("name", "compute_ns"), [("mock", 2), ("healthy_1pct", 400)])
def test_other_real_exports_have_their_kernels(name, compute_ns):
    (rank,) = analyzers.load(PUBLIC / f"{name}.sqlite").ranks
    assert int((rank.events.category == Category.KERNEL).sum()) == compute_ns


def test_the_sample_says_what_nccls_payloads_carry():
    """In each of six steps, which nothing marks, one rank by itself, without a kernel of NCCL's."""
    found = reported(SAMPLE)
    assert found.run.steps_inferred and [window.step for window in found.windows] == [*range(6)]
    (rank,) = analyzers.load(SAMPLE).ranks
    called = Counter(rank.events.calls[code] for code in rank.events.call[rank.events.call >= 0].tolist())
    assert {(call.kind.name, call.elements_in, call.dtype): count for call, count in called.items()} == {
        ("ALL_REDUCE", 4_096, "bytes"): 6,
        ("ALL_REDUCE", 4_194_304, "bytes"): 6,
        ("BROADCAST", 16_384, "bytes"): 6,
    }


def test_compute_of_the_sample_is_the_union_of_its_kernels():
    with closing(sqlite3.connect(f"file:{SAMPLE / 'session.sqlite'}?mode=ro", uri=True)) as connection:
        spans = connection.execute(
            "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName "
            "WHERE s.value NOT LIKE 'nccl%' ORDER BY start"
        ).fetchall()
    union, reach = 0, 0
    for start, end in spans:
        union, reach = union + max(0, end - max(start, reach)), max(reach, end)
    (rank,) = analyzers.load(SAMPLE).ranks
    assert activities(rank)[0].compute.length_ns() == union
