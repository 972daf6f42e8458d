"""Judge which devices are slowed, and what held hosts up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, median_high

from analyzers.notices import Code, Notice
from analyzers.ranks import RankNumber, rank_number
from analyzers.run.controls import Control
from analyzers.run.loading import LISTED_RANKS
from analyzers.run.manifest import DeviceState, HostStates
from analyzers.texts import listed
from analyzers.units import count, ms

# By so much of the others' clock a device is slow, as a CPU is.
BELOW = 0.05
# No device has such a clock, in MHz. A run.json may say anything.
_HIGHEST_MHZ = 100_000
# Of NVML's reasons those of a device that is busy: heat, and what protects its hardware.
_HELD_BACK = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
# Limits under which busy devices are meant to run: of power, and of settings.
_LIMITED = ("sw_power_cap", "sync_boost", "applications_clocks_setting", "display_clock_setting")
_IDLE = "gpu_idle"


@dataclass(frozen=True)
class _Device:
    """One device of a rank as it mostly was: the median of its clock, and the reasons in half of its readings."""

    rank: RankNumber
    called: str  # `GPU`, or `GPU 1` of a rank with several
    name: str
    sm_mhz: int | None
    sm_max_mhz: int | None
    reasons: tuple[str, ...]

    @property
    def is_held_back(self) -> bool:
        return any(reason in _HELD_BACK for reason in self.reasons)


def find_slowed(states: Mapping[str, Sequence[DeviceState]] | None) -> dict[RankNumber, str]:
    """Return what slows the devices of a rank, by rank: `its GPU runs at 1,200 MHz where ...`; others have no entry.

    `states` are those of run.json, in which ranks are text; None and readings of idle devices say nothing.
    """
    by_rank: dict[RankNumber, list[str]] = {}
    for device, words in _find_slowed(_list_devices(states)):
        by_rank.setdefault(device.rank, []).append(f"its {device.called} {words}")
    return {rank: "; ".join(lines) for rank, lines in by_rank.items()}


def device_notices(states: Mapping[str, Sequence[DeviceState]] | None) -> list[Notice]:
    """Return a warning for each device that is slowed, and a note for each limit under which the others run."""
    devices = _list_devices(states)
    found = list(_find_slowed(devices))
    named = {device for device, _ in found}
    warnings = [
        Notice(Code.DEVICE_IS_SLOWED, f"rank {device.rank}'s {device.called} {words}", Code.DEVICE_IS_SLOWED.facts.do)
        for device, words in found
    ]
    return [*warnings, *_note_limits([device for device in devices if device not in named])]


def _list_devices(states: Mapping[str, Sequence[DeviceState]] | None) -> list[_Device]:
    """Every device that has a reading, in order of ranks."""
    numbered = {rank_number(key): readings for key, readings in (states or {}).items()}
    return [
        device
        for rank, readings in sorted((rank, readings) for rank, readings in numbered.items() if rank is not None)
        for device in _of_rank(rank, readings)
    ]


def _of_rank(rank: RankNumber, readings: Sequence[DeviceState]) -> Iterator[_Device]:
    by_device: dict[int, list[DeviceState]] = {}
    for reading in readings:
        by_device.setdefault(reading.device, []).append(reading)
    for number, of_device in sorted(by_device.items()):
        # An idle device clocks down, which says nothing of the steps.
        busy = [reading for reading in of_device if _IDLE not in (reading.reasons or ())]
        if not busy:
            continue
        clocks = [mhz for reading in busy if (mhz := _believe_clock(reading.sm_mhz)) is not None]
        known = [reading.reasons for reading in busy if reading.reasons is not None]
        yield _Device(
            rank,
            "GPU" if len(by_device) == 1 else f"GPU {number}",
            busy[0].name,
            round(median(clocks)) if clocks else None,
            _believe_clock(busy[0].sm_max_mhz),
            tuple(
                reason
                for reason in (*_HELD_BACK, *_LIMITED)
                if known and 2 * sum(reason in reasons for reasons in known) >= len(known)
            ),
        )


def _believe_clock(mhz: int | None) -> int | None:
    return mhz if mhz is not None and 0 < mhz < _HIGHEST_MHZ else None


def _find_slowed(devices: Sequence[_Device]) -> Iterator[tuple[_Device, str]]:
    """Each device below the clock of its like or held back, with the words behind its name."""
    others_mhz = _clocks_of_the_others(devices)
    for device in devices:
        why = ", ".join(device.reasons)
        others = others_mhz.get(device.name)
        if device.sm_mhz is not None and others is not None and device.sm_mhz < (1 - BELOW) * others:
            because = why or "NVML names no reason"
            yield device, f"runs at {device.sm_mhz:,} MHz where the others run at {others:,}: {because}"
        elif device.is_held_back:
            yield device, f"is throttled{_write_clock(device.sm_mhz, device.sm_max_mhz)}: {why}"


def _clocks_of_the_others(devices: Sequence[_Device]) -> dict[str, int]:
    """The median clock of devices of one name, in MHz; of the two in the middle the higher one.

    So one of two devices is compared with the other.
    """
    by_name: dict[str, list[int]] = {}
    for device in devices:
        if device.sm_mhz is not None:
            by_name.setdefault(device.name, []).append(device.sm_mhz)
    return {name: median_high(clocks) for name, clocks in by_name.items()}


def _note_limits(devices: Sequence[_Device]) -> Iterator[Notice]:
    """A note for each set of limits: which ranks run under it, and at which clock."""
    by_limits: dict[tuple[str, ...], list[_Device]] = {}
    for device in devices:
        if device.reasons:
            by_limits.setdefault(device.reasons, []).append(device)
    for limits, limited in by_limits.items():
        ranks = sorted({device.rank for device in limited})
        clocks = [device.sm_mhz for device in limited if device.sm_mhz is not None]
        most = [device.sm_max_mhz for device in limited if device.sm_max_mhz is not None]
        at = _write_clock(round(median(clocks)), max(most, default=None)) if clocks else " at an unknown clock"
        whose = f"GPUs of {len(ranks)} ranks ({listed(ranks, LISTED_RANKS)}) run"
        if len(ranks) == 1:
            whose = f"rank {ranks[0]}'s GPUs run"
        yield Notice(Code.CLOCKS_ARE_LIMITED, f"{whose} under a limit{at}: {', '.join(limits)}")


def _write_clock(sm_mhz: int | None, sm_max_mhz: int | None) -> str:
    if sm_mhz is None:
        return ""
    return f" at {sm_mhz:,}" + (f" of {sm_max_mhz:,} MHz" if sm_max_mhz is not None else " MHz")


# Below a fiftieth of its steps nothing holds a host up by much.
LEAST_SHARE = 0.02
# No step has more; a run.json may say anything.
_MOST = 2**54
_TIMES = (
    ("runnable_ns", "its main thread waits {} per step for a core"),
    ("autograd_runnable_ns", "autograd's thread waits {} per step for a core"),
    ("gc_ns", "Python's garbage collections take {} of a step"),
)


def find_held_up(states: Mapping[str, HostStates] | None) -> dict[RankNumber, str]:
    """Return what held a rank's host up, by rank: `its main thread waits 3.10 ms per step for a core`; means of steps.

    `states` are those of run.json, in which ranks are text; a rank that nothing held up has no entry.
    """
    numbered = {rank_number(key): of_rank for key, of_rank in (states or {}).items()}
    ranks = {rank: numbered[rank] for rank in sorted(rank for rank in numbered if rank is not None)}
    clocks_mhz = {rank: clock for rank, of_rank in ranks.items() if (clock := _mean(of_rank.cpu_mhz)) is not None}
    words = {rank: "; ".join([*_held_up(ranks[rank]), *_slow(rank, clocks_mhz)]) for rank in ranks}
    return {rank: said for rank, said in words.items() if said}


def odd_collections_ns(states: Mapping[str, HostStates] | None, timed: Control) -> float:
    """Return how much longer Python collects garbage in odd steps than in others, ns: of the rank where that is most.

    It is 0 where nothing tells.
    """
    most_ns, numbered = 0.0, timed.numbered_odd if timed.numbers else []
    for of_rank in (states or {}).values():
        taken_ns = dict(zip(of_rank.step, of_rank.gc_ns, strict=False))
        in_odd, in_others = (
            _mean([taken_ns.get(number) for numbers, odd in numbered for number in numbers[odd == is_odd].tolist()])
            for is_odd in (True, False)
        )
        if in_odd is not None and in_others is not None:
            most_ns = max(most_ns, in_odd - in_others)
    return most_ns


def host_notices(states: Mapping[str, HostStates] | None) -> list[Notice]:
    """Return a note for each rank whose host something held up."""
    found = find_held_up(states)
    return [Notice(Code.HOST_IS_HELD_UP, f"rank {rank}'s host: {words}") for rank, words in found.items()]


def _held_up(states: HostStates) -> Iterator[str]:
    step_ns = _mean(states.host_ns) or None
    for name, words in _TIMES:
        lost_ns = _mean(getattr(states, name))
        if lost_ns is not None and step_ns is not None and lost_ns >= LEAST_SHARE * step_ns:
            yield words.format(ms(lost_ns)) + (_switched(states) if name == "runnable_ns" else "")
    faults = _mean(states.faults)
    if faults is not None and faults >= 1:
        yield f"{count(round(faults), 'page fault')} per step are read from disk"


def _switched(states: HostStates) -> str:
    switches = round(_mean(states.switches) or 0)
    return f" (switched out {count(switches, 'time')} per step)" if switches else ""


def _slow(rank: RankNumber, clocks_mhz: Mapping[RankNumber, float]) -> Iterator[str]:
    """Yield that a CPU's clock is below the others'; of the two in the middle the higher one, as for devices."""
    if rank in clocks_mhz and clocks_mhz[rank] < (1 - BELOW) * (others := median_high(clocks_mhz.values())):
        yield f"its CPU runs at {clocks_mhz[rank]:,.0f} MHz where the others' run at {others:,.0f}"


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of what was read and can be; None where there is nothing."""
    known = [value for value in values if value is not None and 0 <= value < _MOST]
    return mean(known) if known else None
