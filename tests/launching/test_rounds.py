"""Rounds over a sweep's grid, with ranks that leave what they are told at once: order, joining, going on, cost."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from analyzers.comparison.scaling import study
from analyzers.run.manifest import Manifest, read_manifest
from analyzers.run.sweep import Cell, Sweep, read_sweep
from tests.support.kineto_files import small_trace
from tests.support.rank_parts import made_part
from tests.support.sweeping import MS
from tracer.config import EpochPlan, Plan, RecordConfig, received
from tracer.errors import RankFailed, Stopped, TracerError
from tracer.launching import grid as grids
from tracer.launching.cost import Costs, LaunchClock
from tracer.launching.grid import Grid, merged, record_grid
from tracer.launching.oom_kills import oom_kills
from tracer.launching.rounds import ROUNDS
from tracer.recording.rank_part import RUN, Facts, write_part
from tracer.recording.windows import ROUND

PLAN = Plan(0, 1, 1, 1, unprofiled_s=3.0)
CELLS = [
    Cell(f"{name}-batch{batch}", name[:-1], int(name[-1]), batch, "pending")
    for name in ("ddp1", "ddp2")
    for batch in (2, 4)
]


def config(cell: Cell, **more) -> RecordConfig:
    of_cell = ("cpu", cell.gpus, cell.strategy, cell.batch)
    return RecordConfig(*of_cell, model="resnet18", plan=PLAN, image_size=32, seed=0, place=cell.name, **more)


def leave(folder: Path, cell: RecordConfig, step_ms: float) -> None:
    """What the only rank leaves of one round, whose profiled steps take twice as long."""
    full = folder / RUN / ROUND.format(number=1) / "full"
    full.mkdir(parents=True)
    (full / "rank0.json").write_text(json.dumps(small_trace() | {"took_ms": step_ms}))
    unprofiled, profiled = round(step_ms * MS), round(2 * step_ms * MS)
    part = made_part(
        recording=f"{step_ms}-run",
        facts=Facts(strategy=cell.strategy, batch_per_gpu=cell.batch),
        devices=["cpu"] * cell.devices,
        peak_bytes=round(step_ms),
        plan=cell.plan,
        rounds=1,
        steps_ns={"unprofiled": [[unprofiled] * 8], "full": [[profiled] * 2]},
        step_numbers={"unprofiled": [[*range(1, 9)]], "full": [[11, 12]]},
        kept_rounds={"full": 1},
        ended=True,
    )
    write_part(folder / RUN, part)


@dataclass
class MadeRanks:
    """Takes the launcher's place. By launch, what each cell's steps take, ms, or what ends it."""

    outcomes: Sequence[Sequence[float | Exception]]
    launches: list[list[str]] = field(default_factory=list)
    epochs: list[list[bool]] = field(default_factory=list)

    def launch(self, job, hidden, told, look):
        cells = received(job.arguments[3], list[RecordConfig])
        outcomes = self.outcomes[len(self.launches)]
        self.launches.append([cell.place for cell in cells])
        self.epochs.append([cell.epochs is not None for cell in cells])
        for cell, outcome in zip(cells, outcomes, strict=False):
            if isinstance(outcome, Exception):
                raise outcome
            told("unprofiled", 1, 2)
            leave(hidden / cell.place, cell, outcome)
            look()


def wanted(rounds: int) -> Sweep:
    return Sweep(name="s", settings={"seed": 1}, rounds=rounds, cells=CELLS)


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Records a sweep, or goes on with it; returns the ranks, the grid, what was said, and what ended it."""

    def run(outcomes, rounds: int = 3, cells: Sequence[Cell] = CELLS, **more):
        ranks = MadeRanks(outcomes)
        monkeypatch.setattr(grids, "launch", ranks.launch)
        written = read_sweep(tmp_path)[0] if (tmp_path / "sweep.json").exists() else None
        grid = Grid(
            tmp_path,
            merged(written, replace(wanted(rounds), cells=[*cells]), tmp_path),
            {cell.name: config(cell, **more) for cell in cells},
        )
        said: list[str] = []
        try:
            record_grid(grid, lambda label, done, total: None, said.append)
        except TracerError as error:
            said.append(str(error))
        return ranks, grid, said

    return run


def manifest(folder: Path, cell: str) -> Manifest:
    found, _ = read_manifest(folder / cell)
    assert found is not None
    return found


