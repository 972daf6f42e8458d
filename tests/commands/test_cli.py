import importlib.metadata
import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from analyzers.lazy_fields import replaced as replace
from analyzers.reporting.document import from_json
from tests.support.commands import fails
from tests.support.docs import README, ROOT, commands
from tests.support.kineto_files import write_run
from tests.support.options import parsers
from tests.support.tiers import quarters
from tracer.atomic_files import hidden_folder, put_in_place
from tracer.cli import COMMANDS, build_parser, main
from tracer.commands.options.workload import configuration, setup_of
from tracer.commands.options.workload_checks import check_last_batch
from tracer.config import EpochPlan, RecordConfig
from tracer.errors import NEEDS_TORCH, TracerError, UsageError

pytestmark = pytest.mark.usefixtures("remembered")


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", [0, 1], 2)


def test_the_report_is_text_on_stdout(run, capsys):
    assert main(["report", str(run)]) == 0
    out, err = capsys.readouterr()
    assert "per step" in out
    assert err == ""


def test_json_is_one_document_and_nothing_else(run, capsys):
    assert main(["report", str(run), "--json"]) == 0
    assert from_json(capsys.readouterr().out).run.world_size == 2


def test_csv_holds_the_windows_of_the_json(run, tmp_path, capsys):
    assert main(["report", str(run), "--json", "--csv", str(tmp_path / "tables")]) == 0
    windows = json.loads(capsys.readouterr().out)["windows"]
    frame = pd.read_csv(tmp_path / "tables" / "windows.csv")
    assert frame["start_ns"].tolist() == [window["start_ns"] for window in windows]
    assert frame["compute_ns"].tolist() == [window["compute_ns"] for window in windows]


def calibration(path: Path, time_ns: int = 70_000) -> Path:
    rows = [{"collective": "all_reduce", "group_size": 4, "bytes": 8_769_792, "time_ns": time_ns}]
    path.write_text(json.dumps({"schema": "tracer.calibration/1", "rows": rows}))
    return path


DDP4 = str(ROOT / "traces" / "resnet18-ddp4")


def test_csv_holds_the_collectives_of_the_json(tmp_path, capsys):
    assert main(["report", DDP4, "--json", "--csv", str(tmp_path / "tables")]) == 0
    rows = json.loads(capsys.readouterr().out)["collectives"]
    frame = pd.read_csv(tmp_path / "tables" / "collectives.csv")
    assert len(frame) == len(rows) == 10
    for name in ("index", "kind", "bytes", "step", "purpose", "bound", "partial"):
        assert frame[name].tolist() == [row[name] for row in rows], name
    for name in ("transfer_ns", "busbw_gbps"):
        known = [row[name] for row in rows if row[name] is not None]
        assert frame[name].dropna().tolist() == pytest.approx(known, rel=1e-12)
    assert [[int(rank) for rank in group.split()] for group in frame["group"]] == [row["group"] for row in rows]


@pytest.mark.parametrize(("table", "values"), [("buckets", "exposed_ns"), ("layers", "backward_ns")])
def test_csv_holds_the_buckets_and_layers_of_the_json(tmp_path, capsys, table, values):
    assert main(["report", DDP4, "--json", "--csv", str(tmp_path / "tables")]) == 0
    rows = json.loads(capsys.readouterr().out)[table]
    frame = pd.read_csv(tmp_path / "tables" / f"{table}.csv")
    assert len(frame) == len(rows) > 0
    for name in ("rank", "step", values):
        assert frame[name].tolist() == [row[name] for row in rows], name


def test_csv_without_collectives_has_its_head(run, tmp_path, capsys):
    assert main(["report", str(ROOT / "traces" / "resnet18-ddp1"), "--csv", str(tmp_path / "tables")]) == 0
    assert (tmp_path / "tables" / "collectives.csv").read_text().startswith("index,kind,group,")


def test_the_links_that_are_given_are_used(tmp_path, capsys):
    assert main(["report", DDP4, "--json", "--links", str(calibration(tmp_path / "links.json"))]) == 0
    rows = json.loads(capsys.readouterr().out)["collectives"]
    # 8,769,792 bytes in 70 us, of which 3/2 on the bus.
    peak = 8_769_792 / 70_000 * 3 / 2
    known = [row for row in rows if row["utilization_at_size"] is not None]
    assert known
    for row in known:
        assert row["bytes"] == 8_769_792
        assert row["utilization_at_size"] == pytest.approx(row["busbw_gbps"] / peak)


