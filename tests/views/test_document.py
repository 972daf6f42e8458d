"""Blocks of a document on a terminal, in markdown, and as a page lays them out."""

import pytest

from tracer.views.document import Caution, Column, Drawing, Heading, Paragraph, Span, Table, TitledTable, numbers, texts
from tracer.views.format import figure
from tracer.views.html.report_page import titled
from tracer.views.markdown import sections_markdown
from tracer.views.terminal import WIDE, rendered

EVIL = "\x1b[31m\u202e<script>alert(1)</script>|`*_\\"
TABLE = Table([*texts("name"), *numbers("time\nms"), Column("utili-\nzation", wide=True)], [[["a", "1.0", "5 %"]]])
BARS = Drawing([[Span("rank 0 "), Span("##", "#0072B2"), Span("..", "#999999")], [Span("rank 1 ##..   ")]])


def test_an_empty_line_stands_before_headings_and_before_drawings_without_one():
    section = [Heading("one"), TABLE, BARS, Heading("two"), BARS, Paragraph("legend")]
    lines = rendered([section, [Paragraph("next")]], 80).splitlines()
    assert [place for place, line in enumerate(lines) if not line] == [4, 7, 12, 14]
    assert lines[8:10] == ["two", "rank 0 ##.."]


def test_a_section_of_nothing_leaves_no_line():
    assert rendered([[], [Paragraph("words")], []]) == "words\n\n"


def test_wide_columns_are_left_out_where_there_is_no_room():
    assert "zation" not in rendered([[TABLE]], WIDE - 1)
    assert rendered([[TABLE]], WIDE) == rendered([[TABLE]])
    assert "utilization" in sections_markdown([[TABLE]])


def test_a_table_wider_than_the_terminal_goes_on_below_under_its_first_columns():
    table = Table(
        [*texts("kind"), *numbers("a", "b", "c", "d")], [[["one", *["1" * 12] * 4], ["two", *["2" * 12] * 4]]]
    )
    lines = rendered([[table]], 59).splitlines()
    assert max(map(len, lines)) <= 59
    assert [line.split()[0] for line in lines if line] == ["kind", "one", "two"] * 2
    assert [line.split()[1:] for line in lines if line.startswith("kind")] == [["a", "b", "c"], ["d"]]
    assert rendered([[table]], 60) == rendered([[table]])


def test_words_wrap_before_a_table_is_folded():
    table = Table([*texts("kernel"), *numbers("ms")], [[["void " * 20, "1.0"]]])
    lines = rendered([[table]], 40).splitlines()
    assert lines[0].split() == ["kernel", "ms"]
    assert lines[1].endswith("1.0")
    assert max(map(len, lines)) <= 40
    assert " ".join(lines[1:]).split().count("void") == 20


def test_prose_wraps_with_its_indent_and_drawings_do_not():
    long = "word " * 20
    wrapped = rendered([[Paragraph(long, is_indented=True), Drawing([[Span(long)]])]], 40).splitlines()
    assert all(line.startswith("    word") and len(line) <= 40 for line in wrapped[:3])
    assert long.rstrip() in wrapped


def test_groups_are_parted_where_the_table_says_so():
    groups = [[["a", "1", ""]], [["b", "2", ""]]]
    lines = [rendered([[Table(TABLE.columns, groups, is_spaced=spaced)]]).splitlines() for spaced in (False, True)]
    assert [len(each) for each in lines] == [5, 6]
    assert Table(TABLE.columns, groups).rows == [groups[0][0], groups[1][0]]


def test_markdown_of_each_kind_of_block():
    words = sections_markdown([[Heading("a_b"), Caution("care"), TABLE], [BARS]])
    assert words.split("\n\n") == [
        "### a\\_b",
        "warning: care",
        "| name | time ms | utilization |\n| :-- | --: | --: |\n| a | 1.0 | 5 % |",
        "    rank 0 ##..\n    rank 1 ##..\n",
    ]


def test_no_word_steers_a_terminal():
    evil = Table(texts(EVIL), [[[EVIL]]])
    section = [Heading(EVIL), Paragraph(EVIL), Caution(EVIL), evil, Drawing([[Span(EVIL)]])]
    for words in (rendered([section]), rendered([section], 30), sections_markdown([section])):
        assert not {"\x1b", "\u202e"} & set(words)


@pytest.mark.parametrize("word", ["@team", "http://x.y", "HTTPS://x.y", "www.x.y", "WWW.x.y", "me@x.y"])
def test_no_word_becomes_a_mention_or_a_link_in_markdown(word):
    shown = sections_markdown([[Paragraph(word)]])
    assert "&#8203;" in shown and word not in shown
    assert shown.replace("&#8203;", "") == f"{word}\n"


def test_a_page_has_prose_below_the_table_of_its_heading():
    found = titled([Paragraph("lead"), Heading("one"), Paragraph("source"), TABLE, BARS, Heading("two")])
    nothing = Table((), ())
    assert found == [
        TitledTable("", "", nothing, ["lead"]),
        TitledTable("", "one", TABLE, ["source"]),
        TitledTable("", "two", nothing),
    ]


def test_a_figure_is_written_in_the_unit_of_its_name_and_in_none_without_one():
    named = ("dur_ns", "bytes", "busbw_gbps", "share_of_exposed", "weak_efficiency")
    assert [figure(name, 2) for name in named] == ["0.000", "2 B", "2.00", "200.0 %", "200.0 %"]
    with pytest.raises(ValueError, match="launches: a figure without a unit"):
        figure("launches", 2)
