"""A sweep of which the results alone are kept: printed, drawn and compared as it was."""

import json

import pytest

from analyzers.comparison import scaling_json, study
from analyzers.comparison.scaling import scaling
from analyzers.errors import UnreadableDocument
from analyzers.run import RESULTS, Sweep
from tests.support.commands import fails
from tests.support.samples import SAMPLES
from tracer.cli import main

KEPT = SAMPLES / "sweep-resnet18-h200x2"


@pytest.fixture
def kept(tmp_path):
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / RESULTS).write_bytes((KEPT / RESULTS).read_bytes())
    return folder


def test_results_alone_are_printed_as_they_were_written(kept, capsys):
    assert main(["sweep", "--report", str(kept), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((KEPT / RESULTS).read_text())


def test_what_the_sample_says_is_what_its_cells_make():
    """Else its words are of an older program: make it anew of its recordings."""
    found = study(KEPT)
    sweep = Sweep(name=found.name, command=found.command, settings=found.settings, rounds=3)
    assert scaling_json(scaling(sweep, found.cells)) == scaling_json(found)


def test_tables_have_a_line_to_cite_and_epochs_parts(kept, capsys):
    assert main(["sweep", "--report", str(kept)]) == 0
    # Whoever only looks finds no files afterwards.
    assert [file.name for file in kept.iterdir()] == [RESULTS]
    said = capsys.readouterr().out
    # 1,562 whole batches at 7.157 ms and 1,563 at 8.082; 12 whole ones at 58.736 and 13 at 59.096.
    assert (
        "For your report: on one NVIDIA H200 whole epochs, timed in one launch, took 14.041 s at batch 32 (by the "
        "steps of 3 launches 11.179 to 12.632 s) and 0.725 s at batch 4,096 (by the steps of 3 launches 0.705 to "
        "0.768 s). At batch 32 that lies outside of what steps say: cite both."
    ) in said
    assert "step: median without the profiler, of 3 launches; 95 %: its steps' interval, or the range" in said
    assert "For your report: weak scaling, ddp on 2 GPUs, batch 2,048 each: 1.96 times (95 %: 1.94 to 1.97)" in said
    assert "For your report: strong scaling, ddp on 2 GPUs, batch 2,048 each (global batch 4,096): 1.90 times" in said
    # 13 steps of 29.753 and 0.109 ms.
    assert "0.387 s an epoch), exposed communication 0.109 ms of a profiled step (0.00142 s an epoch)" in said
    assert "gradients are reduced at 164.4 GB/s busbw, 79.4 % of the 207.1 GB/s that the links gave" in said
    assert "173.6  83.8 % of 207.1" in said
    # The quotient of the medians that other columns have, 9.675 and 7.591 ms, is another figure: 1.275.
    assert "x1.245 ?" in said
    assert "distortion: profiled step / unprofiled step, the median over pairs of blocks" in said
    assert "next: tracer report" not in said
    assert main(["sweep", "--report", str(kept), "-o", str(kept / "study")]) == 0
    assert (kept / "study" / "scaling.html").is_file()


def test_results_alone_are_compared_and_drawn(kept, tmp_path, capsys):
    assert main(["compare", str(kept), str(KEPT)]) == 0
    assert "in 0 of them the step changed" in capsys.readouterr().out
    assert main(["plot", str(kept), "--kind", "scaling", "-o", str(tmp_path / "scaling.png")]) == 0


@pytest.mark.parametrize("change", [{"weak": []}, {"definitions": {}}, {"verdict": "9 GPUs train 900 times as fast"}])
def test_what_follows_from_cells_is_made_of_them_whatever_is_written(kept, change):
    (kept / RESULTS).write_text(json.dumps(json.loads((KEPT / RESULTS).read_text()) | change))
    assert scaling_json(study(kept)) == scaling_json(study(KEPT))


def test_warnings_in_an_older_versions_words_are_not_there_twice(kept):
    written = json.loads((KEPT / RESULTS).read_text())
    for warning in written["warnings"]:
        warning["text"] = "in other words"
    left_out = {"code": "cell_left_out", "text": "cell 3", "remedy": None}
    (kept / RESULTS).write_text(json.dumps(written | {"warnings": [left_out, *written["warnings"]]}))
    assert [str(warning) for warning in study(kept).warnings] == ["cell 3", *map(str, study(KEPT).warnings)]


@pytest.mark.parametrize(("rounds", "launches"), [(1, 1), (3, 3), (None, 3)])
def test_launches_that_an_older_version_did_not_write_are_its_rounds(kept, rounds, launches):
    written = json.loads((KEPT / RESULTS).read_text())
    for cell in written["cells"]:
        del cell["launches"]
    (kept / RESULTS).write_text(json.dumps(written | {"settings": written["settings"] | {"rounds": rounds}}))
    assert {cell.launches for cell in study(kept).cells if cell.step.median_ns} == {launches}


@pytest.mark.parametrize("command", ["report", "view"])
def test_results_alone_are_no_run_and_the_command_that_prints_them_is_named(kept, capsys, command):
    code, err = fails(capsys, command, str(kept))
    assert code == 1
    assert f"it is a sweep: `tracer sweep --report {kept}` reports it" in err


def changed_cell(place: str, value: float) -> str:
    """The sample's text with another figure in its first cell."""
    written = json.loads((KEPT / RESULTS).read_text())
    inner, _, name = place.rpartition(".")
    (written["cells"][0][inner] if inner else written["cells"][0])[name] = value
    return json.dumps(written)


ABSURD = {"step.median_ns": (1e308, -5.0, 0, 1e-300), "epoch.samples": (10**400,), "gpus": (0, 10**30), "batch": (0,)}


@pytest.mark.parametrize(("place", "value"), [(place, value) for place, values in ABSURD.items() for value in values])
def test_absurd_figures_are_one_line_that_names_the_file(kept, capsys, place, value):
    """Else they end in the traceback of whatever divides by them or draws them."""
    (kept / RESULTS).write_text(changed_cell(place, value))
    code, err = fails(capsys, "sweep", "--report", str(kept), "-o", str(kept / "study"))
    assert code == 1
    assert f"{kept / RESULTS}: " in err
    assert place in err


@pytest.mark.parametrize("value", [1, 2**54])
def test_all_that_is_read_can_be_drawn(kept, value):
    (kept / RESULTS).write_text(changed_cell("step.median_ns", value))
    assert main(["sweep", "--report", str(kept), "-o", str(kept / "study")]) == 0


def test_damaged_results_are_named(kept):
    (kept / RESULTS).write_text(json.dumps({"schema": "tracer.scaling/1"}))
    with pytest.raises(UnreadableDocument, match=rf"{kept / RESULTS}: .*tracer sweep"):
        study(kept)
