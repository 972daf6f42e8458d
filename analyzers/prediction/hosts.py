"""Hosts' own time for a step: timed without the profiler, or profiled.

    host     |step 1  |step 2  |step 3  |            8 each, one behind the other
    device      |step 1     |step 2     |step 3      11 each: its host is ever further ahead, and no launch is late

A host that no call holds up is the limit only where its own time is longer than its device's. What a profile says of it
is stretched: by the profiler, and by launch calls that wait in a full queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from analyzers.arrays import Float64, Int64
from analyzers.notices import Code, Notice
from analyzers.prediction.replay import RecordedSteps
from analyzers.prediction.sharded_replay import ShardedSteps
from analyzers.rank import CPU_DEVICE, Cause, Measured, RunSummary
from analyzers.run import FEWEST_OF_HOST, LIGHT_STRETCHES, UNPROFILED, Manifest
from analyzers.units import percent

Steps = TypeVar("Steps", RecordedSteps, ShardedSteps)
# From this share of a step on that a device waits for launches, its host sets the pace.
HOST_BOUND = 0.05
# Of a host's step in calls that wait for the device: from here on its time is the device's, too.
WAITING = 0.05
# Nine of ten normal values lie within so many median absolute deviations of their median.
NINE_IN_TEN = 2.44


@dataclass(frozen=True, eq=False)
class TimedHosts:
    """What a step takes each rank's host without the profiler, and within what share of it nine in ten steps lie."""

    step_ns: Float64
    scatter: Float64
    unprofiled_ns: int

    @property
    def may_be_late(self) -> bool:
        """Whether any may take as long as the unprofiled step in a light window, which stretches hosts."""
        return bool((self.step_ns * LIGHT_STRETCHES >= self.unprofiled_ns).any())


def timed_hosts(run: RunSummary, manifest: Manifest) -> TimedHosts | None:
    """Return the hosts as the recording timed them; None where it did not, or where hosts wait for their devices.

    No host takes longer than the unprofiled step: what exceeds it is the device's being at rest before.
    """
    samples, step_ns = manifest.controls.host_samples_ns(), manifest.controls.step_ns(UNPROFILED)
    of_ranks = [np.array(samples.get(summary.rank, []), np.float64) for summary in run.ranks]
    if step_ns is None or min(map(len, of_ranks)) < FEWEST_OF_HOST or any(map(_waits, run.measured)):
        return None
    medians_ns = [float(np.median(each)) for each in of_ranks]
    apart = [np.median(np.abs(each - median)) / median for each, median in zip(of_ranks, medians_ns, strict=True)]
    return TimedHosts(np.minimum(medians_ns, step_ns), NINE_IN_TEN * np.array(apart), step_ns)


def unused_hosts(run: RunSummary, manifest: Manifest) -> list[Notice]:
    """Say why hosts that the recording timed are not known after all."""
    if manifest.controls.host is None or timed_hosts(run, manifest) is not None:
        return []
    samples = manifest.controls.host_samples_ns()
    few = [summary.rank for summary in run.ranks if len(samples.get(summary.rank, [])) < FEWEST_OF_HOST]
    why = "CPUs wait for their devices in each step"
    if manifest.controls.step_ns(UNPROFILED) is None:
        why = "no step was timed without the profiler"
    elif few:
        why = f"rank {few[0]} has fewer than {FEWEST_OF_HOST}"
    text = f"the CPUs' own times in run.json are not used: {why}"
    return [Notice(Code.HOST_TIMES_UNUSED, text)]


def _waits(measured: Measured) -> bool:
    launching = measured.idle.launching
    known = launching.host_ns > 0
    if not known.any():
        return True
    return float(np.median(launching.waited_ns[known] / launching.host_ns[known])) > WAITING


def profiled_hosts(run: RunSummary, step: Int64) -> tuple[Float64, Float64]:
    """Return what steps take each rank's host under the profiler, and how long devices wait for input: ranks x steps.

    Waits for the device are left out. 0 where nothing tells.
    """
    own_ns, input_ns = [], []
    for measured in run.measured:
        idle = measured.idle
        # On a CPU the host is the device: its step has waits for other ranks in it.
        launching = idle.launching
        known = (launching.host_ns >= 0) & (CPU_DEVICE not in (measured.schedules or {}))
        of_window = {number: row for row, number in enumerate(measured.windows.step.tolist())}
        rows = np.array([of_window[number] for number in step.tolist()])
        busy_ns = launching.host_ns - launching.waited_ns - launching.held_ns
        own_ns.append(np.where(known, busy_ns, 0)[rows])
        input_ns.append(idle.by_cause[Cause.INPUT][rows])
    return np.array(own_ns, np.float64), np.array(input_ns, np.float64)


def explains_gaps(run: RunSummary, hosts: TimedHosts | None) -> bool:
    """Whether long pauses of devices that no launch explains are their own: not where a late one may have no trace.

    Launches that are estimated look as early as they were under a profile that holds up devices less than hosts.
    """
    estimated = (summary.joining is not None and summary.joining.launches_are_estimated for summary in run.ranks)
    return hosts is None or not hosts.may_be_late or not (run.is_light and any(estimated))


def floor_ns(steps: RecordedSteps | ShardedSteps) -> float:
    """Return what the slowest host takes a step."""
    return float(np.median(steps.own_host_ns, axis=1).max())


def floor_scatter(steps: RecordedSteps | ShardedSteps, hosts: TimedHosts) -> float:
    """Return within what share of it nine in ten of the slowest host's steps lie."""
    return float(hosts.scatter[np.median(steps.own_host_ns, axis=1).argmax()])


@dataclass(frozen=True)
class Pace:
    """What a step takes by the slower of its devices and its slowest host, and by how far that host scatters.

    `share` is how much shorter a step would be if the host took nothing. Nine in ten steps take between `at_least_ns`
    and `at_most_ns` as far as the host goes.
    """

    step_ns: float
    share: float
    scatter: float
    at_least_ns: float
    at_most_ns: float
    is_hosts: bool  # at times at least


def pace(device_ns: float, host_ns: float, scatter: float) -> Pace:
    """Return the pace of devices and a host that was timed."""
    step_ns, at_most_ns = max(device_ns, host_ns), max(device_ns, (1 + scatter) * host_ns)
    return Pace(
        step_ns=step_ns,
        share=1 - device_ns / step_ns,
        scatter=scatter,
        at_least_ns=max(device_ns, (1 - scatter) * host_ns),
        at_most_ns=at_most_ns,
        is_hosts=at_most_ns > (1 + HOST_BOUND) * device_ns,
    )


def host_doubt(share: float, scatter: float | None) -> Notice:
    """Say that a host is the limit for such a share of the step; where it was timed, how far its steps scatter."""
    if scatter is None:
        part = f"for {percent(share)} of the step" if share > HOST_BOUND else "once nothing else is as slow"
        return Notice(Code.HOST_IS_THE_LIMIT, f"the CPU is the limit {part}, and what it would do is not modelled")
    part = f"for {percent(share)} of the step" if share > HOST_BOUND else "or nearly so"
    text = f"the CPU is the limit {part}, and its own time per step varies by {percent(scatter)}"
    return Notice(Code.HOST_IS_THE_LIMIT, text)


def input_doubt(steps: RecordedSteps | ShardedSteps) -> Notice | None:
    """Say that devices wait for input, which a faster host may or may not bring sooner."""
    share = float(np.median(steps.input_ns / steps.span_ns))
    text = f"waits for the DataLoader, {percent(share)} of the step, are left as they are"
    return Notice(Code.INPUT_STAYS, text) if share > HOST_BOUND else None
