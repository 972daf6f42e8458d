"""Blocks of steps that a recording is made of, and their order.

    U unprofiled    N without gradient synchronization, or where that cannot be another U
    L light window  n the same without gradient synchronization    F full window    s settling

    light windows by CUPTI alone     U N L F   ...   U N L n F
    by Kineto                        U L N F   ...   U L N F s n
    on a CPU                         U N F     ...   U N F s n

CUPTI alone stays attached behind its window, and costs steps that are not recorded a tenth and more; Kineto detaches it
behind a full one. It does so in a later call, so that no profile of Kineto's follows another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analyzers.run import LIGHT, NOSYNC, UNPROFILED
from tracer.config import LONG_BLOCK, LONGEST_BLOCK, LightRecorder, Plan

# Beside `analyzers.run.LIGHT`: the windows that have all there is to know, and those of a training's first steps.
FULL = "full"
EARLY = "early"
# Where a round's traces lie until one is chosen.
ROUND = "round{number}"


@dataclass(frozen=True)
class StepBlock:
    """Steps of one sort: the control they are samples of, the profile they run under, where its trace goes.

    One that `may_go_on` lasts as long as the plan says: with how many steps is known when its first have been timed.
    """

    label: str
    control: str | None = None
    profile: str | None = None
    nosync: bool = False
    keep: str | None = None
    ends_round: bool = False
    may_go_on: bool = False

    def goes_on(self, plan: Plan) -> bool:
        """Whether it goes on when its first steps have been timed."""
        return self.may_go_on and plan.unprofiled_s > 0

    def timed(self, plan: Plan) -> int:
        """Return how many timed steps it has, before it goes on."""
        return max(plan.active, LONG_BLOCK) if self.goes_on(plan) else plan.active

    def more(self, plan: Plan, done: int, took_s: float) -> int:
        """Return with how many steps it goes on to last as long as the plan says, where so many took so long."""
        left = math.ceil((plan.unprofiled_s - took_s) / max(took_s, 1e-9) * done)
        return max(min(left, LONGEST_BLOCK - done), 0)

    def length(self, plan: Plan) -> int:
        """Return how many steps it takes, before it goes on."""
        return plan.warmup + self.timed(plan)

    def folder(self, number: int) -> str:
        """Return where the traces of a round of that number go, below the recording's folder."""
        return f"{ROUND.format(number=number)}/{self.keep}" if self.keep in (LIGHT, FULL) else self.keep or ""


def blocks_of_round(number: int, rounds: int, light: LightRecorder | None, nosync: bool) -> list[StepBlock]:
    """Return the blocks of a round, which has a number from 1; `light` is None on a CPU."""
    prefix = f"round {number} of {rounds}: " if rounds > 1 else ""
    unprofiled = StepBlock(prefix + "unprofiled", UNPROFILED, may_go_on=True)
    unsynchronized = StepBlock(prefix + "without gradient synchronization", "nosync", nosync=True)
    second = unsynchronized if nosync else StepBlock(prefix + "unprofiled", UNPROFILED)
    device_times = StepBlock(prefix + "light profile", "light", "light", keep=LIGHT)
    full = StepBlock(prefix + "full profile", "full", _full_profile(light is not None), keep=FULL, ends_round=True)
    last = _without_synchronization(light) if nosync and number == rounds else []
    if light == "cupti":
        return [unprofiled, second, device_times, *last, full]
    settling = [StepBlock("settling")] if last else []
    before = [unprofiled, device_times, second] if light else [unprofiled, second]
    return [*before, full, *settling, *last]


def early_block(on_gpu: bool) -> StepBlock:
    """Return the block in which a training's first steps are profiled, in case that they are all there is."""
    return StepBlock("settling", profile=_full_profile(on_gpu), keep=EARLY)


def _full_profile(on_gpu: bool) -> str:
    return "full" if on_gpu else "cpu"


def _without_synchronization(light: LightRecorder | None) -> list[StepBlock]:
    profile = "light" if light else "cpu"
    return [StepBlock("profile without gradient synchronization", None, profile, nosync=True, keep=NOSYNC)]
