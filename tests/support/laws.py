"""What buckets and layers add up to, per rank, device and step: each law a check of the run in a folder."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from analyzers.rank.columns.activity import device_label
from analyzers.rank.strategies import DDP, STRATEGIES, Purpose
from analyzers.rank.summary import RunSummary
from analyzers.reporting.per_step import mean_steps
from analyzers.step_parts import CAUSE_PARTS, EXPOSED, PARTS, fields_of
from analyzers.trace.collective_calls import Collective, itemsize
from tests.support import typical_steps
from tests.support.samples import reported, summarized


def exposed_of_kernels(run: RunSummary, *, gradients: bool) -> Counter:
    """Exposed ns of all communication, or of gradients' all-reduces alone, by rank, device and step."""
    total: Counter = Counter()
    for rank, measured in zip(run.ranks, run.measured, strict=True):
        comm = measured.communication
        chosen = np.ones(len(comm), dtype=bool)
        if gradients:
            chosen &= (comm.purpose == Purpose.GRADIENTS) & (comm.kind == Collective.ALL_REDUCE)
            # What the program itself reduces after the backward is in no bucket.
            chosen &= comm.strategy == STRATEGIES.index(DDP)
        for row in np.flatnonzero(chosen & (comm.window >= 0)).tolist():
            place = rank.rank, device_label(int(comm.device[row])), int(comm.window[row])
            total[place] += int(comm.exposed_ns[row])
            if comm.peer[row] >= 0:  # a copy between two devices is of both
                total[rank.rank, int(comm.peer[row]), int(comm.window[row])] += int(comm.peer_exposed_ns[row])
    return +total


def summed(rows, value) -> Counter:
    total: Counter = Counter()
    for row in rows:
        total[row.rank, row.device, row.step] += value(row)
    return +total


def lines_add_up_to_the_compute_of_their_window(path: Path) -> None:
    found = reported(path)
    lines = summed(found.layers, lambda row: row.forward_ns + row.backward_ns)
    assert lines == summed(found.windows, lambda window: window.compute_ns)
    assert all(row.forward_ns >= 0 and row.backward_ns >= 0 for row in found.layers)
    places = [(row.rank, row.device, row.step, row.layer) for row in found.layers]
    assert len(places) == len(set(places))


def waiting_for_input_is_a_part_of_idle_time(path: Path) -> None:
    found, summary = reported(path), summarized(path)
    for window in found.windows:
        assert window.input_idle_ns is None or 0 <= window.input_idle_ns <= window.idle_ns
    if found.run.times_from == "light":
        assert {window.input_idle_ns for window in found.windows} == {None}
    for measured in summary.in_full:
        fetched, idle_ns = measured.fetching, measured.windows.idle_ns
        assert (fetched.input_idle_ns <= np.minimum(fetched.fetch_ns, idle_ns)).all()
        assert fetched.seen or fetched.fetch_ns.max() <= 0
    assert (found.summary.input is not None) == any(measured.fetching.seen for measured in summary.in_full)


def causes_of_idle_time_add_up(path: Path) -> None:
    for rank in summarized(path).ranks:
        for measured in (rank.timed, rank.full or rank.timed):
            idle = measured.idle
            assert (idle.ns >= 0).all()
            assert (idle.ns.sum(axis=(1, 2)) == measured.windows.idle_ns).all()
            by_line = np.bincount(idle.lines.cause, weights=idle.lines.ns, minlength=idle.ns.shape[1])
            assert (by_line == idle.ns.sum(axis=(0, 2))).all()
            of = idle.launching
            assert (of.shorter <= of.operations).all()
            assert (of.launches <= of.operations).all()


def packing_is_compute(path: Path) -> None:
    found = reported(path)
    line = summed(
        (row for row in found.layers if row.layer == "(packing)"), lambda row: row.forward_ns + row.backward_ns
    )
    for window in found.windows:
        assert 0 <= window.packing_ns <= window.compute_ns
        # The line lacks what ran beside compute that began before.
        assert line[window.rank, window.device, window.step] <= window.packing_ns


def buckets_add_up_to_the_exposed_reductions_of_gradients(path: Path) -> None:
    found = reported(path)
    if any(layer.type == "FSDP" for layer in found.layers):
        pytest.skip("sharded gradients have no buckets")
    assert summed(found.buckets, lambda row: row.exposed_ns) == exposed_of_kernels(summarized(path), gradients=True)


