"""The laws of docs/measuring.md, and the brute-force reference, on every recorded run there is."""

import json
from collections import Counter, defaultdict
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from analyzers.notices import Code
from analyzers.rank.columns.time_breakdown import Breakdown
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report, from_json, to_json
from analyzers.run.layout import trace_files
from tests.support import brute_force as reference
from tests.support import damage as perturb
from tests.support import physics
from tests.support.instances import Clock, collectives
from tests.support.samples import OF_KINETO, OWN, REPORTED, RUNS, params, reported, summarized
from tests.support.saved import saved
from tests.support.synthetic_runs import World, any_world, build
from tests.support.tiers import quarters

LARGE = 2_000_000  # bytes
WITHOUT_LIGHT = params(run for run in RUNS if not (run / "light").is_dir())


@pytest.mark.parametrize("path", REPORTED)
def test_time_is_conserved_in_every_window(path):
    for measured in summarized(path).measured:
        found = measured.windows
        parts = found.compute_ns + found.exposed_comm_ns + found.exposed_copy_ns + found.idle_ns
        assert (parts == found.span_ns).all()
        assert (found.overlapped_comm_ns + found.exposed_comm_ns == found.comm_ns).all()
        assert (
            min(found.compute_ns.min(), found.exposed_comm_ns.min(), found.exposed_copy_ns.min(), found.idle_ns.min())
            >= 0
        )


@pytest.mark.parametrize("path", quarters(params(OF_KINETO)))
def test_windows_equal_the_brute_force(path):
    """On the first and the last rank; on the first also where the light window's times lie on the full one's steps.

    Of the largest runs, which take this plain Python seconds, on the first alone.
    """
    summary, files = summarized(path), trace_files(path)
    found = {rank.path: measured.windows for rank, measured in zip(summary.ranks, summary.in_full, strict=True)}
    is_large = sum(file.stat().st_size for file in files) > LARGE
    for file in dict.fromkeys((files[0], files[0] if is_large else files[-1])):
        events, base = reference.read(file)
        assert_equal(found[file], reference.windows_of(events, base))
        if file == files[0] and (path / "light").is_dir():
            assert summary.ranks[0].path == file
            said = {warning.code for warning in summary.warnings}
            if take_light_times(events, base, path / "light" / file.name):
                assert not said & {Code.LIGHT_WINDOW_DOES_NOT_FIT, Code.LIGHT_WINDOW_JOINED_IN_PART}
                assert_equal(summary.measured[0].windows, reference.windows_of(events, base))
            else:
                assert len(said & {Code.LIGHT_WINDOW_DOES_NOT_FIT, Code.LIGHT_WINDOW_JOINED_IN_PART}) == 1


@pytest.mark.parametrize("path", params(path for path in RUNS if (path / "light").is_dir()))
def test_all_that_a_light_window_holds_is_in_its_windows_or_outside_of_them(path):
    summary = summarized(path)
    if not summary.is_light:
        pytest.skip("times are the full windows'")
    rank, windows = summary.ranks[0], summary.measured[0].windows
    events, _ = reference.read(path / "light" / rank.path.name)
    spans: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in reference.DEVICE:
            for device in reference.devices(event):
                spans[device].append(reference.span(event))
    for device, extents in spans.items():
        own = windows.take(windows.device == device)
        busy_ns = int((own.span_ns - own.idle_ns).sum() + own.outside_ns.sum())
        assert busy_ns == reference.covered(extents, [], min(extents)[0], max(end for _, end in extents))


def assert_equal(found: Breakdown, expected_rows: list[dict[str, Any]]) -> None:
    for expected, row in zip(expected_rows, found.to_frame().to_dict("records"), strict=True):
        assert {key: row[key] for key in expected} == expected


def take_light_times(events: list[reference.Event], base: int, light: Path) -> bool:
    """Give the full window's events the light window's times, joined by plain sorting: device, stream, launch.

    False, and nothing is given, where the two hold not as many device events, or others: some sorts launch now more,
    now fewer kernels, and some steps do what others do not.
    """
    quick, quick_base = reference.read(light)
    on_device = [
        sorted((e for e in some if e.get("cat") in reference.DEVICE), key=launch_order) for some in (events, quick)
    ]
    names = [[event["name"] for event in some] for some in on_device]
    if names[0] != names[1]:
        return False
    for ours, theirs in zip(*on_device, strict=True):
        ours["ts"], ours["dur"] = theirs["ts"] + Decimal(quick_base - base) / 1000, theirs["dur"]
    return True


def launch_order(event: dict[str, Any]) -> tuple[int, ...]:
    args = event["args"]
    return args.get("device", args.get("fromDevice")), args["stream"], args["correlation"], event["ts"]


@pytest.mark.parametrize("path", REPORTED)
def test_reports_survive_their_own_json(path):
    found = reported(path)
    assert from_json(to_json(found)) == saved(found)


SYNCHRONIZING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "dispatch", "combine")


