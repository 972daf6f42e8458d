"""How the program starts: Ctrl-C while it imports, and streams whose encoding lacks characters."""

import configparser
import os
import subprocess
import sys

import pytest

from tests.support.docs import ROOT

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
