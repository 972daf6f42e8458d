"""What `whatif` said of every recorded run when it was last agreed on: predictions.json.

`TRACER_TRACES=... python -m tests.support.predictions` prints what has moved by more than a hundredth of the run's own
step and writes the file anew: a commit that moves a prediction says why.
"""

from __future__ import annotations

import json
from pathlib import Path

from analyzers.errors import AnalysisError
from analyzers.prediction import Options, Scenario, whatif
from analyzers.prediction.scenarios import USUAL_MB
from tests.support.golden import identity
from tests.support.samples import RUNS, summary_of

PREDICTIONS = Path(__file__).with_name("predictions.json")
# What moved by more than this share of the run's own step.
MOVED = 0.01
# What is asked of each run: all caps on its own GPUs and on four times as many, and all else that it can be asked.
OWN = "own"


def predictions(path: Path) -> dict[str, int]:
    """Steps as predicted, ns, by what is changed; none of a run that is refused."""
    try:
        summary = summary_of(path)
        found = whatif(summary, Options(bucket_mb=USUAL_MB, straggler="all", host_times=(0.5, 0), accumulations=(2,)))
    except AnalysisError:
        return {}
    own = {OWN: found.baseline.measured_step_ns, f"{OWN}, predicted": found.baseline.predicted_step_ns}
    return own | {_name(scenario): scenario.predicted_step_ns for scenario in found.scenarios}


def _name(scenario: Scenario) -> str:
    parts = [str(scenario.kind)]
    if scenario.is_of_settings and scenario.sharding is None:
        parts.append("default" if scenario.bucket_mb is None else f"{scenario.bucket_mb:g} MB")
    if scenario.sharding is not None:
        parts.append(scenario.sharding.words)
    values = (scenario.rank, scenario.cause, scenario.host_time, scenario.grad_accumulation)
    return ", ".join([*parts, *(str(value) for value in values if value is not None)])


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