@pytest.mark.parametrize("path", REPORTED)
def test_waiting_and_transfer_make_up_exposed_communication(path):
    for window in reported(path).windows:
        parts = window.exposed_wait_ns, window.exposed_transfer_ns, window.exposed_unresolved_ns
        assert sum(parts) == window.exposed_comm_ns and min(parts) >= 0
        assert 0 <= window.unmatched_comm_ns <= window.comm_ns


@pytest.mark.parametrize("path", REPORTED)
def test_exposed_times_of_kernels_that_do_not_overlap_add_up_to_those_of_windows(path):
    found = reported(path)
    unmatched = {(row.rank, row.device) for row in found.unmatched}
    members, windows = defaultdict(list), defaultdict(list)
    for member in (member for row in found.collectives for member in row.members):
        members[member.rank, member.device].append(member)
    for window in found.windows:
        windows[window.rank, window.device].append(window)
    for place in windows.keys() - unmatched:
        kernels = sorted(members[place], key=lambda one: one.start_ns)
        ends = [one.start_ns + one.dur_ns for one in kernels]
        begin = min(one.start_ns for one in windows[place])
        end = max(one.start_ns + one.span_ns for one in windows[place])
        apart = all(ends[k] <= kernels[k + 1].start_ns for k in range(len(kernels) - 1))
        inside = all(begin <= one.start_ns and last <= end for one, last in zip(kernels, ends, strict=True))
        if apart and inside and all(one.exposed_wait_ns is not None for one in kernels):
            for name in ("exposed_wait_ns", "exposed_transfer_ns"):
                assert sum(getattr(one, name) for one in kernels) == sum(getattr(one, name) for one in windows[place])


@pytest.mark.parametrize("path", REPORTED)
def test_each_member_waits_and_transfers(path):
    for row in reported(path).collectives:
        assert row.bound or not row.partial
        assert row.bound or row.kind in SYNCHRONIZING
        assert row.partial <= (row.algbw_gbps is None)
        for member in row.members:
            assert 0 <= member.exposed_ns <= member.dur_ns
            assert (member.wait_ns is None) == (row.partial and len(row.members) == 1)
            assert 0 <= (member.wait_ns or 0) <= member.dur_ns
        assert row.transfer_ns == max(member.dur_ns - (member.wait_ns or 0) for member in row.members)
        # Who came last waited for nobody.
        assert min(member.wait_ns or 0 for member in row.members) == 0


@pytest.mark.parametrize("path", REPORTED)
def test_each_kernel_is_in_one_instance_or_unmatched(path):
    found = reported(path)
    members = [
        (row.kind == "send_recv" and len(row.group) == 1, member) for row in found.collectives for member in row.members
    ]
    # Both ends of a copy between two devices share its times.
    places = [(m.rank, m.device, m.start_ns, m.dur_ns) for is_copy, m in members if not is_copy]
    places += [(row.rank, row.device, row.start_ns, row.dur_ns) for row in found.unmatched]
    communications = [measured.communication for measured in summarized(path).measured]
    assert len(places) == sum(int((each.peer < 0).sum()) for each in communications)
    if not found.run.clock.applied:
        assert Counter(place[3] for place in places) == Counter(
            ns for each in communications for ns in each.dur_ns[each.peer < 0].tolist()
        )


@pytest.mark.parametrize("path", REPORTED)
def test_what_is_waited_is_charged(path):
    found = reported(path)
    assert sum(row.caused_ns for row in found.waiting) == sum(row.waited_ns for row in found.waiting)


def is_copy(row) -> bool:
    return row.kind == "send_recv" and len(row.group) == 1


@pytest.mark.parametrize("path", REPORTED)
def test_no_link_of_an_h200_is_faster_than_it_can_be(path):
    found = reported(path)
    if not any("H200" in name for name in found.run.devices):
        pytest.skip("other devices")
    for row in found.collectives:
        if not row.bound and row.busbw_gbps is not None:
            assert row.busbw_gbps < 500
            assert row.busbw_gbps >= row.algbw_gbps / 2


