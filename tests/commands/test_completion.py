"""Completion, as shells ask for it."""

import shutil
import subprocess
import sys

import pytest

from tests.support.docs import ROOT
from tracer.cli import build_parser, main
from tracer.commands import completion_script


def completed(*words: str) -> set[str]:
    """What bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in ("tracer", *words))
    script = f"""
    {completion_script(build_parser(), "bash")}
    COMP_WORDS=({line}); COMP_CWORD={len(words)}
    _shtab_tracer 2> /dev/null
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_commands_options_and_their_values_complete():
    assert completed("rep") == {"report"}
    assert {"--json", "--html"} <= completed("report", "run", "--")
    assert completed("report", "--by", "bu") == {"bucket"}


def test_runs_complete_as_folders_and_traces():
    assert "traces/resnet18-ddp4" in completed("report", "traces/resnet18-d")
    inside = completed("report", "traces/resnet18-ddp4/")
    assert {f"traces/resnet18-ddp4/{name}" for name in ("rank0.json.gz", "run.json")} <= inside
    assert not any(path.endswith(".md") for path in inside)


def test_files_complete_behind_their_option():
    assert "README.md" in completed("report", "run", "--html", "READ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_every_shell_gets_a_script(shell, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", shell])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert "report" in out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=out, text=True, check=True)


def test_without_shtab_it_is_a_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", "bash"])
    assert (ended.value.code, capsys.readouterr().err) == (
        1,
        "tracer: shell completion needs shtab: pip install shtab\n",
    )
