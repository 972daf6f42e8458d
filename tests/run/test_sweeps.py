"""sweep.json, which nobody vouches for."""

import json

import msgspec
import pytest

from analyzers.errors import UnreadableDocument
from analyzers.run.manifest import SWEEP
from analyzers.run.sweep import Cell, cell_folder, read_sweep
from tests.support.kineto_files import write
from tests.support.sweeping import entry, write_sweep


def test_a_sweep_is_read(tmp_path):
    folder = write_sweep(
        tmp_path / "s", [entry("single", 1, 8), entry("ddp", 2, 8, "failed", why="x")], settings={"a": 1}
    )
    sweep, warnings = read_sweep(folder)
    assert (sweep.name, sweep.settings, warnings) == ("s", {"a": 1}, [])
    assert sweep.cells[1] == Cell("ddp2-batch8", "ddp", 2, 8, "failed", "x")
    (folder / SWEEP).write_bytes(msgspec.json.encode(sweep))
    assert read_sweep(folder) == (sweep, [])


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "{}", '{"schema": "tracer.sweep/2", "cells": []}', "[" * 100_000, "\0"]
)
def test_what_is_no_sweep_is_refused_in_one_line(tmp_path, text):
    if text is not None:
        write(tmp_path / "sweep.json", text)
    with pytest.raises(UnreadableDocument, match="tracer sweep") as raised:
        read_sweep(tmp_path)
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "bad",
    [
        *({"name": name} for name in ("..", ".", "", "/etc", "a/b", "a\\b", "../x", "x\n", "x\0", "x" * 101, "$x$", 7)),
        *({"gpus": gpus} for gpus in (0, -1, 1.5, "2", 2**80, None)),
        *({"batch": batch} for batch in (0, 2**80, True)),
        {"strategy": "<b>"},
        {"state": "great"},
    ],
)
def test_a_cell_that_makes_no_sense_is_a_warning(tmp_path, bad):
    sweep, (warning,) = read_sweep(write_sweep(tmp_path, [entry("single", 1, 8), entry("ddp", 2, 8) | bad]))
    assert [cell.name for cell in sweep.cells] == ["single1-batch8"]
    assert "cell 1 is left out" in str(warning)


def test_of_two_cells_of_one_place_the_first_counts(tmp_path):
    cells = [entry("ddp", 2, 8), entry("ddp", 2, 8) | {"name": "again"}, entry("ddp", 4, 8) | {"name": "ddp2-batch8"}]
    sweep, warnings = read_sweep(write_sweep(tmp_path, cells))
    assert [cell.gpus for cell in sweep.cells] == [2]
    assert len(warnings) == 2


def test_other_fields_that_make_no_sense_are_left_aside(tmp_path):
    sweep, _ = read_sweep(write_sweep(tmp_path, [], command="rm", settings=[1]))
    assert (sweep.command, sweep.settings) == ([], {})


def test_secrets_that_somebody_wrote_into_a_sweep_are_not_read(tmp_path):
    cells = [entry("ddp", 2, 8, "failed", why="ConnectionError: https://me:hunter@host")]
    command, settings = ["tracer", "sweep", "--api-key", "hunter"], {"data": "s3://me:hunter@host/x", "lr": 0.1}
    sweep, _ = read_sweep(write_sweep(tmp_path, cells, command=command, settings=settings))
    assert sweep.command == ["tracer", "sweep", "--api-key", "***"]
    assert (sweep.settings, sweep.cells[0].why) == (
        {"data": "s3://***@host/x", "lr": 0.1}, "ConnectionError: https://***@host"
    )  # fmt: skip


@pytest.mark.parametrize("name", [5, None, "", [], {}, 1.5, True], ids=repr)
def test_a_sweep_whose_name_is_none_is_called_by_its_folder(tmp_path, name):
    sweep, warnings = read_sweep(write_sweep(tmp_path / "s", [entry("single", 1, 8)], name=name))
    assert (sweep.name, len(sweep.cells), warnings) == ("s", 1, [])


def test_no_link_leads_out_of_the_folder(tmp_path):
    sweep, outside = tmp_path / "sweep", tmp_path / "outside"
    (sweep / "inside").mkdir(parents=True)
    outside.mkdir()
    (sweep / "ddp2-batch8").symlink_to(outside)
    (sweep / "loop").symlink_to(sweep / "loop")
    for name in ("ddp2-batch8", "loop"):
        with pytest.raises(UnreadableDocument, match="leads out"):
            cell_folder(sweep, Cell(name, "ddp", 2, 8, "done"))
    assert cell_folder(sweep, Cell("inside", "ddp", 2, 8, "done")) == sweep / "inside"


def test_cells_are_those_that_are_written(tmp_path):
    (tmp_path / "sweep.json").write_text(json.dumps({"schema": "tracer.sweep/1", "cells": [1, None, []]}))
    assert len(read_sweep(tmp_path)[1]) == 3