# An uneven all-to-all of these worlds does not say how it is split.
KINDS = tuple(op for op in physics.every_kind(4) if not getattr(op, "uneven", False))
WORLDS = {
    "ddp": World(program=physics.ddp()),
    "fsdp": World(program=physics.fsdp(), late_us=900.0),
    "mesh": World(ranks=8, program=physics.mesh(8, 4)),
    "kinds": World(program=KINDS),
    "two hosts": World(program=physics.ddp(), offsets_ns=(0, 0, 812_345_678, 812_345_678), devices_per_host=2),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_collectives_of_worlds_equal_the_brute_force(world, tmp_path):
    documents = build(world).documents
    assert compared(documents, report(summarize(perturb.write_run(tmp_path / "run", documents)))) > 10


@pytest.mark.parametrize("seed", quarters(range(12)))
def test_the_laws_of_waiting_hold_in_damaged_worlds(seed, tmp_path):
    made = build(replace(any_world(Random(seed)), missing=0.1))
    found = report(summarize(perturb.write_run(tmp_path / "run", made.documents)))
    for window in found.windows:
        parts = window.exposed_wait_ns, window.exposed_transfer_ns, window.exposed_unresolved_ns
        assert sum(parts) == window.exposed_comm_ns and min(parts) >= 0
    for row in found.collectives:
        left_ns = [member.dur_ns - (member.wait_ns or 0) for member in row.members]
        if row.kind in ("gather", "scatter"):
            assert row.transfer_ns in left_ns  # the root's, which takes part in every message
        else:
            assert max(left_ns) <= row.transfer_ns
    shift = {rank: found.run.clock.offsets_ns[str(rank)] for rank in found.run.clock.applied_to}
    members = [*(member for row in found.collectives for member in row.members), *found.unmatched]
    places = [(m.rank, m.start_ns + int(found.run.origin_ns) + shift.get(m.rank, 0), m.dur_ns) for m in members]
    written = [
        (perturb.rank_of(document), document["baseTimeNanoseconds"] + start, perturb.end_ns(event) - start)
        for document in made.documents
        for event in filter(perturb.is_nccl, document["traceEvents"])
        if (start := perturb.start_ns(event))
    ]
    assert sorted(places) == sorted(written)


@pytest.mark.parametrize("path", WITHOUT_LIGHT)
def test_collectives_equal_the_brute_force(path):
    found = reported(path)
    documents = perturb.read_run(path)
    if len(documents) < 2 or len(documents) < found.run.world_size:
        pytest.skip("one rank, or not all of them")
    if found.run.backend == "gloo":
        pytest.skip("the brute force reads NCCL's kernels")
    assert compared(documents, found, path) > 0


def clock_of(documents: list[perturb.Document], found: Report, folder: Path | None = None) -> Clock:
    """The clocks as run.json, the traces and the report's own offsets have them."""
    manifest = json.loads((folder / "run.json").read_text()) if folder and (folder / "run.json").exists() else {}
    named = {perturb.rank_of(document): document.get("host_name") for document in documents}
    hosts = manifest.get("hosts", [])
    host = {rank: hosts[0] if len(hosts) == 1 else name for rank, name in named.items()}
    clock = found.run.clock
    return Clock(
        host={rank: name for rank, name in host.items() if name},
        reference=found.run.ranks[0],
        offset={rank: clock.offsets_ns[str(rank)] for rank in clock.applied_to},
        spread={int(rank): spread for rank, spread in clock.spread_ns.items() if spread is not None},
    )


def compared(documents: list[perturb.Document], found: Report, folder: Path | None = None) -> int:
    """Hold every collective that brute force finds against the report's; how many there were."""
    shift = {rank: found.run.clock.offsets_ns[str(rank)] for rank in found.run.clock.applied_to}

    def place(member):
        start = member.start_ns + int(found.run.origin_ns) + shift.get(member.rank, 0)
        return member.rank, member.device, start

    rows = {frozenset(map(place, row.members)): row for row in found.collectives}
    expected = collectives(documents, clock_of(documents, found, folder))
    for together, truth in expected.items():
        row = rows[together]
        assert (row.kind, row.bytes, row.partial) == (truth.kind, truth.bytes, False)
        assert truth.kind == "send_recv" or tuple(row.group) == truth.group
        assert (row.transfer_ns, row.bound) == (truth.transfer_ns, truth.bound), (row, truth)
        assert {place(member): member.wait_ns for member in row.members} == truth.wait_ns
        assert [row.algbw_gbps, row.busbw_gbps] == [
            None if known is None else pytest.approx(float(known), rel=1e-12) for known in (truth.algbw, truth.busbw)
        ]
    return len(expected)


@pytest.mark.slow
def test_the_large_bucket_of_resnet18_has_the_bandwidths_computed_by_hand():
    found = [path for path in RUNS if path.name == "resnet18-ddp4" and not (path / "light").is_dir()]
    if not found:
        pytest.skip("not among the runs")
    rows = [row for row in reported(found[0]).collectives if row.bytes == 28_872_744]
    assert [row.transfer_ns for row in rows] == [153_694, 153_022, 151_166]
    # 28,872,744 bytes * 2 * 3/4 over that.
    assert [f"{row.busbw_gbps:.1f}" for row in rows] == ["281.8", "283.0", "286.5"]


def test_samples_are_small():
    files = [file for path in OWN for file in path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 12e6


def test_samples_recorded_on_gpus_take_their_times_from_the_light_window():
    recorded = [path for path in OWN if (path / "light").is_dir()]
    assert recorded
    for path in recorded:
        assert reported(path).run.times_from == "light", path.name


@pytest.mark.parametrize("path", REPORTED)
def test_the_parts_of_every_pipelines_bubble_add_up(path):
    for row in reported(path).pipeline:
        assert row.bubble_ns >= 0
        assert row.rest_ns is None or row.schedule_ns + row.imbalance_ns + row.rest_ns == row.bubble_ns
        ends = [action.start_ns + action.dur_ns for action in row.actions]
        assert all(0 <= action.busy_ns <= action.dur_ns for action in row.actions)
        assert row.bubble_ns <= max(ends) - row.actions[0].start_ns
