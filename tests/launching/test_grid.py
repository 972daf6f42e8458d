"""A sweep for real, on CPU ranks whose memory ends at a batch of 4; and what its grid does without ranks."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from analyzers.run.sweep import Cell, Sweep, read_sweep
from tests.support.commands import fails
from tests.support.launching import run_here
from tracer.atomic_files import OWNER, alone_in
from tracer.cli import main, parse
from tracer.commands.options.run import readers
from tracer.commands.sweep import cells_of, settings_of
from tracer.config import Plan, RecordConfig
from tracer.errors import RankFailed, Stopped, TracerError, UsageError
from tracer.launching.grid import Grid, merged, record_grid

# As short as a recording can be: what is recorded is not looked at here.
QUICK = ["--device", "cpu", "--wait", "1", "--warmup", "1", "--active", "1", "--rounds", "1", "--no-calibrate"]
# A sitecustomize for ranks: batches of 4 and more do not fit.
NO_MEMORY = """
import sys
from importlib.machinery import PathFinder

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "tracer.workload.models_and_data":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            make = module.synthetic_batches
            def synthetic_batches(model, batch, *others):
                import torch
                if batch >= 4:
                    torch.empty(2**46)
                return make(model, batch, *others)
            module.synthetic_batches = synthetic_batches
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


@pytest.fixture(scope="module")
def swept(second_tier, tmp_path_factory):
    """A folder with a sweep over one rank, then gone on with over two."""
    folder = tmp_path_factory.mktemp("sweeps")
    (folder / "sitecustomize.py").write_text(NO_MEMORY)
    output = ["-o", str(folder / "sweep")]
    first = run_here("sweep", *QUICK, "--ranks", "1", "--batch", "2,4,8", *output, before=folder)
    made = (folder / "sweep" / "single1-batch2" / "run.json").stat().st_mtime_ns
    second = run_here("sweep", *QUICK, "--ranks", "1,2", "--batch", "2", *output)
    assert (folder / "sweep" / "single1-batch2" / "run.json").stat().st_mtime_ns == made, "a done cell is kept"
    return folder / "sweep", first, second


def states(folder: Path) -> dict[str, str]:
    return {cell.name: cell.state for cell in read_sweep(folder)[0].cells}


def test_memory_ends_a_row_as_a_result(swept):
    folder, first, _ = swept
    assert first.returncode == 0, first.stderr
    cells = {cell.name: cell for cell in read_sweep(folder)[0].cells}
    assert cells["single1-batch4"].why == (
        "rank 0 is out of memory at batch 4: DefaultCPUAllocator: can't allocate memory: you tried to allocate "
        "281474976710656 bytes"
    )
    assert cells["single1-batch8"].why == "batch 4 is out of memory already"
    assert "single1-batch4: out of memory, and larger batches are not tried; 3 of 3 cells" in first.stderr
    assert "single1-batch2: recorded; 1 of 3 cells, at least" in first.stderr
    assert "0 of 3 cells, at least 10 s left" in first.stderr


def test_a_later_command_goes_on(swept):
    folder, _, second = swept
    assert second.returncode == 0, second.stderr
    assert states(folder) == {
        "single1-batch2": "done", "single1-batch4": "out_of_memory", "single1-batch8": "skipped",
        "ddp2-batch2": "done",
    }  # fmt: skip
    assert "1 of 2 cells" in second.stderr.splitlines()[0]
    assert "single1-batch2: recorded" not in second.stderr


def test_the_study_follows_the_recordings(swept):
    folder, _, second = swept
    found = json.loads((folder / "report" / "scaling.json").read_text())
    assert {cell["name"] for cell in found["cells"] if cell["measured"]} == {"single1-batch2", "ddp2-batch2"}
    assert "Weak scaling" in second.stdout
    assert {file.name for file in folder.iterdir()} == {"sweep.json", "report", "single1-batch2", "ddp2-batch2"}


def test_another_sweeps_settings_are_refused(swept, capsys):
    folder, _, _ = swept
    assert main(["sweep", *QUICK, "--ranks", "1", "--batch", "2", "--seed", "3", "-o", str(folder)]) == 1
    assert "holds a sweep with other settings (seed)" in capsys.readouterr().err


