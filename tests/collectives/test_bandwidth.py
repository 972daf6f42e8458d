"""What the links gave, against what they can do; bytes by purpose; copies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzers.collectives.bandwidth import bandwidth, copies
from analyzers.collectives.measured import exchange
from analyzers.notices import Code, Notice
from analyzers.rank.summary import summary_of
from analyzers.reporting.build import report
from analyzers.run.calibration import CalibratedLinks, Calibration, calibration_row
from analyzers.run.loading import Run
from analyzers.run.manifest import Manifest
from analyzers.run.rank_trace import RankTrace
from analyzers.trace.collective_calls import Call, Collective, Group
from analyzers.trace.header import Header
from analyzers.trace.kernel_names import Category, Kind
from tests.support.drawing import called, events_of, meet, row
from tests.support.samples import SAMPLES, reported


def table(run, links=None):
    found = exchange(run, links)
    return bandwidth(found.matching, found.transfers, found.peak_gbps)


def calibrated(*rows, links=None):
    return Calibration(links=links, rows=[calibration_row(kind, size, None, n, ns) for kind, size, n, ns in rows])


SAME = {letter: called(Collective.ALL_REDUCE, 1000, (0, 1)) for letter in "abcd"}


def test_instances_of_one_kind_group_and_size_are_one_row():
    found = table(meet("aa.bbbb.cccccccc", "aa.bbbb.cccccccc", calls={**SAME, "c": SAME["a"]}))
    assert (found.count.tolist(), found.nbytes.tolist(), found.group_size.tolist()) == ([3], [4000], [2])
    # Two members: busbw is algbw. 4000 bytes in 2, 4, 8 ns: 2000, 1000, 500 GB/s; quartiles half way between.
    assert (found.busbw_gbps.tolist(), found.transfer_ns.tolist()) == ([1000], [4])
    assert (found.low_gbps.tolist(), found.high_gbps.tolist()) == ([750], [1500])


def test_kind_size_and_group_tell_rows_apart():
    calls = {
        "a": called(Collective.ALL_REDUCE, 1000, (0, 1, 2)),
        "b": called(Collective.ALL_REDUCE, 2000, (0, 1, 2)),
        "c": called(Collective.ALL_GATHER, 1000, (0, 1, 2)),
        "d": called(Collective.ALL_REDUCE, 1000, (0, 1)),
    }
    found = table(meet("aa.bb.cc.dd", "aa.bb.cc.dd", "aa.bb.cc...", calls=calls))
    of = sorted(zip(found.kind.tolist(), found.group_size.tolist(), found.nbytes.tolist(), strict=True))
    assert of == [
        (Collective.ALL_REDUCE, 2, 4000),
        (Collective.ALL_REDUCE, 3, 4000),
        (Collective.ALL_REDUCE, 3, 8000),
        (Collective.ALL_GATHER, 3, 4000),
    ]
    assert found.count.tolist() == [1, 1, 1, 1]


def test_what_is_waited_is_a_mean_over_members():
    assert table(meet("aaaaaaa", "...aaaa", "....aaa")).wait_ns.tolist() == [(4 + 1 + 0) / 3]


def test_a_kind_of_unknown_size_has_a_row_without_bandwidth():
    found = table(meet("aaaa", "..aa", calls={"a": called(Collective.ALL_REDUCE, 1000, (0, 1), "")}))
    assert (found.nbytes.tolist(), found.transfer_ns.tolist()) == ([-1], [2])
    assert np.isnan([found.busbw_gbps, found.low_gbps, found.high_gbps, found.peak_gbps]).all()


def test_nothing_communicated_is_no_row():
    assert len(table(meet("", compute=["aa"]))) == 0


def test_peaks_are_those_of_the_kind_group_size_and_bytes():
    links = calibrated(("all_reduce", 2, 4000, 8), ("all_reduce", 3, 4000, 1), ("broadcast", 2, 4000, 1))
    assert table(meet("aa", "aa"), links).peak_gbps.tolist() == [pytest.approx(500)]
    for other in (("all_reduce", 3, 4000, 8), ("all_gather", 2, 4000, 8), ("all_reduce", 2, 8000, 8)):
        assert np.isnan(table(meet("aa", "aa"), calibrated(other)).peak_gbps).all()
    assert np.isnan(table(meet("aa", "aa")).peak_gbps).all()


def test_between_two_sizes_a_peak_is_interpolated():
    # 1000 bytes take 4 ns, 16,000 take 16: at 4000, half way of both logarithms, 8.
    links = calibrated(("all_reduce", 2, 1000, 4), ("all_reduce", 2, 16_000, 16))
    (found,) = report(meet("aaaa", "aaaa"), links).collectives
    assert found.busbw_gbps == 1000
    assert found.utilization_at_size == pytest.approx(1000 / 500)


def test_utilization_is_never_clamped():
    links = calibrated(("all_reduce", 2, 4000, 4000), links=CalibratedLinks(transport="P2P", limit_gbps=4000.0))
    found = report(meet("aa", "aa"), links)
    # 4000 bytes in 2 ns where calibration got 1 GB/s.
    assert found.collectives[0].utilization_at_size == pytest.approx(2000)
    assert found.collectives[0].utilization_of_link == pytest.approx(0.5)
    assert found.summary.communication[0].utilization_at_size == pytest.approx(2000)


@pytest.mark.parametrize(
    ("links", "known"),
    [
        (CalibratedLinks(transport="P2P/CUMEM", limit_gbps=4000.0), True),
        (CalibratedLinks(transport=None, limit_gbps=400.0), False),
        (CalibratedLinks(transport="P2P/CUMEM", limit_gbps=None), False),
        (None, False),
    ],
)
def test_utilization_of_the_link_needs_a_known_transport_and_rate(links, known):
    found = report(meet("aa", "aa"), calibrated(("all_reduce", 2, 4000, 8), links=links))
    assert (found.collectives[0].utilization_of_link is not None) == known
    assert found.collectives[0].utilization_at_size == pytest.approx(4)
    assert any("utilization of the link is not known" in str(warning) for warning in found.run.notices) == (not known)


def test_links_over_another_transport_are_said_and_have_no_limit_here():
    file = calibrated(("all_reduce", 2, 4000, 8), links=CalibratedLinks(transport="SHM/direct", limit_gbps=6300.0))
    for own, other in (("P2P/CUMEM", True), ("SHM/CUMEM", False), (None, False)):
        found = report(replace(meet("aa", "aa"), manifest=Manifest(world_size=2, transport=own)), file)
        assert (found.collectives[0].utilization_of_link is None) == other
        assert (
            any(f"calibrated over SHM/direct, and this run went over {own}" in str(w) for w in found.run.notices)
            == other
        )
        assert (found.run.links.transport, found.run.links.limit_gbps) == (
            own or "SHM/direct",
            None if other else 6300.0,
        )


def test_a_part_of_the_run_may_have_other_links():
    calls = {"a": called(Collective.ALL_REDUCE, 1000, (0, 1)), "b": called(Collective.ALL_REDUCE, 1000, (0, 1, 2))}
    links = calibrated(("all_reduce", 2, 4000, 8), links=CalibratedLinks(transport="P2P", limit_gbps=4000.0))
    pair, whole = report(meet("aa.bb", "aa.bb", "...bb", calls=calls), links).collectives
    assert pair.utilization_of_link is None
    assert whole.utilization_of_link is not None


@pytest.mark.parametrize(("limit_gbps", "known"), [(2000.0, True), (1999.0, False)])
def test_a_bandwidth_above_the_links_own_rate_is_none(limit_gbps, known):
    links = calibrated(("all_reduce", 2, 4000, 8), links=CalibratedLinks(transport="P2P", limit_gbps=limit_gbps))
    found = report(meet("aa", "aa"), links)
    assert found.collectives[0].transfer_ns == 2
    assert (found.collectives[0].busbw_gbps, found.collectives[0].algbw_gbps) == (
        (2000, 2000) if known else (None, None)
    )
    told = [note for note in found.run.notices if "above the link's own rate" in note.text]
    assert bool(told) is not known


def test_without_a_calibration_utilization_is_null_and_said_so():
    found = report(meet("aa", "aa"))
    row = found.collectives[0]
    assert row.utilization_at_size is row.utilization_of_link is None
    assert any("--links" in str(warning) for warning in found.run.notices)


def test_links_are_those_of_the_calibration():
    links = CalibratedLinks(["NVIDIA H200"] * 2, "nccl", "P2P/CUMEM", 450.0, "NVML")
    found = report(meet("aa", "aa"), calibrated(("all_reduce", 2, 4000, 8), links=links)).run.links
    assert (found.transport, found.limit_gbps, found.source) == ("P2P/CUMEM", 450.0, "NVML")
    nothing = report(meet("aa", "aa")).run.links
    assert nothing.transport is nothing.limit_gbps is nothing.source is None


def traffic_of(run):
    return report(run).traffic


def test_traffic_of_ddp_is_its_gradients_and_buffers():
    found = reported(SAMPLES / "resnet18-ddp4").traffic
    # Gradients: 11,181,642 floats. Buffers: 9,600 floats and 20 counters of 8 bytes.
    assert found == {
        "gradients": 11_181_642 * 4,
        "buffers": 9600 * 4 + 20 * 8,
        "parameters": 0,
        "inputs": 0,
        "other": 0,
        **dict.fromkeys(("activations", "messages", "attention", "tokens", "norms"), 0),
    }


def test_traffic_of_data_parallel_is_parameters_inputs_and_outputs():
    found = reported(SAMPLES / "resnet18-dp4").traffic
    assert (found["parameters"], found["gradients"]) == (44_726_568, 44_726_568)
    assert found["inputs"] == 3 * 128 * 3 * 32 * 32 * 4
    assert found["other"] == 2 * 3 * 128 * 10 * 4  # outputs, and their gradients


def test_traffic_is_a_mean_over_ranks_and_steps():
    calls = {
        letter: called(Collective.ALL_REDUCE, n, (0, 1)) for letter, n in zip("abc", (1000, 9000, 2000), strict=True)
    }
    pictures = ["aa..bb..cc.."] * 2
    found = traffic_of(meet(*pictures, calls=calls, step="000011112222"))
    assert found["other"] == 16_000  # of 4000, 36,000, 8000


def test_steps_without_communication_count_in_traffic():
    # Gradients are accumulated over four steps, of which one communicates.
    run = meet("...aa...", "...aa...", compute=["ccddccdd"] * 2, step="00112233")
    assert traffic_of(run)["other"] == 4000 / 4


def test_what_is_launched_outside_of_steps_is_in_none_where_the_device_has_steps():
    found = report(meet("aa.bb", "aa.bb", step="...00"))
    assert [row.step for row in found.collectives] == [None, 0]
    assert found.traffic["other"] == 8000


def test_traffic_of_unknown_size_is_null_and_a_barrier_has_none():
    unsized = called(Collective.ALL_REDUCE, 1000, (0, 1), "")
    found = report(meet("aa.bb", "aa.bb", calls={"a": unsized, "b": called(Collective.ALL_REDUCE, 10, (0, 1))}))
    assert found.traffic["other"] is None
    (words,) = [str(warning) for warning in found.run.notices if warning.code == Code.TRAFFIC_IS_NULL]
    assert words == (
        "traffic.other is not known: no trace gives the bytes of 2 of its 4 collectives, counted on each rank "
        "(all_reduce)"
    )
    assert traffic_of(meet("aa", "aa", kind=Collective.BARRIER))["other"] == 0


def test_an_uneven_all_to_all_without_splits_has_no_bytes():
    group = Group("0", 2, (0, 1))
    uneven = Call(Collective.ALL_TO_ALL, 100, 200, "Float", group)
    found = report(meet("aa", "..aa", calls={"a": uneven}))
    assert found.traffic["other"] is None
    assert any("needs its splits" in str(words) for words in found.run.notices)


def test_the_splits_of_an_uneven_all_to_all_count_rows():
    group = Group("0", 2, (0, 1))
    # Rows of 256: rank 0 keeps 3 and sends 5, rank 1 sends 2 and keeps 6.
    first = Call(Collective.ALL_TO_ALL, 8 * 256, 5 * 256, "BFloat16", group, split_in=(3, 5), split_out=(3, 2))
    other = Call(Collective.ALL_TO_ALL, 8 * 256, 11 * 256, "BFloat16", group, split_in=(2, 6), split_out=(5, 6))
    assert (first.moved(0), other.moved(1)) == (5 * 256, 5 * 256)
    contradicted = Call(Collective.ALL_TO_ALL, 100, 5 * 256, "BFloat16", group, split_in=(3, 5), split_out=(3, 2))
    assert contradicted.moved(0) == -1


def test_unmatched_communication_counts_as_its_own_call_says():
    assert traffic_of(meet("aa...bb", "aa"))["other"] == (4000 + 4000 + 8000) / 2


def copied(*spans: tuple[str, int, int, int]) -> Run:
    """Copies: name, start, duration, bytes."""
    rows = []
    for number, (name, start, length, nbytes) in enumerate(spans):
        more = {"device": 0, "correlation": number, "nbytes": nbytes}
        rows.append(row(Category.MEMCPY, Kind.COPY, name, start, length, **more))
    events = events_of(rows)
    return Run("drawn", None, (RankTrace(0, Path("rank0.json"), Header(), events, events),))


def test_copies_have_the_bandwidth_of_their_direction_and_size():
    up, down = "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pinned)"
    run = copied((up, 0, 10, 400), (up, 20, 20, 400), (up, 50, 40, 400), (up, 100, 1, 8), (down, 110, 2, 400))
    found = copies(summary_of(run).measured)
    rows = sorted(zip(found.direction, found.nbytes.tolist(), found.count.tolist(), found.gbps.tolist(), strict=True))
    assert rows == [
        ("DtoH (Device -> Pinned)", 400, 1, 200),
        ("HtoD (Pinned -> Device)", 8, 1, 8),
        ("HtoD (Pinned -> Device)", 400, 3, 20),  # 40, 20, 10 GB/s
    ]
    assert found.low_gbps.max() == found.gbps.max() == 200


def test_copies_without_bytes_or_duration_have_no_bandwidth():
    name = "Memcpy HtoD (Pageable -> Device)"
    found = copies(summary_of(copied((name, 0, 0, 400), (name, 5, 3, -1), (name, 9, 3, 0))).measured)
    assert found.direction == ()


def test_memory_that_is_set_is_no_copy():
    run = copied(("Memcpy HtoD (Pinned -> Device)", 0, 10, 400))
    assert [(r.direction, r.bytes, r.gbps) for r in report(run).summary.copies] == [
        ("HtoD (Pinned -> Device)", 400, 40)
    ]


@pytest.mark.parametrize(("code", "asks_for_one"), [(Code.CALIBRATION_UNREADABLE, False), (Code.RECORDING_NOTE, True)])
def test_only_a_calibration_that_cannot_be_read_takes_the_place_of_asking_for_one(code, asks_for_one):
    run = replace(meet("aa", "aa"), warnings=(Notice(code, "so that utilization is not known"),))
    codes = [warning.code for warning in report(run).run.notices]
    assert (Code.LINKS_NOT_CALIBRATED in codes) == asks_for_one
