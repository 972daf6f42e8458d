import json
import shutil
from pathlib import Path

import pytest

import analyzers
from analyzers.errors import UnreadableTrace, UnusableRun
from analyzers.notices import Code
from analyzers.run.layout import trace_files
from tests.support.kineto_files import small_trace, step, write, write_run
from tests.support.sweeping import write_cell


def test_a_run_holds_its_ranks_in_order(tmp_path):
    run = analyzers.load(write_run(tmp_path / "r", [2, 0, 1], 3))
    assert [trace.rank for trace in run.ranks] == [0, 1, 2]
    assert run.name == "r"


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank7.json", 7), ("Rank_7.json.gz", 7), ("sampled_rank-7.json", 7), ("trace_7.json", 0),
     ("rank_20261120093000.json", 0),
     ("host.1690000000000.pt.trace.json", 0), ("mi250_toy_6_2_kineto.json", 0)],
)  # fmt: skip
def test_rank_from_the_name_where_the_trace_does_not_say(tmp_path, name, rank):
    path = write(tmp_path / name, small_trace(rank=None))
    assert [trace.rank for trace in analyzers.load(path).ranks] == [rank]


@pytest.mark.parametrize("name", ["trace_{}.json", "{}.json", "worker.{}.json"])
def test_a_number_at_the_end_tells_the_files_of_a_folder_apart(tmp_path, name):
    for rank in (0, 1):
        write(tmp_path / name.format(rank), small_trace(rank=None))
    assert [trace.rank for trace in analyzers.load(tmp_path).ranks] == [0, 1]


def test_most_ranks_of_a_large_world_may_be_missing(tmp_path):
    run = analyzers.load(write(tmp_path / "a.json", small_trace(rank=10**6 - 1, world_size=10**6)))
    assert any("999999 of them" in str(warning) for warning in run.warnings)


def test_a_gpu_trace_without_its_device_is_no_cpu_run(tmp_path):
    launches = [event for event in small_trace()["traceEvents"] if event["cat"] != "kernel"]
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 1, "dur": 2}
    with pytest.raises(UnusableRun):
        analyzers.load(write(tmp_path / "a.json", [*launches, operator]))
    assert analyzers.load(write(tmp_path / "b.json", [operator])).ranks[0].is_cpu_run
    with pytest.raises(UnusableRun):
        analyzers.load(write(tmp_path / "c.json", [operator | {"name": "c10d::allreduce_"}]))


def test_the_trace_is_believed_before_its_name(tmp_path):
    assert analyzers.load(write(tmp_path / "rank5.json", small_trace(rank=3))).ranks[0].rank == 3


def test_a_missing_rank_is_a_warning(tmp_path):
    run = analyzers.load(write_run(tmp_path, [0, 1, 3], 4))
    assert "missing ranks (world size 4): 2; the report covers the 3 that are here" in map(str, run.warnings)


def test_many_missing_ranks_are_counted(tmp_path):
    (warning,) = [
        said for said in analyzers.load(write_run(tmp_path, [0], 128)).warnings if said.code == Code.RANKS_MISSING
    ]
    assert "127 of them" in str(warning)


def test_two_files_of_one_rank_are_refused(tmp_path):
    write_run(tmp_path, [0, 1], 2)
    shutil.copy(tmp_path / "rank1.json", tmp_path / "again.json")
    with pytest.raises(UnusableRun, match=r"rank 1 has 2 files \(again\.json, rank1\.json\)"):
        analyzers.load(tmp_path)


def test_an_unreadable_rank_is_a_warning_and_the_rest_is_kept(tmp_path):
    write_run(tmp_path, [0, 1], 2)
    (tmp_path / "rank1.json").write_text("{ broken")
    run = analyzers.load(tmp_path)
    assert [trace.rank for trace in run.ranks] == [0]
    assert any("rank1.json is not a trace" in str(warning) for warning in run.warnings)


def test_a_rank_without_device_activity_is_a_warning(tmp_path):
    write_run(tmp_path, [0], 2)
    write(tmp_path / "rank1.json", small_trace(1, 2) | {"traceEvents": [step(1, 0, 1)], "deviceProperties": [{}]})
    assert any("rank1.json: no device activity" in str(warning) for warning in analyzers.load(tmp_path).warnings)


def test_no_device_activity_at_all(tmp_path):
    with pytest.raises(UnusableRun):
        analyzers.load(write(tmp_path / "rank0.json", [step(1, 0, 1)]))


def test_nothing_there(tmp_path):
    with pytest.raises(UnusableRun, match="no such file"):
        analyzers.load(tmp_path / "none")
    with pytest.raises(UnusableRun, match="no traces"):
        analyzers.load(tmp_path)
    write_run(tmp_path / "deeper", [0], 1)
    with pytest.raises(UnusableRun, match="its folder deeper holds traces"):
        analyzers.load(tmp_path)


def test_all_unreadable(tmp_path):
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").write_text("{")
    with pytest.raises(UnreadableTrace, match="and 1 more"):
        analyzers.load(tmp_path)


def test_other_json_in_the_folder_is_left_out_with_a_word(tmp_path):
    write_run(tmp_path, [0], 1)
    write(tmp_path / "config.json", {"lr": 0.1})
    run = analyzers.load(tmp_path)
    assert len(run.ranks) == 1
    assert any("config.json" in str(warning) for warning in run.warnings)


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "\udcff", '{"schema": "other/1"}', "[]", '{"world_size": "many"}']
)
def test_a_broken_manifest_costs_only_itself(tmp_path, text):
    write_run(tmp_path, [0], 1)
    (tmp_path / "run.json").write_bytes(text.encode(errors="surrogateescape"))
    run = analyzers.load(tmp_path)
    assert run.manifest is None
    assert any("run.json" in str(warning) for warning in run.warnings)


