"""`FirstSentence`: what is recommended, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.prediction.answers import Prediction, Recommended, chosen
from analyzers.prediction.options import Options
from analyzers.scenarios import LEAST_SHARE, ODD
from analyzers.statistics import Limits
from analyzers.units import ms


@dataclass(frozen=True)
class FirstSentence:
    """What is asked of a run, and predicted of it: settings, and all others, the largest gain first.

    The run had so many `gpus`; what differs by less than `noise_ns` is not told apart.
    """

    options: Options
    gpus: int
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
        # On other numbers of GPUs no setting is to be better than the run's own.
        if not found.is_gain and found.gpus in (None, self.gpus):
            return None, _sentence(why)
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
        said = "no cure that can be replayed would bring 1 % of the step"
        of_degree = (each for each in self.others if each.of_degree and each.gain_ns >= LEAST_SHARE * each.before_ns)
        most = next(of_degree, None)
        return said if most is None else f"{said}; {self._would_take(most)}"

    def _of_best(self, best: Prediction) -> str:
        """Say what the best of the settings that are asked for brings."""
        steps = [each.predicted_step_ns for each in self.settings if each.gpus == best.gpus]
        noise = f"differences below {ms(self.noise_ns)} are noise"
        if best.gpus == self.gpus and len(steps) > 1 and max(steps) - min(steps) <= self.noise_ns:
            apart = ms(max(steps) - min(steps)) if max(steps) > min(steps) else "nothing"
            return f"no choice matters here: they differ by {apart}, and {noise}"
        if best.gpus == self.gpus and not best.is_gain:
            return f"none here is told apart from the run's own settings: {noise}"
        return self._would_take(best) if best.gpus != self.gpus else self._answer(best)

    def _answer(self, found: Prediction) -> str:
        """Say what a change would bring, and within what."""
        said = self._would_take(found)
        low_ns, high_ns = found.within_ns
        if found.gain_ns <= 0:
            return said
        if not found.is_gain:
            return f"{said}; the gain, {ms(found.gain_ns)}, is not told apart from nothing"
        return f"{said}: {ms(found.gain_ns)} less ({ms(low_ns)} to {ms(high_ns)})"

    def _would_take(self, found: Prediction) -> str:
        """Say what a step would take with a change: the gain is off the step as measured, which people see."""
        which = "the mean step" if found.kind == ODD else "a step"
        return f"with {found.words} {which} would take {ms(found.step_ns)} instead of {ms(found.before_ns)}"

    def named(self, recommended: Recommended | None) -> tuple[int | None, Limits | None]:
        """Return the gain that is said, and what it lies between; None where none is told apart from noise."""
        if recommended is None or not recommended.is_gain:
            return None, None
        return recommended.gain_ns, recommended.within_ns


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
