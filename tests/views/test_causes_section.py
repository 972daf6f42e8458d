"""The critical path as text, on sample runs and on reports with parts exchanged."""

import io

import msgspec
import pandas as pd
import pytest

from analyzers.lazy_fields import replaced as replace
from analyzers.reporting.build import report
from analyzers.reporting.document import ControlFigures, Report
from analyzers.reporting.frames import TABLES
from analyzers.units import ms
from tests.support.samples import SAMPLES, reported, without_causes
from tracer.cli import main
from tracer.views.choices import By
from tracer.views.sections.causes import MEANINGS, MOST_CHARGES, by_cause, by_charge, causes_sentence, why_no_causes
from tracer.views.sections.overview import report_text

PAGEABLE, FSDP4, EVERY = (SAMPLES / name for name in ("resnet18-ddp2-pageable", "resnet18-fsdp4", "every-collective4"))
RUNS = [
    pytest.param(PAGEABLE, id=PAGEABLE.name),
    *(pytest.param(path, id=path.name, marks=pytest.mark.slow) for path in (FSDP4, EVERY)),
]
BY: list[By] = ["cause", "charge"]


def with_charges(found: Report, **figures: object) -> Report:
    charges = msgspec.structs.replace(found.summary.charges, **figures)
    return replace(found, summary=replace(found.summary, charges=charges))


def words(found: Report, by: By = "cause") -> str:
    return " ".join(report_text(found, by).split())


@pytest.mark.parametrize("path", RUNS)
def test_causes_add_up_to_the_path_and_ranks_to_their_causes(path):
    found = reported(path)
    charges = found.summary.charges
    _, shown, *_ = by_cause(found)
    heads = [column.head for column in shown.columns]
    assert [row[0].replace(" ", "_") for row in shown.rows] == [*charges.by_cause]
    length = charges.charged_ns / charges.steps / 1e6
    assert sum(float(row[1].replace(",", "")) for row in shown.rows) == pytest.approx(length, abs=0.01)
    ranks = [place for place, head in enumerate(heads) if head.startswith("rank ")]
    assert ranks
    for row in shown.rows:
        parts = [float(row[place]) for place in ranks if row[place] != "-"]
        assert sum(parts) == pytest.approx(float(row[1]), abs=0.003) or row[0] in ("transfer", "unresolved")
        assert row[-1] == MEANINGS[row[0].replace(" ", "_")]


def test_the_sentence_says_the_length_and_what_most_of_it_is():
    found = reported(PAGEABLE)
    charges = found.summary.charges
    shares = {cause: ns / charges.charged_ns for cause, ns in charges.by_cause.items()}
    length = ms(charges.charged_ns / charges.steps)
    assert causes_sentence(found, charges) == (
        f"The critical path of a step is {length}; {100 * shares['compute']:.0f} % of it is compute and "
        f"{100 * shares['copy']:.0f} % copies"
    )
    assert "The critical path of a profiled step is" in words(reported(FSDP4))


def test_what_is_less_than_a_tenth_is_named_where_it_is_the_most():
    found = with_charges(reported(PAGEABLE), by_cause={"gc": 9, "input": 8}, charged_ns=100)
    assert causes_sentence(found, found.summary.charges).endswith("; 9.0 % of it is garbage collection")
    nothing = with_charges(found, by_cause={}, charged_ns=0)
    assert causes_sentence(nothing, nothing.summary.charges) == "The critical path of a step is 0.000 ms"


def test_every_kind_of_charge_has_a_meaning():
    from analyzers.causes.charges import Charge

    assert set(MEANINGS) == {charge.label for charge in Charge}