def test_each_round_launches_each_row_once_the_second_the_other_way_round(record, tmp_path):
    ranks, grid, said = record([[10, 20], [30, 40]] * 3)
    one, two = ["ddp1-batch2", "ddp1-batch4"], ["ddp2-batch2", "ddp2-batch4"]
    assert ranks.launches == [one, two, two, one, one, two]
    assert [(cell.state, cell.rounds) for cell in grid.sweep.cells] == [("done", 3)] * 4
    assert said[-1] == "ddp2-batch4: recorded in round 3 of 3; 12 of 12 recordings"


def test_steps_of_all_rounds_are_the_samples_and_traces_the_typical_ones(record, tmp_path):
    """The second launch of one device is the third row that is recorded; its third launch is in the middle."""
    record([[10, 20], [30, 40], [36, 48], [14, 28], [11, 22], [33, 44]])
    found = manifest(tmp_path, "ddp1-batch2")
    assert found.name == "ddp1-batch2"
    assert found.controls.unprofiled
    assert found.controls.unprofiled.blocks_ns == [10 * MS, 14 * MS, 11 * MS]
    assert found.controls.interval_ns("unprofiled") == (10 * MS, 14 * MS)
    assert found.controls.distortion("full") == 2
    assert found.memory and found.memory.peak_bytes == {"0": 14}
    assert found.profiler["launches"] == found.profiler["kept_launch"] == 3
    assert json.loads((tmp_path / "ddp1-batch2" / "rank0.json").read_text())["took_ms"] == 11
    assert {file.name for file in tmp_path.iterdir()} == {"sweep.json", *(cell.name for cell in CELLS)}
    assert {file.name for file in (tmp_path / "ddp1-batch2").iterdir()} == {"run.json", "rank0.json"}


def test_a_sweep_can_be_reported_after_any_round_and_goes_on(record, tmp_path):
    """It is stopped in its second round, behind the first cell of the first launch."""
    stop = Stopped("stopped; nothing was kept", 130, "stopped by SIGINT")
    ranks, grid, said = record([[10, 20], [30, 40], [36, stop]])
    assert said[-1].startswith("stopped by SIGINT; 5 of 12 recordings, about")
    assert [cell.rounds for cell in grid.sweep.cells] == [1, 1, 2, 1]
    found = study(tmp_path)
    assert [cell.step.median_ns for cell in found.cells] == [10 * MS, 20 * MS, 33 * MS, 40 * MS]
    (missing,) = (str(warning) for warning in found.warnings if warning.code == "rounds_are_missing")
    assert missing == (
        "not all of 3 rounds over the grid are recorded: ddp1-batch2 (1), ddp1-batch4 (1), ddp2-batch2 (2), "
        "ddp2-batch4 (1); give the same `tracer sweep` again: it goes on"
    )
    # As if it had been killed before it could write down the last one.
    (tmp_path / "sweep.json").write_text((tmp_path / "sweep.json").read_text().replace('"rounds": 2', '"rounds": 1'))
    ranks, grid, said = record([[41], [14, 28], [11, 22], [33, 44]])
    assert ranks.launches == [
        ["ddp2-batch4"],
        ["ddp1-batch2", "ddp1-batch4"],
        ["ddp1-batch2", "ddp1-batch4"],
        ["ddp2-batch2", "ddp2-batch4"],
    ]
    assert [(cell.state, cell.rounds) for cell in grid.sweep.cells] == [("done", 3)] * 4
    assert [cell.step.median_ns for cell in study(tmp_path).cells] == [11 * MS, 22 * MS, 33 * MS, 41 * MS]


def test_memory_that_ends_in_a_later_round_leaves_what_there_is(record, tmp_path):
    killed = RankFailed("killed", 137, "rank 0 failed (killed by SIGKILL)", out_of_memory=True)
    _, grid, said = record([[10, 20], [30, 40], [36, 41], [killed], [33, 44]])
    assert [(cell.state, cell.rounds) for cell in grid.sweep.cells] == [
        ("out_of_memory", 1),
        ("skipped", 1),
        ("done", 3),
        ("done", 3),
    ]
    assert any(words.startswith("ddp1-batch2: out of memory, and larger batches are not tried; ") for words in said)
    assert study(tmp_path).cells[0].step.median_ns == 10 * MS


def test_epochs_are_trained_once(record):
    ranks, _, _ = record([[10, 20], [30, 40]] * 3, epochs=EpochPlan(1, 8))
    assert ranks.epochs == [[True, True], [True, True], *[[False, False]] * 4]