def a_bucket_is_its_collective(path: Path) -> None:
    found = reported(path)
    members = {(row.index, m.rank, m.device): (m, row) for row in found.collectives for m in row.members}
    for bucket in found.buckets:
        assert bucket.overlapped_ns + bucket.exposed_ns == bucket.dur_ns
        assert sum(part.ns for part in bucket.hidden_by) == bucket.overlapped_ns
        if bucket.collective is not None:
            member, row = members[bucket.collective, bucket.rank, bucket.device]
            assert (member.start_ns, member.dur_ns) == (bucket.start_ns, bucket.dur_ns)
            assert (member.exposed_ns, member.wait_ns) == (bucket.exposed_ns, bucket.wait_ns)
            assert (row.kind, row.purpose, row.step) == ("all_reduce", "gradients", bucket.step)
            # A kernel that does not say its size has it from the other members.
            assert None in (bucket.bytes, row.bytes) or bucket.bytes == row.bytes
    unmatched = {(row.rank, row.device, row.start_ns) for row in found.unmatched}
    for bucket in found.buckets:
        assert (bucket.collective is None) == ((bucket.rank, bucket.device, bucket.start_ns) in unmatched)


def a_collectives_bucket_is_the_same_on_all_its_ranks(path: Path) -> None:
    found = reported(path)
    of = {row.index: row.bucket for row in found.collectives}
    for bucket in found.buckets:
        assert bucket.collective is None or of[bucket.collective] == bucket.bucket


def the_times_of_a_bucket_follow_one_another(path: Path) -> None:
    for row in reported(path).buckets:
        if None in (row.ready_ns, row.launched_ns):
            assert row.queued_ns is None
            assert row.late_launch_ns is None
            continue
        assert row.queued_ns == max(0, row.start_ns - max(row.ready_ns, row.launched_ns))
        assert row.late_launch_ns == max(0, row.launched_ns - row.ready_ns)
        # On one device a kernel starts when it was launched, and what it waits for has run.
        assert row.start_ns >= row.launched_ns
        assert row.device == "cpu" or row.start_ns >= row.ready_ns


def layers_communication_adds_up_to_all_exposed_communication(path: Path) -> None:
    found = reported(path)
    assert summed(found.layers, lambda row: row.exposed_ns) == exposed_of_kernels(summarized(path), gradients=False)
    for row in found.layers:
        assert row.overlapped_ns == sum(each.overlapped_ns for each in row.comm)
        assert row.exposed_ns == sum(each.exposed_ns for each in row.comm)
        for each in row.comm:
            assert each.overlapped_ns + each.exposed_ns == each.dur_ns
            assert min(each.overlapped_ns, each.exposed_ns) >= 0


def each_parameter_is_in_one_bucket(path: Path) -> None:
    found = reported(path)
    layout = found.summary.layout
    if layout is None:
        assert not found.buckets
        return
    assert [bucket.bucket for bucket in layout.buckets] == list(range(len(layout.buckets)))
    held = [name for bucket in layout.buckets for name in bucket.parameters or ()]
    assert len(held) == len(set(held))
    summary = summarized(path)
    parameters = summary.manifest.parameters if summary.manifest else []
    if parameters:
        assert sorted(held) == sorted(parameter.name for parameter in parameters)


def a_buckets_bytes_are_those_of_its_parameters(path: Path) -> None:
    found, summary = reported(path), summarized(path)
    shapes: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for rank, measured in enumerate(summary.measured):
        gradients = measured.gradients
        for index, reduction in enumerate(gradients.reduction.tolist()):
            shapes[rank, reduction].append(int(gradients.elements[index]))
    for rank, measured in enumerate(summary.measured):
        comm, number = measured.communication, summary.ranks[rank].rank
        rows = [row for row in found.buckets if row.rank == number]
        for reduction, (kernel, row) in enumerate(zip(measured.reductions.kernel.tolist(), rows, strict=True)):
            held = shapes[rank, reduction]
            if row.bytes is None or row.parameters is None or -1 in held:
                continue
            size = itemsize(comm.calls[comm.call[kernel]].dtype)
            assert row.bytes == size * sum(held)
            assert len(held) == len(row.parameters)


def tokens_sent_are_tokens_received(path: Path) -> None:
    for row in reported(path).experts:
        if row.tokens_to is None or None in row.tokens_to:
            continue
        assert [sum(column) for column in zip(*row.tokens_to, strict=True)] == row.tokens_received
        assert row.imbalance is None or 1 <= row.imbalance <= len(row.ranks)


