"""What runs around an instant of a host thread, against brute force on random nested spans."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays import UNKNOWN
from analyzers.rank.host.host_threads import Host, Places, Spans, innermost
from tests.support.training import MAIN, host, kernel, ranged, traced

Span = tuple[int, int, int]  # thread, start, end


@st.composite
def nested(draw: st.DrawFn) -> list[Span]:
    """Spans that nest within each thread, in any order; some are empty, some touch, some share their ends."""
    found: list[Span] = []

    def fill(thread: int, low: int, high: int, depth: int) -> None:
        at = low
        while at < high and depth < 4:
            at += draw(st.integers(0, 3))
            end = at + draw(st.integers(0, 8))
            if end > high:
                return
            found.append((thread, at, end))
            if end > at:
                fill(thread, at, end, depth + 1)
            at = max(end, at + 1)

    for thread in (4, 7):
        fill(thread, 0, 24, 0)
    return draw(st.permutations(found))


places = st.lists(st.tuples(st.sampled_from([4, 5, 7, UNKNOWN]), st.integers(0, 26)), max_size=12)


def spans_of(rows: list[Span]) -> Spans:
    return Spans(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)


def places_of(pairs: list[tuple[int, int]]) -> Places:
    thread, instant = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Places(thread, np.where(thread == UNKNOWN, UNKNOWN, instant))


def holders(rows: list[Span], thread: int, instant: int) -> list[Span]:
    return [row for row in rows if row[0] == thread and row[1] <= instant < row[2]]


@given(nested(), places)
def test_around_is_the_shortest_that_holds_the_place(rows, pairs):
    for (thread, instant), index in zip(pairs, spans_of(rows).around(places_of(pairs)).tolist(), strict=True):
        held = holders(rows, thread, instant)
        assert (index >= 0) == bool(held)
        if held:
            assert rows[index] == min(held, key=lambda row: row[2] - row[1])


@given(nested(), places)
def test_outermost_is_the_longest_that_holds_the_place(rows, pairs):
    for (thread, instant), index in zip(pairs, spans_of(rows).outermost(places_of(pairs)).tolist(), strict=True):
        held = holders(rows, thread, instant)
        assert (index >= 0) == bool(held)
        if held:
            assert rows[index] == max(held, key=lambda row: row[2] - row[1])


@given(nested(), st.lists(st.integers(0, 26), max_size=12))
def test_innermost_gives_the_label_of_what_holds_the_instant(rows, instants):
    rows = [row for row in rows if row[0] == 4]
    found = innermost(*np.array(rows, dtype=np.int64).reshape(-1, 3).T[1:], np.array(instants), np.arange(len(rows)))
    for instant, label in zip(instants, found.tolist(), strict=True):
        held = holders(rows, 4, instant)
        assert (label >= 0) == bool(held)
        assert not held or rows[label][1:] == min(held, key=lambda row: row[2] - row[1])[1:]


def test_launches_are_joined_by_correlation_and_the_first_call_counts(tmp_path):
    late = host("cudaLaunchKernel", 30, 1, category="cuda_runtime", correlation=5000)
    trace = traced(tmp_path, ranged("outer", 0, 20), *kernel("gemm", 5, 10, 3), late, *kernel("lost", 40, 41, 1)[1:])
    found = Host(trace.events)
    rows = np.flatnonzero(trace.events.on_device)
    launches = found.launches(rows)
    assert launches[1] == UNKNOWN
    assert trace.events.start_ns[launches[0]] - trace.events.start_ns[0] == 5000
    assert found.inside(found.places(launches), "out").tolist() == [True, False]


def test_before_is_the_last_that_began_on_the_same_thread(tmp_path):
    trace = traced(tmp_path, host("a", 0, 2), host("b", 5, 20), host("c", 6, 1, tid=MAIN + 1), host("d", 10, 1))
    found = Host(trace.events)
    rows = trace.events.names
    of = {rows[code]: place for place, code in enumerate(trace.events.name.tolist())}
    calls, spans = np.array([of["d"], of["c"], of["a"]]), np.array([of["b"], of["a"]])
    assert found.before(calls, spans).tolist() == [of["b"], UNKNOWN, of["a"]]
