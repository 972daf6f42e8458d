"""The hook that travels in PYTHONPATH, with a torch and a tracer that only say that they were reached."""

import json
import os
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parents[2] / "tracer" / "recording" / "hook"
# What the hook imports once torch is there.
RECORDS = "tracer/recording/unchanged_script.py"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An interpreter with no package but the library's: elsewhere tracer may be installed, and would be found."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python3"


@dataclass(frozen=True)
class Places:
    """Where everything lies below one folder, and who runs it."""

    folder: Path
    python: Path

    def __truediv__(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture
def places(tmp_path, python):
    root, script, work = tmp_path / "root", tmp_path / "script", tmp_path / "work"
    for package in (root / "tracer" / "recording", root / "analyzers", script, tmp_path / "site" / "torch", work):
        package.mkdir(parents=True)
    for package in ("tracer", "tracer/recording", "analyzers"):
        (root / package / "__init__.py").touch()
    (root / RECORDS).write_text("def arm():\n    print('armed')\n")
    (tmp_path / "site" / "torch" / "__init__.py").write_text("print('torch')\n")
    return Places(tmp_path, python)


def run(places: Places, code: str, *more: str, hook: bool = True) -> list[str]:
    path = os.pathsep.join([str(HOOK), *more, str(places / "site")])
    environment = {**os.environ, "PYTHONPATH": path}
    if hook:
        environment["TRACER_HOOK"] = json.dumps({"folder": str(places.folder), "root": str(places / "root")})
    script = places / "script" / "script.py"
    script.write_text(code)
    done = subprocess.run([places.python, script], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def reason(places: Places) -> str:
    (file,) = (places / "work").iterdir()
    return file.read_text()


@pytest.mark.parametrize(
    "code",
    [
        "import torch",
        "import importlib.util as u; u.find_spec('torch'); u.find_spec('torch'); import torch",
        "import sys; sys.path.append('nowhere'); from torch import __name__",
    ],
)
def test_torch_is_armed_once_however_it_is_imported(places, code):
    assert run(places, code) == ["torch", "armed"]


def test_nothing_is_imported_without_torch(places):
    assert run(places, "import sys; print('tracer' in sys.modules)") == ["False"]


def test_without_a_recording_nothing_is_armed(places):
    assert run(places, "import torch", hook=False) == ["torch"]


def test_torch_is_found_by_whatever_finds_it(places):
    (places / "other").mkdir()
    (places / "site" / "torch").rename(places / "elsewhere")
    # As editable installs do it: a finder of their own, set up by the environment.
    (places / "other" / "sitecustomize.py").write_text(
        "import sys\n"
        "from importlib.util import spec_from_file_location\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'torch': return spec_from_file_location(name, {str(places / 'elsewhere/__init__.py')!r})\n"
        "sys.path[:] = [place for place in sys.path if 'site-packages' not in place]\n"
        "sys.meta_path.append(Finder())\n"
        "print('other')\n"
    )
    assert run(places, "import torch", str(places / "other")) == ["other", "torch", "armed"]


def test_another_sitecustomize_may_import_torch(places):
    (places / "other").mkdir()
    (places / "other" / "sitecustomize.py").write_text("import torch\n")
    assert run(places, "import sitecustomize; print(sitecustomize.__file__)", str(places / "other")) == [
        "torch", "armed", str(places / "other" / "sitecustomize.py"),
    ]  # fmt: skip


def test_a_script_keeps_its_own_module_of_our_name(places):
    (places / "script" / "tracer.py").write_text("print('mine')\n")
    assert run(places, "import torch, tracer") == ["torch", "mine"]
    assert "the script has a tracer of its own" in reason(places)


def test_an_interpreter_that_cannot_import_us_says_so(places):
    (places / "root" / RECORDS).write_text("import no_such_package\n")
    assert run(places, "import torch") == ["torch"]
    assert "No module named 'no_such_package'" in reason(places)
    assert str(places.python) in reason(places)
