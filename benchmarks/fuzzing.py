"""Fuzzing at length: damaged files of each kind, read by whole commands; and traces judged by json.

    python -m benchmarks.fuzzing [--kind KIND] [--cases 20000] [--seed N] [--case N] [--events 60] [RUN ...]

Kinds are those of tests/support/mutators.py, and `strict` (made traces, and one of each RUN's first, middle and last
events, judged by json) and `kept` (what the cache keeps of these). Without --seed it is a new one, which is printed.
Exit status 1 where something went wrong; each failure has the command that makes it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.fuzzing import fuzz, made, shortened
from tests.support.fuzzing_cache import fuzz_cache
from tests.support.fuzzing_commands import fuzz_commands
from tests.support.mutators import KINDS

STRICT, KEPT = "strict", "kept"
ALL = (STRICT, KEPT, *KINDS)


def main(arguments: Sequence[str]) -> int:
    """Fuzz, and print how the cases went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=ALL, help="only files of this kind")
    parser.add_argument("--cases", type=int, default=20_000, help="how many files of each kind to damage")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--case", type=int, help="only the case of this number (strict and kept: up to it)")
    parser.add_argument("--events", type=int, default=60, help="of a real trace, so many of its events three times")
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    options = parser.parse_args(arguments)
    options.seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {options.seed}", flush=True)
    return min(sum(_fuzzed(kind, options) for kind in ([options.kind] if options.kind else ALL)), 1)


def _fuzzed(kind: str, options: argparse.Namespace) -> bool:
    """Whether something went wrong with files of a kind."""
    numbers = range(options.cases) if options.case is None else range(options.case, options.case + 1)
    with tempfile.TemporaryDirectory() as folder:
        if kind in KINDS:
            went, wrong = fuzz_commands(kind, numbers, options.seed, Path(folder))
        else:
            files = [file for run in options.runs for file in sorted(run.rglob("*.json.gz"))[:1]]
            documents = [*made(), *(shortened(file, options.events) for file in files)]
            judge = fuzz_cache if kind == KEPT else fuzz
            went, wrong = judge(documents, numbers.stop, options.seed, Path(folder))
    print(f"{kind}: {len(wrong)} wrong; {', '.join(f'{count} {outcome}' for outcome, count in went.most_common())}")
    given = "".join(f" {run}" for run in options.runs) + f" --events {options.events}" * bool(options.runs)
    for said in wrong:
        again = f"--kind {kind} --seed {options.seed} --case {said.partition(':')[0].partition(' ')[0]}"
        print(f"  {said}\n    python -m benchmarks.fuzzing {again}{given}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
