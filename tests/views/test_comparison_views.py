"""A comparison on a terminal, as a page and as JSON; and the command that makes it."""

import json
import re
import shlex
from functools import cache
from html import unescape

import pytest

from analyzers.comparison.condition_names import names
from analyzers.comparison.document import Comparison
from analyzers.comparison.runs import compare
from analyzers.comparison.step_alignment import aligned_steps
from analyzers.lazy_fields import replaced as replace
from analyzers.reporting.device_lanes import lanes
from analyzers.reporting.document import Report, to_json
from tests.support.commands import fails
from tests.support.comparing import controlled, stepping
from tests.support.docs import ROOT, commands
from tests.support.samples import SAMPLES, reported, summarized
from tests.support.sweeping import write_cell, write_sweep
from tracer.cli import main, parse
from tracer.commands.options.fail_on import parsed
from tracer.views import COMM, COMPUTE, COPY, IDLE
from tracer.views.html.comparison_page import comparison_html
from tracer.views.html.templates import POLICY
from tracer.views.sections.results.comparison import comparison_text, promise_words
from tracer.views.sections.results.comparison_tables import MOST_ROWS, comparison_tables, told_tables, untold_table

pytestmark = pytest.mark.usefixtures("remembered")

DDP2, DDP4 = str(SAMPLES / "resnet18-ddp2"), str(SAMPLES / "resnet18-ddp4")
EVIL = "<script>alert(1)</script> \x1b[31m\u202e"


@cache
def slower() -> Comparison:
    """A step that became 12 ms from 10, all of it waiting; layers do nothing."""
    a, b = (
        stepping(
            [[base + 0.01 * step] for step in range(6)],
            name,
            exposed_wait_ns=[[base - 9.5 + 0.01 * step] for step in range(6)],
        )
        for name, base in (("before", 10.0), ("after", 12.0))
    )
    return compare(a, b)


@cache
def of_samples() -> Comparison:
    return compare(reported(SAMPLES / "resnet18-ddp2"), reported(SAMPLES / "resnet18-ddp4"))


def row(shown: str, title: str, *first: str) -> list[str]:
    """The words of a line of a table."""
    below = shown[shown.index(title) :].splitlines()
    return next(words for line in below if tuple(words := re.split(r"\s{2,}", line))[: len(first)] == first)


def test_what_changed_comes_first():
    shown = comparison_text(slower(), 120, full=True)
    assert shown.startswith("A: before · B: after\n\nB's step is 20.0 % longer than A's: 12.03 ms instead of 10.03 ms")
    assert row(shown, "Changed by more", "step", "exposed waiting")[2:6] == ["0.525", "2.525", "+2.000", "+381.0 %"]
    assert row(shown, "Changed by more", "step", "step in the trace")[2:] == [
        *("10.025", "12.025", "+2.000", "+20.0 %", "6, 6", "0.002", "changed"),
    ]
    assert shown.index("Changed by more") < shown.index("The step, and what it is made of")
    assert "Marked as changed: p at most 5.0 %" in " ".join(shown.split())


PAIRS = [
    ("resnet18-ddp2", "resnet18-ddp4"),
    ("resnet18-ddp2-sick", "resnet18-ddp2-cured"),
    ("resnet18-dp4", "resnet18-ddp4"),
    ("resnet18-fsdp4", "resnet50-ddp4-bf16"),
    ("every-collective4", "resnet18-ddp1"),
]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_the_first_screen_is_one(a, b):
    found = compare(reported(SAMPLES / a), reported(SAMPLES / b))
    shown = comparison_text(found, typed=f"traces/{a} traces/{b}").splitlines()
    assert len(shown) <= 35
    assert max(map(len, shown)) <= 100
    assert shown[2].startswith(found.verdict[:60])
    assert [line.split()[:2] for line in shown[-2:]] == [["NEXT", "tracer"], ["tracer", "compare"]]


def test_the_first_screen_draws_differences_to_either_side():
    shown = comparison_text(slower())
    words = row(shown, "What a profiled step", "exposed waiting")
    assert words[1:] == ["0.525", "2.525", "+2.000", "|██████████", "changed"]


