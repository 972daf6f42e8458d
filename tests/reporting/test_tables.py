"""One table of a report: the report's own rows, the longest first, in 20 kB."""

import json
from typing import get_args

import msgspec
import pytest

from analyzers.reporting import ROWS_BY, to_json, to_table_json
from tests.support.commands import fails
from tests.support.samples import SAMPLES, reported
from tracer.cli import main
from tracer.views import By

pytestmark = pytest.mark.usefixtures("remembered")

SICK = SAMPLES / "resnet18-ddp2-sick"
SAID = [(name, by) for name in ("resnet18-ddp2-sick", "resnet18-fsdp4", "every-collective4") for by in ROWS_BY]


def test_every_way_of_looking_closer_has_a_table():
    assert set(ROWS_BY) == set(get_args(By))


@pytest.mark.parametrize(("name", "by"), SAID)
def test_rows_are_the_reports_own_the_longest_first(name: str, by: str):
    document = reported(SAMPLES / name)
    text = to_table_json(document, by)
    assert len(text.encode()) < 20_000
    whole = json.loads(to_json(document))
    found = json.loads(text)
    (table,) = found.keys() - {"schema", "run", "left_out"}
    rows = whole["summary"]["by_device"] if by == "rank" else whole[table]
    assert len(found[table]) + found["left_out"] == len(rows)
    assert all(row in rows for row in found[table])
    assert not rows or len(found[table]) >= min(len(rows), 5)


def test_the_longest_of_so_many_rows_stand_first():
    kernels = reported(SICK).kernels
    rows = json.loads(to_table_json(reported(SICK), "kernel", 5))["kernels"]
    assert [row["total_ns"] for row in rows] == sorted((row.total_ns for row in kernels), reverse=True)[:5]
    many = json.loads(to_table_json(reported(SICK), "layer", 10**6))
    assert (len(many["layers"]), many["left_out"]) == (len(reported(SICK).layers), 0)


def test_a_row_that_is_too_long_by_itself_is_kept_and_a_name_is_escaped():
    document = reported(SICK)
    (row, *_) = document.collectives
    wide = msgspec.structs.replace(row, members=row.members * 500)
    run = msgspec.structs.replace(document.run, name='a"\x7f')
    changed = msgspec.structs.replace(msgspec.structs.replace(document, collectives=[wide, wide]), run=run)
    found = json.loads(to_table_json(changed, "collective"))
    assert (len(found["collectives"]), found["left_out"], found["run"]) == (1, 1, 'a"\x7f')


def test_the_command_prints_the_table(capsys):
    assert main(["report", str(SICK), "--json", "--by", "charge", "--limit", "3"]) == 0
    assert capsys.readouterr().out == to_table_json(reported(SICK), "charge", 3) + "\n"


SENSELESS = ["--limit 3", "--json --limit 3", "--by rank --limit 3", "--json --summary --by rank"]


@pytest.mark.parametrize("words", SENSELESS)
def test_options_without_sense_are_a_line(capsys, words: str):
    assert fails(capsys, "report", str(SICK), *words.split())[0] == 2