def test_shares_of_ranks_phases_groups_and_how_far_to_trust_them():
    found = reported(FSDP4)
    charges, shown = found.summary.charges, words(found)
    for rank, share in charges.by_rank.items():
        assert f"rank {rank} {100 * share:.1f} %" in shown
    for phase, ns in charges.by_phase.items():
        assert f"{phase.replace('_', ' ')} {ms(ns / charges.steps)}" in shown
    ddp = reported(SAMPLES / "resnet50-ddp4-bf16")
    transfer_ns = ddp.summary.charges.by_group["DDP"] / ddp.summary.charges.steps
    assert f"Transfers by group: DDP {ms(transfer_ns)}." in words(ddp)
    assert "is not known: none was timed" in shown
    timed = reported(PAGEABLE)
    error = 100 * abs(timed.summary.charges.replay_error)
    assert f"a step is {error:.1f} % shorter than without the profiler" in words(timed)
    assert "12 % longer than without the profiler." in words(with_charges(timed, replay_error=0.12))
    assert "30 % longer than without the profiler: so far its parts are in doubt." in words(
        with_charges(timed, replay_error=0.3)
    )
    assert "dependency was not found" not in words(timed)
    part = with_charges(timed, unknown_ns=timed.summary.charges.charged_ns // 4)
    assert f"explains {ms(part.summary.charges.unknown_ns / part.summary.charges.steps)} of it (25.0 %)" in words(part)


def test_of_many_ranks_those_with_the_largest_parts_have_columns():
    found = reported(PAGEABLE)
    rows = [msgspec.structs.replace(found.charges[0], rank=rank, ns=rank + 1) for rank in range(7)]
    by_rank = {str(rank): (rank + 1) / 78 for rank in range(12)}
    _, shown, *_ = by_cause(replace(with_charges(found, by_cause={"copy": 28}, by_rank=by_rank, steps=1), charges=rows))
    assert [column.head for column in shown.columns[3:-1]] == ["rank 3", "rank 4", "rank 5", "rank 6", "others"]
    assert "and 4 more ranks less each" in words(with_charges(found, by_rank=by_rank))


@pytest.mark.parametrize("path", RUNS)
@pytest.mark.parametrize("by", BY)
def test_they_fit(path, by):
    for width in (80, 110, 160):
        assert max(map(len, report_text(reported(path), by, width).splitlines())) <= width


def test_the_largest_charges_and_what_the_others_add_up_to():
    found = reported(FSDP4)
    charges = found.summary.charges
    _, shown, rest = by_charge(found)
    assert len(shown.rows) == MOST_CHARGES
    largest, first = found.charges[0], shown.rows[0]
    assert first[:2] == [f"{largest.ns / charges.steps / 1e6:.3f}", f"{100 * largest.ns / charges.charged_ns:.1f} %"]
    assert first[2:5] == [f"rank {largest.rank}", largest.cause, largest.phase]
    left_out_ns = sum(row.ns for row in found.charges[MOST_CHARGES:])
    assert f"and {len(found.charges) - MOST_CHARGES} more charges, together {ms(left_out_ns / charges.steps)}" in (
        rest.words
    )
    ddp = reported(SAMPLES / "resnet50-ddp4-bf16")
    everything = by_charge(ddp, most=len(ddp.charges))[1]
    assert ["DDP", "transfer"] in [list(row[2:4]) for row in everything.rows]
    places = dict(zip([row[2] for row in everything.rows], everything.places, strict=True))
    assert places["DDP"] is None
    rank = next(row.rank for row in ddp.charges if row.rank is not None)
    assert places[f"rank {rank}"].rank == rank


def test_several_devices_of_a_rank_have_a_column():
    dp4 = reported(SAMPLES / "resnet18-dp4")
    assert "device" in [column.head for column in by_charge(dp4)[1].columns]
    assert "device" not in [column.head for column in by_charge(reported(FSDP4))[1].columns]


@pytest.mark.parametrize("by", BY)
def test_a_run_without_a_model_says_why_in_a_line(by):
    found = report(without_causes(SAMPLES / "resnet18-ddp2"))
    assert found.summary.charges is None
    assert "read without what it needs" in words(found, by)
    launches = [msgspec.structs.replace(row, launches=0) if row.rank else row for row in found.idle.launches]
    bare = replace(found, idle=replace(found.idle, launches=launches))
    assert why_no_causes(bare).startswith("No critical path: no launches of kernels are recorded on rank 1;")


def test_without_any_control_it_is_of_the_profiled_step():
    found = reported(PAGEABLE)
    bare = replace(found, run=msgspec.structs.replace(found.run, controls=ControlFigures()))
    assert "The critical path of a profiled step is" in words(with_charges(bare, replay_error=None))
    hosts = ControlFigures(host_step_ns={"0": 1})
    of_hosts = replace(found, run=msgspec.structs.replace(found.run, controls=hosts))
    assert "The critical path of a step is" in words(of_hosts)


def test_all_tables_have_it_where_there_is_a_model():
    assert "The critical path of a step is" in report_text(reported(PAGEABLE))
    assert "critical path" not in report_text(report(without_causes(PAGEABLE)))


def test_csv_holds_every_charge():
    found = reported(FSDP4)
    frame = TABLES["charges"].frame(found)
    assert [*frame.columns] == ["rank", "device", "group", "cause", "phase", "at", "ns"]
    assert frame["ns"].sum() == found.summary.charges.charged_ns
    assert frame["rank"].isna().sum() == sum(row.rank is None for row in found.charges)


def test_the_command_writes_them(tmp_path, capsys):
    assert main(["report", str(PAGEABLE), "--by", "cause", "--csv", str(tmp_path)]) == 0
    assert "66 % of it is compute and 27 % copies" in capsys.readouterr().out
    frame = pd.read_csv(io.StringIO((tmp_path / "charges.csv").read_text()))
    assert frame["ns"].sum() == reported(PAGEABLE).summary.charges.charged_ns