def test_what_only_one_run_has_is_named_with_its_figure():
    shown = comparison_text(of_samples(), 120, full=True)
    words = " ".join(shown.split())
    assert "Only in A: all_reduce of 2, 26.49 MB (busbw 234.9), all_reduce of 2, 9.462 MB (busbw 163.2)" in words
    assert row(shown, "Settings and versions that differ", "world_size") == ["world_size", "2", "4"]
    assert "Nothing.\nToo few steps to tell, though every step of one run lies beyond all of the other's: " in shown


def test_long_tables_are_short_on_a_terminal_and_whole_on_the_page():
    made = (comparison_tables(of_samples(), most) for most in (MOST_ROWS, None))
    short, whole = ({table.name: table for table in tables} for tables in made)
    assert len(short["layers"].table.rows) == MOST_ROWS
    left = len(whole["layers"].table.rows) - MOST_ROWS
    assert f"and {left} more figures that differ less" in short["layers"].notes[0]
    assert whole["layers"].notes == []


@pytest.mark.parametrize("made", [slower, of_samples], ids=["slower", "samples"])
def test_every_view_fits(made):
    found = made()
    for width in (80, 105, 160):
        for full in (False, True):
            for line in comparison_text(found, width, full=full).splitlines():
                assert len(line) <= max(width, 100), line
    for shown in comparison_tables(found):
        assert all(len(words) == len(shown.table.columns) for words in shown.table.rows)


def evil() -> Comparison:
    a, b = stepping([[10.0]], EVIL), stepping([[10.0]], "b")
    return compare(a, replace(b, run=replace(b.run, model=EVIL)))


def test_names_steer_neither_terminal_nor_page():
    shown, html = comparison_text(evil()), comparison_html(evil())
    assert "\x1b" not in shown + html
    assert "\u202e" not in shown + html
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_the_page_loads_and_runs_nothing_and_has_every_table():
    html = comparison_html(slower())
    assert POLICY.format(scripts="'none'") in unescape(html)
    assert not re.search(r"(src|href)=\"(?!#)", html)
    assert not re.search(r"url\((?!#)|@import", html)
    for shown in told_tables(slower()):
        assert f'id="{shown.name}"' in html
        for words in shown.table.rows:
            assert words[0].replace("'", "&#39;") in html
    assert html.count('<tr class="marked">') == 2
    # Both bars are drawn to one scale: the shorter one has a rest.
    assert len(re.findall(r'class="bar"', html)) == 2


def test_what_cannot_be_told_is_folded_away():
    html, untold = comparison_html(of_samples()), untold_table(of_samples())
    assert untold is not None
    assert len(untold.table.rows) == of_samples().states["too_few"]
    assert html.index('id="changes" open') < html.index('id="untold"')
    assert not any(row[-1].startswith("too few") for shown in told_tables(of_samples()) for row in shown.table.rows)
    assert untold_table(slower()) is None


def test_the_waterfall_leads_from_a_to_b():
    html = comparison_html(slower())
    falls = re.findall(r'<div class="track( whole)?" title="([^"]*)"><b>([^<]*)</b>', html)
    assert [label for _, _, label in falls][0 :: len(falls) - 1] == ["A&#39;s step", "B&#39;s step"]
    assert "exposed waiting: 0.525 ms in A, 2.52 ms in B" in html


def test_two_steps_are_drawn_on_one_scale():
    runs = [SAMPLES / "resnet18-ddp2", SAMPLES / "resnet18-ddp4"]
    of_lanes = [lanes(summarized(run), reported(run)) for run in runs]
    a, b = (reported(run) for run in runs)
    drawn = aligned_steps(a, b, (of_lanes[0], of_lanes[1]))
    assert drawn is not None
    assert [len(step.strips) for step in drawn] == [2, 4]
    assert drawn[0].cell_ns == drawn[1].cell_ns
    for report, step in zip((a, b), drawn, strict=True):
        for strip in step.strips:
            key = (strip.rank, strip.device, step.step)
            window = next(row for row in report.windows if (row.rank, row.device, row.step) == key)
            assert sum(strip.totals_ns.values()) == window.span_ns
            shares = sum(strip.shares.values())
            assert shares.sum() * step.cell_ns == pytest.approx(window.span_ns, rel=1e-3)
            assert shares.max() <= 1 + 1e-6
    html = comparison_html(compare(a, b), drawn)
    assert html.count('<div class="track drawn"><b>rank') == 6
    assert html.count('<i class="strip"></i>') == 1
    assert '<i class="idle_host"></i>idle: operator, python</span>' in html


