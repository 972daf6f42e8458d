"""Files as people have them: which rank each is, cycles of one process, several processes in one file.

Rows are what was tried: the kind (as reports of people who profile were sorted: K4 several processes in one file, K5
numbers in names, K6 cycles of one process, K16 names that tools write), the files, the right value.
"""

import json
import random
import re

import pytest

import analyzers
import analyzers.rank.summary
from analyzers.errors import AnalysisError, UnreadableTrace, UnusableRun
from analyzers.notices import Code
from analyzers.rank.summary import summarize
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.build import report
from analyzers.run.loading import hosts
from analyzers.trace import event_stream
from tests.support.exactly import differences
from tests.support.kineto_files import write
from tests.support.many_processes import document, rows, written
from tests.support.samples import ROOT
from tests.support.tiers import quarters
from tracer.cli import main
from tracer.reading import Readers, read_lanes, read_run
from tracer.reading.cache import identity

TWO = (0, 1)

# id: (kind, names of the files, of pids 501743 and 501750, members of the default group, ranks, source)
NAMED = {
    "pid_index": ("K5", "libkineto_trace_{pid}_0.json", TWO, [0, 1], "guessed"),
    "pid": ("K5", "libkineto_activities_{pid}.json", TWO, [0, 1], "guessed"),
    "time": ("K5", "run_1201{index}3.json", TWO, [0, 1], "guessed"),
    "year": ("K5", "llama-202{index}.json", TWO, [0, 1], "guessed"),
    "step": ("K5", "step_1{index}0.json", TWO, [0, 1], "guessed"),
    "handler": ("K16", "node0_{pid}.1700000000000.pt.trace.json", TWO, [0, 1], "guessed"),
    "host_with_numbers": ("K5", "r1t03_{pid}.17000000000{index}0.pt.trace.json", TWO, [0, 1], "guessed"),
    "too_large": ("K5", "rank{index}7.json", TWO, [0, 1], "guessed"),
    "bracket": ("K16", "exp[llama2-70b-run1]-rank[{index}].json.gz", TWO, [0, 1], "file"),
    "local_global": ("K16", "local_rank0_global_rank{index}.json", TWO, [0, 1], "file"),
    "global_local": ("K16", "global_rank_{index}-local_rank_0.json", TWO, [0, 1], "file"),
    "of_larger_world": ("K16", "local_rank{index}_global_rank{index8}.json", range(16), [8, 9], "file"),
    "sglang": ("K16", "1752-TP-{index}-DP-0.trace.json.gz", TWO, [0, 1], "file"),
    "stages": ("K16", "1752-TP-0-DP-0-PP-{index}-EP-0.trace.json.gz", TWO, [0, 1], "file"),
    "lora": ("K16", "lora_rank16_rank{index}.json", TWO, [0, 1], "file"),
    "local_alone": ("K16", "trace_local_rank{index}.json", TWO, [0, 1], "file"),
    "last_number": ("K5", "trace_{index}.json", TWO, [0, 1], "file"),
    "no_separator": ("K5", "gpu{index}.json", TWO, [0, 1], "file"),
    "unsaid_groups": ("K5", "trace_{index}.json", (), [0, 1], "file"),
}


def named(folder, name, **how):
    for index, pid in enumerate((501743, 501750)):
        written(folder / name.format(pid=pid, index=index, index8=index + 8), pid, late_us=50 * index, **how)
    return folder


@pytest.mark.parametrize("case", NAMED)
def test_names_are_ranks_where_the_traces_do_not_contradict(tmp_path, case):
    _, name, group, ranks, source = NAMED[case]
    run = summarize(named(tmp_path, name, group=tuple(group)))
    assert [(rank.rank, rank.owner.pid) for rank in run.ranks] == list(zip(ranks, ("501743", "501750"), strict=True))
    assert run.rank_source == source
    facts = report(run).run
    assert facts.rank_source == source
    assert facts.world_size == (len(group) or 2)
    assert (Code.RANKS_ARE_GUESSED in [notice.code for notice in facts.warnings]) is (source == "guessed")
    if len(group) == 2:
        assert [wait.wait_ns for row in report(run).collectives[:1] for wait in row.members] == [50_000, 0]


