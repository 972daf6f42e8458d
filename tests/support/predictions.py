"""What `whatif` said of every recorded run when it was last agreed on: predictions.json.

`TRACER_TRACES=... python -m tests.support.predictions` prints what has moved by more than a hundredth of the run's own
step and writes the file anew: a commit that moves a prediction says why.
"""

from __future__ import annotations

import json
from pathlib import Path

from analyzers.errors import AnalysisError
from analyzers.prediction import Prediction, whatif
from tests.support.golden import identity
from tests.support.samples import RUNS, summary_of

PREDICTIONS = Path(__file__).with_name("predictions.json")
# What moved by more than this share of the run's own step.
MOVED = 0.01
OWN = "own"


def predictions(path: Path) -> dict[str, int]:
    """Steps as predicted, ns, by what is changed; none of a run that is refused."""
    try:
        found = whatif(summary_of(path))
    except AnalysisError:
        return {}
    own = {OWN: found.baseline.measured_step_ns, f"{OWN}, predicted": found.baseline.predicted_step_ns}
    return own | {_name(scenario): scenario.predicted_step_ns for scenario in found.scenarios}


def _name(scenario: Prediction) -> str:
    words = scenario.words
    if scenario.kind == "caps":
        words = "default" if scenario.bucket_mb is None else f"{scenario.bucket_mb:g} MB"
    return f"{scenario.kind}: {words}"


def known() -> dict[str, dict[str, int]]:
    """predictions.json."""
    return json.loads(PREDICTIONS.read_text()) if PREDICTIONS.exists() else {}


def moved(then: dict[str, int], now: dict[str, int]) -> dict[str, tuple[int | None, int | None]]:
    """What is predicted otherwise than it was, then and now."""
    least = MOVED * then.get(OWN, 0)
    names = [name for name in then | now if name not in then or name not in now or abs(now[name] - then[name]) > least]
    return {name: (then.get(name), now.get(name)) for name in names}


def main() -> None:
    """Print what moved, and write predictions.json anew for the runs at hand; those that are not here stay."""
    agreed = known()
    for run in RUNS:
        now = predictions(run)
        for name, (before, after) in moved(agreed.get(identity(run), {}), now).items():
            print(f"{run.name}: {name}: {before} -> {after}")
        agreed[identity(run)] = now
    PREDICTIONS.write_text(json.dumps(agreed, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
