"""Conditions: their grammar, what null does to them, the names there are, and how commands end by them."""

import json
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analyzers.comparison.condition_names import FIGURES, LISTS, RunFigures, names
from analyzers.comparison.conditions import Condition, Figure, Names, parse
from analyzers.comparison.runs import compare
from analyzers.errors import BadExpression
from analyzers.reporting.document import to_json
from analyzers.units import ms, percent
from tests.support.comparing import stepping
from tests.support.docs import README
from tests.support.samples import REPORTED, SAMPLES, reported
from tests.support.sweeping import entry, write_cell, write_sweep
from tests.support.tiers import cases
from tests.support.typical_steps import typical_of_sample
from tracer.cli import main

DDP2, DDP4, DP4 = (str(SAMPLES / f"resnet18-{name}") for name in ("ddp2", "ddp4", "dp4"))
OF_TWO = Names(["a_ns", "b", "c"], {"windows": ["d_ns"]}, ["a_ns"], True)
VALUES: dict[str, float | None] = {"a_ns": 12.0, "b": 3.0, "c": None, "baseline(a_ns)": 10.0, "max(windows.d_ns)": 7.0}
VALUES |= {"changed(a_ns)": True, "baseline(b)": None, "baseline(max(windows.d_ns))": 8.0}


def value(figure: Figure) -> float | None:
    return VALUES[str(figure)]


def holds(text: str) -> bool | None:
    return parse(text, OF_TWO).holds(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_ns > 11", True),
        ("a_ns>12", False),
        ("a_ns >= 12 and b < 3.5", True),
        ("a_ns > 1.1*baseline", True),
        ("a_ns > 1.3 * baseline", False),
        ("baseline * 1.1 < a_ns", True),
        ("a_ns > 1.05*baseline and changed(a_ns)", True),
        ("not changed(a_ns) or b == 3", True),
        ("not a_ns > 11", False),
        ("max(windows.d_ns) < baseline", True),
        ("a_ns - b > baseline(a_ns) - b", True),
        ("2 + 3 * 4 == 14", True),
        ("(2 + 3) * 4 == 20", True),
        ("10 - 4 - 3 == 3", True),
        ("-a_ns < -(b + 1)", True),
        ("((a_ns)) > ((11))", True),
        ("(a_ns > 11) and (b != 4 or b > 5)", True),
        ("a_ns < 1 or a_ns > 2 and b > 100", False),
        ("b > 250%", True),
        ("a_ns > 0.011us", True),
        ("1e1 < a_ns", True),
        (".5 < b", True),
        ("c > 1", None),
        ("b > baseline", None),
        ("a_ns / (b - 3) > 1", None),
        ("c > 1 or b == 3", True),
        ("c > 1 and b == 4", False),
        ("c > 1 or b == 4", None),
        ("not c > 1", None),
        ("c == c", None),
    ],
)
def test_what_conditions_mean(text, expected):
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("a_ns", "is a number, not a condition"),
        ("a_ns >", "expected a figure or a number, found the end"),
        ("a_ns > > 1", "expected a figure, found '>'"),
        ("a_ns > 1 2", "expected `and`, `or`, or the end, found '2'"),
        ("1 < a_ns < 3", "comparisons cannot be chained"),
        ("a_nz > 1", "did you mean a_ns?"),
        ("windows > 1", "'windows' is not a figure"),
        ("max(window.d_ns) > 1", "did you mean windows?"),
        ("max(windows.e_ns) > 1", "did you mean d_ns?"),
        ("max(a_ns) > 1", "is not a list"),
        ("a_ns > b + baseline - c", "`baseline` of which figure?"),
        ("2 > baseline", "`baseline` of which figure?"),
        ("changed(b)", "is not a figure whose change is judged"),
        ("(a_ns > 1", "expected `)`"),
        ("a_ns > 1)", "expected `and`, `or`, or the end"),
        ("not a_ns", "a condition is needed"),
        ("a_ns and b > 1", "a condition is needed"),
        ("(a_ns > 1) + 1 > 2", "a number is needed"),
        ("changed(a_ns) > 0", "a number is needed"),
        ("-(a_ns > 1) > 0", "a number is needed"),
        ("__import__('os').system('x')", "means nothing here"),
        ("__import__(os)", "is not a figure"),
        ("a_ns > 'x'", "means nothing here"),
        ("a_ns > [1]", "means nothing here"),
        ("a_ns ** 2 > 1", "expected a figure, found '*'"),
        ("a_ns.real > 1", "expected"),
        ("a_ns > .", "expected a figure or a number"),
        ("a_ns > 1e999", "too large"),
        ("(" * 60 + "1" + ")" * 60 + "> 0", "nested more than"),
        ("- " * 60 + "1 > 0", "nested more than"),
        ("not " * 60 + "1 > 0", "nested more than"),
        ("1 + " * 300 + "1 > 0", "at most 200 words"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(text, said):
    with pytest.raises(BadExpression) as error:
        parse(text, OF_TWO)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_report_has_no_baseline():
    for text in ("a_ns > baseline", "a_ns > baseline(a_ns)", "changed(a_ns)"):
        with pytest.raises(BadExpression, match="tracer compare A B"):
            parse(text, Names(["a_ns"], {}))


@settings(max_examples=cases(300), deadline=None)
@given(st.text(alphabet="a_nsbc 0123456789.<>=!+-*/()%eandortmxwi\n'\"[]{}\0é", max_size=40))
@example("é > 1")
@example("a_ns > 1\n")
def test_no_text_ends_in_anything_but_a_condition_or_its_own_error(text):
    try:
        found = parse(text, OF_TWO)
    except BadExpression:
        return
    assert found.holds(value) in (True, False, None)


NUMBERS = st.integers(0, 20).map(str) | st.sampled_from(["a_ns", "b"])
SUMS = st.recursive(
    NUMBERS,
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: f"({' '.join(parts)})"),
    max_leaves=8,
)
COMPARISONS = st.tuples(SUMS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), SUMS).map(" ".join)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join) | inner.map("not ({})".format),
    max_leaves=5,
)


