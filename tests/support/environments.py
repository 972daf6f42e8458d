"""Environments that people train in: each is made, tracer installed, scripts are recorded, and then it is removed.

make environments                  all rows of the table in docs/installing.md, one after another: 3 to 8 GB each
make environments TORCH=2.8.0      one row, anew; others stay

Needs the standard library alone, and the internet.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "installing.md"
FOLDER = ROOT / "build" / "environments"
SCRIPTS = ROOT / "tests" / "support" / "scripts"
BEGINS, ENDS = "<!-- `make environments` writes from here -->", "<!-- to here -->"
HEAD = ("torch", "Python", "numpy", "pandas", "protobuf", "pip changes", "pip adds", "DDP", "FSDP2, TP", "GB")
# As old as any that people still train with.
OTHERS = ("numpy==1.26.*", "pandas==2.1.*", "protobuf==5.*")
PIP = ("-m", "pip", "--disable-pip-version-check")
QUICK = ("--device", "cpu", "--ranks", "2", "--wait", "2", "--warmup", "1", "--active", "2", "--rounds", "1")
UNABLE = "does not run"


class Failed(Exception):
    """A command that did not end well, with the last that it said."""


def run(*command: object, folder: Path = ROOT) -> str:
    """What a command prints. Raises Failed."""
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-20:])
        raise Failed(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{last}")
    return done.stdout


def versions_of(python: Path) -> dict[str, str]:
    """The version of each package of an environment."""
    return {_name(row["name"]): row["version"] for row in json.loads(run(python, *PIP, "list", "--format", "json"))}


def plan_of(python: Path) -> dict[str, str]:
    """What pip would install for a recording, by its dry run."""
    said = run(python, *PIP, "install", "--quiet", "--dry-run", "--report", "-", f"{ROOT}[record]")
    packages = (row["metadata"] for row in json.loads(said)["install"])
    return {_name(package["name"]): package["version"] for package in packages}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Packages that were there and have another version in `after`, in words."""
    others = [name for name in sorted(before.keys() & after) if before[name] != after[name]]
    return [f"{name} {before[name]} to {after[name]}" for name in others]


def _name(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def runs(python: Path, *script: str) -> bool:
    """Whether two ranks of a script run in this environment, unrecorded."""
    try:
        run(python, "-m", "torch.distributed.run", "--nproc-per-node", 2, SCRIPTS / script[0], *script[1:])
    except Failed:
        return False
    return True


def recorded(python: Path, output: Path, strategy: str, *script: str) -> str:
    """Record a script on two ranks of the CPU and report it; say so. Raises Failed."""
    run(python, "-m", "tracer", "record", *QUICK, "-o", output, SCRIPTS / script[0], *script[1:], folder=output.parent)
    report = json.loads(run(python, "-m", "tracer", "report", output, "--json", "--no-cache", folder=output.parent))
    manifest = json.loads((output / "run.json").read_text())
    found = report["run"]["strategy"], report["run"]["world_size"]
    groups = [mesh["groups"] for mesh in manifest["parallelism"]["mesh"]]
    if found != (strategy, 2) or not groups or any(sorted(each) != ["0", "1"] for each in groups):
        raise Failed(f"{output}: the recording says {found}, and of its meshes' groups {groups}")
    return f"{report['run']['world_size']} ranks"


def row(torch: str, folder: Path, keep: bool) -> list[str]:
    """Make an environment with this torch, install and record in it, and return its row. Raises Failed."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    try:
        run(python, *PIP, "install", "--no-cache-dir", f"torch=={torch}", *OTHERS)
        before, plan = versions_of(python), plan_of(python)
        run(python, *PIP, "install", "--no-cache-dir", f"{ROOT}[record]")
        after = versions_of(python)
        if after != before | plan:
            raise Failed(f"pip installed {after}, and not what it said: {before | plan}")
        ddp = recorded(python, folder / "ddp", "ddp", "loop.py", "--mesh")
        fsdp2 = UNABLE
        if runs(python, "parallel.py", "sharded"):
            fsdp2 = recorded(python, folder / "fsdp2", "fsdp+tensor", "parallel.py", "sharded")
        nbytes = sum(file.lstat().st_size for file in folder.rglob("*"))
        return [
            *(torch, platform.python_version(), *(before[name] for name in ("numpy", "pandas", "protobuf"))),
            *(", ".join(changed(before, plan)) or "nothing", str(len(plan.keys() - before)), ddp, fsdp2),
            f"{nbytes / 1e9:.1f}",
        ]
    finally:
        if not keep:
            shutil.rmtree(folder)


def rows_in(page: str) -> list[list[str]]:
    """The rows of the table that stand in the page."""
    table = page.split(BEGINS)[1].split(ENDS)[0].strip().splitlines()
    return [line.strip("| ").split(" | ") for line in table[2:]]


def with_rows(page: str, rows: Sequence[Sequence[str]]) -> str:
    """The page with these rows in its table, those of other versions of torch as they were."""
    found = {row[0]: row for row in (*rows_in(page), *rows)}
    ordered = sorted(found.values(), key=lambda row: [*map(int, row[0].split("."))])
    table = [HEAD, ["---"] * len(HEAD), *ordered]
    text = "\n".join(f"| {' | '.join(row)} |" for row in table)
    return f"{page.split(BEGINS)[0]}{BEGINS}\n\n{text}\n\n{ENDS}{page.split(ENDS)[1]}"


def main(arguments: Sequence[str]) -> int:
    """Make the rows that are asked for, all of the page by default, and write each as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch", nargs="*", help="versions, such as 2.8.0 (default: those of the table)")
    parser.add_argument("--keep", action="store_true", help=f"leave the environments in {FOLDER}")
    options = parser.parse_args(arguments)
    failed = False
    for torch in options.torch or [row[0] for row in rows_in(PAGE.read_text())]:
        begun = time.monotonic()
        try:
            found = row(torch, FOLDER / torch, options.keep)
        except Failed as error:
            sys.stderr.write(f"torch {torch}: {error}\n")
            failed = True
            continue
        sys.stderr.write(f"| {' | '.join(found)} | {time.monotonic() - begun:.0f} s\n")
        PAGE.write_text(with_rows(PAGE.read_text(), [found]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
