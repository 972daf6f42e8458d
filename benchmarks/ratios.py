"""Whether the tree got slower than a commit: each phase of a report, by both in one run, as ratios.

    python benchmarks/ratios.py --against COMMIT [--phases json,page] [--samples NAME,...] [--file-mb 402] [--ranks 64]
                                [--rounds 7] [--json]

Both are copied into a temporary folder and run by this Python, in turn (A B B A ...), on samples in traces/, and on one
of them with its steps many times over. Where their sizes are given, reports are made of a file of so many MB and of a
run of so many ranks as well. What is made for this stays in --work for the next call.

Each phase is measured once uncounted, which fills caches, finds the runs that both can do, and says how often short
phases are repeated. A ratio is tree : commit, of two measurements beside each other, and over several samples the
geometric mean; the table has the median of all rounds with its interval. Processor time, of processes and their
children, hardly depends on what else the machine does; wall time does.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from loading import build
from many_ranks import write_run
from phases import PHASES
from processes import Cost, Failed
from trees import ROOT, Refused, Tree, commit_tree, present_tree

TRACES = ROOT / "traces"
# One of each kind: the others are more of the same.
SAMPLES = ("every-collective4", "resnet18-ddp2-sick", "resnet18-dp4", "resnet18-fsdp4", "resnet50-ddp4-bf16")
REPEATED = "resnet18-ddp4"
# Whole processes, without a run; and those that are given one.
STARTS = {
    "version": ("-m", "tracer", "--version"),
    "help": ("-m", "tracer", "--help"),
    "import": ("-c", "import analyzers"),
}
REPORTS = {
    "first": ("-m", "tracer", "report", "--no-cache"),
    "second": ("-m", "tracer", "report", "--workers", "1"),
}
NAMES = (*STARTS, *REPORTS, *PHASES)
# Shorter phases are repeated until they take this long together.
LEAST_S = 0.5
# How often a ratio that is no larger than 1 may have an interval above it.
CHANCE = 0.01
# Below, nobody notices a time; and a peak depends on how allocations fall: the length of a path made it 3 % larger.
NOTICED = {"CPU": 1.01, "wall": 1.01, "memory": 1.05}
FIGURES = {"cpu_s": "CPU", "wall_s": "wall", "peak_bytes": "memory"}


@dataclass(frozen=True)
class Row:
    """One phase, on some runs; on none where it only starts."""

    name: str
    runs: tuple[Path, ...] = ()
    size: str = ""  # of a run that was made for it

    @property
    def title(self) -> str:
        return f"{self.name}, {self.size}" if self.size else self.name


@dataclass(frozen=True)
class Costs:
    """What a row took on each run, and why others failed."""

    of: dict[str, Cost] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def measure(tree: Tree, row: Row, times: int) -> Costs:
    """What each run takes, the mean of several times."""
    if row.name in PHASES:
        return _inside(tree, row, times)
    costs = Costs()
    words = STARTS.get(row.name) or REPORTS[row.name]
    given = {run.name: (str(run),) for run in row.runs} or {"": ()}
    for name, path in given.items():
        try:
            each = [tree.cost(*words, *path) for _ in range(times)]
        except Failed as error:
            costs.errors[name] = str(error)
            continue
        wall_s, cpu_s = (statistics.mean(getattr(one, figure) for one in each) for figure in ("wall_s", "cpu_s"))
        costs.of[name] = Cost(wall_s, cpu_s, max(one.peak_bytes for one in each))
    return costs


def _inside(tree: Tree, row: Row, times: int) -> Costs:
    """The same of a phase inside one process, whose peak is that of all runs."""
    result = tree.work / "result.json"
    script = str(Path(__file__).with_name("phases.py"))
    try:
        whole = tree.cost(script, row.name, str(times), str(result), str(tree.work), *map(str, row.runs))
    except Failed as error:
        return Costs(errors={run.name: str(error) for run in row.runs})
    costs = Costs()
    for name, found in json.loads(result.read_text()).items():
        if isinstance(found, str):
            costs.errors[name] = found
        else:
            costs.of[name] = Cost(**found, peak_bytes=whole.peak_bytes)
    return costs


@dataclass(frozen=True)
class Ratio:
    """The median of paired ratios, and the interval that leaves it out at either side by CHANCE."""

    ratio: float
    low: float
    high: float
    more: bool  # than 1 by more than the spread, and by so much that it is noticed


def ratio_of(word: str, pairs: Sequence[float]) -> Ratio:
    """Sum up a figure's ratios of all rounds."""
    ordered = sorted(pairs)
    outside = outliers(len(ordered))
    ratio, low, high = statistics.median(ordered), ordered[outside], ordered[-1 - outside]
    return Ratio(ratio, low, high, more=low > 1 and ratio > NOTICED[word])


def outliers(rounds: int) -> int:
    """How many ratios may lie beyond either end of the interval: each is above the median as often as below it."""
    count, chance = 0, 2.0**-rounds
    while (chance := chance + math.comb(rounds, count + 1) * 2.0**-rounds) <= CHANCE:
        count += 1
    return count