def test_the_links_that_are_given_come_before_the_runs_own(tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(DDP4, folder)
    calibration(folder / "links.json", 70_000)
    found = []
    for more in ([], ["--links", str(calibration(tmp_path / "other.json", 140_000))]):
        assert main(["report", str(folder), "--json", *more]) == 0
        rows = json.loads(capsys.readouterr().out)["collectives"]
        found.append(max(row["utilization_at_size"] or 0 for row in rows))
    assert found[1] == pytest.approx(2 * found[0])


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "{}", '{"schema": "tracer.calibration/1", "rows": []}', "\0\xff"]
)
def test_broken_links_are_one_line(tmp_path, capsys, text):
    path = tmp_path / "links.json"
    if text is not None:
        path.write_text(text)
    code, err = fails(capsys, "report", DDP4, "--links", str(path))
    assert code == 1
    assert str(path) in err
    assert "tracer calibrate" in err


def test_broken_links_are_found_before_anything_is_read(tmp_path, capsys):
    code, err = fails(capsys, "report", str(tmp_path / "no run"), "--links", str(tmp_path / "no links"))
    assert code == 1
    assert "no links" in err


def test_tables_are_not_overwritten_in_part(run, tmp_path, capsys):
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "collectives.csv").write_text("precious")
    fails(capsys, "report", str(run), "--csv", str(tables))
    assert (tables / "collectives.csv").read_text() == "precious"
    assert not (tables / "windows.csv").exists()


def test_the_report_by_collective(capsys):
    assert main(["report", DDP4, "--by", "collective"]) == 0
    out = capsys.readouterr().out
    assert sum(line.split()[2:3] == ["all_reduce"] for line in out.splitlines()) == 6
    assert sum(line.split()[2:3] == ["broadcast"] for line in out.splitlines()) == 4


def test_the_report_by_bucket_and_by_layer(capsys):
    for by, title in (("bucket", "DDP's buckets"), ("layer", "Layers")):
        assert main(["report", DDP4, "--by", by]) == 0
        out = capsys.readouterr().out
        assert sum(line.startswith(f"{title}: medians over") for line in out.splitlines()) == 1


def test_nothing_is_overwritten_without_force(run, tmp_path, capsys):
    file = tmp_path / "report.txt"
    assert main(["report", str(run), "-o", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert "per step" in file.read_text()
    assert fails(capsys, "report", str(run), "-o", str(file))[0] == 1
    assert main(["report", str(run), "-o", str(file), "--force"]) == 0
    assert list(tmp_path.glob(".*")) == []


def test_what_cannot_be_read_is_one_line(tmp_path, capsys):
    for path in (tmp_path, tmp_path / "none", Path(__file__)):
        code, err = fails(capsys, "report", str(path))
        assert code == 1
        assert str(path) in err


def test_an_unwritable_place_is_one_line(run, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, err = fails(capsys, "report", str(run), "-o", str(tmp_path / "file" / "report.txt"))
    assert code == 1
    assert "report.txt" in err


@pytest.mark.parametrize(
    "arguments",
    [
        "--gpus 2 --device cpu",
        "--gpus 2 --ranks 2",
        "--ranks 2 --strategy single",
        "--ranks 2 --strategy dp",
        "--ranks 2 --strategy fsdp --bucket-mb 5",
        "--ranks 2 --model transformer --image-size 64",
        "--ranks 2 --model transformer --data cifar10:x",
        "--ranks 2 --data imagenet:x",
        "--ranks 2 --data cifar10:x --image-size 64",
        "--ranks 2 --workers 3",
        "--device cuda --ranks 2",
        "--ranks 2 --batch 1",
        "--ranks 1 --find-unused",
        "--ranks 2 --strategy fsdp --no-broadcast-buffers",
        "--ranks 2 --strategy fsdp --gradient-as-bucket-view",
        "--ranks 2 --strategy fsdp --static-graph",
        "--ranks 1 --comm-hook bf16",
        "--ranks 2 --find-unused --static-graph",
        "--ranks 2 --static-graph --grad-accumulation 2",
        "--ranks 2 --model vgg16 --no-broadcast-buffers",
        "--ranks 2 --model transformer --channels-last",
        "--ranks 2 --strategy fsdp --channels-last",
        "--ranks 2 --epoch-samples 10",
        "--ranks 2 --epochs 1 --data cifar10:x --epoch-samples 10",
        "--ranks 2 --lr-scaling linear --lr-warmup 2",
        "--ranks 2 --epochs 2 --lr-warmup 2",
        "--ranks 1 --model vgg16 --zero-init-residual",
        "--ranks 2 --batch 4 --epochs 1 --epoch-samples 10",
    ],
)
def test_options_that_contradict_one_another_are_usage_errors(arguments, tmp_path, capsys):
    code, _ = fails(capsys, "record", *arguments.split(), "-o", str(tmp_path / "out"))
    assert code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        "--gpus 0",
        "--gpus x",
        "--batch -1",
        "--bucket-mb nan",
        "--active 0",
        "--wait -1",
        "--lr 0",
        "--epochs 0",
        "--epoch --epochs 3",
    ],
)
def test_numbers_that_make_no_sense_are_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["record", *arguments.split()])
    assert ended.value.code == 2


