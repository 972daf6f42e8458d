"""Trust: grades of the first sentence and of gains, and their doubts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from analyzers.notices import Code, Weight
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.bar import Bar, mark_length
from analyzers.reporting.document import RunFacts
from analyzers.run import UNPROFILED, NumberedBy
from analyzers.statistics import FEWEST_BLOCKS, Limits
from analyzers.units import MOST_SHARE, between_ms, percent, times

# A figure that may be wrong by more than a quarter is not to be trusted, by more than a twentieth only fairly.
QUARTER, TWENTIETH = 0.25, 0.05
# From this share of the step on unresolved communication makes its parts untrustworthy, and idle time and waiting count
# that the profiler may have made.
MUCH = 0.1
# Where more than this share of the step waits for what is not known, gains are doubtful, and no setting is predicted.
MOST_UNKNOWN = 1 / 3


@dataclass(frozen=True)
class Judged:
    """What is judged: the run's facts, the bar and the replay's error, and a gain with what that lies between.

    `idle_share`: idle time and waiting together; `is_damaged`: rows that figures rest on are damaged;
    `is_unmarked`: no step is marked in the traces;
    `is_early`: nothing but training's first steps was recorded; `marking`: how a program marks steps;
    `unknown_share`: of the step, what waits for what is not known.
    """

    run: RunFacts
    bar: Bar
    replay_error: float
    idle_share: float
    is_damaged: bool
    is_unmarked: bool
    is_early: bool
    marking: str
    unknown_share: float
    gain_ns: int | None = None
    within_ns: Limits | None = None
    gain_name: str = ""

    def trust(
        self, gain_ns: int | None, within_ns: Limits | None, gain_name: str = "the first gain"
    ) -> tuple[str, str | None]:
        """Return how far a gain can be trusted, high, fair or low, and why no further: docs/measuring.md, Trust.

        Without a gain what all figures rest on is judged.
        """
        judged = replace(self, gain_ns=gain_ns, within_ns=within_ns, gain_name=gain_name)
        for level in ("low", "fair"):
            reasons = [doubt.words(judged) for doubt in _DOUBTS if doubt.grade == level and doubt.applies(judged)]
            if reasons:
                return level, "; ".join(dict.fromkeys(reasons))
        return "high", None

    @property
    def missing(self) -> int:
        """Return how many ranks are missing."""
        return self.run.world_size - len(self.run.ranks)

    @property
    def blocks(self) -> int:
        """Return how many blocks of steps were timed without the profiler."""
        return len(self.run.controls.blocks_ns.get(UNPROFILED, ()))

    @property
    def step_error(self) -> float:
        """Return half of the interval of the unprofiled step, over it."""
        limits, step_ns = self.run.controls.interval("unprofiled_step_ns"), self.run.controls.unprofiled_step_ns
        return (limits[1] - limits[0]) / 2 / step_ns if limits is not None and step_ns else 0.0

    @property
    def gain_error(self) -> float:
        """Return half of the interval of that gain with the replay's own error, over it."""
        if self.within_ns is None or not self.gain_ns:
            return 0.0
        return (self.within_ns[1] - self.within_ns[0]) / 2 / self.gain_ns

    @property
    def more(self) -> str:
        """Return of what more would make the replay better."""
        return "rounds" if self.unprofiled_is_known else "steps"

    @property
    def unprofiled_is_known(self) -> bool:
        """Whether a step was timed without the profiler."""
        return self.run.controls.unprofiled_step_ns is not None


@dataclass(frozen=True)
class Doubt:
    """A reason to trust less: the grade it leaves, whether it applies, and a clause that says what would raise it."""

    grade: str
    applies: Callable[[Judged], bool]
    words: Callable[[Judged], str]


def _gain_words(judged: Judged) -> str:
    return f"{judged.gain_name} may be anything {between_ms(judged.within_ns or (0, 0))}: try it, and compare"


def words_of_unknown(share: float) -> str:
    """Say how much of a step waits for what is not known."""
    return f"for {percent(share)} of the step nothing tells what was waited for"