@settings(max_examples=cases(200), deadline=None)
@given(CONDITIONS)
def test_conditions_without_null_mean_what_they_mean_in_python(text):
    assert holds(text) is eval(text, {"a_ns": 12.0, "b": 3.0})


def test_and_and_or_are_kleenes():
    words = {True: "b == 3", False: "b == 4", None: "c == 1"}
    for left, right in product(words, repeat=2):
        both, either = holds(f"{words[left]} and {words[right]}"), holds(f"{words[left]} or {words[right]}")
        known = {left, right}
        assert both is (False if False in known else None if None in known else True)
        assert either is (True if True in known else None if None in known else False)


@cache
def document_of(path: Path) -> Any:
    """The JSON of a run's report, made once."""
    return json.loads(to_json(reported(path)))


def at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if document is not None else None
    return document


@pytest.mark.parametrize("path", REPORTED)
def test_each_figure_is_what_stands_in_the_json(path):
    document, figures = document_of(path), RunFigures([reported(path)])
    for name, (_, place) in FIGURES.items():
        if " " not in place:
            assert figures(Figure(name)) == at(document, place), name


@pytest.mark.parametrize("path", REPORTED)
def test_columns_are_those_of_the_json_and_nulls_are_left_out(path):
    document, figures = document_of(path), RunFigures([reported(path)])
    known = names(of_comparison=False)
    for rows, columns in known.columns.items():
        for column in columns:
            values = [row[column] for row in document[rows] if row[column] is not None]
            assert all(isinstance(value, int | float) for value in values)
            assert figures(Figure(column, rows, "max")) == max(values, default=None)
            assert figures(Figure(column, rows, "count")) == len(values)
            whole = len(values) == len(document[rows]) and values
            assert figures(Figure(column, rows, "sum")) == (sum(values) if whole else None)


def test_every_figure_and_list_is_documented():
    for name in (*FIGURES, *LISTS):
        assert f"`{name}`" in README, name


def test_what_changed_can_be_asked():
    a, b = (stepping([[base + 0.01 * step] for step in range(6)]) for base in (10.0, 12.0))
    look_up = RunFigures([b], [a], compare(a, b))

    def judged(text: str) -> bool | None:
        gate: Condition = parse(text, names(of_comparison=True))
        return gate.holds(look_up)

    assert judged("changed(step_ns)") is True
    assert judged("changed(compute_ns)") is False
    assert judged("step_ns > 1.1*baseline and changed(step_ns)") is True
    assert judged("changed(unprofiled_step_ns)") is None
    assert judged("unprofiled_step_ns > baseline") is None


def ends(capsys, *arguments: str) -> tuple[int, list[str]]:
    code = main(arguments)
    return code, capsys.readouterr().err.splitlines()


@pytest.mark.usefixtures("remembered")
def test_a_condition_that_holds_ends_with_3_and_a_line(capsys):
    code, lines = ends(capsys, "report", DDP4, "--fail-on", "exposed_share>0.05", "--fail-on", "ranks < 4")
    windows = typical_of_sample(Path(DDP4))
    share = sum(row.exposed_comm_ns for row in windows) / sum(row.span_ns for row in windows)
    assert code == 3
    assert lines == [
        f"tracer: --fail-on 'exposed_share>0.05' holds: exposed_share is {percent(share)} (resnet18-ddp4)",
    ]


