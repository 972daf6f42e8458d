"""Words that the command line does not know, and values that an option does not take: one line, with what was meant."""

import pytest

from tracer.cli import COMMANDS, main


def said(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1), err
    return err


@pytest.mark.parametrize(("typed", "meant"), [("reprot", "report"), ("sweeep", "sweep"), ("Plot", "plot")])
def test_a_mistyped_command_is_told_which_was_meant(typed, meant, capsys):
    assert said(capsys, typed, "run") == (
        f"tracer: there is no command {typed}; did you mean {meant}? (tracer --help lists the commands)\n"
    )


def test_a_word_that_is_like_no_command_gets_no_guess(capsys):
    assert said(capsys, "zzz") == "tracer: there is no command zzz (tracer --help lists the commands)\n"


@pytest.mark.parametrize(
    ("words", "typed", "meant"),
    [
        (["report", "run", "--jsn"], "--jsn", "--json"),
        (["report", "run", "--htm", "page.html"], "--htm", "--html"),
        (["report", "--fail_on=step_ns > 2"], "--fail_on", "--fail-on"),
        (["plot", "run", "--kinds", "timeline"], "--kinds", "--kind"),
        (["record", "--gpu", "2", "train.py"], "--gpu", "--gpus"),
    ],
)
def test_a_mistyped_option_is_told_which_was_meant(words, typed, meant, capsys):
    where = f"tracer {words[0]}"
    assert said(capsys, *words) == (
        f"{where}: there is no option {typed}; did you mean {meant}? ({where} --help lists the options)\n"
    )


@pytest.mark.parametrize("unknown", ["--zzzz", "-x"])
def test_an_option_that_is_like_no_other_gets_no_guess(unknown, capsys):
    for words in (["report", "run", unknown], ["record", unknown, "train.py"]):
        where = f"tracer {words[0]}"
        assert said(capsys, *words) == f"{where}: there is no option {unknown} ({where} --help lists the options)\n"


def test_a_word_too_many_is_named(capsys):
    assert said(capsys, "doctor", "now") == (
        "tracer doctor: it takes no argument now (tracer doctor --help lists the options)\n"
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["report", "run", "--by", "buckets"], "--by buckets: it takes rank, step, "),
        (["plot", "run", "--kind", "zzz"], "--kind zzz: it takes "),
        (["record", "--gpus", "0"], "--gpus 0: give a whole number, 1 or more"),
        (["record", "--lr", "0"], "--lr 0: give a number above 0"),
        (["record", "--seed", "-1"], "--seed -1: give a whole number, 0 or more"),
        (["report", "run", "--memory", "much"], "--memory much: give a size such as 500MB or 4GB"),
        (["report", "run", "--workers", "0"], "--workers 0: give a number of processes, 1 or more"),
        (["report", "run", "--scheduler", "x"], "--scheduler x: give its address as tcp://HOST:PORT"),
        (["report", "run", "--ranks", "x"], "--ranks x: give ranks such as 0,17,100-103"),
        (["calibrate", "--min", "x"], "--min x: give a size such as 4096, 4K, 16M or 1G"),
        (["view", "run", "--port", "0"], "--port 0: give a port from 1 to 65535"),
        (["hta", "run", "idle", "--top", "0"], "--top 0: give a whole number, 1 or more"),
    ],
)
def test_a_bad_value_is_one_line_that_says_what_to_give(words, why, capsys):
    assert said(capsys, *words).startswith(f"tracer {words[0]}: {why}")


def test_a_mistyped_value_is_told_which_was_meant(capsys):
    assert "; did you mean bucket?" in said(capsys, "report", "run", "--by", "buckets")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_error_prints_the_usage(command, capsys):
    assert "usage" not in said(capsys, command, "--no-such-option")
