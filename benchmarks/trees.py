"""The packages as a commit has them and as they lie here, both copied, to be run one after the other."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from processes import Cost, cost

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("analyzers", "tracer")
# An editable install finds its own modules for those that a tree lacks.
WITHOUT_OTHERS = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]
"""


class Refused(Exception):
    """What was asked for cannot be done."""


@dataclass(frozen=True)
class Tree:
    """One state of the packages, and where it keeps what it makes."""

    title: str
    packages: Path
    work: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables for processes that run it: its packages come first, and nothing is drawn by lot."""
        own = {"PYTHONPATH": str(self.packages), "PYTHONSAFEPATH": "1", "TRACER_CACHE": str(self.work / "cache")}
        same = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return given | own | same

    def cost(self, *words: str) -> Cost:
        """What Python takes for some words. Raises Failed."""
        return cost((sys.executable, *words), self.environment)


def commit_tree(commit: str, work: Path) -> Tree:
    """The packages as a commit has them. Raises Refused."""
    unknown = f"--against {commit}: {ROOT} has no such commit; `git log` lists them, a shallow clone lacks older ones"
    name = _git(unknown, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}").decode().strip()
    lacks = f"--against {commit}: it has no {' and '.join(PACKAGES)}"
    archive = _git(lacks, "archive", "--format=tar", name, *PACKAGES)
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(work / "packages", filter="data")
    title = _git(f"{commit} has no subject", "log", "-1", "--format=%h %s", name).decode().strip()
    return _checked(Tree(title, work / "packages", work))


def present_tree(work: Path) -> Tree:
    """The packages as they lie here, copied: what is edited meanwhile is not measured. Raises Refused."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, work / "packages" / package, ignore=shutil.ignore_patterns("__pycache__"))
    return _checked(Tree("the tree", work / "packages", work))


def _checked(tree: Tree) -> Tree:
    """The same tree, whose packages are those that its processes import. Raises Refused."""
    (tree.packages / "sitecustomize.py").write_text(WITHOUT_OTHERS)
    for package in PACKAGES:
        code = f"import {package}; print({package}.__file__)"
        asked = subprocess.run(
            [sys.executable, "-c", code], env=tree.environment, capture_output=True, text=True, check=False
        )
        if not Path(asked.stdout).is_relative_to(tree.packages):
            said = (asked.stdout or asked.stderr).strip().rpartition("\n")[2]
            raise Refused(f"{tree.title}: Python does not import its {package} ({said})")
    return tree


def _git(refusal: str, *words: str) -> bytes:
    """What git prints. Raises Refused, with git's own words, where it fails."""
    try:
        asked = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise Refused("git is not installed: it has the commit to compare with") from error
    if asked.returncode:
        said = asked.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise Refused(f"{refusal} ({said.removeprefix('fatal: ')})")
    return asked.stdout