def configured(*arguments: str) -> RecordConfig:
    options = build_parser().parse_args(["record", *arguments])
    return configuration(options, setup_of(options))


def test_what_ranks_are_told_holds_no_secret_of_the_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["tracer", "record", "--api-key", "hunter", "--ranks", "2"])
    assert configured("--ranks", "2").command == ["tracer", "record", "--api-key", "***", "--ranks", "2"]


def test_one_epoch_is_a_second_one_after_a_warm_up():
    assert configured("--ranks", "2", "--epoch") == configured("--ranks", "2", "--epochs", "2")
    assert configured("--ranks", "2").epochs is None
    assert configured("--ranks", "2", "--epoch").epochs == EpochPlan(2, 50_000)


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize(("strategy", "hosts"), [("dp", 1), ("ddp", 1), ("ddp", 2), ("ddp", 3)])
def test_a_last_batch_of_one_sample_is_refused(strategy, hosts, devices):
    given = replace(configured("--ranks", "2"), strategy=strategy, devices=devices, hosts=hosts, batch=3)
    for samples in range(1, 40):
        config = replace(given, epochs=EpochPlan(1, samples))
        own = torch.arange(-(-samples // config.world_size)).split(config.process_batch)[-1]
        parts = own.chunk(devices) if strategy == "dp" else [own]
        if min(map(len, parts)) == 1:
            with pytest.raises(UsageError, match=f"an epoch of {samples} samples leaves one sample"):
                check_last_batch(config)
        else:
            check_last_batch(config)
        check_last_batch(replace(config, model="resnet18-cifar"))


def test_more_gpus_than_there_are_is_refused(tmp_path, capsys):
    code, err = fails(capsys, "record", "--gpus", "4000", "-o", str(tmp_path / "out"))
    assert code == 1
    assert "not 4000: give fewer" in err


def test_missing_data_is_refused_before_anything_runs(tmp_path, capsys):
    code = main(["record", "--ranks", "1", "--data", f"cifar10:{tmp_path}", "-o", str(tmp_path / "out")])
    assert code == 1
    assert f"{tmp_path}: CIFAR-10 is not there" in capsys.readouterr().err


def test_an_existing_folder_is_not_recorded_over(tmp_path, capsys):
    code, err = fails(capsys, "record", "--ranks", "1", "-o", str(tmp_path))
    assert code == 1
    assert "--force" in err


def test_force_replaces_recordings_and_nothing_else(tmp_path, monkeypatch, capsys):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path / "other")
    for place in ("..", ".", "../other", "../link", "../file", "/"):
        code, _ = fails(capsys, "record", "--ranks", "1", "--force", "-o", place)
        assert code == 1, place
    assert (tmp_path / "other" / "precious").exists()


def test_a_recording_whose_place_was_taken_meanwhile_is_kept_beside_it(tmp_path):
    with hidden_folder(tmp_path / "run") as new:
        (new / "m").write_text("recorded")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "precious").write_text("x")
        with pytest.raises(TracerError, match=r"The recording is in .*run-2"):
            put_in_place(new, tmp_path / "run", False, "m")
    assert (tmp_path / "run" / "precious").exists()
    assert (tmp_path / "run-2" / "m").read_text() == "recorded"
    with hidden_folder(tmp_path / "run-2") as new:
        (new / "m").write_text("again")
        put_in_place(new, tmp_path / "run-2", True, "m")
    assert (tmp_path / "run-2" / "m").read_text() == "again"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run", "run-2"]


def test_a_full_disk_under_stdout_is_one_line(run):
    command = f"{shlex.quote(sys.executable)} -m tracer report {shlex.quote(str(run))} > /dev/full"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "tracer: stdout: cannot be written (No space left on device)\n")


