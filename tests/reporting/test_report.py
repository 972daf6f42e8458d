import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analyzers
from analyzers.collectives.measured import exchange
from analyzers.collectives.warnings import exchange_warnings
from analyzers.errors import AnalysisError
from analyzers.notices import Code, Notice
from analyzers.rank import Cause
from analyzers.rank.summary import summarize, summarize_rank
from analyzers.reporting.build import report
from analyzers.reporting.document import from_json, to_json
from analyzers.run.calibration import CalibratedLinks, Calibration, calibration_row
from analyzers.run.controls import Control, Controls, control
from analyzers.run.loading import Run
from analyzers.run.manifest import DeviceState, Manifest
from analyzers.run.rank_trace import RankTrace
from analyzers.step_parts import IDLE_PARTS, PARTS, fields_of
from analyzers.trace.collective_calls import Call, Collective, Group
from analyzers.trace.header import Header
from analyzers.trace.kernel_names import Category, Kind
from tests.support.drawing import called, draw, events_of, meet, row
from tests.support.samples import SAMPLES, reported
from tests.support.saved import saved
from tests.support.tiers import quarters
from tests.support.typical_steps import typical_windows
from tracer.views.html.report_top import top
from tracer.views.sections.overview import report_text
from tracer.views.sections.screen import step_sentence

# What docs/formats.md names; keys may be added, these stay.
KEYS = {
    "schema", "run", "windows", "groups", "collectives", "unmatched", "buckets", "layers", "pipeline", "experts",
    "traffic", "summary",
}  # fmt: skip
RUN_KEYS = {
    "name", "world_size", "devices", "backend", "strategy", "model", "batch_per_gpu", "bucket_cap_mb", "versions",
    "origin_ns", "controls", "clock", "links", "warnings", "notes",
}  # fmt: skip
WINDOW_KEYS = {
    "rank", "device", "step", "start_ns", "span_ns", "compute_ns", "packing_ns", "comm_ns", "copy_ns",
    "overlapped_comm_ns", "exposed_comm_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unresolved_ns",
    "exposed_copy_ns", "idle_ns",    "overlap",
}  # fmt: skip
COLLECTIVE_KEYS = {
    "index", "kind", "group", "group_size", "dtype", "bytes", "purpose", "step", "bucket", "transfer_ns", "bound",
    "partial", "algbw_gbps", "busbw_gbps", "utilization_at_size", "utilization_of_link", "why", "members",
}  # fmt: skip
MEMBER_KEYS = {"rank", "device", "start_ns", "dur_ns", "wait_ns", "exposed_ns"}
UNMATCHED_KEYS = {"rank", "device", "kind", "name", "start_ns", "dur_ns", "why"}
LINKS = Calibration(
    links=CalibratedLinks(["NVIDIA H200"], "nccl", "P2P/CUMEM", 4500.0, "NVML"),
    rows=[calibration_row("all_reduce", 2, None, 4000, 10)],
)

PICTURE = {"step": "333333444444", "compute": "aa..bb.cc..d", "comm": ".ee....f....", "copy": "...........g"}


CALLS = {letter: called(Collective.ALL_REDUCE, 1000, (0, 1)) for letter in "ef"}


def drawn(**manifest) -> Run:
    traces = tuple(draw(rank=rank, device=rank, calls=CALLS, **PICTURE) for rank in (0, 1))
    return Run("drawn", Manifest(**manifest) if manifest else None, traces)


def test_json_has_every_key_of_the_contract():
    document = json.loads(to_json(report(drawn())))
    assert document["schema"] == "tracer.report/3"
    assert set(document) >= KEYS
    assert set(document["run"]) >= RUN_KEYS
    assert set(document["run"]["controls"]) >= {
        "unprofiled_step_ns", "nosync_step_ns", "profiled_step_ns", "distortion", "sync_cost_ns",
    }  # fmt: skip
    assert all(set(window) >= WINDOW_KEYS for window in document["windows"])


