"""Where the words of `tracer record` end and those of a SCRIPT begin."""

import pytest

from tracer.cli import parse


@pytest.mark.parametrize(
    ("own", "script"),
    [
        ("", None),
        ("--gpus 4", None),
        ("", "train.py"),
        ("--gpus 4", "train.py --lr 0.1"),
        ("--gpus=4 --force", "train.py"),
        ("--gpus 4", "train.py --gpus 2 --force -o here"),
        ("--gpus 4", "-m package.train -m more"),
        ("--wait 0", "torchrun --nproc-per-node 2 train.py -- --x"),
        ("-o out", "./train.sh"),
        ("-oout", "train.py"),
        ("--output=out", "train.py"),
        ("", "train.py -- --help"),
        ("", "train.py -h"),
    ],
)
def test_a_script_begins_at_the_first_word_that_is_no_option_of_ours(own, script):
    options = parse(["record", *own.split(), *(script or "").split()])
    assert options.script == (None if script is None else script.split())
    assert options.gpus == (4 if "--gpus" in own else None)
    assert options.force is ("--force" in own)
    assert str(options.output) == ("out" if "out" in own else "None")


@pytest.mark.parametrize("script", ["train.py --lr 0.1", "--odd name", "-m package", "", "-- train.py"])
def test_behind_dashes_every_word_is_the_script_s(script):
    assert parse(["record", "--gpus", "4", "--", *script.split()]).script == script.split()


@pytest.mark.parametrize("words", ["--gpus", "--gpus -- train.py", "--gpus --force train.py", "--gpus train.py", "-mx"])
def test_an_option_without_its_value_is_refused_before_a_script_is_looked_for(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["record", *words.split()])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_other_commands_run_no_script(capsys):
    with pytest.raises(SystemExit):
        parse(["report", "run", "--", "train.py"])
    assert "report runs no SCRIPT" in capsys.readouterr().err