@pytest.mark.slow
def test_rounds_of_two_ranks_are_one_recording(tmp_path):
    """Each has a hundred steps or three seconds, as many on both ranks, from the store's word."""
    quick = ["--device", "cpu", "--wait", "1", "--warmup", "1", "--active", "1", "--no-calibrate"]
    ended = run_here("sweep", *quick, "--rounds", "2", "--ranks", "2", "--batch", "2", "-o", str(tmp_path / "s"))
    assert ended.returncode == 0, ended.stderr
    assert "0 of 2 recordings, at least 26 s left" in ended.stderr
    assert "ddp2-batch2: recorded in round 1 of 2; 1 of 2 recordings, about" in ended.stderr
    found = json.loads((tmp_path / "s" / "ddp2-batch2" / "run.json").read_text())
    unprofiled = found["controls"]["unprofiled"]
    assert unprofiled["by_launch"]
    first, second = ([len(block) for block in blocks] for blocks in unprofiled["steps_ns"].values())
    assert first == second and len(first) == 2 and min(first) >= 100
    assert found["profiler"]["launches"] == 2
    assert {file.name for file in (tmp_path / "s").iterdir()} == {"sweep.json", "report", "ddp2-batch2"}


def cells(*arguments: str) -> list[str]:
    return list(cells_of(parse(["sweep", "--device", "cpu", *arguments])))


def test_the_grid():
    assert cells("--ranks", "2,1", "--batch", "8,2") == [
        "single1-batch2", "single1-batch8", "ddp2-batch2", "ddp2-batch8",
    ]  # fmt: skip
    assert cells("--ranks", "2", "--batch", "4", "--strategy", "fsdp,ddp") == ["ddp2-batch4", "fsdp2-batch4"]
    assert cells("--ranks", "1,2", "--batch", "4", "--strong") == ["single1-batch4", "single1-batch8", "ddp2-batch4"]


def test_fourfold_ends_at_a_ranks_share_of_an_epoch(capsys):
    """Beyond it no batch is full, and real images are refused only when ranks have started."""
    epoch = ("--batch", "32", "--fourfold", "--epoch", "--epoch-samples", "600")
    assert cells("--ranks", "1,2", *epoch) == [
        "single1-batch32", "single1-batch128", "single1-batch512", "ddp2-batch32", "ddp2-batch128",
    ]  # fmt: skip
    assert "--fourfold ends at a rank's share of 600 samples: at batch 512 on 1, 128 on 2" in capsys.readouterr().err
    digits = ("--batch", "64", "--fourfold", "--data", "digits", "--image-size", "32")
    assert cells("--ranks", "2", *digits) == ["ddp2-batch64", "ddp2-batch256"]


def test_the_largest_batch_is_held_against_the_data_before_ranks_start(capsys, tmp_path):
    pytest.importorskip("sklearn")
    code, err = fails(
        capsys, "sweep", *QUICK, "--ranks", "1,2", "--batch", "8,1024", "--data", "digits", "-o", str(tmp_path / "s")
    )
    assert (code, (tmp_path / "s").exists()) == (1, False)
    assert "--data digits: a rank's 718 of its 1,437 images are fewer than a batch of 1,024: lower --batch" in err


def test_why_a_cell_failed_is_written_without_secrets(tmp_path):
    grid = Grid(tmp_path, Sweep(name="s", cells=[Cell("ddp2-batch4", "ddp", 2, 4, "pending")]), {})
    grid.mark("ddp2-batch4", "failed", "ConnectionError: https://me:hunter@host/x")
    assert json.loads((tmp_path / "sweep.json").read_text())["cells"][0]["why"] == "ConnectionError: https://***@host/x"


def test_sweeps_of_earlier_versions_go_on():
    """Their sweep.json has these settings, all of which must be the same."""
    names = """
        device model amp channels_last compile grad_accumulation image_size data workers seed bucket_mb find_unused
        no_broadcast_buffers gradient_as_bucket_view static_graph comm_hook epochs epoch_samples lr lr_scaling
        lr_warmup zero_init_residual wait warmup active rounds no_calibrate
    """
    assert set(settings_of(parse(["sweep"]))) == set(names.split())


def test_workers_of_a_sweep_load_its_data_and_read_no_ranks():
    assert readers(parse(["sweep", "--workers", "0"])).workers is None
    assert readers(parse(["report", "run", "--workers", "3"])).workers == 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--strategy", "dp"], "nn.DataParallel over GPUs"),
        (["--strategy", "single"], "not one of ddp, dp, fsdp"),
        (["--gpus", "1,2"], "--gpus counts GPUs"),
    ],
)
def test_grids_that_make_no_sense_are_refused(arguments, reason):
    with pytest.raises(UsageError, match=reason):
        cells("--batch", "4", *arguments)


