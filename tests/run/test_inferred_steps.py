"""Steps that nothing marks: told where two signs agree, and by no single one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analyzers
from analyzers.lazy_fields import evaluated
from analyzers.notices import Code
from analyzers.rank.summary import summarize, with_lanes
from analyzers.run import find
from analyzers.run.inferred_steps import infer_steps
from tests.support.drawing import draw
from tests.support.samples import REPORTED, RUNS, SAMPLES, summary_of
from tests.support.tiers import cases
from tests.support.unmarked import Outcome, outcome, outcomes

SGD, ADAM, ZERO = "Optimizer.step#SGD.step", "Optimizer.step#Adam.step", "Optimizer.zero_grad#SGD.zero_grad"
# Marked steps that nothing else shows: no range is there but the marks, or an optimizer steps once, or nothing agrees.
ALONE = ("every-collective4", "skew-memory", "skew-nvlink", "amd-mi250", "two-of-128-ranks")


def drawn(compute: str, step: str = "", comm: str = "", **ranges: str) -> Outcome:
    """One rank's outcome; ranges by the names above, or as they are called."""
    names = {"sgd": SGD, "adam": ADAM, "zero": ZERO}
    return outcome(draw(compute=compute, step=step, comm=comm, ranges={names.get(k, k): v for k, v in ranges.items()}))


def starts(found: Outcome) -> list[int]:
    return [start for _, start, _ in found.without]


@pytest.mark.parametrize("run", REPORTED)
def test_windows_are_those_with_marks_or_none(run):
    for found in outcomes(run):
        if run.name in ALONE:
            assert found.inferred is None
        else:
            assert found.without == found.marked


def test_steps_end_with_the_optimizers_range_where_launches_repeat_as_often():
    found = drawn("abcbdo" * 3, "000000111111222222", sgd=".....x" * 3)
    assert found.marked == found.without
    assert (found.inferred.name, found.inferred.steps, found.inferred.is_end) == (SGD, 3, True)
    assert found.inferred.agrees == "the sequence of what is launched"


def test_a_host_that_pauses_changes_no_period():
    found = drawn("abo..abo.........abo.abo", "000001111111111112222333", sgd="..x....x...........x...x")
    assert found.marked == found.without


def test_what_follows_the_last_optimizer_follows_each():
    """As `.item()` at a loop's end."""
    found = drawn("abcoi" * 4, "00000111112222233333", sgd="...x." * 4)
    assert found.marked == found.without
    assert found.inferred.where == f"each ends 1 launch after where a range called {SGD!r} ends"


def test_what_precedes_the_first_range_precedes_each():
    found = drawn("ijabc" * 4, "00000111112222233333", forward="..xx." * 4)
    assert found.marked == found.without
    assert found.inferred.where == "each begins 2 launches before where a range called 'forward' begins"


def test_what_follows_the_optimizer_now_and_then_belongs_to_the_next_step():
    """Another cut, as long, which leaves the first step out: it may lack what would be before it."""
    found = drawn("abcoi" + "abcojk" + "abcoi" * 8, sgd="...x." + "...x.." + "...x." * 8)
    assert starts(found) == [4, 9, *range(15, 50, 5)]


def test_a_step_that_began_before_the_profile_is_left_out():
    found = drawn("co" + "abco" * 3, sgd=".x" + "...x" * 3)
    assert starts(found) == [2, 6, 10]


def test_a_first_step_that_begins_as_others_and_lacks_launches_is_left_out():
    found = drawn("abcdefgho" + "abcdefghijo" * 3, sgd="........x" + "..........x" * 3)
    assert starts(found) == [9, 20, 31]


def test_a_first_step_with_more_in_front_is_whole():
    found = drawn("wwvabco" + "abco" * 3, sgd="......x" + "...x" * 3)
    assert starts(found) == [0, 7, 11, 15]


def test_what_a_process_sets_up_is_no_part_of_its_first_step():
    found = drawn("stuvwxyz" + "abco" * 6, sgd="." * 8 + "...x" * 6)
    assert starts(found) == [12, 16, 20, 24, 28]