@dataclass
class Compared:
    """A row's ratios so far, by figure; or why there are none."""

    row: Row
    times: int = 1
    before: dict[str, Cost] = field(default_factory=dict)
    pairs: dict[str, list[float]] = field(default_factory=lambda: {figure: [] for figure in FIGURES})
    missing: str | None = None
    notes: list[str] = field(default_factory=list)

    def add(self, before: Costs, tree: Costs) -> None:
        """Take one round: for each figure the geometric mean over the runs."""
        if failures := before.errors | tree.errors:
            raise Refused(f"{self.row.title}: failed, though it could be done before: {failures}")
        for figure, pairs in self.pairs.items():
            ratios = [getattr(tree.of[name], figure) / getattr(one, figure) for name, one in before.of.items()]
            pairs.append(statistics.geometric_mean(ratios))
        # Not the uncounted round's, which was the first look of a second one.
        self.before = before.of

    @property
    def ratios(self) -> dict[str, Ratio]:
        """What is known so far, by the figure's word."""
        return {word: ratio_of(word, self.pairs[figure]) for figure, word in FIGURES.items() if self.pairs[figure]}

    @property
    def worse(self) -> list[str]:
        """The figures, in words, of which the tree takes more."""
        return [word for word, ratio in self.ratios.items() if ratio.more]

    def change(self, word: str) -> str:
        """One figure's change in percent."""
        return f"{word} {100 * self.ratios[word].ratio - 100:+.1f} %"


def rehearsed(row: Row, before: Tree, tree: Tree) -> Compared:
    """Measure a row uncounted; keep the runs that both can do."""
    costs = {each.title: measure(each, row, 1) for each in (before, tree)}
    of_before, of_tree = costs.values()
    both = of_before.of.keys() & of_tree.of.keys()
    compared = Compared(Row(row.name, tuple(run for run in row.runs if run.name in both), row.size))
    if not both:
        title, failed = min(costs.items(), key=lambda item: len(item[1].of))
        compared.missing = f"{title}: {next(iter(failed.errors.values()))}"
        return compared
    for title, found in costs.items():
        # What neither can do was never to be done.
        alone = sorted(found.errors.keys() & (of_before.of | of_tree.of).keys())
        compared.notes += [f"{row.title}: left out {name}, {title}: {found.errors[name]}" for name in alone]
    compared.before = {name: one for name, one in of_before.of.items() if name in both}
    compared.times = math.ceil(LEAST_S / max(sum(one.cpu_s for one in compared.before.values()), LEAST_S / 20))
    return compared


def compare(rows: Sequence[Row], before: Tree, tree: Tree, rounds: int) -> list[Compared]:
    """Measure all rows, A B B A ..., and say on stderr how far it is."""
    _tell("uncounted: each phase once")
    found = [rehearsed(row, before, tree) for row in rows]
    for number in range(rounds):
        _tell(f"round {number + 1} of {rounds}")
        for compared in found:
            if compared.missing is None:
                order = (before, tree) if number % 2 == 0 else (tree, before)
                costs = {each.title: measure(each, compared.row, compared.times) for each in order}
                compared.add(costs[before.title], costs[tree.title])
    return found


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Made:
    """A run that is made once for all calls: what it is called in the table, and the phases that are measured on it."""

    size: str
    folder: str
    write: Callable[[Path], object]
    phases: tuple[str, ...] = (*REPORTS, *PHASES)


def rows_of(phases: Sequence[str], samples: Sequence[Path], made: Sequence[Made], work: Path) -> list[Row]:
    """The phases that are asked for, on the samples and on the runs that are made for them."""
    starts = [Row(name) for name in phases if name in STARTS]
    reading = [name for name in phases if name not in STARTS]
    on_made = [(each, [name for name in reading if name in each.phases]) for each in made]
    return [
        *starts,
        *(Row(name, tuple(samples)) for name in reading),
        *(Row(name, (present(each, work),), each.size) for each, names in on_made for name in names),
    ]


def runs_to_make(options: argparse.Namespace) -> list[Made]:
    """The runs whose size is asked for."""
    times, megabytes, ranks = options.large, options.file_mb, options.ranks
    made = [
        (times, Made("large", f"{REPEATED}-x{times}", partial(write_repeated, times))),
        (
            megabytes,
            Made(f"{megabytes} MB", f"{megabytes}mb", partial(write_file, megabytes), ("first", "second", "rank")),
        ),
        (ranks, Made(f"{ranks} ranks", f"{ranks}ranks", partial(write_run, ranks=ranks), ("first", "second"))),
    ]
    return [each for size, each in made if size > 0]


def write_repeated(times: int, folder: Path) -> None:
    """A sample with its steps so many times over."""
    words = [sys.executable, "-m", "tests.support.repeating", str(TRACES / REPEATED), str(times), str(folder)]
    subprocess.run(words, cwd=ROOT, check=True)