def test_of_a_saved_report_one_device_is_drawn_and_said_to_be_all():
    a, b = (reported(SAMPLES / name) for name in ("resnet18-ddp2", "resnet18-ddp4"))
    drawn = aligned_steps(a, b, ((), ()))
    assert drawn is not None
    strip = drawn[0].strips[0]
    covered = strip.shares["compute_ns"].sum() * drawn[0].cell_ns
    assert covered == pytest.approx(strip.totals_ns["compute_ns"], rel=0.01)
    html = comparison_html(compare(a, b), drawn)
    assert html.count("was read from a saved report") == 2
    assert 'id="steps"' not in comparison_html(compare(a, b))


def test_a_control_leads_where_both_runs_have_it():
    a, b = (controlled(stepping([[10.0]]), {"unprofiled": [ms + 0.01 * k for k in range(5)]}) for ms in (8.0, 9.0))
    assert (
        comparison_text(compare(a, b))
        .splitlines()[2]
        .startswith("B's step is 12.5 % longer than A's: 9.02 ms instead of 8.02 ms without the profiler.")
    )


def test_json_is_one_document(capsys):
    assert main(["compare", DDP2, DDP4, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["schema"], found["a"], found["b"], err) == ("tracer.compare/2", "resnet18-ddp2", "resnet18-ddp4", "")
    assert found["test"]["level"] == 0.05
    assert set(found["step"]["span_ns"]) == {
        *("a", "b", "difference", "relative", "a_steps", "b_steps", "p", "adjusted_p", "apart", "state"),
        *("interval", "correlation"),
    }
    layers = {layer["layer"]: layer["measures"] for layer in found["layers"]}
    assert layers["conv1"]["forward_ns"]["b"] > 0


def test_files_are_written_and_not_overwritten(capsys, tmp_path):
    out, html = tmp_path / "changes.txt", tmp_path / "changes.html"
    assert main(["compare", DDP2, DDP4, "-o", str(out), "--html", str(html)]) == 0
    assert capsys.readouterr().out == ""
    assert "B's step cannot be told apart" in out.read_text()
    assert "</html>" in html.read_text()
    for option, place in (("-o", out), ("--html", html)):
        code, err = fails(capsys, "compare", DDP2, DDP4, option, str(place))
        assert (code, "--force" in err) == (1, True)
    assert main(["compare", DDP2, DDP4, "-o", str(out), "--html", str(html), "--force"]) == 0


def saved(capsys, tmp_path) -> str:
    place = tmp_path / "baseline.json"
    assert main(["report", DDP4, "--json", "-o", str(place)]) == 0
    return str(place)


def test_a_saved_report_is_as_good_as_its_run(capsys, tmp_path):
    baseline = saved(capsys, tmp_path)
    assert main(["compare", DDP4, DDP2, "--json"]) == 0
    of_traces = capsys.readouterr().out
    assert main(["compare", baseline, DDP2, "--json"]) == 0
    assert capsys.readouterr().out == of_traces
    assert main(["compare", baseline, DDP4]) == 0
    assert "B's step takes as long as A's: " in capsys.readouterr().out


def test_what_cannot_be_compared_is_one_line(capsys, tmp_path):
    baseline = saved(capsys, tmp_path)
    broken = tmp_path / "broken.json"
    broken.write_text('{\n "schema": "tracer.report/2",\n "run": 3}')
    sweep = write_sweep(tmp_path / "sweep", [write_cell(tmp_path / "sweep", "ddp", 2, 8)])
    links = tmp_path / "links.json"
    links.write_text(
        '{"schema": "tracer.calibration/1", "rows": '
        '[{"collective": "all_reduce", "group_size": 4, "bytes": 4096, "time_ns": 1}]}'
    )
    cases = {
        (str(tmp_path / "none"), DDP4): (1, "none"),
        (str(broken), DDP4): (1, "broken.json"),
        (str(sweep), DDP4): (2, "give two runs or two sweeps"),
        (str(sweep), str(sweep), "--links", str(links)): (2, "--links only applies to runs"),
        (baseline, DDP4, "--links", str(links)): (2, "leave it out"),
        (DDP4, DDP4, "--links", str(tmp_path / "none")): (1, "tracer calibrate"),
    }
    for arguments, (expected, said) in cases.items():
        code, err = fails(capsys, "compare", *arguments)
        assert (code, said in err) == (expected, True), err


def test_sweeps_and_their_saved_studies(capsys, tmp_path):
    folders = []
    for name, two in (("a", 12.0), ("b", 15.0)):
        place = tmp_path / name
        cells = [write_cell(place, "single", 1, 8, [10 + 0.01 * k for k in range(6)])]
        cells.append(write_cell(place, "ddp", 2, 8, [two + 0.01 * k for k in range(6)]))
        folders.append(str(write_sweep(place, cells)))
    html = tmp_path / "sweeps.html"
    assert main(["compare", *folders, "--html", str(html)]) == 0
    shown = capsys.readouterr().out
    assert row(shown, "Steps", "ddp2 at 8", "step")[2:5] == ["12.025", "15.025", "+24.9 %"]
    assert "efficiency" in html.read_text()
    assert main(["sweep", "--report", folders[0], "--json", "-o", str(tmp_path / "study")]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "study" / "scaling.json"), folders[1], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "tracer.compare-sweeps/1"


def of_docs() -> list[list[str]]:
    guide = (ROOT / "docs" / "ci.md").read_text().replace("\\\n", " ")
    lines = [line.strip().removeprefix("run: ") for line in guide.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("tracer ")]


def test_every_command_of_the_guide_parses():
    assert len(of_docs()) > 5
    for arguments in (*of_docs(), *commands((ROOT / "README.md").read_text())):
        if arguments[0] in ("report", "compare") and "--help" not in arguments:
            options = parse(arguments)
            parsed(options.fail_on, names(of_comparison=options.command == "compare"))
    guide = (ROOT / "docs" / "ci.md").read_text()
    for condition in re.findall(r"`([a-z_(][^`\n]* [<>] [^`\n]*)`", guide):
        parsed([condition], names(of_comparison=True))


def test_reports_that_hold_nothing_are_compared():
    def emptied(report: Report) -> Report:
        return replace(report, windows=[], collectives=[], buckets=[], layers=[])

    found = compare(emptied(reported(SAMPLES / "resnet18-ddp1")), emptied(reported(SAMPLES / "resnet18-ddp1")))
    assert "'s step " in comparison_text(found) or "Neither run has a step" in comparison_text(found)
    assert "</html>" in comparison_html(found)


def test_a_saved_report_is_known_however_it_was_written(tmp_path, capsys):
    saved = json.loads(to_json(reported(SAMPLES / "resnet18-ddp2")))
    compact = tmp_path / "before.json"
    compact.write_text(json.dumps(saved, sort_keys=True, separators=(",", ":")))
    assert main(["compare", str(compact), str(SAMPLES / "resnet18-ddp2"), "--json"]) == 0
    compact.write_text(compact.read_text().replace("tracer.report/3", "tracer.report/1"))
    assert main(["compare", str(compact), str(SAMPLES / "resnet18-ddp2")]) == 1
    assert "schema" in capsys.readouterr().err


def test_a_name_that_no_file_can_have_is_a_line(capsys):
    assert main(["compare", "a" * 300, str(SAMPLES / "resnet18-ddp2")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_step_that_people_train_is_drawn_on_one_scale_in_text_and_page():
    a, b = reported(SAMPLES / "resnet18-ddp2-sick"), reported(SAMPLES / "resnet18-ddp2-cured")
    found = compare(a, b)
    lines = comparison_text(found, full=True).splitlines()
    heading = next(place for place, line in enumerate(lines) if line.startswith("A step without the profiler"))
    drawn = [sum(line.count(part.glyph) for part in (COMPUTE, COMM, COPY, IDLE)) for line in lines[heading + 1 :][:2]]
    assert drawn[1] / drawn[0] == pytest.approx(b.summary.bar.step_ns / a.summary.bar.step_ns, abs=0.02)
    page = unescape(comparison_html(found))
    assert 'id="trained"' in page
    assert promise_words(found)[0] in page


def test_no_step_is_drawn_where_one_run_was_not_timed_without_the_profiler():
    found = compare(reported(SAMPLES / "resnet18-fsdp4"), reported(SAMPLES / "resnet18-ddp2"))
    assert "A step without the profiler" not in comparison_text(found, full=True)
    assert 'id="trained"' not in comparison_html(found)