def test_one_round_is_one_recording_of_each_cell(record, tmp_path):
    ranks, grid, said = record([[10, 20], [30, 40]], rounds=1)
    assert len(ranks.launches) == 2
    assert [(cell.state, cell.rounds) for cell in grid.sweep.cells] == [("done", 1)] * 4
    assert said[0].startswith("ddp1-batch2: recorded; 1 of 4 cells, at least ")
    assert not (tmp_path / ROUNDS).exists()


def test_a_round_that_cannot_be_read_is_named(record, tmp_path):
    record([[10, 20], [Stopped("no", 1)]])
    (tmp_path / ROUNDS / "ddp1-batch2" / "1" / "run.json").write_text("[")
    _, _, said = record([])
    assert f"{ROUNDS}/ddp1-batch2/1/run.json: " in said[-1]
    assert said[-1].endswith("remove this folder, and its round is recorded again")


# What it costs.


def test_cells_to_come_take_their_steps_and_what_others_took_beyond_theirs():
    """A recording has 100 steps or 3 s, and 6 steps besides; on a CPU all ranks' work counts."""
    costs = Costs({cell.name: config(cell) for cell in CELLS})
    first = [(cell.name, True) for cell in CELLS]
    assert costs.left_s(first, 2) == 4 * 3 + 2 * 10
    assert not costs.are_measured(["ddp1-batch2"])
    costs.step_s["ddp1-batch2"] = 0.01
    costs.note("ddp1-batch2", True, 5.0)
    costs.launches_s.append(7.0)
    assert costs.are_measured(["ddp1-batch2"])
    assert not costs.are_measured(cell.name for cell in CELLS)
    beyond = 5 - 3 - 3 * 2 * 0.01
    assert costs.left_s(first[:1], 0) == pytest.approx(5.0)
    # Of more work a step is no shorter, and nobody knows by how much it is longer.
    assert costs.left_s(first[1:2], 1) == pytest.approx(3 + 6 * 0.01 + beyond + 7)
    assert costs.left_s(first[3:], 0) == pytest.approx(3 + 6 * 0.01 + beyond)
    costs.step_s["ddp1-batch2"] = 0.04
    costs.step_s |= {cell.name: 0.04 for cell in CELLS[3:]}
    assert costs.left_s(first[3:], 0) == pytest.approx(106 * 0.04 + beyond)


def test_of_less_work_a_step_is_as_much_shorter_as_it_can_be():
    costs = Costs({cell.name: config(cell) for cell in CELLS}, {CELLS[1].name: 0.2})
    assert costs.left_s([(CELLS[0].name, False)], 0) == pytest.approx(106 * 0.1)


def test_epochs_cost_in_the_first_round():
    costs = Costs({"a": config(CELLS[1], epochs=EpochPlan(2, 9))}, {"a": 1.0})
    assert costs.left_s([("a", True)], 0) - costs.left_s([("a", False)], 0) == 2 * 3


def test_a_launch_has_what_it_took_beyond_its_cells():
    now = iter((0.0, 8.0, 12.0, 18.0, 19.0))
    clock = LaunchClock(lambda: next(now))
    clock.hear()
    assert (clock.cell_s(), clock.cell_s(), clock.beyond_s()) == (4.0, 6.0, 9.0)


# What the kernel kills.


@pytest.mark.parametrize(
    ("own", "file", "text", "kills"),
    [
        ("0::/a/b\n", "a/b/memory.events", "low 0\noom 3\noom_kill 2\n", 2),
        ("0::/\n", "memory.events", "oom_kill 5\noom_group_kill 0\n", 5),
        ("8:pids:/x\n4:cpu,memory:/x\n0::/\n", "memory/x/memory.oom_control", "under_oom 0\noom_kill 1\n", 1),
        ("4:memory:/not/seen/here\n", "memory/memory.oom_control", "oom_kill 0\n", 0),
        ("4:memory:/x\n", "memory/x/memory.oom_control", "oom_kill_disable 0\n", None),
        ("nonsense", "x", "", None),
    ],
)
def test_kills_are_counted_by_this_process_cgroup(tmp_path, monkeypatch, own, file, text, kills):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr("tracer.launching.oom_kills.CGROUPS", tmp_path)
    monkeypatch.setattr("tracer.launching.oom_kills.OWN", tmp_path / "own")
    assert oom_kills() == kills
