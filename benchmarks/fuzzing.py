"""Fuzzing of the reading, at length: damaged traces judged by json.

    python -m benchmarks.fuzzing [--cache] [--cases 20000] [--seed 1] [--events 60] [RUN ...]

Beside made traces, one of each RUN's is damaged: its first, middle and last events, so many of each. Exit status 1
where the reader and json disagree; the number of a case makes it again. With `--cache` what was kept of each is held
against what was read, and each entry is damaged, too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.fuzzing import fuzz, made, shortened
from tests.support.fuzzing_cache import fuzz_cache


def main(arguments: Sequence[str]) -> int:
    """Fuzz, and print how the cases went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000, help="how many files to damage")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=60, help="of a real trace, so many of its events three times")
    parser.add_argument("--cache", action="store_true", help="judge the cache instead of the reader")
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    options = parser.parse_args(arguments)
    files = [file for run in options.runs for file in sorted(run.rglob("*.json.gz"))[:1]]
    documents = [*made(), *(shortened(file, options.events) for file in files)]
    with tempfile.TemporaryDirectory() as folder:
        judge = fuzz_cache if options.cache else fuzz
        went, wrong = judge(documents, options.cases, options.seed, Path(folder))
    for outcome, count in went.most_common():
        print(f"{count:7} {outcome}")
    print(f"{len(wrong):7} wrong of {options.cases}; {len(documents)} documents, seed {options.seed}")
    print(*wrong[:50], sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