@pytest.mark.parametrize(
    ("kind", "name", "how"),
    [
        ("K5", "run_12{index}113.json", {"group": ()}),
        ("K5", "trace-{pid}.json", {"group": ()}),
        ("K5", "libkineto_{pid}_0.json", {"group": (0, 1, 2, 3)}),
        ("K5", "libkineto_{pid}_0.json", {"group": (2, 3)}),
        ("K5", "libkineto_{pid}_0.json", {"group": TWO, "description": "mesh_tp"}),
    ],
)
def test_what_says_no_rank_and_is_no_whole_run_is_refused(tmp_path, kind, name, how):
    with pytest.raises(UnusableRun, match=r"--rank .*json=N"):
        analyzers.load(named(tmp_path, name, **how))


@pytest.mark.parametrize("description", ["", "undefined", "default_pg"])
def test_the_default_group_is_known_by_its_name_too(tmp_path, description):
    run = summarize(named(tmp_path, "libkineto_{pid}_0.json", group=TWO, description=description))
    assert run.rank_source == "guessed"


@pytest.mark.parametrize(
    ("name", "groups", "places", "ranks", "source"),
    [
        ("libkineto_{pid}_0.json", (TWO, TWO), (1, 0), [(0, "501750"), (1, "501743")], "trace"),
        ("trace_{index}.json", (TWO, TWO), (1, 0), [(0, "501750"), (1, "501743")], "trace"),
        ("rank{index}.json", (TWO, TWO), (1, 0), [(0, "501750"), (1, "501743")], "trace"),
        ("{pid}.json", ((0, 2), (1, 3)), (1, 0), [(1, "501750"), (2, "501743")], "trace"),
        ("{pid}.json", (TWO, TWO), (0, 0), [(0, "501743"), (1, "501750")], "guessed"),  # they contradict one another
        ("rank{index}.json", (TWO, TWO), (0, 0), [(0, "501743"), (1, "501750")], "file"),
        ("rank{index}.json", (TWO, TWO), (0, 5), [(0, "501743"), (1, "501750")], "file"),  # no group has such a place
        ("rank{index}.json", (TWO, TWO), (0, None), [(0, "501743"), (1, "501750")], "file"),
    ],
)  # fmt: skip
def test_collectives_host_rows_say_which_rank_called_them(tmp_path, name, groups, places, ranks, source):
    for index, (pid, group, place) in enumerate(zip((501743, 501750), groups, places, strict=True)):
        said = "default_pg" if group == TWO else "mesh_dp"
        written(tmp_path / name.format(pid=pid, index=index), pid, group=group, calls_as=place, description=said)
    run = summarize(tmp_path)
    assert ([(rank.rank, rank.owner.pid) for rank in run.ranks], run.rank_source) == (ranks, source)


def test_the_headers_rank_and_the_users_come_before_who_called(tmp_path):
    for pid, rank, place in ((7, 0, 1), (9, 1, 0)):
        written(tmp_path / f"{pid}.json", pid, rank, 2, group=TWO, calls_as=place)
    assert [(rank.rank, rank.owner.pid) for rank in summarize(tmp_path).ranks] == [(0, "7"), (1, "9")]
    for pid, place in ((7, 1), (9, 0)):
        written(tmp_path / f"{pid}.json", pid, group=TWO, calls_as=place)
    run = analyzers.load(tmp_path, numbers={"7.json": 0, "9.json": 1})
    assert ([rank.owner.pid for rank in run.ranks], run.rank_source) == (["7", "9"], "file")


def test_pids_of_two_hosts_are_not_guessed(tmp_path):
    for host, pid in (("node0", 7), ("node1", 9)):
        write(tmp_path / f"{host}_x.json", document(rows(pid, group=TWO), host_name=host))
    with pytest.raises(UnusableRun, match="--rank"):
        analyzers.load(tmp_path)


