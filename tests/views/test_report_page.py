"""The report as a page: what stands in it, what it carries, and that nothing gets out of its place."""

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from analyzers.causes import Charge, PathLane
from analyzers.collectives import CollectiveRow
from analyzers.collectives.rows import MemberRow
from analyzers.intervals import union_of
from analyzers.lazy_fields import replaced as replace
from analyzers.prediction import usual
from analyzers.rank import Cause
from analyzers.reporting.build import report
from analyzers.reporting.device_lanes import Lanes, lanes
from analyzers.reporting.document import MarkedRank, Window, from_json
from tests.support.drawing import meet
from tests.support.hostile import EVIL, SHOWN_EVIL, lanes_named, named
from tests.support.pages import Page
from tests.support.samples import REPORTED, SAMPLES, reported, summarized
from tests.support.saved import saved
from tracer.cli import main
from tracer.views.document import Place, Table
from tracer.views.format import one_unit
from tracer.views.html.charts import bandwidth_chart, caps_chart, rows_chart
from tracer.views.html.report_page import SECTIONS, report_html
from tracer.views.html.report_top import top
from tracer.views.html.templates import POLICY
from tracer.views.html.timeline_data import MOST_STRETCHES, STATES, strips
from tracer.views.palette import CAUSE_PARTS, IDLE_LOOKS, SPLIT_PARTS, TRANSFER
from tracer.views.sections.overview import run_title

pytestmark = pytest.mark.usefixtures("remembered")

RUNS = ["every-collective4", "resnet18-ddp1", "resnet18-dp4", "resnet50-ddp4-bf16", "resnet18-fsdp4"]
RESNET50 = SAMPLES / "resnet50-ddp4-bf16"
SMALL = SAMPLES / "resnet18-ddp2"


@cache
def written(name: str) -> str:
    return report_html(reported(SAMPLES / name), drawn(name), summarized(SAMPLES / name).calibration)


@cache
def drawn(name: str = RESNET50.name) -> tuple[Lanes, ...]:
    return lanes(summarized(SAMPLES / name), reported(SAMPLES / name))


@cache
def read(name: str = RESNET50.name) -> Page:
    return Page(written(name))


def milliseconds(ns: float) -> str:
    return f"{ns / 1e6:,.3f}"


