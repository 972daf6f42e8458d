"""Buckets, layers, the timeline, costs and advice as text, on sample runs and on reports with parts exchanged."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from analyzers.layers.bucket_table import HiddenBy
from analyzers.layers.layer_table import LayerComm, LayerRow
from analyzers.lazy_fields import replaced as replace
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.reporting.measures.synchronization import IdleFrom, SyncCost
from analyzers.reporting.remedies.advised import Advice
from analyzers.reporting.step_timeline import Lane, Mark, Timeline
from analyzers.run.manifest import Dataset, Epoch, Memory
from analyzers.statistics import Spread
from tests.support.drawing import meet
from tests.support.samples import OWN, SAMPLES, reported
from tests.support.tiers import quarters
from tracer.views.choices import By
from tracer.views.html.notebook_cell import report_cell
from tracer.views.sections.communication import _twins
from tracer.views.sections.overview import report_text
from tracer.views.sections.screen import first_screen_text

NAMES = [run.name for run in OWN]
BUCKET_2_MB = "8.77"


def sample(name: str = "resnet18-ddp4") -> Report:
    return reported(SAMPLES / name)


def lines(shown: str, first: str) -> list[list[str]]:
    """The words of the lines that begin with a word."""
    return [line.split() for line in shown.splitlines() if line.split()[:1] == [first]]


def with_summary(found: Report, **parts: Any) -> Report:
    return replace(found, summary=replace(found.summary, **parts))


@pytest.mark.parametrize("name", quarters(NAMES))
@pytest.mark.parametrize("by", ["bucket", "layer"])
def test_every_view_of_every_sample_fits(name: str, by: By):
    for width in (80, 110, 160):
        shown = report_text(sample(name), by, width)
        assert max(map(len, shown.splitlines())) <= width
        assert "\x1b" not in shown
        assert "\x1b[" in report_text(sample(name), by, width, color=True)


# Buckets.


def test_a_line_for_each_bucket():
    shown = report_text(sample(), "bucket")
    assert "3 buckets; layout as DDP reported it (run.json)" in shown
    figures, held = lines(shown, "2")
    (bucket,) = [bucket for bucket in sample().summary.buckets if bucket.bucket == 2]
    assert figures[:3] == ["2", BUCKET_2_MB, "MB"]
    assert figures[3] == f"{bucket.measures['dur_ns'].median / 1e6:.3f}"
    assert figures[8:10] == [f"{bucket.measures[name].median / 1e6:.3f}" for name in ("overlapped_ns", "exposed_ns")]
    assert held == ["2", "42", "layer3.1.bn1", "...", "conv1", "nothing"]


def test_a_narrow_table_leaves_out_length_and_quartiles():
    narrow, wide = report_text(sample(), "bucket", 80), report_text(sample(), "bucket", 105)
    assert "quartiles" not in narrow
    assert "quartiles" in wide
    assert len(lines(narrow, "0")[0]) < len(lines(wide, "0")[0])


def test_as_many_hiding_layers_are_named_as_there_is_room_for():
    names = ("conv1", "(packing)", "a_very_long_name_of_a_module_that_hides")
    hiders = [HiddenBy(name, "backward", 1000) for name in names]
    buckets = [replace(bucket, hidden_by=hiders) for bucket in sample().summary.buckets]
    shown = report_text(with_summary(sample(), buckets=buckets), "bucket", 80)
    assert "conv1, (packing)\n" in shown
    assert "a_very_long_name" not in shown


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("resnet18-dp4", "nn.DataParallel"),
        ("every-collective4", "no all-reduce here is known to reduce DDP's gradients"),
    ],
)
def test_without_buckets_the_reason_is_said(name, why):
    (line,) = [line for line in report_text(sample(name), "bucket").splitlines() if line.startswith("No buckets: ")]
    assert why in line


def test_a_silent_run_has_no_buckets_and_no_advice():
    shown = report_text(report(meet("..", compute=("aa",))), "bucket")
    assert "No buckets: no communication was found." in shown
    assert "change" not in shown


def test_members_that_are_missing_are_said_beside_the_buckets():
    missing = "the true transfer is at most this long"
    partial = [replace(row, partial=True) for row in sample().collectives]
    assert missing in report_text(replace(sample(), collectives=partial), "bucket")
    assert missing not in report_text(sample(), "bucket")


# Layers.


def test_a_line_for_each_layer_in_the_models_order_and_other_lines_last():
    shown = report_text(sample(), "layer", 80).splitlines()
    table = shown[next(place for place, line in enumerate(shown) if line.startswith("layer ")) + 1 :]
    names = [line.split()[0] for line in table[: len(sample().summary.layers)]]
    assert sorted(names) == sorted(layer.layer for layer in sample().summary.layers)
    own = [name.startswith("(") for name in names]
    assert own == sorted(own)
    assert names[0] == "conv1"
    assert names.index("layer1.0.conv1") < names.index("layer4.1.conv2") < names.index("fc")


def test_a_layer_shows_its_medians_and_its_bucket():
    (row,) = lines(report_text(sample(), "layer", 80), "layer4.1.conv2")
    (layer,) = [layer for layer in sample().summary.layers if layer.layer == "layer4.1.conv2"]
    measured = [f"{layer.measures[name].median / 1e6:.3f}" for name in ("forward_ns", "backward_ns")]
    hidden = [f"{layer.measures[name].median / 1e6:.3f}" for name in ("overlapped_ns", "exposed_ns")]
    assert row == ["layer4.1.conv2", *measured, "9.437", "MB", "0", *hidden]


def test_lines_of_the_representative_step_add_up():
    for name in NAMES:
        (line,) = [line for line in report_text(sample(name), "layer").splitlines() if line.startswith("compute ")]
        whole, parts = line.removeprefix("compute ").split(" ms = ")
        values = [next(float(word) for word in part.split() if word[0].isdigit()) for part in parts.split(" + ")]
        chosen = sample(name).summary.representative
        place = (chosen.rank, chosen.device, chosen.step)
        (window,) = [each for each in sample(name).windows if (each.rank, each.device, each.step) == place]
        assert whole == f"{window.compute_ns / 1e6:.3f}"
        # Each part is rounded for itself.
        assert sum(values) == pytest.approx(float(whole), abs=0.0006 * (len(values) + 1))


def test_where_nothing_communicates_layers_show_no_communication():
    shown = report_text(sample("resnet18-ddp1"), "layer", 80)
    silent = report_text(report(meet("..", compute=("aa",))), "layer", 80)
    assert "hidden" not in silent
    assert ("hidden" in shown) == any(row.comm for row in sample("resnet18-ddp1").layers)


def gathered(step: int, prefetched: bool | None, dur_ns: int, kind: str = "all_gather", way: str = "forward"):
    return step, LayerComm(kind, way, 1, 1_000_000, dur_ns, 0, 0, dur_ns, prefetched)


def sharded(*comm: tuple[int, LayerComm]) -> Report:
    """The drawn run of one silent rank, whose module has these collectives by step."""
    rows = [
        LayerRow(0, 0, step, "blocks.0", "FSDP", 0, 0, 0, 1, 1_000_000, None, [], [each], 0, each.exposed_ns)
        for step, each in comm
    ]
    found = report(meet("..", compute=("aa",)))
    spreads = dict.fromkeys(("forward_ns", "backward_ns", "overlapped_ns", "exposed_ns"), Spread(0))
    (line, *_) = found.summary.layers
    layer = replace(line, layer="blocks.0", type="FSDP", measures=spreads)
    windows = [replace(found.windows[0], step=step) for step in sorted({row.step for row in rows})]
    return with_summary(replace(found, layers=rows, windows=windows), layers=[layer], layers_from="fsdp")


def test_one_device_alone_has_no_column_of_communication_and_several_have():
    alone, several = (report(meet(*["..."] * ranks, compute=["aaa"] * ranks)) for ranks in (1, 2))
    for document, words in ((sample("resnet18-ddp1"), False), (alone, False), (several, True)):
        for by in ("rank", "step"):
            told = report_text(document, by)
            assert ("overlap" in told) == words
    assert "communication" not in report_text(sample("resnet18-ddp1"))


def test_sharded_modules_have_a_table_of_their_collectives():
    found = sharded(
        *(gathered(1, False, 2_000_000), gathered(2, False, 4_000_000), gathered(1, True, 5_000_000, way="backward")),
        gathered(1, None, 7_000_000, "reduce_scatter", "backward"),
    )
    shown = report_text(found, "layer")
    assert "Layers are the modules that FSDP wraps" in shown
    assert [row for kind in ("all_gather", "reduce_scatter") for row in lines(shown, kind)] == [
        ["all_gather", "forward", "blocks.0", "no", "1", "MB", "3.000", "0.000", "3.000"],
        ["all_gather", "backward", "blocks.0", "yes", "1", "MB", "5.000", "0.000", "5.000"],
        ["reduce_scatter", "backward", "blocks.0", "-", "1", "MB", "7.000", "0.000", "7.000"],
    ]


def test_modules_that_are_prefetched_at_times_say_how_often():
    shown = report_text(sharded(gathered(1, False, 1), gathered(2, True, 1), gathered(3, True, 1)), "layer")
    assert lines(shown, "all_gather")[0][3:6] == ["2", "of", "3"]


# The timeline.


def mark(start: int, length: int, wait: int | None = None, bucket: int | None = None, kind: str = "all_reduce") -> Mark:
    return Mark(start, length, wait, bucket, kind, "gradients")


def drawn(*lanes: Lane, span_ns: int = 96_000_000) -> list[str]:
    """The lanes of a timeline of 96 cells, 1 ms each, and its axis and legend."""
    shown = report_text(replace(sample(), timeline=Timeline(0, 0, 1, span_ns, 96, list(lanes)))).splitlines()
    first = next(place for place, line in enumerate(shown) if "in time (rank 0, device 0, step 1)" in line)
    return shown[first + 1 : shown.index("", first)]


def comm(*marks: Mark, label: str = "stream 7") -> Lane:
    in_ns = [replace(each, start_ns=each.start_ns * 10**6, dur_ns=each.dur_ns * 10**6) for each in marks]
    waits = [each if each.wait_ns is None else replace(each, wait_ns=each.wait_ns * 10**6) for each in in_ns]
    return Lane(label, "comm", [0.0] * 96, waits)


def lane(*marks: Mark) -> str:
    return drawn(comm(*marks))[0].removeprefix("comm").removeprefix("  ")


def test_compute_is_shaded_by_quarters_of_a_cell():
    busy = [0.0, 0.0001, 0.25, 0.5, 0.75, 1.0] + [0.0] * 90
    assert drawn(Lane("compute", "compute", busy, []))[0] == "compute   ░▒▓██"


@dataclass(frozen=True)
class Case:
    marks: tuple[Mark, ...]
    shown: str


@pytest.mark.parametrize(
    "case",
    [
        Case((mark(2, 6, 3, 0),), "  ···0=="),
        Case((mark(0, 4, 0, 12),), "12=="),
        Case((mark(3, 4, 4, 1),), "   ···1"),
        Case((mark(1, 2, None, None, "broadcast"), mark(4, 1, None, None, "barrier")), " b= ?"),
        # Shorter than its number: it takes a free cell beside it, and none of another's.
        Case((mark(2, 1, 0, 10), mark(5, 1, 0, 11), mark(6, 1, 0, 12)), "  101112"),
        Case((mark(2, 1, 0, 10), mark(3, 1, 0, 11), mark(4, 1, 0, 12)), " 10=12"),
        # Two in one cell: buckets come before the others.
        Case((mark(2, 0, None, None, "broadcast"), mark(2, 0, 0, 3)), "  3"),
        Case((mark(95, 1, 0, 10),), " " * 94 + "10"),
        Case((mark(0, 1, kind="all_gather"), mark(1, 1, kind="reduce_scatter"), mark(2, 1, kind="send_recv")), "grs"),
    ],
)
def test_collectives_are_drawn_where_they_ran(case):
    assert lane(*case.marks) == case.shown


def test_the_axis_has_round_ticks_and_the_legend_names_what_is_there():
    found = drawn(comm(mark(0, 1, 0, 0), mark(4, 1, None, None, "barrier")))
    assert found[1] == "      " + "".join(tick.ljust(20) for tick in ("|0 ms", "|20", "|40", "|60", "|80")).rstrip()
    assert found[2] == "· waiting, = transfer; numbers: buckets; ? barrier"


def test_lanes_of_several_streams_are_told_apart():
    found = drawn(comm(mark(0, 1), label="stream 19"), comm(mark(1, 1), label="stream 23"))
    assert [line.split()[:2] for line in found[:2]] == [["comm", "19"], ["comm", "23"]]


def test_a_short_step_and_a_long_one_have_axes():
    for span_ns in (1, 7, 96, 10**12):
        found = drawn(comm(), span_ns=span_ns)
        assert found[1].strip().startswith("|0 ms")
        assert len(found[1]) <= 105


# Epochs and memory.


def with_facts(found: Report, **facts: Any) -> str:
    return report_text(replace(found, run=replace(found.run, **facts)))


EPOCHS = [Epoch(1, 90_000_000_000, 98, 1.5, 0.25, 0.1), Epoch(2, 3_210_000_000, 98, 1.25, 0.5, 0.4)]


def test_epochs_are_a_table_whose_first_is_warm_up():
    shown = with_facts(sample(), epochs=EPOCHS, dataset=Dataset("CIFAR-10", 50_000, False))
    assert "Epochs of 50,000 samples (CIFAR-10)" in shown
    assert "1  90.00     98  1.5000    25.0 %            0.1  warm-up: its time is not counted" in shown
    assert "2   3.21     98  1.2500    50.0 %            0.4\n" in shown
    assert "means nothing" not in shown


def test_accuracy_on_synthetic_data_is_said_to_mean_nothing():
    shown = with_facts(sample(), epochs=EPOCHS, dataset=Dataset("synthetic", 50_000, True))
    assert "Accuracy and loss mean nothing here" in shown


def test_what_is_null_of_an_epoch_is_a_dash():
    shown = with_facts(sample(), epochs=[Epoch(1, 1, 1, None, None, 0.1)], dataset=Dataset("CIFAR-10", 1, False))
    assert lines(shown, "1")[-1][:6] == ["1", "0.00", "1", "-", "-", "0.1"]


def test_a_run_without_epochs_and_memory_shows_none():
    assert "Epochs" not in report_text(sample())
    assert "Memory" not in report_text(sample())


def test_the_rank_that_uses_most_memory_is_named():
    shown = with_facts(sample(), memory=Memory("a source", {"0": 10**9, "1": 2_500_000_000}))
    assert "Memory: at most 2.5 GB in use, on rank 1 (a source)." in shown


# Costs and advice.

COST = SyncCost(
    control_ns=3_000_000,
    profiled_ns=3_500_000,
    exposed_wait_ns=500_000,
    exposed_transfer_ns=1_000_000,
    exposed_unresolved_ns=0,
    packing_ns=250_000,
    packing_copies_ns=125_000,
    contention_ns=625_000,
    contention_is_estimate=False,
    contention_compared=1.0,
    idle_ns=-100_000,
    idle_from=IdleFrom.QUIET,
    accounted_ns=2_400_000,
    remainder_ns=600_000,
    accounted=0.8,
    accounted_of_profiled=2.4 / 3.5,
)


def costing(**parts: Any) -> str:
    return report_text(with_summary(sample(), sync_cost=replace(COST, **parts)))


def test_the_cost_of_communication_is_shown_part_by_part():
    shown = costing()
    # fmt: off
    expected = [
        ("exposed waiting", "0.500"), ("exposed transfer", "1.000"), ("packing kernels", "0.250"),
        ("packing copies", "0.125"), ("contention", "0.625"), ("idle", "-0.100"), ("sum", "2.400"),
        ("control", "3.000"), ("remainder", "0.600"), ("profiled", "3.500"),
    ]
    # fmt: on
    rows = shown[shown.index("What communication costs") :].splitlines()[2:12]
    assert [(row[:16].strip(), row[16:].split()[0]) for row in rows] == expected
    assert "80.0 % of the control" in shown
    assert "against a step without synchronization" in shown


def test_estimates_are_called_so_and_what_is_unknown_is_a_dash():
    estimated = costing(contention_is_estimate=True, contention_compared=0.25, idle_from=IdleFrom.BESIDE)
    assert "estimate from 25.0 % of the compute during communication" in estimated
    unknown = costing(contention_ns=None, control_ns=None, profiled_ns=None, remainder_ns=None, accounted=None)
    assert lines(unknown, "contention") == [["contention", "-", "too", "few", "kernels", "to", "compare", "with"]]
    assert not lines(unknown, "remainder") + lines(unknown, "control")


def test_a_cost_that_says_no_more_than_exposed_time_is_left_out():
    nothing = dict.fromkeys(("control_ns", "profiled_ns", "contention_ns", "remainder_ns", "accounted"))
    assert "What communication costs" not in costing(**nothing, packing_ns=0, packing_copies_ns=0)
    assert "What communication costs" not in report_text(with_summary(sample(), sync_cost=None))


def test_advice_has_its_figure_and_its_reason():
    advised = [
        Advice("buffers", "do this", "it is so", problem="it is wrong", gain_ns=1_500_000, share=0.3),
        Advice("contention", "do that", "it is otherwise", at_most_ns=20_000),
    ]
    advised[0] = replace(advised[0], scenario="buffers", within_ns=(1_020_000, 1_980_000))
    shown = report_text(with_summary(sample(), advice=advised), width=100).splitlines()
    place = shown.index("1.50 ms (30 %; 1.02 to 1.98): do this")
    assert shown[place : place + 4] == [
        "1.50 ms (30 %; 1.02 to 1.98): do this",
        "    it is wrong; it is so (tracer whatif --only buffers)",
        "< 20 us (0.0 %): do that",
        "    it is otherwise",
    ]


def test_only_a_gain_that_is_trusted_otherwise_than_the_sentence_says_so():
    advised = [
        Advice("buffers", "do this", "", gain_ns=1, within_ns=(0, 2), trust="low"),
        Advice("copies", "do that", "", gain_ns=1, within_ns=(1, 1), trust="high"),
        Advice("layout", "do these", "", at_most_ns=1, trust="high"),
    ]
    of_degree = [replace(advised[1], words="CPUs twice as fast", gain_ns=6_000_000)]
    headline = replace(sample().summary.headline, trust="low", remedy="do this")
    graded = with_summary(sample(), advice=advised, of_degree=of_degree, headline=headline)
    for shown in (report_text(graded, width=100), first_screen_text(graded, width=100)):
        assert "do that (trust: high)\n" in shown
        assert "with CPUs twice as fast 6.00 ms (trust: high) more saved" in " ".join(shown.split())
        assert shown.count("(trust: ") == 2
    assert "do that (trust: high)" in report_cell(graded)


def test_reasons_stay_indented_where_they_wrap():
    advised = [Advice("buffers", "do this", "why " * 60, at_most_ns=1)]
    shown = report_text(with_summary(sample(), advice=advised), width=80).splitlines()
    reasons = [line for line in shown if "why why" in line]
    assert len(reasons) > 2
    assert all(line.startswith("    why") and len(line) <= 80 for line in reasons)


def test_without_advice_it_is_said_whether_anything_costs():
    silent = replace(
        COST, **dict.fromkeys(("exposed_wait_ns", "exposed_transfer_ns", "packing_ns", "packing_copies_ns"), 1_000)
    )
    bare = with_summary(sample(), advice=[], headline=replace(sample().summary.headline, remedy=None))
    small = with_summary(bare, sync_cost=replace(silent, contention_ns=0))
    assert "Nothing to change: no part of communication costs 1 % of the step." in report_text(small)
    assert "No advice: no change that tracer knows of" in report_text(with_summary(bare, sync_cost=COST))


def test_what_is_asked_for_by_name_is_shown_without_advice():
    for by in ("rank", "bucket", "layer", "step", "collective", "kernel"):
        assert ("What to change" in report_text(sample(), by)) == (by == "rank")


HOSTILE = "\x1b[2J[bold]x\nA step takes 0 ms"


@pytest.mark.parametrize("by", ["rank", "bucket", "layer"])
def test_names_of_layers_and_lanes_cannot_steer_a_terminal(by: By):
    found, summary = sample(), sample().summary
    buckets = [
        replace(bucket, layers=[HOSTILE], hidden_by=[HiddenBy(HOSTILE, "backward", 1)]) for bucket in summary.buckets
    ]
    layers = [replace(layer, layer=HOSTILE, type=HOSTILE) for layer in summary.layers]
    rows = [replace(row, layer=HOSTILE) for row in found.layers]
    advised = [Advice("buffers", HOSTILE, HOSTILE, at_most_ns=10**6)]
    hostile = with_summary(found, buckets=buckets, layers=layers, advice=advised, layers_from=HOSTILE)
    lanes = [replace(each, label=HOSTILE) for each in found.timeline.lanes]
    hostile = replace(hostile, layers=rows, timeline=replace(found.timeline, lanes=lanes))
    shown = report_text(hostile, by)
    assert "\x1b" not in shown
    assert sum(line.startswith("A step takes") for line in shown.splitlines()) == 1


def test_groups_of_the_same_ranks_are_found_in_linear_time():
    compared = 0

    class Ranks(tuple):
        __hash__ = tuple.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return tuple.__eq__(self, other)

    class Row(SimpleNamespace):
        kind = "all_reduce"

    def effort(count):
        nonlocal compared
        compared = 0
        rows = [Row(group_name=str(at), group=(Ranks((at // 2, at)),)) for at in range(count)]
        assert set(_twins([*rows, Row(group_name="twin", group=rows[0].group)])) == {"0", "twin"}
        return compared

    few = effort(100)
    assert effort(400) <= 4.6 * (few + 100)