def test_a_light_window_gives_its_times_only_beside_a_manifest(tmp_path):
    write_run(tmp_path, [0], 1)
    light = small_trace()
    for event in light["traceEvents"]:
        event["ts"] += 100
    write(tmp_path / "light" / "rank0.json", light)
    (trace,) = analyzers.load(tmp_path).ranks
    assert trace.timed is trace.events
    write(tmp_path / "run.json", {"schema": "tracer.run/1"})
    assert any(
        "one file of a recorded run" in str(warning) for warning in analyzers.load(tmp_path / "rank0.json").warnings
    )
    (trace,) = analyzers.load(tmp_path).ranks
    assert trace.timed.start_ns[trace.events.on_device].tolist() == [
        start + 100_000 for start in trace.events.start_ns[trace.events.on_device]
    ]


def test_a_light_window_that_does_not_fit_is_said(tmp_path):
    write_run(tmp_path, [0], 1)
    write(tmp_path / "run.json", {"schema": "tracer.run/1"})
    write(tmp_path / "light" / "rank0.json", json.dumps([]))
    run = analyzers.load(tmp_path)
    assert run.ranks[0].timed is run.ranks[0].events
    assert any("the light profile cannot be used (rank 0: 0 device events" in str(warning) for warning in run.warnings)


def test_times_of_light_and_full_windows_are_never_mixed(tmp_path):
    write_run(tmp_path, [0, 1], 2)
    write(tmp_path / "run.json", {"schema": "tracer.run/1"})
    write(tmp_path / "light" / "rank0.json.gz", small_trace())
    run = analyzers.load(tmp_path)
    assert all(trace.timed is trace.events for trace in run.ranks)
    assert any("rank 1: there is none" in str(warning) for warning in run.warnings)
    (tmp_path / "light" / "rank1.json").write_text("{")
    run = analyzers.load(tmp_path)
    assert all(trace.timed is trace.events for trace in run.ranks)
    assert any("the light profile cannot be used (rank 1" in str(warning) for warning in run.warnings)


def test_kernels_that_look_like_communication_are_named(tmp_path):
    document = small_trace()
    document["traceEvents"][2]["name"] = "my_allreduce_kernel"
    (warning,) = [
        said
        for said in analyzers.load(write(tmp_path / "a.json", document)).warnings
        if said.code == Code.KERNEL_UNKNOWN
    ]
    assert "'my_allreduce_kernel' (1 times)" in str(warning)


def test_of_a_long_run_over_hosts_the_steps_are_named(tmp_path):
    for name in ("step2", "step12"):
        (tmp_path / name / "ranks0-3").mkdir(parents=True)
        (tmp_path / name / "ranks0-3" / "rank0.json.gz").touch()
    with pytest.raises(UnusableRun, match="its folders step12, step2 hold traces"):
        trace_files(tmp_path)


def test_a_trace_cut_before_its_kernels_says_that_it_is_cut(tmp_path):
    host = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 5, "pid": 1, "tid": 1}
    (tmp_path / "rank0.json").write_text(f'{{"traceEvents": [{json.dumps(host)}, {{"ph": "X", "cat": "ker')
    with pytest.raises(
        UnusableRun, match=r"no device activity in what could be read \(rank0.json: .*\); copy or record"
    ):
        analyzers.load(tmp_path)


def test_a_sweeps_folder_says_what_it_is(tmp_path):
    write_cell(tmp_path, "ddp", 2, 8)
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(
        UnusableRun,
        match=r"it is a sweep: `tracer sweep --report .*` reports it, or name one of its cells: ddp2-batch8",
    ):
        trace_files(tmp_path)


def test_a_folder_of_folders_with_a_rank_each_says_how_to_report_it(tmp_path):
    for rank in range(3):
        document = {key: value for key, value in small_trace(rank, 3).items() if key != "distributedInfo"}
        write(tmp_path / f"rank_{rank}" / "trace.json", document)
    with pytest.raises(UnusableRun) as refused:
        analyzers.load(tmp_path)
    assert f"`tracer report {tmp_path}/*`" in str(refused.value)
    assert [trace.rank for trace in analyzers.load(sorted(tmp_path.iterdir())).ranks] == [0, 1, 2]


def test_a_folder_of_runs_names_one_of_them(tmp_path):
    for name in ("a", "b"):
        write_run(tmp_path / name, [0, 1], 2)
    with pytest.raises(UnusableRun, match=r"its folders a, b hold traces: name one of them$"):
        analyzers.load(tmp_path)


def test_of_many_runs_the_first_are_named_and_the_others_counted(tmp_path):
    for number in range(23):
        write_run(tmp_path / f"run{number:02}", [0, 1], 2)
    with pytest.raises(UnusableRun, match=r"its folders run00, run01, .*, run19 and 3 more hold traces: name one of"):
        analyzers.load(tmp_path)


def test_a_folder_that_may_not_be_opened_is_named_beside_the_runs(tmp_path, monkeypatch):
    write_run(tmp_path / "a", [0, 1], 2)
    (tmp_path / "locked").mkdir()
    look = Path.iterdir

    def iterdir(folder):
        if folder.name == "locked":
            raise PermissionError(13, "Permission denied", str(folder))
        return look(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with pytest.raises(UnusableRun) as refused:
        analyzers.load(tmp_path)
    assert "its folder a holds traces: name it; locked cannot be opened (Permission denied)" in str(refused.value)