def test_json_has_every_key_of_the_contract_on_what_is_concluded():
    summary = json.loads(to_json(reported(SAMPLES / "resnet18-ddp2-sick")))["summary"]
    assert set(summary) >= {"bar", "advice", "advice_together_ns", "headline", "steps", "charges", "verdict"}
    parts = (
        "compute",
        "exposed_transfer",
        "exposed_unresolved",
        "exposed_copy",
        "exposed_wait",
        "idle",
        "idle_or_wait",
    )
    assert set(summary["bar"]) >= {"of", "step_ns", *(f"{part}_ns" for part in parts)}
    headline = ("step_ns", "profiled_step_ns", "problem", "share", "gain_ns", "remedy", "trust", "why")
    assert set(summary["headline"]) >= {*headline}
    advice = ("code", "text", "at", "gain_ns", "interval_ns", "at_most_ns", "scenario", "because")
    assert all(set(piece) >= {*advice, "within_ns", "trust", "why"} for piece in summary["advice"])
    assert summary["headline"]["gain_ns"] == summary["advice"][0]["gain_ns"]


def test_reports_of_the_schema_before_are_read_for_what_they_have():
    """Their advice had other figures, and goes."""
    found = reported(SAMPLES / "resnet18-ddp2-sick")
    text = to_json(found).replace('"tracer.report/3"', '"tracer.report/2"')
    before = from_json(text)
    assert before.summary.advice == []
    assert before.windows == found.windows


def collectives(*comm: str, links: Calibration | None = LINKS, **more) -> dict[str, Any]:
    return json.loads(to_json(report(meet(*comm, **more), links)))


def test_json_of_communication_has_every_key_of_the_contract():
    document = collectives("aaaa...b", "..aa....")
    (row,), lost = document["collectives"], document["unmatched"]
    assert set(row) >= COLLECTIVE_KEYS
    assert len(row["members"]) == 2
    assert all(set(member) >= MEMBER_KEYS for member in row["members"])
    assert lost
    assert all(set(each) >= UNMATCHED_KEYS for each in lost)
    assert set(document["run"]["clock"]) >= {"offsets_ns", "spread_ns", "applied"}
    assert set(document["run"]["links"]) >= {"devices", "transport", "limit_gbps", "source"}
    assert set(document["traffic"]) == {
        *("gradients", "buffers", "parameters", "inputs", "activations", "messages", "attention", "tokens", "norms"),
        "other",
    }


def test_json_has_nulls_where_and_only_where_nothing_is_known():
    (known,) = collectives("aaaa", "..aa")["collectives"]
    assert {key for key, value in known.items() if value is None} == {"bucket", "why"}
    (row,) = collectives("aaaa", "..aa", links=None)["collectives"]
    assert {key for key, value in row.items() if value is None} == {
        *("bucket", "utilization_at_size", "utilization_of_link", "why")
    }
    (barrier,) = collectives("aaaa", "..aa", kind=Collective.BARRIER)["collectives"]
    assert (barrier["bytes"], barrier["busbw_gbps"], barrier["transfer_ns"]) == (None, None, 2)


def test_json_spells_kinds_as_the_contract_does():
    labels = {kind.label for kind in Collective}
    assert labels == {
        *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter"),
        *("send_recv", "barrier", "dispatch", "combine", "other"),
    }


def test_json_counts_collectives_in_the_order_of_their_starts():
    rows = collectives("aa...bb....cc", "aa...bb....cc")["collectives"]
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert [row["members"][0]["start_ns"] for row in rows] == [0, 5, 11]


def test_json_conserves_time_and_counts_from_the_earliest_event():
    windows = json.loads(to_json(report(drawn())))["windows"]
    assert [window["start_ns"] for window in windows] == [0, 7, 0, 7]
    for window in windows:
        assert sum(window[part.field] for part in PARTS) == window["span_ns"]


def test_a_window_without_communication_has_a_null_overlap():
    run = Run("drawn", None, (draw(compute="aa"),))
    assert json.loads(to_json(report(run)))["windows"][0]["overlap"] is None


