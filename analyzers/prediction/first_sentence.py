"""`FirstSentence`: what is recommended, what is said of it, and its grade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.notices import Notice
from analyzers.prediction.answers import Prediction, Recommended, chosen
from analyzers.prediction.options import Options
from analyzers.scenarios import LEAST_SHARE, ODD
from analyzers.units import ms

# Shares of a figure up to which it may be wrong, for each grade.
LOW, FAIR = 0.25, 0.05
# A replay is off by more than this.
FAR_OFF = 0.25


@dataclass(frozen=True)
class FirstSentence:
    """What is asked of a run, and predicted of it: settings, and all others, the largest gain first.

    `measured_ns` is the run's own step, on so many `gpus`, and `step_ns` the same as replayed; what differs by less
    than `noise_ns` is not told apart.
    """

    options: Options
    gpus: int
    measured_ns: int
    step_ns: float
    noise_ns: int
    settings: Sequence[Prediction]
    others: Sequence[Prediction]

    def recommended(self) -> tuple[Recommended | None, str]:
        """Return what is recommended, and the first sentence: findings first, unless settings are asked for."""
        best = self._best()
        found = best if self.options.asks_of_settings and best is not None else self._first(best)
        if found is None:
            return None, _sentence(self._of_nothing())
        why = self._of_best(found) if found.is_setting else self._answer(found)
        recommended = chosen(found, why)
        return recommended, _sentence(recommended.why)

    def _best(self) -> Prediction | None:
        """Return the shortest step on as many GPUs as the run had, else on the first number of several."""
        counts = [each.gpus or 1 for each in self.settings]
        gpus = self.gpus if self.gpus in counts and self.gpus > 1 else next((n for n in counts if n > 1), 1)
        there = [each for each in self.settings if each.gpus == gpus]
        return min(there, key=lambda each: each.predicted_step_ns, default=None)

    def _first(self, best: Prediction | None) -> Prediction | None:
        """Return the first finding; of what is asked for by name what brings most."""
        findings = [each for each in (*self.others, *self.settings) if each.is_finding]
        if findings or self.options.is_open:
            return max(findings, key=lambda each: each.gain_ns, default=None)
        return max([*self.others, *([] if best is None else [best])], key=lambda each: each.gain_ns)

    def _of_nothing(self) -> str:
        """Say that nothing is worth while, and what much of one thing would bring."""
        said = "nothing that tracer knows of would bring 1 % of the step"
        of_degree = (each for each in self.others if each.of_degree and each.gain_ns >= LEAST_SHARE * each.before_ns)
        most = next(of_degree, None)
        return said if most is None else f"{said} by itself; {self._would_take(most)}"

    def _of_best(self, best: Prediction) -> str:
        """Say what the best of the settings that are asked for brings."""
        steps = [each.predicted_step_ns for each in self.settings if each.gpus == best.gpus]
        noise = f"differences below {ms(self.noise_ns)} are noise"
        if best.gpus == self.gpus and len(steps) > 1 and max(steps) - min(steps) <= self.noise_ns:
            apart = ms(max(steps) - min(steps)) if max(steps) > min(steps) else "nothing"
            return f"no choice matters here: they differ by {apart}, and {noise}"
        if best.gpus == self.gpus and best.gain_ns <= self.noise_ns:
            return f"none here is told apart from the run's own settings: {noise}"
        return self._would_take(best) if best.gpus != self.gpus else self._answer(best)

    def _answer(self, found: Prediction) -> str:
        """Say what a change would bring, and within what."""
        said = self._would_take(found)
        low_ns, high_ns = found.within_ns
        if found.gain_ns <= 0:
            return said
        if low_ns <= 0:
            return f"{said}; the gain is {ms(found.gain_ns)}, and not told apart from the replay's own error"
        return f"{said}: {ms(found.gain_ns)} less ({ms(low_ns)} to {ms(high_ns)})"

    def _would_take(self, found: Prediction) -> str:
        """Say what a step would take with a change: the gain is off the step as measured, which people see."""
        if found.kind == ODD:
            # Of samples, in which odd steps may be more than they are in training: what is left is not known.
            return f"with {found.words} the mean step would be shorter"
        after_ns = max(self.measured_ns + found.predicted_step_ns - self.step_ns, 0)
        return f"with {found.words} a step would take {ms(after_ns)} instead of {ms(after_ns + found.gain_ns)}"

    def grade(
        self, recommended: Recommended | None, doubts: Sequence[Notice], *, is_unprofiled: bool
    ) -> tuple[str, str | None]:
        """Return how far what is said can be trusted, with doubts about the run, and why no further."""
        if doubts:
            return "low", str(doubts[0])
        if recommended is not None and not recommended.reliable:
            return "low", "what is recommended is not to be trusted"
        low = {
            "the replay of the run's own step is off by more than a quarter": abs(self.step_ns / self.measured_ns - 1)
            > FAR_OFF
        }
        fair = {"no step was timed without the profiler": not is_unprofiled}
        if recommended is not None and recommended.gain_ns > (self.noise_ns if recommended.is_setting else 0):
            low_ns, high_ns = recommended.within_ns
            wrong = (high_ns - low_ns) / 2 / recommended.gain_ns
            low["the gain may be wrong by a quarter"] = wrong > LOW
            fair["the gain may be wrong by a twentieth"] = wrong > FAIR
        for grade, reasons in (("low", low), ("fair", fair)):
            for why, holds in reasons.items():
                if holds:
                    return grade, why
        return "high", None


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