def test_parts_of_a_batch_are_no_steps():
    """Forwards and collectives agree with each other, and the optimizer steps once in three of them."""
    found = drawn("abababo" * 3, comm="cdcdcd." * 3, sgd="......x" * 3, forward="x.x.x.." * 3)
    assert found.inferred.name == SGD
    assert starts(found) == [0, 7, 14]
    assert drawn("ababab" * 3, forward="x.x.x." * 3, sgd=".....x").inferred is None


def test_of_two_optimizers_the_rarer_tells_steps_and_of_equals_the_last():
    found = drawn("abaxabaxcdy" * 3, sgd="...x...x..." * 3, adam="..........x" * 3)
    assert (found.inferred.name, starts(found)) == (ADAM, [0, 11, 22])
    found = drawn("abxcdy" * 3, sgd="..x..." * 3, adam=".....x" * 3)
    assert (found.inferred.name, starts(found)) == (ADAM, [0, 6, 12])


@pytest.mark.parametrize(
    ("compute", "ranges"),
    [
        (("abcd" * 4 + "hs") * 3, {"attention": ("x..." * 4 + "..") * 3, "mlp": ("..x." * 4 + "..") * 3}),
        ("abcd" * 4, {"attention": "x..." * 4, "mlp": "..x." * 4, "model": "x" * 16}),
        ("abcd" * 4 + "efghijklmnopqrstuvwxyz", {"attention": "x..." * 4, "mlp": "..x." * 4}),
        ("p" + "abcd" * 12 + "hs", {"block": "." + "xxx." * 12 + ".."}),
        ("p" + "abcd" * 12, {"block": "." + "xxx." * 12}),
        ("abcd" * 12 + "h", {"block": "xxx." * 12 + "."}),
        (("abcd" * 40 + "h") * 3, {"block": ("xxx." * 40 + ".") * 3}),
        (("abcd" * 50 * 4 + "o") * 3, {"batch": (("x" * 199 + ".") * 4 + ".") * 3}),
    ],
)
def test_layers_are_no_steps(compute, ranges):
    """Before the first or after the last more is launched, a range encloses them, or there is a backward."""
    assert drawn(compute, **ranges).inferred is None


def test_an_engines_range_begins_its_steps():
    found = drawn("s" + "abahs." * 4, execute="." + "xxxxx." * 4, layer="." + "x.x..." * 4)
    assert (found.inferred.name, found.inferred.is_end, starts(found)) == ("execute", False, [1, 7, 13, 19])


def test_a_last_step_that_the_profile_cuts_is_left_out():
    found = drawn("abahs." * 4 + "aba", execute="xxxxx." * 4 + "xxx")
    assert starts(found) == [0, 6, 12, 18]


@pytest.mark.parametrize(
    "ranges", [{"sgd": "...x..x....x"}, {"zero": "x...x..x....", "sgd": "...x..x....x"}, {"train": "x...x..x...."}, {}]
)
def test_one_sign_is_none(ranges):
    assert drawn("abcoadoefgho", **ranges).inferred is None


def test_one_whole_step_does_not_repeat():
    assert drawn("defgo" + "abcdefgo", sgd="....x" + ".......x").inferred is None


def test_steps_of_a_small_part_of_a_trace_are_not_the_traces():
    ranges = {"sgd": "...x" * 3, "load": "x..." * 3}
    assert drawn("abco" * 3, **ranges).inferred is not None
    assert drawn("abco" * 3 + "efghijklmnopqrstuvwxyz", **ranges).inferred is None


def test_two_ranges_agree_that_take_turns():
    compute = "".join(f"abcdefgh{other}o" for other in "ijk")
    found = drawn(compute, sgd=".........x" * 3, load="x........." * 3)
    assert (starts(found), found.inferred.agrees) == ([0, 10, 20], "a range called 'load'")
    assert drawn(compute, sgd=".........x" * 3, zero="x........." * 3).inferred is None
    around = drawn(compute, train="xxxxxxxxx." * 3, load="x........." * 3)
    assert around.inferred is None