def test_the_representative_step_has_the_median_span():
    found = report(drawn())
    chosen = found.summary.representative
    windows = typical_windows(found)
    spans = sorted(window.span_ns for window in windows)
    (window,) = [w for w in windows if (w.rank, w.step) == (chosen.rank, chosen.step)]
    assert window.span_ns == spans[(len(spans) - 1) // 2]


def test_shares_of_all_time_add_up():
    shares = report(drawn()).summary.shares
    assert sum(shares[part.field] for part in PARTS) == pytest.approx(1)


def timed(ns: int) -> Control:
    return control({0: [[ns], [ns]], 1: [[ns], [ns]]})


def test_controls_are_medians_of_all_samples():
    found = report(drawn(controls=Controls(unprofiled=timed(100), nosync=timed(80), full=timed(110)))).run.controls
    assert (found.unprofiled_step_ns, found.profiled_step_ns, found.sync_cost_ns) == (100, 110, 20)
    assert found.distortion == 1.1


def test_a_high_distortion_leads_the_report():
    for full, leads in ((106, True), (104, False)):
        warnings = report(drawn(controls=Controls(unprofiled=timed(100), full=timed(full)))).run.notices
        assert any("stretches" in str(warning) for warning in warnings[:1]) == leads


def scattered(*ns: int) -> Control:
    return control({0: [[step] for step in ns]})


def test_a_control_that_scatters_has_a_wide_interval_and_voids_nothing():
    # Pairs are 2, 2.14, 2.05 and 2.07; none of these steps is odd.
    wide, full = scattered(100, 140, 100, 140), scattered(200, 300, 205, 290)
    found = report(drawn(controls=Controls(unprofiled=wide, full=full)))
    controls = found.run.controls
    assert (controls.unprofiled_step_ns, controls.distortion) == (120, pytest.approx((205 / 100 + 290 / 140) / 2))
    assert set(controls.intervals_ns) == {"unprofiled_step_ns", "profiled_step_ns", "distortion"}
    assert controls.intervals_ns["unprofiled_step_ns"] == [100, 140]
    assert "(between " in found.summary.verdict
    assert not any(notice.code == Code.CONTROL_IS_NULL for notice in found.run.notices)


def test_an_interval_wider_than_a_factor_of_two_says_what_blocks_took():
    blocks = [[10_000_000] * 2, [21_000_000] * 2, [22_000_000] * 2]
    found = report(drawn(controls=Controls(unprofiled=control({0: blocks}))))
    words = "(not known: blocks of steps took 10.00, 21.00 and 22.00 ms)"
    assert found.run.controls.intervals_ns["unprofiled_step_ns"] == [10_000_000, 22_000_000]
    assert f"21.00 ms {words}" in found.summary.verdict
    assert f"21.00 ms per step {words}" in step_sentence(found)
    assert f"a step takes 21.00 ms {words} without" in report_text(found)


def test_odd_steps_that_make_the_mean_longer_are_told_beside_the_typical_step():
    # Two workers load a batch each: every other step waits for the next two.
    bursts = control({0: [[40_000_000, 90_000_000] * 3 + [40_000_000] * 2] * 3})
    found = report(drawn(controls=Controls(unprofiled=bursts)))
    assert (found.run.controls.unprofiled_step_ns, found.run.controls.unprofiled_mean_ns) == (40_000_000, 58_750_000)
    assert "A step takes 40.00 ms, 58.75 ms on average" in found.summary.verdict
    assert "40.00 ms per step, 58.75 ms on average (9 of 24 timed steps are odd), " in step_sentence(found)
    assert "58.75 ms on average (9 of 24 timed steps are odd); " in top(found).remark


@pytest.mark.parametrize("last", [40_000_000, 70_000_000])
def test_odd_steps_that_cost_less_than_a_tenth_are_not(last):
    steady = control({0: [[40_000_000] * 7 + [last]] * 3})
    found = report(drawn(controls=Controls(unprofiled=steady)))
    assert found.run.controls.unprofiled_mean_ns == 40_000_000 + (last - 40_000_000) // 8
    assert "on average" not in step_sentence(found) + found.summary.verdict


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_blocks_of_steps_lower_trust(count):
    found = report(drawn(controls=Controls(unprofiled=control({0: [[7] * 8] * count}))))
    reason = f"few blocks of steps ({count}) were timed without the profiler"
    assert (reason in str(found.summary.headline.why)) is (count < 3)


def test_a_control_without_a_sample_is_null_with_its_reason():
    found = report(drawn(controls=Controls(unprofiled=control({0: []}), reasons={"nosync": "scripts have none"}))).run
    assert found.controls.unprofiled_step_ns is None
    notes = [str(note) for note in found.notes if note.code == Code.CONTROL_IS_NULL]
    assert notes == ["control nosync: scripts have none", "control unprofiled: no samples"]


def test_what_synchronization_costs_is_not_told_apart_where_intervals_overlap():
    plain, nosync = scattered(100, 104, 98, 103, 97, 101), scattered(99, 103, 97, 104, 96, 100)
    found = report(drawn(controls=Controls(unprofiled=plain, nosync=nosync)))
    low, high = found.run.controls.intervals_ns["sync_cost_ns"]
    assert low < 0 < high
    cost = found.summary.sync_cost
    assert cost and (cost.control_interval_ns, cost.accounted) == ([low, high], None)
    assert cost.remainder_ns is not None
    shown = " ".join(report_text(found).split())
    assert "and whether synchronization costs anything cannot be told (between -0.000 and 0.000 ms)" in shown


@pytest.mark.parametrize(
    ("full", "words"),
    [
        ((110, 111, 112), ", and 9.9 % more while it is profiled. Of"),
        ((250, 250, 251), ", and 2.48 times as long while it is profiled. Of"),
        ((98, 103, 101), "; whether it takes longer while it is profiled cannot be told (between "),
    ],
)
def test_the_verdict_names_the_step_that_people_train_and_how_far_it_is_stretched(full, words):
    controls = Controls(unprofiled=scattered(100, 101, 102), full=scattered(*full))
    found = report(drawn(controls=controls)).summary
    assert found.verdict.startswith(f"A step takes 0.000 ms{words}")
    assert ". Of the profiled step: " in found.verdict
    assert found.headline.step_ns == 101
    assert report(drawn()).summary.verdict.startswith("A step takes 0.000 ms under the profiler (mean): ")


def test_only_reports_are_read_back():
    found = report(drawn())
    assert from_json(to_json(found)) == saved(found)
    for other in ("{}", "no", to_json(found).replace("tracer.report/3", "tracer.report/1")):
        with pytest.raises(AnalysisError):
            from_json(other)


@pytest.mark.parametrize(
    ("by", "width"),
    [(by, width) for by in ("rank", "step", "collective") for width in (80, 110, 200)],
)
def test_text_fits_its_width_without_cutting_numbers(width, by):
    shown = report_text(report(drawn(model="resnet18", controls=Controls(unprofiled=timed(100)))), by, width)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    assert "\x1b" not in shown
    assert "\x1b[" in report_text(report(drawn()), by, width, color=True)


def test_a_device_that_is_slowed_is_a_warning_and_its_state_is_in_the_document():
    hot = DeviceState(1, "H200", 1, 1200, 1980, reasons=["hw_thermal_slowdown"])
    states = {"0": [DeviceState(0, "H200", 1, 1980, 1980, reasons=[])], "1": [hot]}
    found = report(drawn(device_states=states))
    text = "rank 1's GPU runs at 1,200 MHz where the others run at 1,980: hw_thermal_slowdown"
    assert (Code.DEVICE_IS_SLOWED, text) in [(notice.code, notice.text) for notice in found.run.warnings]
    assert text in " ".join(report_text(found).split())
    assert from_json(to_json(found)).run.device_states == states
    assert report(drawn()).run.device_states is None


def test_a_narrow_terminal_loses_no_number():
    shown = report_text(report(drawn()), width=20)
    assert "…" not in shown
    assert "100.0 %" in shown


def test_names_cannot_steer_a_terminal():
    hostile = "\x1b[2J[bold]x\nA step takes 0 ms"
    run = Run(hostile, Manifest(model=hostile), drawn().ranks, (Notice(Code.RECORDING_NOTE, hostile),))
    shown = report_text(report(run))
    assert "\x1b" not in shown
    assert "[bold]x" in shown
    assert sum(line.startswith("A step takes") for line in shown.splitlines()) == 1


def test_a_trace_without_steps_is_not_called_a_step():
    found = report(Run("drawn", None, (draw(compute="aa"),)))
    assert found.summary.verdict.startswith("The whole trace, in which no step is marked, takes")
    assert any("no ProfilerStep" in str(warning) for warning in found.run.notices)


def test_text_says_the_verdict_before_anything_else():
    lines = report_text(report(drawn())).splitlines()
    assert lines[2].startswith("A step takes")


def test_frames_of_a_run_and_of_its_ranks_agree(tmp_path):
    run = drawn()
    frame = analyzers.breakdown(run).to_frame()
    parts = [analyzers.breakdown(replace(trace, path=Path("x"))).to_frame() for trace in run.ranks]
    assert frame.to_dict("records")[2:] == parts[1].to_dict("records")


# Communication as text.

COMMUNICATING = Run(
    "drawn",
    None,
    tuple(
        draw(rank=rank, device=rank, calls=CALLS, step="333333444444", comm=comm)
        for rank, comm in enumerate(("eeee..fffff.", "..ee....fff."))
    ),
)


def lines_of(shown: str, start: str) -> list[list[str]]:
    """The words of the lines that begin with a word."""
    return [line.split() for line in shown.splitlines() if line.split()[:1] == [start]]


def test_text_shows_every_collective():
    shown = report_text(report(COMMUNICATING, LINKS), "collective")
    rows = [line.split() for line in shown.splitlines() if "all_reduce" in line]
    # 4000 bytes in 2 and 3 ns; calibration says 400 GB/s, the link 450.
    # fmt: off
    assert rows == [
        ["0", "3", "all_reduce", "0,1", "other", "4", "kB", "0.000", "0.000", "-", "0.000", "2,000.0", "500.0", "%",
         "of", "400.0", "44.4", "%", "of", "4,500.0"],
        ["1", "4", "all_reduce", "0,1", "other", "4", "kB", "0.000", "0.000", "-", "0.000", "1,333.3", "333.3", "%",
         "of", "400.0", "29.6", "%", "of", "4,500.0"],
    ]
    # fmt: on


def test_text_shows_what_the_links_gave_against_calibration():
    shown = report_text(report(COMMUNICATING, LINKS))
    (row,) = lines_of(shown, "all_reduce")
    # Two instances: median of 2000 and 1333.3, quartiles a quarter of the way from either.
    expected = ["all_reduce", "0,1", "other", "4", "kB", "2", "0.000", "0.000", "1,666.7", "1,500.0", "-", "1,833.3"]
    assert row == [*expected, "400.0", "416.7", "%"]


def test_a_warning_says_that_members_are_missing_from_the_run():
    words = "1 of 1 collectives have ranks that are not in the run"
    assert any(words in str(warning) for warning in report(meet("aaaa", "..aa", world_size=3)).run.notices)
    assert not any("members" in str(warning) for warning in report(meet("aaaa", "..aa")).run.notices)


def test_bandwidths_that_are_null_have_a_reason():
    found = exchange(meet("aa..bb", "aa..bb"))
    assert not any("have no bandwidth" in str(warning) for warning in exchange_warnings(found))
    at_once = replace(found.transfers, transfer_ns=np.array([0, 2]))
    said = [str(warning) for warning in exchange_warnings(replace(found, transfers=at_once))]
    assert "1 of 2 collectives have no bandwidth: their transfer takes 0 ns" in said


def test_names_from_traces_do_not_steer_the_terminal():
    named = {letter: Group(name, 2, (0, 1)) for letter, name in (("a", "x\x1b[31m"), ("b", "y"))}
    calls = {letter: Call(Collective.ALL_REDUCE, 250, 250, "Float", group) for letter, group in named.items()}
    shown = report_text(report(meet("aa..bb", "aa..bb", calls=calls)))
    assert "group x" in shown and "\x1b" not in shown


def test_text_marks_bounds():
    partial = meet("aaaa", "..aa", world_size=3)
    shown = report_text(report(partial, LINKS))
    assert "\N{LESS-THAN OR EQUAL TO}0.000" in lines_of(shown, "all_reduce")[0]
    assert "at most" in shown and "are not in the run" in shown
    calls = {"s": called(Collective.ALL_REDUCE, 7, (0, 1)), "a": called(Collective.BROADCAST, 1000, (0, 1))}
    shown = report_text(report(meet("ss.aaaa", "ss.aaaa", calls=calls), LINKS))
    assert "\N{GREATER-THAN OR EQUAL TO}" in " ".join(lines_of(shown, "broadcast")[0])


def test_text_names_who_was_waited_for():
    shown = report_text(report(meet("a" * 50_000, "." * 20_000 + "a" * 30_000, launch=("^", "." * 19_999 + "^"))))
    assert "Rank 1 comes last for 100.0 % of all waiting: the others together wait 0.020 ms per step for it." in shown


def test_text_says_when_nothing_communicates():
    shown = report_text(report(meet("aa", "aa", compute=("bb", "bb"))), "collective")
    assert "Every collective" in shown
    alone = Run("drawn", None, (draw(compute="aa"),))
    assert "No collectives" in report_text(report(alone), "collective")
    assert "Communication:" not in report_text(report(alone))


@pytest.mark.parametrize("width", quarters([80, 105, 30, 104, 200, None]))
@pytest.mark.parametrize("by", ["rank", "collective"])
def test_no_number_of_communication_is_cut(width, by):
    calls = {"a": called(Collective.REDUCE_SCATTER, 10**14, tuple(range(0, 20, 2)))}
    run = meet(*["aa"] * 20, calls=calls)
    shown = report_text(report(run, LINKS), by, width)
    (row,) = [line for line in shown.splitlines() if "reduce_scatter" in line and "10 ranks" in line]
    # 4e14 bytes in 2 ns, times 9/10; where the terminal is narrow, in a table below.
    assert f"{2e14 * 9 / 10:,.1f}" in shown
    assert "…" not in shown
    assert ("other" in row) == (width is None or width >= 105)


def test_prose_of_communication_is_wrapped():
    for width in (40, 80):
        shown = report_text(report(COMMUNICATING, LINKS), width=width).splitlines()
        prose = [line for line in shown if "  " not in line.strip() and "▓" not in line]  # a bar is no prose
        assert max(map(len, prose)) <= width


HOSTILE = "\x1b[2J[bold]x\nA step takes 0 ms"


@pytest.mark.parametrize("by", ["rank", "step", "collective"])
def test_groups_and_links_cannot_steer_a_terminal(by):
    group = Group(HOSTILE, 2, (0, 1))
    calls = {"a": Call(Collective.ALL_REDUCE, 1000, 1000, HOSTILE, group)}
    links = CalibratedLinks([HOSTILE], HOSTILE, HOSTILE, None, HOSTILE)
    calibration = Calibration(links=links, rows=LINKS.rows)
    found = report(meet("aaaa", "..aa", calls=calls), calibration)
    shown = report_text(found, by)
    assert "\x1b" not in shown
    assert sum(line.startswith("A step takes") for line in shown.splitlines()) == 1
    assert from_json(to_json(found)) == saved(found)


def test_copies_names_cannot_steer_a_terminal():
    name = f"Memcpy HtoD {HOSTILE}"
    events = events_of([row(Category.MEMCPY, Kind.COPY, name, 0, 5, device=0, nbytes=10)])
    events_all = meet("aa", "aa")
    trace = RankTrace(2, Path("rank2.json"), Header(), events, events)
    run = replace(events_all, ranks=(*events_all.ranks, summarize_rank(trace)))
    shown = report_text(report(run))
    assert "Copies HtoD" in shown
    assert "\x1b" not in shown
    assert sum(line.startswith("A step takes") for line in shown.splitlines()) == 1


def test_ranks_are_shown_as_ranges():
    shown = {(0, 1, 2, 3): "0-3", (0, 2): "0,2", (0, 1): "0,1", (0, 1, 2, 8): "0-2,8"}
    for ranks, words in shown.items():
        calls = {"a": called(Collective.ALL_REDUCE, 1000, ranks)}
        found = report_text(report(meet("aa", calls=calls, world_size=9)), "collective")
        (line,) = [line.split() for line in found.splitlines() if "all_reduce" in line]
        assert line[3] == words


def test_text_says_how_far_clocks_are_apart():
    shown = report_text(report(meet("aa", "aa", "aa", since=(3000, 0, 6000))))
    assert "at most 6 us apart" in shown


def data_parallel() -> str:
    return report_text(report(summarize(Path(__file__).resolve().parents[2] / "traces" / "resnet18-dp4")))


def test_text_says_between_whom_copies_go():
    (row,) = lines_of(data_parallel(), "send_recv")[:1]
    assert row[1:3] == ["2", "devices"]


def test_a_single_rank_has_no_line_on_clocks():
    assert "Clocks" not in data_parallel()


def test_of_several_devices_the_one_that_came_last_is_named():
    assert "Rank 0 comes last" not in data_parallel()
    assert "Device 0 comes last" in data_parallel()


def test_parts_of_idle_time_are_its_causes_in_the_order_of_their_columns():
    assert fields_of(IDLE_PARTS) == tuple(f"idle_{cause.label}_ns" for cause in Cause)
