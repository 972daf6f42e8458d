"""A report computes what is shown: no rows for one screen, and no more than twice as much of twice as many ranks."""

import copy
import pickle
import sys

import msgspec
import pytest

from analyzers.lazy_fields import LazyStruct, evaluated, lazy, replaced
from analyzers.reporting.build import report
from analyzers.reporting.document import Report, from_json, to_json
from tests.support.drawing import meet
from tests.support.samples import REPORTED, summarized
from tracer.views.sections import first_screen_text

# What is a row for each rank, step, collective, layer or kernel, and nothing of the screen.
ROWS = {
    *("windows", "collectives", "unmatched", "buckets", "layers", "kernels", "operators", "timeline", "idle"),
    *("groups", "pipeline", "regions", "charges"),
}
TABLES = {"windows", "copies", "buckets", "layers", "layout", "groups", "charges"}


class Drawn(LazyStruct, frozen=True):
    """A document of two fields."""

    words: str
    rows: list[int] = msgspec.field(default_factory=list)


def open_fields(document: LazyStruct) -> set[str]:
    """The fields that nobody has asked for."""
    return set(document.__dict__)


@pytest.mark.parametrize("path", REPORTED)
def test_the_first_screen_needs_no_rows(path):
    found = report(summarized(path))
    assert first_screen_text(found)
    assert open_fields(found) >= ROWS - ({"layers"} if "dp4" in path.name else set())
    assert open_fields(found.summary) == TABLES


def test_a_report_is_whole_as_json():
    found = report(meet("..aa", "..aa"))
    assert from_json(to_json(found)) == found
    assert not open_fields(found) | open_fields(found.summary)


def test_a_field_is_computed_once_and_only_if_asked_for():
    calls = []
    drawn = Drawn("three", lazy(lambda: calls.append(1) or [1, 2, 3]))
    other = replaced(drawn, words="four")
    assert not calls
    assert drawn.rows is drawn.rows
    assert calls == [1]
    assert (other.words, other.rows) == ("four", [1, 2, 3])


def test_what_is_not_computed_is_not_written():
    with pytest.raises(AttributeError, match="rows"):
        msgspec.json.encode(Drawn("three", lazy(lambda: [1])))
    assert msgspec.json.encode(evaluated(Drawn("three", lazy(lambda: [1])))) == b'{"words":"three","rows":[1]}'


def test_rich_prints_what_it_printed_of_a_struct():
    drawn = Drawn("three", lazy(lambda: [1, 2, 3]))
    assert list(drawn.__rich_repr__()) == [("words", "three"), ("rows", [1, 2, 3])]


@pytest.mark.parametrize("copied", [copy.copy, lambda document: pickle.loads(pickle.dumps(document)), replaced])
def test_a_copy_is_the_same(copied):
    assert copied(Drawn("one", lazy(lambda: [1]))) == Drawn("one", [1])


def test_a_field_that_is_not_there_is_an_error():
    with pytest.raises(AttributeError, match="words_of"):
        _ = Drawn("one").words_of


def calls_of(ranks: int, *, causes: bool = True) -> int:
    """How many functions are called for the first screen of so many ranks that meet in four collectives."""
    run = meet(*(f"a{'.' * (rank % 3)}a..bbb..a.aa.." for rank in range(ranks)), causes=causes)
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        first_screen_text(report(run))
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.slow
def test_twice_as_many_ranks_take_at_most_twice_as_many_calls():
    calls_of(2)  # what is imported when it is first needed
    few, more, many = (calls_of(ranks) for ranks in (16, 32, 64))
    assert many - more <= 2.2 * (more - few)


@pytest.mark.slow
@pytest.mark.parametrize(("causes", "most"), [(False, 1500), (True, 2300)], ids=["without a graph", "with it"])
def test_a_rank_more_takes_few_calls(causes, most):
    calls_of(2, causes=causes)
    assert (calls_of(64, causes=causes) - calls_of(32, causes=causes)) / 32 < most


def test_reports_have_a_line_in_a_prompt_without_rows():
    found = report(meet("..aa", "..aa"))
    assert repr(found).startswith("Report(drawn)")
    assert isinstance(found, Report) and open_fields(found) >= ROWS
