"""Notices: their codes, their words, their JSON; and that no code reads prose."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator

import msgspec
import pytest

from analyzers.errors import UnreadableDocument
from analyzers.json_documents import compact, decoded, encoded
from analyzers.notices import Code, Notice, Notices
from tests.support.parsed import trees

PLAIN = Notice(Code.CLOCKS_DIFFER, "clocks differ")
MENDED = Notice(Code.STEPS_TOO_FEW, "3 steps", "record more")
# The words of other processes, some of which have nothing but words: all that there is to tell them apart by.
HEARD = "tracer.recording.rank_process"
# Names that hold notices, or words that are made of them.
PROSE = re.compile(r"warnings?|notices?|notes?|why|doubts?|reasons?|idle_from|measured_from")


class Letter(msgspec.Struct, frozen=True):
    """A document with notices."""

    warnings: list[Notice]
    why: Notices | None
    schema: str = "letter/1"


def sources() -> dict[str, ast.Module]:
    """All modules but the one that defines the codes."""
    return {name: tree for name, tree in trees().items() if name != "analyzers.notices"}


def test_codes_are_snake_case_and_each_stands_for_one_meaning():
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code.value) for code in Code)
    assert all(code.value == name.lower() for name, code in Code.__members__.items())
    assert f"{Code.SAVED} {Code.SAVED!s}" == "saved saved"


def test_every_code_says_when_it_is_given():
    meanings = [code.facts.when for code in Code]
    assert all(meanings) and len(set(meanings)) == len(meanings)


def test_every_code_is_given_somewhere_and_none_is_made_up():
    named = {node.attr for tree in sources().values() for node in ast.walk(tree) if is_code(node)}
    assert named | {"SAVED"} == set(Code.__members__)


def is_code(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Code"


@pytest.mark.parametrize("notice", [PLAIN, MENDED])
def test_a_notice_is_a_value_that_travels(notice):
    assert pickle.loads(pickle.dumps(notice)) == notice
    assert len({notice, Notice(notice.code, notice.text, notice.remedy)}) == 1
    with pytest.raises(AttributeError):
        notice.text = "other"


def test_a_sentence_is_the_text_and_behind_it_the_remedy():
    assert (str(PLAIN), f"{MENDED}") == ("clocks differ", "3 steps; record more")
    assert str(MENDED.within("A: ")) == "A: 3 steps; record more"
    assert MENDED.within("A: ").code == MENDED.code
    assert str(Notices([PLAIN, MENDED])) == "clocks differ; 3 steps; record more"


def test_a_document_holds_codes_texts_and_remedies_and_one_sentence_for_several():
    text = encoded(Letter([PLAIN, MENDED], Notices([PLAIN, MENDED])))
    assert msgspec.json.decode(text)["warnings"] == [
        {"code": "clocks_differ", "text": "clocks differ", "remedy": None},
        {"code": "steps_too_few", "text": "3 steps", "remedy": "record more"},
    ]
    back = decoded(text, Letter, "letter/1", "write another")
    assert back.warnings == [PLAIN, MENDED]
    assert [*(back.why or ())] == [Notice(Code.SAVED, "clocks differ; 3 steps; record more")]
    assert encoded(back) == text
    assert decoded(compact(Letter([], None)), Letter, "letter/1", "") == Letter([], None)


def test_a_code_of_a_newer_version_is_read_as_saved():
    text = encoded(Letter([PLAIN], None)).replace("clocks_differ", "moon_is_full")
    assert decoded(text, Letter, "letter/1", "").warnings == [Notice(Code.SAVED, "clocks differ")]


def test_what_is_no_text_is_no_notice_and_what_no_document_knows_is_refused():
    with pytest.raises(UnreadableDocument, match="warnings"):
        decoded('{"schema": "letter/1", "warnings": [3], "why": null}', Letter, "letter/1", "write another")
    with pytest.raises(NotImplementedError):
        encoded(object())


def readings(tree: ast.AST) -> Iterator[ast.AST]:
    """Where code searches words that are meant for people: `"x" in warning`, `why.split`, `re.sub(..., warning)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            in_words = is_prose(node.comparators[0]) and not is_plural(node.comparators[0])
            if in_words or (isinstance(node.left, ast.Constant) and is_prose(node.comparators[0])):
                yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            searched = [node.func.value] if node.func.attr in SEARCHES else []
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
                searched = [*node.args]
            if any(map(is_prose, searched)):
                yield node


SEARCHES = {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "find", "index", "replace"}


def is_prose(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
        return any(map(is_prose, node.args))
    if isinstance(node, ast.Subscript):
        return is_prose(node.value)
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return PROSE.fullmatch(name) is not None


def is_plural(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.endswith("s")


@pytest.mark.parametrize(
    "code",
    [
        '"null" in warning',
        'any("null" in str(warning) for warning in run.warnings)',
        'found.why.split("; ")',
        're.sub("[0-9]", "0", warning)',
        'baseline.measured_from.endswith("control")',
        'warning.startswith("run.json")',
        'sum("outlier" in why for why in words)',
    ],
)
def test_a_search_in_prose_is_found(code):
    assert [*readings(ast.parse(code))]


def test_no_code_reads_what_is_meant_for_people():
    found = [f"{name}:{node.lineno}" for name, tree in sources().items() for node in readings(tree) if name != HEARD]
    assert found == []