@given(st.data())
@settings(max_examples=cases(200), deadline=None)
def test_any_sequence_that_repeats_is_cut_as_by_marks(data):
    launches = data.draw(st.text("abcdefgh", min_size=1, max_size=12)) + "o"
    count, cut = data.draw(st.integers(3, 7)), data.draw(st.integers(0, len(launches) - 1))
    pauses = data.draw(st.lists(st.integers(0, 9), min_size=len(launches) * count, max_size=len(launches) * count))
    compute, step, sgd = "", "", ""
    for place, pause in enumerate(pauses):
        letter = launches[place % len(launches)]
        compute += letter + "." * (1 + pause)
        step += str(place // len(launches)) * (2 + pause)
        sgd += "x" if letter == "o" else "."
        sgd += "." * (1 + pause)
    begun = 0 if not cut else [place for place, letter in enumerate(compute) if letter != "."][cut]
    found = drawn(*("." * begun + lane[begun:] for lane in (compute, step)), sgd="." * begun + sgd[begun:])
    assert found.without == (found.marked[1:] if cut else found.marked)


@given(st.lists(st.text("abcd", min_size=1, max_size=9), min_size=2, max_size=8), st.data())
@settings(max_examples=cases(200), deadline=None)
def test_what_does_not_repeat_is_cut_at_an_optimizer_or_not_at_all(steps, data):
    compute = "".join(f"{letter}." for launches in steps for letter in f"{launches}o")
    sgd = "".join("x." if letter == "o" else ".." for letter in compute[::2])
    load = "".join(data.draw(st.sampled_from("x.")) + "." for _ in sgd[::2])
    found = drawn(compute, sgd=sgd, load=load)
    ends = [0, *(place + 2 for place, letter in enumerate(compute) if letter == "o")]
    assert found.inferred is None or set(starts(found)) <= set(ends)


def unmarked(folder: Path, run: Path, without: Sequence[tuple[str, ...]]) -> Path:
    """A run's full windows, less the rows whose names begin so, rank by rank."""
    folder.mkdir()
    for file, names in zip(sorted(run.glob("rank*.json.gz")), without, strict=True):
        document = json.loads(gzip.decompress(file.read_bytes()))
        rows = document["traceEvents"]
        document["traceEvents"] = [row for row in rows if not str(row.get("name")).startswith(names)]
        (folder / file.name.removesuffix(".gz")).write_text(json.dumps(document))
    return folder


def test_a_report_says_what_steps_were_told_by(tmp_path):
    marks = ("ProfilerStep#",)
    run = unmarked(tmp_path / "unmarked", SAMPLES / "resnet18-ddp2", [marks, marks])
    marked = unmarked(tmp_path / "marked", SAMPLES / "resnet18-ddp2", [("nothing",)] * 2)
    found, known = (analyzers.report(analyzers.load(path)) for path in (run, marked))
    assert (found.run.steps_inferred, known.run.steps_inferred) == (True, False)
    assert [row.span_ns for row in found.windows] == [row.span_ns for row in known.windows]
    (note,) = [note for note in found.run.notes if note.code == Code.STEPS_ARE_INFERRED]
    assert f"ends where a range called {SGD!r} ends" in note.text
    assert "--steps" in note.remedy
    assert found.summary.headline.trust in ("fair", "low")


def test_ranks_that_differ_have_no_steps_inferred(tmp_path):
    """Not by whoever reads them whole, as summaries, or again to draw one of them."""
    marks = ("ProfilerStep#",)
    path = unmarked(tmp_path / "run", SAMPLES / "resnet18-ddp2", [marks, (*marks, SGD)])
    assert [rank.inferred for rank in analyzers.load(path).ranks] == [None, None]
    run = summarize(path)
    report = analyzers.report(run)
    assert not report.run.steps_inferred
    assert [row.step for row in report.windows] == [0, 0]
    (notice,) = [notice for notice in report.run.warnings if notice.code == Code.STEPS_ARE_NOT_MARKED]
    assert "--steps" in notice.remedy
    steps = len(analyzers.report(analyzers.load(SAMPLES / "resnet18-ddp2")).windows) // 2
    differs = f"of rank 0 each ends where a range called {SGD!r} ends, {steps} steps; of rank 1 nothing"
    assert notice.text.endswith(f"what would tell steps differs: {differs}")
    drawn_again = with_lanes(run, find(path).files[:1])
    assert [len(rank.timed.windows) for rank in drawn_again.ranks] == [1, 1]


def test_one_ranks_marks_are_missing(tmp_path):
    path = unmarked(tmp_path / "run", SAMPLES / "resnet18-ddp2", [("nothing",), ("ProfilerStep#",)])
    assert [rank.inferred is None for rank in analyzers.load(path).ranks] == [True, False]
    marked = unmarked(tmp_path / "marked", SAMPLES / "resnet18-ddp2", [("nothing",)] * 2)
    report, known = (analyzers.report(summarize(each)) for each in (path, marked))
    assert report.run.steps_inferred
    assert [row.span_ns for row in report.windows] == [row.span_ns for row in known.windows]
    assert [one for one in report.run.notes if one.code == Code.STEPS_NUMBERED_APART]


def cut_first_step(file: Path) -> None:
    """Take off a trace what its host launched up to the first optimizer's end."""
    document = json.loads(file.read_text())
    rows = document["traceEvents"]
    cut = min(row["ts"] + row["dur"] for row in rows if row.get("name") == SGD)
    early = {correlation(row) for row in rows if row.get("cat") == "cuda_runtime" and row["ts"] < cut}
    kept = [row for row in rows if row.get("ph") == "M" or (row["ts"] >= cut and correlation(row) not in early)]
    file.write_text(json.dumps(document | {"traceEvents": kept}))


def correlation(row: dict[str, Any]) -> int | None:
    found: int | None = row.get("args", {}).get("correlation")
    return found


@pytest.mark.parametrize("late", [0, 1])
def test_an_inferred_step_has_one_number_on_all_ranks(tmp_path, late):
    path = unmarked(tmp_path / "run", SAMPLES / "resnet18-ddp2-cured", [("ProfilerStep#",)] * 2)
    whole = analyzers.report(analyzers.load(path))
    cut_first_step(path / f"rank{late}.json")
    report = analyzers.report(analyzers.load(path))
    spans, known = ({(row.rank, row.step): row.span_ns for row in each.windows} for each in (report, whole))
    # What was launched before the cut may have ended later, and begins the step behind it.
    first = (late, 1)
    assert spans.keys() == known.keys() - {(late, 0)}
    assert {key: ns for key, ns in spans.items() if key != first} == {
        key: ns for key, ns in known.items() if key not in (first, (late, 0))
    }
    shared = [row for row in whole.collectives if row.step > 0]
    assert [(row.kind, row.step) for row in report.collectives if row.step > 0] == [
        (row.kind, row.step) for row in shared
    ]
    (note,) = [one for one in report.run.notes if one.code == Code.STEPS_NUMBERED_APART]
    assert "renumbered" in note.text


def lowered(value: Any, by: int) -> Any:
    """A document with the numbers of its steps so much lower."""
    if isinstance(value, dict):
        return {
            key: each - by if key == "step" and isinstance(each, int) and each >= 0 else lowered(each, by)
            for key, each in value.items()
        }
    return [lowered(each, by) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["resnet18-ddp2-sick", "resnet18-fsdp4", "llama-pp2"])
def test_numbers_of_steps_are_raised_wherever_they_stand(name):
    path = next((run for run in RUNS if run.name == name), None)
    if path is None:
        pytest.skip("no shared folder")
    run = summary_of(path)
    raised = replace(run, ranks=tuple(rank.renumbered(3) for rank in run.ranks))
    told, again = (msgspec.to_builtins(evaluated(analyzers.report(each))) for each in (run, raised))
    for part in ("windows", "collectives", "unmatched", "waiting", "buckets", "idle", "groups", "pipeline", "charges"):
        assert lowered(again[part], 3) == told[part], part


def test_marked_steps_are_not_looked_for(monkeypatch):
    monkeypatch.setattr("analyzers.run.rank_trace.infer_steps", lambda events: pytest.fail("looked for"))
    assert analyzers.load(SAMPLES / "resnet18-ddp2").ranks[0].inferred is None


def test_nothing_is_told_of_nothing():
    trace = draw(compute="", comm="")
    assert infer_steps(trace.events)[1] is None