def experts_wait_as_their_collectives_do(path: Path) -> None:
    """Without what is in no instance, of which no row tells; and with a layer for all that carries tokens."""
    found = reported(path)
    rows = [row for row in found.experts if None not in (row.dispatch_wait_ns, row.combine_wait_ns)]
    known = {(row.step, tuple(row.ranks)) for row in rows}
    if len(rows) < len(found.experts) or any(row.purpose == "tokens" for row in found.collectives if row.partial):
        return
    carrying = [
        row
        for row in found.collectives
        if row.purpose == "tokens" and row.dtype != "Long" and row.kind != "barrier" and row.step is not None
    ]
    assert {(row.step, tuple(row.group)) for row in carrying} == known
    assert sum(row.exchanges for row in rows) == len(carrying)
    waits = sum(member.wait_ns for row in carrying for member in row.members)
    assert sum(row.dispatch_wait_ns + row.combine_wait_ns for row in rows) == waits
    transfers = sum(row.transfer_ns for row in carrying)
    assert sum(row.dispatch_transfer_ns + row.combine_transfer_ns for row in rows) == transfers
    exposed = sum(member.exposed_ns for row in carrying for member in row.members)
    assert sum(row.exposed_ns for row in rows) == exposed
    assert all(row.wait_for_compute_ns <= row.dispatch_wait_ns + row.combine_wait_ns for row in rows)


def attentions_transfers_are_its_collectives(path: Path) -> None:
    found = reported(path)
    called = [row for row in found.collectives if row.purpose == "attention" and row.group and row.step is not None]
    assert sum(sent.count for row in found.attention for sent in row.transfers) == len(called)
    exposed = sum(member.exposed_ns for row in called for member in row.members)
    assert sum(row.exposed_ns for row in found.attention) == exposed
    compute = {(window.rank, window.step): 0 for window in found.windows}
    for row in found.attention:
        assert row.exposed_ns == sum(sent.exposed_ns for sent in row.transfers)
        if row.layer != "(attention)":
            for rank, ns in zip(row.ranks, row.attention_ns, strict=True):
                compute[rank, row.step] = compute.get((rank, row.step), 0) + (ns or 0)
    for window in found.windows:
        assert compute[window.rank, window.step] <= window.compute_ns


def figures_are_of_typical_windows(path: Path) -> None:
    found, summary = reported(path), reported(path).summary
    manifest = summarized(path).manifest
    unprofiled = manifest.controls.unprofiled if manifest is not None else None
    typical, odd, start = typical_steps.split(found.windows, unprofiled)
    assert (summary.steps.typical, [step.step for step in summary.steps.odd]) == (typical, odd)
    assert ([summary.steps.profile_start.step] if summary.steps.profile_start is not None else []) == start
    windows = typical_steps.typical_windows(found, unprofiled)
    assert windows == [window for window in found.windows if window.typical]
    total_ns = sum(window.span_ns for window in windows)
    for name in fields_of((*PARTS, *EXPOSED)):
        assert summary.shares[name] == pytest.approx(sum(getattr(window, name) for window in windows) / total_ns)
    assert sum(summary.shares[part.field] or 0 for part in PARTS) == pytest.approx(1)
    chosen = summary.representative
    assert (chosen.rank, chosen.device, chosen.step) in {(row.rank, row.device, row.step) for row in windows}
    for mean in mean_steps(found).values():
        assert sum(mean[name] for name in fields_of(CAUSE_PARTS)) == pytest.approx(mean["span_ns"])


LAWS = (
    figures_are_of_typical_windows,
    tokens_sent_are_tokens_received,
    experts_wait_as_their_collectives_do,
    attentions_transfers_are_its_collectives,
    lines_add_up_to_the_compute_of_their_window,
    waiting_for_input_is_a_part_of_idle_time,
    causes_of_idle_time_add_up,
    packing_is_compute,
    buckets_add_up_to_the_exposed_reductions_of_gradients,
    a_bucket_is_its_collective,
    a_collectives_bucket_is_the_same_on_all_its_ranks,
    the_times_of_a_bucket_follow_one_another,
    layers_communication_adds_up_to_all_exposed_communication,
    each_parameter_is_in_one_bucket,
    a_buckets_bytes_are_those_of_its_parameters,
)
