"""The first screen: the message in 35 lines of 100 columns, on every run."""

from pathlib import Path
from statistics import median

import numpy as np
import pytest

from analyzers.lazy_fields import replaced as replace
from analyzers.notices import Code, Notice
from analyzers.reporting.build import report
from analyzers.reporting.document import MarkedRank, Report
from analyzers.statistics import median_interval
from analyzers.units import between_ms, ms
from tests.support.drawing import meet
from tests.support.samples import REPORTED, SAMPLES, reported, summarized, without_causes
from tests.support.typical_steps import control_ns, typical_of_sample, typical_samples
from tracer.cli import main
from tracer.views.sections import report_text
from tracer.views.sections.screen import MOST_LINES, NARROWEST, WIDEST, first_screen_text

pytestmark = pytest.mark.usefixtures("remembered")

SICK = SAMPLES / "resnet18-ddp2-sick"


def changed(document: Report, **headline: object) -> Report:
    summary = document.summary
    return replace(document, summary=replace(summary, headline=replace(summary.headline, **headline)))


@pytest.mark.parametrize("path", REPORTED)
def test_every_run_fits_one_screen_and_says_its_problem(path: Path):
    document = reported(path)
    for width in (None, 40, 47, 60, 80, 100, 200):
        lines = first_screen_text(document, "RUN", width).splitlines()
        assert max(map(len, lines)) <= max(min(width or WIDEST, WIDEST), NARROWEST)
        assert len(lines) <= MOST_LINES or width in (40, 47, 60, 80)
    # A line may end at a hyphen, as in the name of a host.
    told, headline = "".join("".join(lines).split()), document.summary.headline
    for said in (headline.sentence[1:], f"TRUST {headline.trust}", headline.remedy or ""):
        assert "".join(said.split()) in told
    assert "\x1b[" in first_screen_text(document, color=True)


def test_what_ran_the_step_the_problem_what_to_do_ranks_and_what_next():
    shown = first_screen_text(reported(SICK), "traces/sick")
    timed = summarized(SICK).manifest.controls.unprofiled
    limits = median_interval([np.array(block)[:, np.newaxis] for block in typical_samples(timed)])
    profiled_ns = median(window.span_ns for window in typical_of_sample(SICK))
    step = f"{ms(control_ns(timed))} per step ({between_ms(limits)}), {ms(profiled_ns)} while profiled"
    assert step in shown
    starts = [line[:15].strip() for line in shown.splitlines() if line[:1].isupper()]
    assert starts == ["MAIN PROBLEM", "WHAT TO DO", "RANKS", "COMMUNICATION", "TRUST", "NEXT"]
    (marked,) = [line for line in shown.splitlines() if "<- late" in line]
    assert "rank 1" in marked
    assert "tracer report traces/sick --full" in shown
    assert "--html" in shown
    assert "tracer whatif traces/sick " in shown
    assert "tracer whatif" not in first_screen_text(report(without_causes(SAMPLES / "resnet18-fsdp4")))


def test_a_run_of_many_ranks_shows_those_that_stand_for_the_others_and_the_marked_ones():
    document = changed(report(meet(*["..aa"] * 40)), marked=[MarkedRank(31, "late", None)])
    shown = first_screen_text(document).splitlines()
    assert len(shown) <= MOST_LINES
    assert any("rank 31" in line and line.endswith("<- late") for line in shown)
    (more,) = [line.strip() for line in shown if "more: --full" in line]
    assert more.endswith("more: --full; slowest and fastest by the step less its waiting")


def test_at_most_three_warnings_are_shown_and_all_are_counted():
    document = report(meet("aa", "aa"))
    warnings = [Notice(Code.CLOCK_IS_UNKNOWN, f"clock {number}") for number in range(5)]
    shown = first_screen_text(replace(document, run=replace(document.run, warnings=warnings)))
    assert shown.count("warning: clock") == 3
    assert "(5 warnings, " in " ".join(shown.split())


def test_long_names_and_paths_stay_in_their_lines():
    document = report(meet("aa", "aa"))
    named = replace(document, run=replace(document.run, name="n" * 500))
    shown = first_screen_text(changed(named, remedy="r" * 300, sentence="s" * 900), "p" * 300)
    assert max(map(len, shown.splitlines())) <= WIDEST
    assert "tracer report RUN --full" in shown


def test_the_command_shows_a_screen_and_more_where_it_is_asked_for(capsys):
    def told(*more: str) -> str:
        assert main(["report", str(SICK), *more]) == 0
        return capsys.readouterr().out

    screen, full, notes = told(), told("--full"), told("--notes")
    assert "MAIN PROBLEM" in screen and "MAIN PROBLEM" not in full
    assert full == told("--by", "rank")
    document = reported(SICK)
    for notice in document.run.notices:
        assert notice.text in notes and notice.text in full
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(SICK), "--full", "--by", "step"])


def test_a_remedy_without_a_gain_is_said_first():
    document = changed(report(meet("aa", "aa")), remedy="read the traces of all ranks together")
    shown = first_screen_text(document)
    assert "WHAT TO DO     read the traces of all ranks together" in shown
    assert "\nread the traces of all ranks together\n" in report_text(document)


def test_advice_that_is_counted_together_is_that_with_a_gain():
    document = reported(SICK)
    assert "the first two together" in " ".join(first_screen_text(document).split())
    asked = changed(document, remedy="ask rank 1")
    for text in (first_screen_text(asked), report_text(asked)):
        assert "the two with a gain together" in " ".join(text.split()).lower()
    assert "with 1 more (--full) together" in " ".join(first_screen_text(document, width=NARROWEST).split())


def test_the_step_of_all_tables_is_that_of_the_screen():
    document = reported(SAMPLES / "resnet18-fsdp4")
    assert f"A step takes {ms(document.summary.bar.step_ns)} under the profiler (mean)" in report_text(document)
    assert f"{ms(document.summary.bar.step_ns)} per step while profiled" in first_screen_text(document)