def test_a_report_records_nothing(capsys):
    assert main(["sweep", "--report", "nowhere", "--batch", "4"]) == 2
    assert "--batch only applies to recording" in capsys.readouterr().err


def cell(name: str, state: str) -> Cell:
    gpus, batch = name.removeprefix("ddp").split("-batch")
    return Cell(name, "ddp", int(gpus), int(batch), state)


def test_what_failed_is_tried_again_and_what_is_done_is_not(tmp_path):
    (tmp_path / "ddp2-batch2").mkdir()
    (tmp_path / "ddp2-batch2" / "run.json").write_text("{}")
    before = {"ddp2-batch2": "done", "ddp2-batch4": "done", "ddp2-batch8": "failed", "ddp2-batch16": "skipped"}
    written = Sweep(name="s", settings={"seed": 1}, cells=[cell(*each) for each in before.items()])
    wanted = Sweep(name="s", settings={"seed": 1}, cells=[cell(name, "pending") for name in [*before, "ddp4-batch2"]])
    found = merged(written, wanted, tmp_path)
    # The recording of the second has been removed since.
    assert [each.state for each in found.cells] == ["done", "pending", "pending", "skipped", "pending"]
    grid = Grid(tmp_path, found, dict.fromkeys(each.name for each in found.cells))
    assert [[each.name for each in row] for row in grid.rows(1)] == [["ddp2-batch4", "ddp2-batch8"], ["ddp4-batch2"]]
    with pytest.raises(TracerError, match="other settings"):
        merged(written, Sweep(name="s", settings={"seed": 2}), tmp_path)


def test_gpus_that_are_not_there_are_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(TracerError, match="torch can use 0 GPUs here, not 2"):
        cells_of(parse(["sweep", "--gpus", "2", "--batch", "4"]))


def test_one_sweep_at_a_time_fills_a_folder(tmp_path, capsys):
    with alone_in(tmp_path):
        assert main(["sweep", *QUICK, "--ranks", "1", "--batch", "2", "-o", str(tmp_path)]) == 1
    assert "another process is at work in it" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def grid(tmp_path):
    both = [cell("ddp2-batch2", "pending"), cell("ddp2-batch4", "pending")]
    config = RecordConfig("cpu", 2, "ddp", 2, model="resnet18", plan=Plan(), image_size=32, seed=0)
    return Grid(tmp_path, Sweep(name="s", cells=both), {each.name: config for each in both})


def record_failing(grid: Grid, monkeypatch, error: Exception) -> str:
    """What is said of a grid all of whose launches end with an error."""

    def launch(*arguments):
        raise error

    monkeypatch.setattr("tracer.launching.grid.launch", launch)
    said: list[str] = []
    try:
        record_grid(grid, lambda label, done, total: None, said.append)
    except TracerError as raised:
        said.append(str(raised))
    return "\n".join(said)


def test_why_a_cell_failed_is_one_line_and_the_traceback_is_said(grid, monkeypatch):
    brief = "rank 0 failed (exit code 1): ValueError: no"
    error = RankFailed("rank 0 failed; nothing was kept", 1, brief, ["  rank 0: File"])
    assert str(error) == "rank 0 failed; nothing was kept\n  rank 0: File"
    said = record_failing(grid, monkeypatch, error)
    assert [(each.state, each.why) for each in grid.sweep.cells] == [("failed", error.brief)] * 2
    assert said.splitlines()[:2] == [
        f"ddp2-batch2: failed: {error.brief}; 1 of 2 cells, at least 10 s left",
        "  rank 0: File",
    ]


def test_a_sweep_that_is_stopped_says_that_it_goes_on(grid, monkeypatch):
    said = record_failing(grid, monkeypatch, Stopped("stopped by SIGINT; nothing was kept", 130, "stopped by SIGINT"))
    assert (
        said == "stopped by SIGINT; 0 of 2 cells, at least 10 s left; the same command goes on, and keeps what is done"
    )


def test_what_a_killed_sweep_left_is_removed(grid, monkeypatch, tmp_path):
    left = tmp_path / ".ddp2.partial-x"
    left.mkdir()
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (left / OWNER).write_text(f"{socket.gethostname()} {int(done.stdout)}")
    assert f"removed {left}, left by a recording that was killed" in record_failing(
        grid, monkeypatch, RankFailed("no", 1)
    )
    assert not left.exists()