def test_a_closed_stdout_is_no_error(run):
    command = f"{shlex.quote(sys.executable)} -m tracer report {shlex.quote(str(run))} >&-"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "words", [("record",), ("record", "train.py"), ("record", "torchrun", "train.py"), ("calibrate",), ("sweep",)]
)
def test_without_torch_one_line_says_where_to_install(monkeypatch, capsys, words):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert fails(capsys, *words) == (1, f"tracer: tracer {words[0]} {NEEDS_TORCH}\n")


@pytest.mark.parametrize("command", ["record", "sweep"])
def test_without_torchvision_the_one_of_the_torch_that_is_there_is_named(monkeypatch, capsys, command):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torchvision" else found(name))
    own = importlib.metadata.version("torch")
    line = f"tracer: tracer {command}'s own models need torchvision: pip install torchvision 'torch=={own}'\n"
    assert fails(capsys, command) == (1, line)


@pytest.mark.parametrize("command", ["record", "sweep"])
def test_a_torch_that_the_built_in_workload_is_too_new_for_is_named(monkeypatch, capsys, command):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.5.1+cu121")
    line = f"tracer: tracer {command}'s own models need torch 2.6, and here is 2.5.1+cu121: record a script of yours\n"
    assert fails(capsys, command) == (1, line)


def test_keep_without_every_has_no_effect_and_is_refused(capsys, tmp_path):
    script = tmp_path / "train.py"
    script.touch()
    code, err = fails(capsys, "record", "--ranks", "2", "--keep", "3", "--", str(script))
    assert (code, "--keep requires --every N" in err) == (2, True)


def test_a_word_that_is_no_script_is_one_line(capsys):
    code, err = fails(capsys, "record", "resnet50")
    assert (code, "resnet50: there is no command, Python file or option of this name" in err) == (2, True)


def test_the_help_of_record_begins_with_the_script():
    text = parsers()["record"].format_help()
    assert text.startswith("usage: tracer record [OPTION ...] train.py")
    assert text.index("  SCRIPT  ") < text.index("--help") < text.index("--gpus N ")
    assert sum(line.startswith("  tracer record ") for line in text.splitlines()) == 2


def test_help_and_version():
    for arguments in (["--version"], ["--help"], *([command, "--help"] for command in COMMANDS)):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0


def test_a_reader_that_goes_away_is_no_error(run):
    command = f"{shlex.quote(sys.executable)} -m tracer report {shlex.quote(str(run))} --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_readme_shows_every_subcommand_by_example():
    examples = {arguments[0] for arguments in commands((ROOT / "README.md").read_text())}
    assert examples >= set(COMMANDS)
    for command in COMMANDS:
        assert f"(docs/commands/{command}.md)" in README


def test_any_annotation_is_a_step(capsys):
    """The optimizer's, in a run of two steps; a name that nothing has is one line."""
    run = str(ROOT / "traces" / "resnet18-ddp2")
    assert main(["report", run, "--json", "--steps", "Optimizer.step"]) == 0
    steps = {window["step"] for window in json.loads(capsys.readouterr().out)["windows"]}
    assert steps == set(range(len(steps)))
    assert main(["report", run, "--steps", "no such thing"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no annotation is called 'no such thing'" in said


STEERING = "a\x1b[31m\x9b2J\u202e.run"


@pytest.mark.parametrize(
    "words",
    quarters(
        [
            ["report", "RUN", "--html", "OUT.html"],
            ["plot", "RUN", "--kind", "breakdown", "-o", "OUT.png"],
            ["export", "RUN", "-o", "OUT.json"],
            ["tensorboard", "RUN", "--logdir", "OUT"],
            ["report", "RUN", "-o", "RUN"],
            ["compare", "RUN", "RUN"],
        ]
    ),
)
def test_nothing_that_is_printed_steers_a_terminal(tmp_path, capsys, words):
    run, out = tmp_path / STEERING, tmp_path / f"out{STEERING}"
    shutil.copytree(ROOT / "traces" / "resnet18-ddp2", run)
    main([word.replace("RUN", str(run)).replace("OUT", str(out)) for word in words])
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert [character for character in text if not (character.isprintable() or character == "\n")] == []
    assert "\N{REPLACEMENT CHARACTER}[31m" in said.out + said.err


def test_a_files_name_forges_no_line(tmp_path, capsys):
    shutil.copytree(ROOT / "traces" / "resnet18-ddp2", tmp_path / "run")
    shutil.copy(tmp_path / "run" / "rank0.json.gz", tmp_path / "run" / "rank9\ntracer: forged.json.gz")
    assert main(["report", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