@pytest.mark.parametrize("name", [RUNS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in RUNS[1:])])
def test_every_sample_has_a_page_with_every_part(name):
    parsed = read(name)
    assert parsed.open == []
    groups = ["groups"] if len(reported(SAMPLES / name).summary.groups) > 1 else []
    of_several = [] if name == "resnet18-ddp1" else [*groups, "communication", "waiting", "buckets"]
    assert parsed.sections[:3] == ["advice", "timeline", "ranks"]
    assert sorted(parsed.sections[3:-2]) == sorted(
        ["idle", *of_several, "layers", "kernels", "causes", *(["whatif"] if "whatif" in parsed.sections else [])]
    )
    assert parsed.sections[-2:] == ["about", "notes"]
    links = [attributes["href"] for tag, attributes in parsed.elements if tag == "a" and "class" not in attributes]
    assert links == [f"#{section}" for section in ("notes", *parsed.sections[:-1])]
    found = reported(SAMPLES / name)
    shown = "".join(parsed.words)
    for words in (
        run_title(found.run),
        found.summary.verdict,
        *map(str, found.run.notices),
        *found.run.versions.values(),
    ):
        assert (words or "-") in shown
    for each in found.summary.advice:
        assert each.text in shown
        assert each.because.removeprefix(f"{each.problem}; ") in shown
    ids = [attributes["id"] for _, attributes in parsed.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert len(written(name).encode()) < 1_500_000


@pytest.mark.parametrize("name", RUNS)
def test_the_report_is_inside_the_page_whole(name):
    assert from_json(read(name).data("report")) == saved(reported(SAMPLES / name))


def test_a_page_has_the_critical_path_of_a_run_that_has_a_model():
    found = reported(SAMPLES / "resnet18-ddp2-pageable")
    page = Page(report_html(found))
    assert page.open == []
    assert page.sections[-3:] == ["causes", "about", "notes"]
    charges = found.summary.charges
    shown = page.rows["causes"][1:]
    causes = [cause.replace("_", " ") for cause in charges.by_cause]
    assert [row[0] for row in shown[: len(causes)]] == causes
    assert shown[0][1] == milliseconds(charges.by_cause["compute"] / charges.steps)
    largest = found.charges[0]
    assert [milliseconds(largest.ns / charges.steps), f"rank {largest.rank}"] in [[row[0], row[2]] for row in shown]
    assert "66 % of it is compute and 27 % copies." in "".join(page.words)
    assert from_json(page.data("report")).charges == found.charges


def test_tables_show_the_reports_figures():
    found, rows = reported(RESNET50), read().rows
    for device in found.summary.by_device:
        row = next(row for row in rows["ranks"] if row[:2] == [str(device.rank), str(device.device)])
        assert row[3] == milliseconds(device.windows["span_ns"].median)
        for place, name in ((5, "compute_ns"), (6, "exposed_comm_ns"), (7, "exposed_wait_ns"), (9, "idle_ns")):
            assert row[place] == milliseconds(device.windows[name].median)
    assert len([row for row in rows["communication"] if row[0] in ("all_reduce", "broadcast")]) == len(
        found.summary.communication
    )
    for layer in found.summary.layers:
        (row,) = [row for row in rows["layers"] if row[0] == layer.layer]
        assert row[2:4] == [milliseconds(layer.measures[name].median) for name in ("forward_ns", "backward_ns")]
    for bucket in found.summary.buckets:
        row = next(row for row in rows["buckets"] if row[0] == str(bucket.bucket))
        assert row[2:4] == [milliseconds(bucket.measures[name].median) for name in ("dur_ns", "wait_ns")]


def test_bars_are_as_long_as_their_medians():
    devices = reported(RESNET50).summary.by_device
    lengths = [
        float((attributes["style"] or "").removeprefix("flex-grow:"))
        for tag, attributes in read().elements
        if tag == "i" and "style" in attributes
    ]
    bar = reported(RESNET50).summary.bar
    shares = [ns / bar.step_ns for part in SPLIT_PARTS if (ns := getattr(bar, part.field))]
    medians = [device.windows[part.field].median for device in devices for part in CAUSE_PARTS]
    assert lengths == [*shares, *medians]
    shown = {attributes["class"] for tag, attributes in read().elements if tag == "i"}
    assert {look.field for look in IDLE_LOOKS} - shown == {"idle_unknown"} - shown


def test_the_calibrated_curve_is_drawn_where_there_is_one():
    assert "polyline" in [tag for tag, _ in read().elements]
    without = Page(report_html(reported(RESNET50), drawn()))
    assert "polyline" not in [tag for tag, _ in without.elements]
    assert "<svg" not in report_html(reported(SAMPLES / "resnet18-ddp1"))


@pytest.mark.parametrize("name", RUNS)
def test_an_axis_has_one_unit(name):
    summary = summarized(SAMPLES / name)
    predicted = usual(summary)
    charts = [
        bandwidth_chart(reported(SAMPLES / name), summary.calibration),
        *((caps_chart(predicted), rows_chart(predicted)) if predicted is not None and predicted.has_caps else ()),
    ]
    for chart in filter(None, charts):
        across = [tick.label for tick in chart.across if tick.label != "default"]
        assert all(re.fullmatch(r"-?[\d,]+(\.\d+)?", label) for label in across)
        assert ", " in chart.x or chart.x.startswith("step, ")


@pytest.mark.parametrize(
    ("low", "high", "unit", "shown"),
    [
        (1e3, 1e9, "MB", ["0.001", "0.01", "0.1", "1", "10", "100", "1,000"]),
        (1, 1e4, "kB", ["0.001", "0.01", "0.1", "1", "10"]),
        (1, 1e3, "B", ["1", "10", "100", "1,000"]),
        (1e5, 1e7, "MB", ["0.1", "1", "10"]),
    ],
)
def test_sizes_of_an_axis_are_written_in_the_unit_of_its_end(low, high, unit, shown):
    name, written_ = one_unit(high)
    decades = [low * 10**power for power in range(len(shown))]
    assert (name, [written_(decade) for decade in decades]) == (unit, shown)


def test_the_top_says_the_step_its_parts_the_problem_and_the_trust():
    for name in ("resnet18-ddp2-sick", "resnet18-fsdp4"):
        found, words = reported(SAMPLES / name), "".join(read(name).words)
        headline = found.summary.headline
        step_ns = headline.step_ns or found.summary.bar.step_ns
        figure = re.search(r'<p class="figure"><b>([^<]*)</b> ms <span>per step</span> <small>([^<]*)<', written(name))
        assert figure and float(figure[1]) == pytest.approx(step_ns / 1e6, abs=0.005)
        assert figure[2] == (
            "13.45 ms while profiled" if headline.step_ns else "under the profiler; without it not known"
        )
        assert headline.sentence[1:] in words
        assert f"Trust: {headline.trust}" in words
        for part in SPLIT_PARTS:
            share = (getattr(found.summary.bar, part.field) or 0) / found.summary.bar.step_ns
            most = "at most " if part is TRANSFER and found.summary.transfer_is_bound else ""
            assert not share or f"{part.label} {most}{100 * share:.1f} %" in words


def test_advice_leads_to_the_collective_that_it_is_about():
    def shown(name: str) -> dict[str | None, tuple[Place, CollectiveRow | None]]:
        found = reported(SAMPLES / name)
        places = {each.listed.code: each.place for each in top(found).advice}
        return {c: (p, None if p.collective is None else found.collectives[p.collective]) for c, p in places.items()}

    def most(name: str, of: Callable[[MemberRow], int]) -> CollectiveRow:
        found = reported(SAMPLES / name)
        rows = [row for row in found.collectives if row.step == found.summary.representative.step]
        return max(rows, key=lambda row: sum(map(of, row.members)))

    sick, sharded = shown("resnet18-ddp2-sick"), shown("resnet18-fsdp4")
    waits = most("resnet18-ddp2-sick", lambda member: min(member.wait_ns or 0, member.exposed_ns))
    place, row = sick["straggler"]
    assert (place.rank, row) == (1, waits)
    place, row = sick["buffers"]
    assert row is not None and (place.rank, row.purpose) == (None, "buffers")
    chosen = reported(SAMPLES / "resnet18-ddp2-sick").summary.representative
    assert sick["layout"] == (Place(chosen.step, chosen.rank, chosen.device), None)
    transfers = most("resnet18-fsdp4", lambda member: max(member.exposed_ns - (member.wait_ns or 0), 0))
    assert sharded["sharded_transfer"] == (Place(transfers.step, collective=transfers.index), transfers)


def test_sections_stand_in_the_order_of_their_share_and_the_first_is_open():
    for name in RUNS:
        shares = reported(SAMPLES / name).summary.shares
        places = [("idle_ns", "idle"), ("compute_ns", "kernels"), ("exposed_comm_ns", "communication")]
        present = [(shares[field], section) for field, section in places if section in read(name).sections]
        ordered = [section for _, section in sorted(present, key=lambda part: -part[0])]
        assert sorted(ordered, key=read(name).sections.index) == ordered
        opened = [
            attributes["id"] for tag, attributes in read(name).elements if tag == "details" and "open" in attributes
        ]
        assert opened == ["timeline", read(name).sections[3]]


def test_rows_lead_to_the_timeline_where_there_is_one():
    links = [attributes for tag, attributes in read().elements if tag == "a" and attributes.get("class") == "at"]
    assert {attributes["href"] for attributes in links} == {"#timeline"}
    found = reported(RESNET50)
    chosen = found.summary.representative
    assert chosen.step == 4  # of two steps the last one does not count
    assert {
        "data-step": str(chosen.step),
        "data-rank": str(chosen.rank),
        "data-device": str(chosen.device),
    }.items() <= links[0].items()
    for name, values in {
        "data-layer": {layer.layer for layer in found.summary.layers if not layer.layer.startswith("(")},
        "data-bucket": {str(bucket.bucket) for bucket in found.summary.buckets},
        "data-rank": {str(rank) for rank in found.run.ranks},
        "data-kernel": {row.name for row in found.kernels if row.rank == 2} & {a.get("data-kernel") for a in links},
    }.items():
        assert {attributes[name] for attributes in links if name in attributes} == values, name
    collectives = [attributes for attributes in links if "data-collective" in attributes]
    for attributes in collectives:
        assert str(found.collectives[int(attributes["data-collective"] or 0)].step) == attributes["data-step"]
    assert len(collectives) >= len(found.summary.communication)
    without = Page(report_html(found))
    assert not [attributes for tag, attributes in without.elements if attributes.get("class") == "at"]


def test_a_rank_that_stands_out_is_marked_by_its_bar_and_in_its_sections_line():
    found = reported(SMALL)
    headline = replace(found.summary.headline, marked=[MarkedRank(1, "late", None)])
    text = report_html(replace(found, summary=replace(found.summary, headline=headline)))
    assert "<b>late: rank 1</b>" in text
    assert "rank 1 is late" in "".join(Page(text).words)


def test_a_cut_name_is_whole_in_its_cells_title():
    found = reported(RESNET50)
    titles = [attributes["title"] for tag, attributes in read().elements if tag == "td" and "title" in attributes]
    rank = found.summary.representative.rank
    cut = [row.name for row in found.kernels if row.rank == rank and len(row.name) > 64]
    assert cut and set(cut[:5]) <= set(titles)


# Heads whose meaning is in the word, or in the line above the table.
CLEAR = {"", "rank", "device", "kind", "layer", "module", "kernel", "operator", "group", "name", "stage", "ms"}
CLEAR |= {"ranks", "collectives", "other", "fused operators, or kernel", "epoch", "s", "steps", "loss", "accuracy"}
CLEAR |= {"learning rate", "cap", "GPUs", "latency us"}


@pytest.mark.slow
@pytest.mark.parametrize("path", REPORTED)
def test_heads_explain_themselves(path):
    for name, make in SECTIONS.items():
        for block in make(reported(path)):
            if isinstance(block, Table):
                assert {column.title for column in block.columns if not column.help} <= CLEAR, name


# The timeline.


def names_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(read(name).data("names"))
    return found


def step_of(name: str, step: int) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(read(name).data(f"step-{step}"))
    return found


@pytest.mark.parametrize("name", RUNS)
def test_strips_are_as_long_as_the_reports_figures(name):
    for step in {row.step for row in reported(SAMPLES / name).windows}:
        shown = step_of(name, step)
        windows = [row for row in reported(SAMPLES / name).windows if row.step == step]
        assert shown["start_ns"] == min(row.start_ns for row in windows)
        by_device = {(each["rank"], each["device"]): each for each in shown["devices"]}
        assert len(by_device) == len(shown["devices"])
        for row in windows:
            check_strips(by_device[row.rank, row.device], row, shown, len(names_of(name)["names"]))


def check_strips(device: dict[str, Any], row: Window, shown: dict[str, Any], names: int) -> None:
    """In the window of a step, each state's stretches, and those of all layers, add up to the report's figure."""
    (window,) = [span for step, *span in device["windows"] if step == row.step]
    assert window == [row.start_ns - shown["start_ns"], row.start_ns - shown["start_ns"] + row.span_ns]
    ends = np.cumsum(device["lengths"])
    assert ends[-1] == shown["span_ns"]
    inside = np.minimum(ends, window[1]) - np.maximum(ends - device["lengths"], window[0])
    letters = np.array(list(device["states"]))
    figures = msgspec.structs.asdict(row) | {f"idle_{name}": ns for name, ns in msgspec.to_builtins(row.idle).items()}
    for letter, part in STATES.items():
        assert np.maximum(inside[letters == letter], 0).sum() == figures[part.field], part.field
    assert len(device["within"]) == sum(letter.isupper() for letter in device["states"])
    assert all(-1 <= code < names for code in device["within"])
    gaps, lengths, codes = np.array(device["layers"], dtype=np.int64).reshape(-1, 3).T
    ends = np.cumsum(gaps + lengths)
    inside = np.minimum(ends, window[1]) - np.maximum(ends - lengths, window[0])
    assert np.maximum(inside, 0).sum() == row.compute_ns
    assert (codes < 2 * names).all()
    since, lengths, codes, operators, layers = np.array(device["kernels"], dtype=np.int64).reshape(-1, 5).T
    starts = np.cumsum(since)
    computes = codes % 2 == 0
    covered = union_of(starts[computes], (starts + lengths)[computes]).length_within([window[0]], [window[1]])
    assert covered.tolist() == [row.compute_ns]
    assert (codes < 2 * names).all() and (operators < names).all() and ((layers >= 0) & (layers < names)).all()


def test_collectives_of_a_step_are_the_reports():
    found = reported(RESNET50)
    shown = step_of(RESNET50.name, found.summary.representative.step)
    assert {int(index) for index in shown["collectives"]} >= {
        row.index for row in found.collectives if row.step == shown["step"]
    }
    for index, row in shown["collectives"].items():
        assert row == msgspec.to_builtins(found.collectives[int(index)])
    for device in shown["devices"]:
        for start, length, wait, exposed, index, _, kind, *_ in device["marks"]:
            row = found.collectives[index]
            (member,) = [each for each in row.members if each.rank == device["rank"]]
            assert (start + shown["start_ns"], length, exposed, kind) == (
                *(member.start_ns, member.dur_ns, member.exposed_ns),
                row.kind,
            )
            assert wait == (-1 if member.wait_ns is None else member.wait_ns)


def test_the_critical_path_is_encoded_with_its_gaps_and_clipped_to_the_step():
    found = reported(RESNET50)
    begin = min(row.start_ns for row in found.windows if row.step == 5)
    end = max(row.start_ns + row.span_ns for row in found.windows if row.step == 5)
    at = np.array([begin - 50, begin + 10, begin + 90, end - 30])
    path = PathLane(
        rank=np.array([0, 0, -1, 3]),
        start_ns=at,
        end_ns=np.array([begin + 10, begin + 60, begin + 100, end + 40]),
        cause=np.array([Charge.COMPUTE, Charge.PYTHON, Charge.TRANSFER, Charge.GC], dtype=np.int64),
        group=np.array([-1, -1, 0, -1]),
        groups=("mesh_dp",),
    )
    made = strips(found, drawn(), paths={5: path})
    names, shown = msgspec.json.decode(made.names), msgspec.json.decode(made.steps[5])
    place = names["names"].index("mesh_dp")
    gap = [-1, -1, -1]
    assert shown["path"] == [
        [10, Charge.COMPUTE, 0, -1],
        [50, Charge.PYTHON, 0, -1],
        [30, *gap],
        [10, Charge.TRANSFER, -1, place],
        [end - begin - 130, *gap],
        [30, Charge.GC, 3, -1],
    ]
    assert msgspec.json.decode(made.steps[4])["path"] is None
    assert [charge[0] for charge in names["charges"]] == [charge.label for charge in Charge]
    assert {charge[2] for charge in names["charges"]} <= set(STATES)


@pytest.mark.parametrize(("name", "expected"), [("resnet18-ddp2-sick", [1]), ("resnet18-ddp2", [])])
def test_a_rank_whose_cpu_is_late_has_a_lane_of_its_cpu(name, expected):
    found, hosts = drawn(name), [lane for lane in drawn(name) if lane.host_track is not None]
    assert [lane.rank for lane in hosts] == expected
    encoded = strips(reported(SAMPLES / name), found)
    for document in map(msgspec.json.decode, encoded.steps.values()):
        assert [device["rank"] for device in document["devices"] if "host" in device] == expected
    # What would be too much is left out with the kernels.
    alone = strips(reported(SAMPLES / name), found, most_kernels=0)
    assert b'"host"' not in b"".join(alone.steps.values())
    assert ("what its CPU does" in written(name)) == bool(expected)
    assert ("--host_ns" in written(name)) == ("--host_outside_ns: " in written(name)) == bool(expected)


def test_stretches_of_a_cpu_lie_where_its_lane_has_them():
    name = "resnet18-ddp2-sick"
    document = reported(SAMPLES / name)
    (track,) = [lane.host_track for lane in drawn(name) if lane.host_track is not None]
    encoded = strips(document, drawn(name))
    names = msgspec.json.decode(encoded.names)["names"]
    for step in map(msgspec.json.decode, encoded.steps.values()):
        rows = np.array(step["devices"][1]["host"]).reshape(-1, 4)
        start = step["start_ns"] + np.cumsum(rows[:, 0] + rows[:, 1]) - rows[:, 1]
        end = start + rows[:, 1]
        at = np.searchsorted(track.start_ns, (start + end) // 2, side="right") - 1
        assert start[0] >= step["start_ns"]
        assert end[-1] <= step["start_ns"] + step["span_ns"]
        assert (rows[1:-1, 1] == (track.end_ns - track.start_ns)[at][1:-1]).all()
        shown = [names[code] if code >= 0 else None for code in rows[:, 3].tolist()]
        assert shown == [track.names[code] if code >= 0 else None for code in track.name[at].tolist()]
        letters = [*STATES]
        causes = [STATES[letters[code]].field for code in rows[:, 2].tolist()]
        assert causes == [f"idle_{Cause(cause).label}_ns" for cause in track.cause[at].tolist()]


def test_what_is_too_much_is_left_out_whole_and_said():
    found = reported(RESNET50)
    whole = strips(found, drawn())
    assert list(whole.steps) == [found.summary.representative.step, 5]
    assert whole.left_out == []
    one_step = strips(found, drawn(), 20_000)
    assert list(one_step.steps) == [4]
    assert one_step.steps[4] == whole.steps[4]
    assert one_step.left_out == ["Drawn are 1 of 2 steps."]
    few_kernels = strips(found, drawn(), most_kernels=6_000)
    assert [device["kernels"] is None for device in msgspec.json.decode(few_kernels.steps[5])["devices"]] == [True] * 4
    assert few_kernels.left_out == ["Kernels are drawn in 1 of these 2 steps."]
    few = strips(found, drawn(), 9_000)
    rank = found.summary.representative.rank
    caused = {row.rank: row.caused_ns for row in found.waiting if row.step == 4 and row.rank != rank}
    most_waited_for = max(caused, key=lambda each: caused[each])
    # The representative one, and the one that made the others wait.
    assert [each["rank"] for each in msgspec.json.decode(few.steps[4])["devices"]] == sorted({rank, most_waited_for})
    assert few.left_out[0].startswith("Drawn are 2 of 4 devices: ")
    assert len(msgspec.json.decode(strips(found, drawn(), 1).steps[4])["devices"]) == 1


def test_sixty_four_ranks_have_a_line_each():
    summary = meet(*["..aa"] * 64)
    found = report(summary)
    parsed = Page(report_html(found, lanes(summary, found)))
    (shown,) = [each for each in parsed.scripts if (each[0].get("id") or "").startswith("step-")]
    assert len(msgspec.json.decode(parsed.data(str(shown[0]["id"])))["devices"]) == 64
    assert len([row for row in parsed.rows["ranks"] if row[2:3] == ["1"]]) == 64


def test_the_most_stretches_there_can_be_fit():
    """Packed as the sample's are, whose lengths are as irregular as any: 64 ranks are under 10 MB."""
    steps = [attributes["id"] for attributes, _ in read().scripts if (attributes.get("id") or "").startswith("step-")]
    packed = sum(len(text) for attributes, text in read().scripts if attributes.get("id") in steps)
    shown = [msgspec.json.decode(read().data(str(step))) for step in steps]
    stretches = sum(len(each["states"]) + len(each["layers"]) // 3 for step in shown for each in step["devices"])
    assert packed / stretches * MOST_STRETCHES < 8_000_000


# What keeps the page to itself.


def test_the_page_loads_nothing_and_runs_only_its_own_scripts():
    document, parsed = written(RESNET50.name), read()
    (policy,) = [a["content"] for tag, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith(POLICY.partition("{")[0])
    ran = [text for attributes, text in parsed.scripts if "type" not in attributes]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in ran]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    for _, attributes in parsed.elements:
        assert not {"src", "srcset", "onclick", "onload", "onerror"} & set(attributes)
    assert "url(" not in document
    assert "@import" not in document


def test_hostile_names_are_shown_as_text():
    found = named(reported(RESNET50), EVIL)
    document = report_html(found, lanes_named(drawn(), EVIL))
    parsed = Page(document)
    innocent = Page(report_html(named(reported(RESNET50), "x"), lanes_named(drawn(), "x")))
    assert [tag for tag, _ in parsed.elements] == [tag for tag, _ in innocent.elements]
    assert "".join(parsed.words).count(SHOWN_EVIL) > len(found.summary.layers)
    assert "\u202e" not in document
    assert "\x1b" not in document
    assert from_json(parsed.data("report")) == saved(found)
    assert document.count("</script>") == len(parsed.scripts)


def test_a_silent_run_says_so():
    words = "".join(Page(report_html(report(meet("..", "..", compute=("aa", "aa"))))).words)
    assert "Nothing communicates here" in words
    assert "No rank waits for another here." in words


# The command.


def test_the_page_is_written_beside_the_text(tmp_path, capsys):
    file = tmp_path / "report.html"
    assert main(["report", str(SMALL), "--html", str(file)]) == 0
    out, err = capsys.readouterr()
    assert "MAIN PROBLEM" in out
    assert err.startswith(f"{file}: written (")
    assert err.count("\n") == 1
    assert from_json(Page(file.read_text()).data("report")) == saved(reported(SMALL))
    assert main(["report", str(SMALL), "--json", "--html", str(file), "--force"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["schema"] == "tracer.report/3"


def test_a_page_is_replaced_only_with_force(tmp_path, capsys):
    file = tmp_path / "report.html"
    file.write_text("precious")
    assert main(["report", str(SMALL), "--html", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "--force" in err
    assert file.read_text() == "precious"
