"""What the causal model costs beside reading: CPU seconds of both, in one process, and their ratio.

    python benchmarks/causes.py [RUN ...] [--times 3]

Reading is `analyzers.summarize`. The model is what reading takes more with the graph, joining the ranks' graphs,
calibrating the replay, the walk and the gains of all scenarios. Each is the least of some times.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import analyzers
from analyzers.reporting.analyses import Analyses
from analyzers.scenarios import Subject, gains_of, scenarios

TRACES = Path(__file__).resolve().parents[1] / "traces"


def cpu_s(work: Callable[[], object], times: int) -> float:
    """Return the CPU seconds that something takes, the least of some times."""
    least = float("inf")
    for _ in range(times):
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
    return least


def costs(run: Path, times: int) -> tuple[float, float]:
    """Return the CPU seconds of reading a run, and of its model. Raises ValueError for a run that has no model."""
    reading_s = cpu_s(lambda: analyzers.summarize(run, causes=False), times)
    with_graph_s = cpu_s(lambda: analyzers.summarize(run, causes=True), times)
    summary = analyzers.summarize(run, causes=True)
    model_s = float("inf")
    for _ in range(times):
        analyses = Analyses(summary, None)
        # What a report has of its own, typical steps and matching, is not the model's.
        assert analyses.typical and analyses.exchanged
        began = time.process_time()
        if analyses.causes is None:
            raise ValueError(f"{run}: no causal model")
        assert gains_of(Subject(analyses.causes), [*scenarios(Subject(analyses.causes))])
        model_s = min(model_s, time.process_time() - began)
    return reading_s, max(with_graph_s - reading_s, 0) + model_s


def main() -> None:
    """Print a line for each run, and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="default: all in traces/")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    ratios = []
    for run in options.runs or sorted(path.parent for path in TRACES.glob("*/rank0.json.gz")):
        reading_s, model_s = costs(run, options.times)
        ratios.append(model_s / reading_s)
        print(f"{run.name:24} reading {reading_s:6.3f} s, model {model_s:6.3f} s, ratio {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