def _missing_words(judged: Judged) -> str:
    is_one = judged.missing == 1
    of = f"{judged.missing:,} of {judged.run.world_size:,} ranks {'is' if is_one else 'are'} missing"
    return f"{of}: report the traces of all ranks together"


def _replay_words(judged: Judged) -> str:
    error = judged.replay_error
    off = f"{percent(abs(error))} {'longer' if error > 0 else 'shorter'} than"
    if error > MOST_SHARE:
        off = f"{times(1 + error)} as long as"
    if judged.unprofiled_is_known:
        return f"the profile, replayed, was {off} the unprofiled step, and was scaled to that"
    return f"the profile, replayed, was {off} the profiled step"


def _step_words(judged: Judged) -> str:
    return (
        f"steps without the profiler differ by {percent(judged.step_error)} either way: record more rounds, on a quiet "
        "machine"
    )


_DOUBTS = (
    Doubt("low", lambda j: j.is_unmarked, lambda j: f"no step is marked in the trace: {j.marking}"),
    Doubt("low", lambda j: j.missing > 0, _missing_words),
    Doubt(
        "low",
        lambda j: j.is_early,
        lambda j: "these are training's first steps alone: let it train longer, or record fewer and shorter blocks",
    ),
    Doubt(
        "low",
        lambda j: j.bar.exposed_unresolved_ns > MUCH * j.bar.step_ns,
        lambda j: "much of the communication is unresolved: other members' kernels are missing, or began unprofiled",
    ),
    Doubt(
        "low",
        lambda j: j.is_damaged,
        lambda j: "the traces are damaged, or lack kernels (see the warnings): record them again",
    ),
    Doubt("low", lambda j: j.unknown_share > MOST_UNKNOWN, lambda j: words_of_unknown(j.unknown_share)),
    Doubt("low", lambda j: j.step_error > QUARTER, _step_words),
    Doubt("low", lambda j: j.gain_error > QUARTER, _gain_words),
    Doubt("low", lambda j: abs(j.replay_error) > QUARTER, lambda j: f"{_replay_words(j)}: record more {j.more}"),
    Doubt("fair", lambda j: j.step_error > TWENTIETH, _step_words),
    Doubt("fair", lambda j: j.gain_error > TWENTIETH, _gain_words),
    Doubt("fair", lambda j: abs(j.replay_error) > TWENTIETH, _replay_words),
    Doubt(
        "fair",
        lambda j: 0 < j.blocks < FEWEST_BLOCKS,
        lambda j: f"few blocks of steps ({j.blocks}) were timed without the profiler: record three rounds or more",
    ),
    Doubt(
        "fair",
        lambda j: j.run.rank_source == NumberedBy.GUESSED,
        lambda j: "which rank is which is guessed: say it with --rank FILE=N",
    ),
    Doubt(
        "fair",
        lambda j: j.run.steps_inferred,
        lambda j: f"steps are inferred from what repeats: {j.marking}",
    ),
    Doubt(
        "fair",
        lambda j: not j.unprofiled_is_known and j.idle_share > MUCH,
        lambda j: "idle time and waiting may be the profiler's: no step was timed without it (tracer record does)",
    ),
)


def judged(analyses: Analyses, run: RunFacts, bar: Bar) -> Judged:
    """Return what all figures of a run rest on."""
    codes = {warning.code for warning in run.warnings}
    return Judged(
        run,
        bar,
        _replay_error(analyses, bar),
        bar.idle_of_mark(mark_length(analyses.typical_rows)),
        any(code.facts.weight is Weight.DAMAGE for code in codes) or bool(analyses.typical_rows.doubted.any()),
        bool(analyses.rows.unmarked.any()),
        Code.EARLY_STEPS_ALONE in codes,
        analyses.run.remedies.steps,
        0.0 if analyses.causes is None else analyses.causes.unknown_share,
    )


def _replay_error(analyses: Analyses, bar: Bar) -> float:
    """Return how far the replay is off: by the controls alone from the unprofiled step, else from the profiled one."""
    if analyses.causes is None or not bar.step_ns:
        return 0.0
    off = analyses.causes.calibrated.replay_error
    return off if off is not None else float(analyses.causes.step_lengths[:, 0].mean()) / analyses.step_ns - 1