def write_file(megabytes: int, folder: Path) -> None:
    """A run of one file."""
    folder.mkdir()
    build(folder / "rank0.json", megabytes)


def present(made: Made, work: Path) -> Path:
    """Its folder, made where it is not there yet."""
    folder = work / made.folder
    if not folder.exists():
        _tell(f"making {folder}")
        work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=work) as scratch:
            made.write(Path(scratch) / folder.name)
            (Path(scratch) / folder.name).rename(folder)
    return folder


def table(found: Sequence[Compared]) -> list[str]:
    """A line for each row; one that got worse by more than its spread ends in what takes more."""
    heads = "".join(f"{word:>7} {'interval':<14}" for word in FIGURES.values())
    lines = [f"{'':18}{heads}{'before: CPU s':>14} {'peak MB':>8}"]
    for compared in found:
        if compared.missing is not None:
            lines.append(f"{compared.row.title:18}{'-':>7} {compared.missing}")
            continue
        cells = "".join(f"{r.ratio:7.3f} {f'{r.low:.3f}..{r.high:.3f}':<14}" for r in compared.ratios.values())
        cpu_s = sum(one.cpu_s for one in compared.before.values())
        peak_mb = max(one.peak_bytes for one in compared.before.values()) / 1e6
        mark = f"  <- more {', '.join(compared.worse)}" if compared.worse else ""
        lines.append(f"{compared.row.title:18}{cells}{cpu_s:14.3f} {peak_mb:8.0f}{mark}")
    return lines + [note for compared in found for note in compared.notes]


def verdict(found: Sequence[Compared], rounds: int) -> str:
    """Whether anything got slower, in words."""
    if all(compared.missing for compared in found):
        return "Nothing could be compared."
    worse = [compared for compared in found if compared.worse]
    said = "; ".join(f"{each.row.title} ({', '.join(map(each.change, each.worse))})" for each in worse)
    text = f"Slower or larger: {said}." if worse else "Nothing got slower, and nothing takes more memory."
    least = math.ceil(-math.log2(CHANCE))
    return text if rounds >= least else f"{text} Fewer than {least} rounds cannot tell a change from chance."


def document(found: Sequence[Compared], title: str, rounds: int) -> dict[str, object]:
    """The same for programs."""
    phases = {
        compared.row.title: {
            "runs": [run.name for run in compared.row.runs],
            "ratios": {word: asdict(ratio) for word, ratio in compared.ratios.items()},
            "before": {name or compared.row.name: asdict(one) for name, one in compared.before.items()},
            "missing": compared.missing,
            "notes": compared.notes,
        }
        for compared in found
    }
    return {"against": title, "rounds": rounds, "phases": phases, "verdict": verdict(found, rounds)}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="COMMIT", help="the commit before")
    parser.add_argument("--phases", default=",".join(NAMES), help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--samples", default=",".join(SAMPLES), help="folders in traces/ (default: one of each kind)")
    parser.add_argument("--large", type=int, default=8, help="copies of the steps in the large run; 0: none")
    parser.add_argument("--file-mb", type=int, default=0, metavar="MB", help="reports of one file of so many MB, too")
    parser.add_argument("--ranks", type=int, default=0, help="reports of so many ranks, too; 7 MB of JSON each")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7, the least that tells a change from chance")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tracer-ratios")
    parser.add_argument("--json", action="store_true", help="the ratios as JSON")
    return parser.parse_args()


def run(options: argparse.Namespace) -> str:
    """Compare, and write down what was found. Raises Refused."""
    phases, samples = options.phases.split(","), [TRACES / name for name in options.samples.split(",")]
    if unknown := [name for name in phases if name not in NAMES]:
        raise Refused(f"--phases {','.join(unknown)}: there are {', '.join(NAMES)}")
    if unknown := [run.name for run in samples if not run.is_dir()]:
        raise Refused(f"--samples {','.join(unknown)}: not in {TRACES}")
    if options.rounds < 1:
        raise Refused(f"--rounds {options.rounds}: at least 1")
    with tempfile.TemporaryDirectory(prefix="tracer-ratios-") as folder:
        # Of the same length: peaks of memory depend on it.
        before = commit_tree(options.against, Path(folder) / "old")
        tree = present_tree(Path(folder) / "new")
        rows = rows_of(phases, samples, runs_to_make(options), options.work.absolute())
        found = compare(rows, before, tree, options.rounds)
    if options.json:
        return json.dumps(document(found, before.title, options.rounds), indent=1)
    head = f"the tree : {before.title}; rounds: {options.rounds}; ratios, and the intervals of their medians"
    return "\n".join([head, *table(found), verdict(found, options.rounds)])


def main() -> None:
    try:
        print(run(parsed()))
    except Refused as error:
        raise SystemExit(f"ratios.py: {error}") from error


if __name__ == "__main__":
    main()