def test_the_user_says_which_file_is_which_rank(tmp_path):
    folder = named(tmp_path, "libkineto_{pid}_0.json", group=TWO)
    numbers = {"libkineto_501743_0.json": 1, "libkineto_501750_0.json": 0}
    run = analyzers.load(folder, numbers=numbers)
    assert [(rank.rank, rank.owner.pid) for rank in run.ranks] == [(0, "501750"), (1, "501743")]
    assert run.rank_source == "file"
    with pytest.raises(UnusableRun, match=r"--rank none=1: its files: libkineto_501743_0\.json"):
        analyzers.load(folder, numbers={"none": 1})


@pytest.mark.parametrize("names", [("a{}.json", None), ("rank{}.json", None), ("host_1000_{}.17000.pt.trace.json", 0)])
def test_files_of_one_process_are_cycles_and_their_commands_are_said(tmp_path, names):
    name, rank = names
    for cycle in range(3):
        written(tmp_path / name.format(cycle), 1000, rank, steps=(3, 4, 5), since_us=10_000 + 60_000_000 * cycle)
    with pytest.raises(UnusableRun, match="3 cycles of one process") as refused:
        analyzers.load(tmp_path)
    assert str(refused.value).count("tracer report ") == 3
    for path in tmp_path.iterdir():
        assert len(analyzers.load(path).ranks) == 1


def test_cycles_of_two_ranks_are_two_runs(tmp_path):
    for rank in TWO:
        for cycle in range(2):
            name = f"rank{rank}_{cycle}.json"
            written(tmp_path / name, 1000 + rank, rank, 2, group=TWO, since_us=10_000 + 60_000_000 * cycle)
    with pytest.raises(UnusableRun, match="2 cycles of 2 processes") as refused:
        analyzers.load(tmp_path)
    for command in re.findall(r"tracer report ([^;]*)", str(refused.value)):
        assert [trace.rank for trace in analyzers.load(command.split()).ranks] == [0, 1]


def test_who_has_a_file_of_one_cycle_is_reported_with_that(tmp_path):
    for cycle in range(2):
        since_us = 10_000 + 60_000_000 * cycle
        written(tmp_path / f"rank0_{cycle}.json", 1000, 0, 2, group=TWO, since_us=since_us)
    written(tmp_path / "rank1_1.json", 1001, 1, 2, group=TWO, since_us=since_us)
    with pytest.raises(UnusableRun, match="2 cycles of one process") as refused:
        analyzers.load(tmp_path)
    assert str(refused.value).endswith(f"tracer report {tmp_path}/rank0_1.json {tmp_path}/rank1_1.json")


def test_files_of_one_pid_that_call_as_other_ranks_are_no_cycles(tmp_path):
    for place in TWO:
        written(tmp_path / f"{place}x.json", 1, group=TWO, calls_as=place, since_us=10_000 + 90_000 * place)
    assert [rank.rank for rank in summarize(tmp_path).ranks] == [0, 1]


def test_profiles_of_one_pid_at_the_same_time_are_containers(tmp_path):
    for rank in TWO:
        written(tmp_path / f"rank{rank}.json", 1, group=TWO)
    assert [trace.rank for trace in analyzers.load(tmp_path).ranks] == [0, 1]


def relabelled(events, index, label="[TP0{}] {}"):
    return [event | {"pid": label.format(index, event["pid"])} for event in events]


# id: what becomes of the rows of both processes in one file
MERGED = {
    "one_after_the_other": lambda first, second: [*first, *second],
    "by_time": lambda first, second: sorted([*first, *second], key=lambda event: event["ts"]),
    "the_second_first": lambda first, second: [*second, *first],
    "host_rows_first": lambda first, second: sorted([*first, *second], key=lambda event: event["cat"] == "kernel"),
    "labels": lambda first, second: [*relabelled(first, 0), *relabelled(second, 1)],
    "labels_of_ranks": lambda *parts: [
        event for index, part in enumerate(parts) for event in relabelled(part, index, "[rank {}] {}")
    ],
    "labels_of_numbers": lambda *parts: [
        event for index, part in enumerate(parts) for event in relabelled(part, index, "[{}] {}")
    ],
    "pids_as_text": lambda first, second: [event | {"pid": str(event["pid"])} for event in (*first, *second)],
    "labels_without_steps": lambda first, second: [
        event for event in (*relabelled(first, 0), *relabelled(second, 1)) if event["cat"] != "user_annotation"
    ],
}


