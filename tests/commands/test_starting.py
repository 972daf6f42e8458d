"""How the program starts: Ctrl-C while it imports, and streams whose encoding lacks characters."""

import configparser
import os
import subprocess
import sys

import pytest

from tests.support.docs import ROOT
from tracer.views import ASCII, PARTS, SPLIT_PARTS

INTERRUPTS = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"


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


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_bars_have_letters_where_the_encoding_lacks_their_blocks(encoding):
    run, page = ROOT / "traces" / "resnet18-ddp4", {}
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
