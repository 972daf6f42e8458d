"""Python outside of operators by function: drawn, by brute force; and all other figures, which samples leave alone."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.rank.idle.python_functions import SHORTEST_CALL_NS, functions_of, main_function
from analyzers.rank.summary import summarize
from analyzers.reporting import report, to_json
from analyzers.trace.events import Samples
from tests.support.idle_told import causes, drawn, us
from tests.support.samples import SAMPLES, reported
from tests.support.stack_samples import copied_with_samples, sample
from tests.support.tiers import cases
from tests.support.training import ENGINE, host, kernel, ranged, step, told, traced

# Idle from 10 to 1110, and the host in Python from 10 to 120, 200 to 600, 700 to 1105.
ROWS = [
    step(3, 0, 2000),
    *kernel("first", 1, 2, 8),
    host("aten::add", 120, 80),
    host("aten::mul", 600, 100),
    *kernel("second", 1105, 1110, 5),
]


def in_python(trace):
    """When and where the host was in Python, in microseconds."""
    base = trace.events.start_ns.min()
    stretches = [stretch for stretch in drawn(trace) if stretch[2] == "python"]
    return [((start - base) // 1000, (end - base) // 1000, name) for start, end, _, name, _ in stretches]


def test_a_stretch_is_its_samples_and_one_without_is_nobodys(tmp_path):
    rows = [*ROWS, sample("load", 300), sample("log", 400), sample("log", 500)]
    assert in_python(traced(tmp_path, *rows)) == [
        (10, 120, None), (200, 350, "load"), (350, 600, "log"), (700, 1105, None)
    ]  # fmt: skip


def test_what_waited_for_an_operator_tells_of_its_end_alone(tmp_path):
    rows = [*ROWS, sample("train", 201, 30), sample("log", 400), sample("train", 703, 90)]
    assert in_python(traced(tmp_path, *rows)) == [
        (10, 120, None), (200, 201, "train"), (201, 600, "log"), (700, 703, "train"), (703, 1105, None)
    ]  # fmt: skip


def test_a_long_call_is_the_functions_from_when_it_was_asked_for(tmp_path):
    """What sorts for 150 us answers at its end: all until then is its own, and what follows is not."""
    rows = [*ROWS, sample("load", 250), sample("sort", 450, 150), sample("log", 550)]
    assert in_python(traced(tmp_path, *rows))[1:4] == [(200, 275, "load"), (275, 450, "sort"), (450, 600, "log")]


def test_functions_stand_before_ranges_and_behind_all_else(tmp_path):
    rows = [*ROWS, ranged("my range", 700, 400), sample("load", 300), sample("other", 300, tid=ENGINE)]
    rows += [host("gc of generation 0", 400, 50, category="gc"), sample("load", 150), sample("log", 1000)]
    assert in_python(traced(tmp_path, *rows)) == [
        (10, 120, None), (200, 400, "load"), (450, 600, None), (700, 1105, "log")
    ]  # fmt: skip
    assert causes(traced(tmp_path, *rows)) == us(
        {"operator": 180, "gc": 50, "python": 110 + 350 + 405, "launch_latency": 5}
    )


def test_lines_of_idle_time_name_the_function(tmp_path):
    document = told(tmp_path, [*ROWS, sample("log (train.py:7)", 300), sample("log (train.py:7)", 800)])
    named = {(line.phase, line.name): line.ns for line in document.idle.lines if line.cause == "python"}
    assert named == {
        ("between_steps", None): 110_000,
        ("forward", "log (train.py:7)"): 400_000,
        ("between_steps", "log (train.py:7)"): 405_000,
    }


def brute_force(start, end, samples):
    """Each nanosecond's function: that of the nearest sample of the stretch, in the words of `functions_of`."""
    found = {}
    for a, b in zip(start, end, strict=True):
        inside = [each for each in samples if a <= each[3] < b]
        for at in range(a, b):
            for place, (name, _, since, noted) in enumerate(inside):
                follows = place + 1 < len(inside)
                until = b
                if since < a or (follows and noted - since >= SHORTEST_CALL_NS):
                    until = noted
                elif follows:
                    until = (noted + max(inside[place + 1][2], noted)) // 2
                if at < until:
                    found[at] = name
                    break
    return found


@settings(max_examples=cases(300))
@given(st.data())
def test_by_brute_force(data):
    """A nanosecond stands for ten microseconds, so that calls of C are long and short."""
    edges = sorted(data.draw(st.sets(st.integers(0, 60), min_size=2, max_size=8)))
    start, end = edges[: len(edges) // 2 * 2 : 2], edges[1::2]
    noted = sorted(data.draw(st.sets(st.integers(0, 60), max_size=8)))
    samples = [(k, 0, at - data.draw(st.integers(0, 30)), at) for k, at in enumerate(noted)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("analyzers.rank.idle.python_functions.SHORTEST_CALL_NS", 8)
        patched.setattr("tests.rank.test_python_functions.SHORTEST_CALL_NS", 8)
        columns = [np.array(column, dtype=np.int64) for column in zip(*samples, strict=True)] or [np.zeros(0, int)] * 4
        parts = functions_of(np.array(start), np.array(end), Samples(*columns))
        spans = zip(parts.start_ns.tolist(), parts.end_ns.tolist(), parts.label.tolist(), strict=True)
        told = [(at, label) for begin, until, label in spans for at in range(begin, until)]
        assert sorted(dict(told)) == [at for at, _ in told]
        assert dict(told) == brute_force(start, end, samples)


def figures(found):
    """A report's figures, without what says where the host was in Python, which the profiler may have held up there."""
    document = json.loads(to_json(found))
    for lines in (document["idle"]["lines"], document["charges"]):
        lines[:] = [line for line in lines if line["cause"] not in ("python", "profiler")]
    for advice in document["summary"]["advice"]:
        del advice["because"]
    return document


@pytest.mark.parametrize("name", ["resnet18-ddp1", pytest.param("resnet18-ddp2-sick", marks=pytest.mark.slow)])
def test_no_other_figure_knows_of_samples(name, tmp_path):
    sampled = copied_with_samples(SAMPLES / name, tmp_path / name)
    plain, named = reported(SAMPLES / name), report(summarize(sampled, causes=True))
    assert figures(plain) == figures(named)
    for of in (plain, named):
        assert sum(line.ns for line in of.idle.lines if line.cause == "python") == sum(
            window.idle.python_ns for window in of.windows
        )
    assert any("function 3" in (line.name or "") for line in named.idle.lines)


def test_the_function_that_has_most_is_named_and_no_range_is():
    most, some, between = ("f (a.py:1)", 60), ("g (b/c.py:12)", 40), ("my range (forward)", 60)
    assert main_function([most, some]) == "f (a.py:1)"
    assert main_function([some, most, ("", 20)]) == "f (a.py:1)"
    assert main_function([most, some, ("", 21)]) is None
    assert main_function([between, some]) is None
    assert main_function([("f (a.py:1)", 0)]) is None
    assert main_function([]) is None