@pytest.mark.parametrize("devices", [(0, 1), (0, 0)])
@pytest.mark.parametrize("case", quarters([*MERGED]))
def test_processes_in_one_file_are_ranks_as_in_files_of_their_own(tmp_path, case, devices):
    """K4: correlations are the same in both, and so may devices be, as each process sees its own as 0."""
    parts = [
        rows(pid, device=device, group=TWO, late_us=50 * index)
        for index, (pid, device) in enumerate(zip((1000, 1001), devices, strict=True))
    ]
    merged = write(tmp_path / "one" / "merged.json", document(MERGED[case](*parts)))
    for index, part in enumerate(parts):
        kept = [event for event in part if case != "labels_without_steps" or event["cat"] != "user_annotation"]
        write(tmp_path / "two" / f"rank{index}.json", document(kept))
    (together, apart) = (report(summarize(path)) for path in (merged, tmp_path / "two"))
    assert together.windows == apart.windows
    assert together.collectives == apart.collectives
    assert together.run.ranks == [0, 1]
    assert together.run.rank_source == ("file" if "labels" in case else "guessed")


def test_kernels_of_one_graph_belong_to_who_launched_it(tmp_path):
    """K4: a launch with several kernels; without as many rows as launches the device tells whose each is."""
    parts = [rows(pid, device=device, group=TWO) for device, pid in enumerate((1000, 1001))]
    for part in parts:
        graph = next(event for event in part if event["cat"] == "kernel")
        part += [graph | {"ts": graph["ts"] + 460 + 10 * number, "dur": 5} for number in range(3)]
    path = write(tmp_path / "merged.json", document(sorted([*parts[0], *parts[1]], key=lambda event: event["ts"])))
    for index, trace in enumerate(analyzers.load(path).ranks):
        assert set(trace.events.device[trace.events.on_device].tolist()) == {index}
        assert int(trace.events.on_device.sum()) == 9


def test_a_process_that_marks_no_steps_is_no_rank(tmp_path):
    """K4: a loader's worker, and a mark of another number."""
    worker = [event for event in rows(1001) if event["cat"] != "user_annotation"]
    path = write(tmp_path / "a.json", document([*rows(1000, group=TWO), *worker], 0, 1))
    assert len(analyzers.load(path).ranks) == 1
    path = write(tmp_path / "b.json", document([*rows(1000, steps=(1, 2)), *rows(1001, steps=(3, 4))], 0, 1))
    assert len(analyzers.load(path).ranks) == 1


def test_a_file_of_several_ranks_is_read_once_and_kept(tmp_path, monkeypatch):
    merged = document([*rows(1000, device=0, group=TWO), *rows(1001, device=1, group=TWO)])
    path = write(tmp_path / "run" / "merged.json", merged)
    monkeypatch.setattr(identity, "SETTLED_S", 0.0)
    by = Readers(workers=1, cache=tmp_path / "cache")
    first = read_run(path, by=by)
    monkeypatch.setattr(analyzers.rank.summary, "read_ranks", None)
    again = read_run(path, by=by)
    assert [rank.rank for rank in again.ranks] == [0, 1]
    assert not list(differences(first.ranks, again.ranks))
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_the_ranks_of_one_file_are_drawn_each(tmp_path):
    path = write(tmp_path / "merged.json", document([*rows(1000, group=TWO), *rows(1001, device=1, group=TWO)]))
    by = Readers(workers=1)
    for asked, tracks in (([0, 1], [[0], [1]]), ([1], [[], [1]])):
        drawn = read_lanes(read_run(path, by=by), path, asked, by=by)
        assert [sorted(rank.timed.tracks or ()) for rank in drawn.ranks] == tracks
        assert [rank.rank for rank in drawn.ranks] == [0, 1]


