"""How the program starts: Ctrl-C while it imports, and streams whose encoding lacks characters."""

import configparser
import os
import subprocess
import sys

import pytest

from tests.support.docs import ROOT
from tests.support.tiers import quarters
from tracer.cli import TRAINS
from tracer.commands import COMMANDS
from tracer.views import ASCII, PARTS, SPLIT_PARTS

# What a shell starts in its background ignores Ctrl+C, and so would these tests.
INTERRUPTS = """import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(9)
"""


def console_script() -> str:
    """What an installed `tracer` runs."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    entry = settings["options.entry_points"]["console_scripts"].partition("=")[2].strip()
    module, _, function = entry.partition(":")
    return f"import sys; from {module} import {function}; sys.exit({function}())"


@pytest.mark.parametrize("how", [["-m", "tracer"], ["-c", console_script()]], ids=["module", "console script"])
def test_ctrl_c_while_importing_is_one_line(how, tmp_path):
    # In place of what takes longest to import.
    (tmp_path / "numpy.py").write_text(INTERRUPTS)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *how, "report", "run"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tracer: interrupted\n")


def loaded(*words: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    code = """
import sys
from tracer.__main__ import program
try:
    program()
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.split("\n")[-2].split())


# What takes long to load, and what few need.
ALWAYS_LATE = {
    *("torch", "pandas", "matplotlib", "tensorboard", "jinja2", "dask", "distributed", "fsspec", "perfetto", "hta"),
    *("google.protobuf", "urllib.request", "http.client", "http.server", "importlib.metadata", "shtab", "difflib"),
    *("rich.progress", "analyzers.comparison", "analyzers.prediction", "analyzers.hta", "tracer.views.html"),
    *("tracer.views.plots", "tracer.views.sections.results", "tracer.recording", "tracer.launching", "tracer.doctor"),
}
LATE = ALWAYS_LATE | {"numpy", "rich", "multiprocessing", "concurrent.futures", "analyzers.run", "analyzers.reporting"}


@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_help_and_version_load_no_command(words):
    found = loaded(*words)
    assert not found & (LATE | {"msgspec", "tracer.commands.options"})
    assert not {name for name in found if name.startswith("tracer.commands.")} - {"tracer.commands.completion"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_help_loads_nothing_that_reads_or_draws(command):
    assert loaded(command, "--help") & (LATE - {"http.server", "http.client", "tracer.doctor"}) == set()


def test_a_usage_error_loads_nothing_that_reads_or_draws():
    assert loaded("report", "--no-such-option") & (LATE - {"difflib"}) == set()
    assert loaded("reprot") & (LATE - {"difflib"} | {"tracer.commands.options"}) == set()


def test_completion_loads_nothing_that_reads_or_draws():
    assert (
        loaded("--print-completion", "bash")
        & (LATE - {"shtab", "importlib.metadata", "http.server", "http.client", "tracer.doctor"})
        == set()
    )


def test_a_report_loads_what_it_shows_alone():
    assert loaded("report", "traces/resnet18-ddp4", "--workers", "1") & ALWAYS_LATE == set()


@pytest.mark.parametrize("encoding", quarters(["latin-1", "ascii"]))
def test_bars_have_letters_where_the_encoding_lacks_their_blocks(encoding):
    run, page = ROOT / "traces" / "resnet18-ddp2", {}
    for name in ("utf-8", encoding):
        done = subprocess.run(
            [sys.executable, "-m", "tracer", "report", str(run)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": name},
            capture_output=True,
            check=True,
        )
        page[name] = done.stdout.decode(name)
    expected = "".join(character if _encodes(character, encoding) else ASCII[character] for character in page["utf-8"])
    assert page[encoding] == expected


def _encodes(character: str, encoding: str) -> bool:
    return character.encode(encoding, "ignore") != b""


@pytest.mark.parametrize("parts", [PARTS, SPLIT_PARTS])
def test_parts_that_differ_in_a_bar_differ_in_ascii(parts):
    glyphs = [ASCII[part.glyph] for part in parts]
    assert len(set(glyphs)) == len(parts)
    assert all(glyph.isascii() and len(glyph) == 1 for glyph in ASCII.values())


def test_numpys_threads_are_started_only_where_a_training_may_want_them():
    said = "print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    code = f"import os; from tracer import cli; cli.main = lambda: {said}; cli.program()"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-c", code, command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert (done.stdout == "None\n") == (command in TRAINS)