def test_conditions_that_do_not_hold_end_with_0_and_the_report_as_ever(capsys):
    assert main(["report", DDP4, "--json"]) == 0
    plain = capsys.readouterr().out
    assert main(["report", DDP4, "--json", "--fail-on", "exposed_share > 0.5"]) == 0
    assert capsys.readouterr() == (plain, "")


@pytest.mark.usefixtures("remembered")
def test_null_is_no_pass(capsys):
    code, lines = ends(capsys, "report", DP4, "--fail-on", "nosync_step_ns > 1s")
    assert code == 1
    assert lines == ["tracer: --fail-on 'nosync_step_ns > 1s' cannot be judged: nosync_step_ns is null (resnet18-dp4)"]


@pytest.mark.usefixtures("remembered")
def test_a_condition_that_holds_counts_more_than_one_that_cannot_be_judged(capsys):
    conditions = ["--fail-on", "idle_share > 0.1", "--fail-on", "ranks > 0 and nosync_step_ns > 1"]
    code, lines = ends(capsys, "report", DP4, *conditions)
    assert (code, len(lines)) == (3, 2)


def test_a_bad_condition_is_a_usage_error_before_anything_is_read(capsys, tmp_path):
    for command in (["report", str(tmp_path)], ["compare", str(tmp_path), str(tmp_path)]):
        code, (line,) = ends(capsys, *command, "--fail-on", "exposd_share > 0.1")
        assert code == 2
        assert "did you mean exposed_share" in line


def exposed_ns(path: Path) -> float:
    """The median over typical steps of the median over ranks."""
    steps: dict[int, list[int]] = {}
    for row in typical_of_sample(path):
        steps.setdefault(row.step, []).append(row.exposed_comm_ns)
    return median(map(median, steps.values()))


@pytest.mark.usefixtures("remembered")
def test_a_comparison_is_judged_against_its_baseline(capsys):
    code, lines = ends(capsys, "compare", DDP2, DDP4, "--fail-on", "exposed_comm_ns > 1.005*baseline")
    assert code == 3
    measured, baseline = (ms(exposed_ns(Path(run))) for run in (DDP4, DDP2))
    assert lines == [
        f"tracer: --fail-on 'exposed_comm_ns > 1.005*baseline' holds: exposed_comm_ns is {measured}, "
        f"baseline(exposed_comm_ns) is {baseline} (resnet18-ddp4 against resnet18-ddp2)"
    ]
    assert ends(capsys, "compare", DDP2, DDP4, "--fail-on", "step_ns > 1.5*baseline") == (0, [])
    code, (line,) = ends(capsys, "compare", DDP2, DDP4, "--fail-on", "changed(step_ns)")
    assert (code, "too few steps or launches to tell" in line) == (1, True)


def sweep(folder: Path, two_ms: float) -> str:
    cells = [
        write_cell(folder, "single", 1, 8, [10 + 0.01 * k for k in range(6)]),
        write_cell(folder, "ddp", 2, 8, [two_ms + 0.01 * k for k in range(6)]),
        entry("ddp", 4, 8, "failed"),
    ]
    return str(write_sweep(folder, cells))


def test_a_condition_on_sweeps_is_judged_in_each_cell(capsys, tmp_path):
    a, b = sweep(tmp_path / "a", 12.0), sweep(tmp_path / "b", 15.0)
    code, (line,) = ends(capsys, "compare", a, b, "--fail-on", "weak_efficiency < 0.9*baseline and changed(step_ns)")
    assert code == 3
    assert "weak_efficiency is 66.7 %, baseline(weak_efficiency) is 83.4 %, changed(step_ns) is true" in line
    assert "(ddp2 at batch 8)" in line
    assert ends(capsys, "compare", a, a, "--fail-on", "step_ns > 1.01*baseline") == (0, [])
    code, (line,) = ends(capsys, "compare", a, b, "--fail-on", "strong_efficiency < 0.5")
    assert (code, "strong_efficiency is null" in line) == (1, True)


BEYOND = ["*".join(["step_ns"] * 80) + " > 1", "1e308*1e308 - 1e308*1e308 > 0", "not 1e308*1e308 > 0"]


@pytest.mark.parametrize("condition", BEYOND)
def test_what_is_beyond_any_number_is_not_known(condition):
    assert parse(condition, Names(["step_ns"], {})).holds(lambda figure: 10**9) is None