def test_one_file_of_several_processes_takes_ranks_from_the_one_that_is_said(tmp_path):
    path = write(tmp_path / "merged.json", document([*rows(1000), *rows(1001, device=1)]))
    assert [rank.rank for rank in analyzers.load(path, numbers={"merged.json": 4}).ranks] == [4, 5]


def blocks_of(texts, size):
    """What a file holds into which several wrote at once: each block is the last writer's."""
    length = max(map(len, texts))
    return "".join(
        texts[place // size % len(texts)][place : place + size] or texts[0][place : place + size]
        for place in range(0, length, size)
    )


def indented(index, steps=range(1, 40)):
    """One writer's text: rows of different processes are not equally long."""
    chance = random.Random(index)
    made = rows(1000 + index, device=index, group=TWO, steps=steps)
    made = [event | {"args": event.get("args", {}) | {"Ev Idx": 10 ** chance.randrange(12)}} for event in made]
    return json.dumps(document(made, index, 2), indent=1)


@pytest.mark.parametrize("writers", [2, 3])
@pytest.mark.parametrize("size", [512, 1000, 4096, 8192])
@pytest.mark.parametrize("layout", [lambda text: text, lambda text: json.dumps(json.loads(text))])
def test_text_of_processes_in_blocks_is_refused(tmp_path, writers, size, layout):
    """K4: writers of one path. What could be read of it is no run."""
    texts = [layout(indented(index)) for index in range(writers)]
    path = write(tmp_path / "a.json", blocks_of(texts, size))
    with pytest.raises(UnreadableTrace, match=r"mixed in blocks: .* and [\d,]+ bytes of it could not be read"):
        analyzers.load(path)


@pytest.mark.parametrize("place", [0.2, 0.7])
@pytest.mark.parametrize("case", ["one_after_the_other", "by_time"])
def test_processes_in_a_file_with_a_damaged_row_are_ranks_still(tmp_path, case, place):
    """K4 and K12: a row that is no JSON stands in no seam."""
    merged = MERGED[case](*(rows(1000 + index, device=index, group=TWO, steps=range(1, 9)) for index in TWO))
    text = json.dumps(document(merged), indent=1)
    cut = text.index('"cuda_runtime"', int(len(text) * place))
    path = write(tmp_path / "a.json", f"{text[:cut]}cuda{text[cut:]}")
    run = analyzers.load(path)
    assert [trace.rank for trace in run.ranks] == [0, 1]
    assert Code.TRACE_INCOMPLETE in [notice.code for notice in run.warnings]


def test_a_file_cut_short_and_one_of_a_writer_alone_are_not_mixed(tmp_path):
    text = indented(0)
    for damaged in (text[: len(text) // 2], blocks_of([text, text[100:]], 4096)):
        assert len(analyzers.load(write(tmp_path / "a.json", damaged)).ranks) == 1
    whole = json.dumps(document([*rows(1000, group=TWO), *rows(1001, device=1, group=TWO)]))
    assert len(analyzers.load(write(tmp_path / "b.json", whole[:-400])).ranks) == 2


def test_one_file_of_a_run_is_a_rank_that_it_can_be_and_a_guess(tmp_path):
    """K5: the other's file is missing; nothing says which of both this is."""
    run = summarize(written(tmp_path / "libkineto_activities_501743.json", 501743, group=TWO))
    assert (run.ranks[0].rank, run.rank_source) == (0, "guessed")
    run = summarize(written(tmp_path / "of_a_group.json", 501743, group=(2, 3), description="mesh_tp"))
    assert (run.ranks[0].rank, run.rank_source) == (2, "guessed")
    assert summarize(written(tmp_path / "alone.json", 501743)).rank_source == "file"


@pytest.mark.parametrize("longest", [None, 1024])
@pytest.mark.parametrize("name", ["all.json", "all.json.gz"])
@pytest.mark.parametrize("between", ["", "\n"])
def test_traces_one_behind_the_other_in_a_file_are_one_and_the_bytes_of_the_others(
    tmp_path, monkeypatch, longest, name, between
):
    if longest is not None:
        monkeypatch.setattr(event_stream, "LONGEST", longest)
    texts = [json.dumps(document(rows(pid, group=TWO), pid - 7, 2)) for pid in (7, 8)]
    run = analyzers.load(write(tmp_path / name, between.join(texts)))
    (lost,) = [notice.text for notice in run.warnings if notice.code == Code.TRACE_INCOMPLETE]
    assert len(run.ranks) == 1
    assert "another trace begins: give each a file of its own" in lost
    assert "the 0 bytes" not in lost
    # A text that is not looked through begins with the end of its document.
    nbytes = len(texts[1]) + (0 if longest is None else len("]}" + between))
    assert f"{nbytes:,} bytes" in lost


def sending(events, kind, to):
    """The same rows with messages in the place of all-reduces."""
    said = {"Collective name": kind, **({"Dst Rank": to} if kind == "send" else {"Src Rank": 1 - to})}
    return [
        event | {"args": event["args"] | said} if "Collective name" in event.get("args", {}) else event
        for event in events
    ]


def test_no_guess_contradicts_whom_a_process_sends_to(tmp_path):
    for index, (pid, kind) in enumerate(((1000, "send"), (1001, "recv"))):
        for folder, to in (("right", 1), ("wrong", 0)):
            made = sending(rows(pid, group=TWO, device=index), kind, to)
            write(tmp_path / folder / f"of_pid_{pid}.json", document(made))
    assert summarize(tmp_path / "right").rank_source == "guessed"
    with pytest.raises(UnusableRun, match="--rank"):
        analyzers.load(tmp_path / "wrong")


@pytest.mark.parametrize("guessed", [False, True])
@pytest.mark.parametrize("uneven", [False, True])
def test_a_guessed_rank_is_not_named_where_messages_tell_ranks_apart(tmp_path, guessed, uneven):
    """K5: rank 1 comes late; which of both it is matters only where they do not do the same."""
    for index, pid in enumerate((1000, 1001)):
        made = rows(pid, group=TWO, device=index, late_us=250 * index, steps=range(1, 7))
        if uneven:
            made = [
                event | {"args": event["args"] | {"Collective name": "all_to_allv"}}
                if "Collective name" in event.get("args", {})
                else event
                for event in made
            ]
        name = f"run_1201{index}3.json" if guessed else f"rank{index}.json"
        write(tmp_path / name, document(made))
    assert bool(Analyses(summarize(tmp_path), None).awaited) is not (guessed and uneven)


def test_names_of_the_handler_say_which_ranks_share_a_host(tmp_path):
    """K16: HOST_PID.TIME.pt.trace.json, where the process is that of the rows."""
    for host, pid in (("node0", 1000), ("node0", 1001), ("node1", 1002)):
        trace = document(rows(pid, group=(0, 1, 2)), pid - 1000, 3, host_name=None)
        write(tmp_path / f"{host}_{pid}.1700000000000.pt.trace.json", trace)
    assert hosts(None, analyzers.load(tmp_path).ranks) == {0: "node0", 1: "node0", 2: "node1"}


# The inputs of reports by people who profile, where they lie beside the checkout: ranks, source, each rank's windows of
# (span, compute, exposed transfer, exposed unresolved) in us, or a refusal's words.
STEPS = [(1000, 450, 190, 0), (1000, 450, 190, 0), (700, 450, 190, 0)]
INPUTS = {
    "names_pid_index": ([0, 1], "guessed", STEPS),
    "names_time": ([0, 1], "guessed", STEPS),
    "names_year": ([0, 1], "guessed", STEPS),
    "names_bracket": ([0, 1], "file", STEPS),
    "names_local_global": ([8, 9], "file", [(span, compute, 0, 190) for span, compute, _, _ in STEPS]),
    "merged_two_devices.json": ([0, 1], "guessed", [(1000, 450, 140, 0), (1000, 450, 140, 0), (650, 450, 140, 0)]),
    "cycles_epochs": "3 cycles of one process (pid 1000)",
    "two_writers_1k.json": "is mixed in blocks",
    "two_writers_indent_4096.json": "is mixed in blocks",
}
BESIDE = [name for name in INPUTS if (ROOT.parent / "shared" / "public-bugs" / name).exists()]


@pytest.mark.parametrize("name", BESIDE)
def test_inputs_of_reports_give_their_right_values(name):
    path = ROOT.parent / "shared" / "public-bugs" / name
    right = INPUTS[name]
    if isinstance(right, str):
        with pytest.raises(AnalysisError, match=re.escape(right)):
            analyzers.load(path)
        return
    ranks, source, steps = right
    made = report(summarize(path))
    assert (made.run.ranks, made.run.rank_source) == (ranks, source)
    for rank in ranks:
        windows = [window for window in made.windows if window.rank == rank]
        figures = [(one.span_ns, one.compute_ns, one.exposed_transfer_ns, one.exposed_unresolved_ns) for one in windows]
        assert figures == [tuple(us * 1000 for us in step) for step in steps]


def test_rank_says_which_a_file_is_and_ranks_which_are_drawn(tmp_path, capsys):
    folder = named(tmp_path / "run", "libkineto_{pid}_0.json", group=TWO)
    numbers = ("--rank", "libkineto_501743_0.json=1", "--rank", "libkineto_501750_0.json=0")
    page = str(tmp_path / "page.html")
    assert main(["report", str(folder), *numbers, "--ranks", "0", "--html", page]) == 0
    capsys.readouterr()
    assert main(["report", str(folder), *numbers, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["run"]["rank_source"], said["run"]["ranks"]) == ("file", [0, 1])
    assert said["collectives"][0]["members"][1]["wait_ns"] == 50_000  # pid 501743's, which comes first
    for wrong in ("0", "=0", "a.json=", "a.json=-1", "a.json=1.5"):
        with pytest.raises(SystemExit):
            main(["report", str(folder), "--rank", wrong])
        assert "give a file and its rank, such as worker_a.json=0; --ranks says" in capsys.readouterr().err
    assert main(["report", str(folder), "--rank", "b.json=0"]) != 0
    assert "--rank b.json=0: its files: libkineto_501743_0.json" in capsys.readouterr().err


# matplotlib 3.8 speaks to newer pyparsing by older names.
@pytest.mark.filterwarnings("ignore:.* deprecated - use:DeprecationWarning")
def test_every_command_that_reads_ranks_takes_their_numbers(tmp_path, capsys):
    """Of two runs that are compared each has those of its own files."""
    one = named(tmp_path / "one", "libkineto_{pid}_0.json", group=(2, 3), description="mesh_tp")
    other = named(tmp_path / "other", "{pid}_of_it.json", group=(2, 3), description="mesh_tp")
    names = ("libkineto_501743_0", "libkineto_501750_0", "501743_of_it", "other/501750_of_it")
    numbers = [
        word for name, rank in zip(names, (3, 2, 2, 3), strict=True) for word in ("--rank", f"{name}.json={rank}")
    ]
    assert main(["compare", str(one), str(other), *numbers, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"].startswith("tracer.compare/")
    picture = str(tmp_path / "steps.svg")
    assert main(["plot", str(one), *numbers[:4], "--kind", "breakdown", "-o", picture]) == 0
    assert main(["plot", str(one), *numbers, "--kind", "breakdown", "-o", picture, "--force"]) != 0
    assert "501743_of_it.json=2: its files: libkineto_501743_0.json" in capsys.readouterr().err
    assert main(["compare", str(one), str(other)]) != 0
    assert "say it with --rank" in capsys.readouterr().err
