"""Scripts that nobody changed, recorded for real on CPU ranks; the decisions are tested in tests/recording."""

import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import analyzers
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.run.manifest import read_manifest
from tests.support.launching import environment_of_training

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "support" / "scripts"
QUICK = ["--wait", "2", "--warmup", "1", "--active", "2", "--rounds", "1"]


def start(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=environment_of_training(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def record(output: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return start(sys.executable, "-m", "tracer", "record", *QUICK, "-o", str(output), *arguments)


def end(process: subprocess.Popen[bytes]) -> tuple[int, bytes, list[str]]:
    """Exit code, stdout, and the lines of stderr."""
    out, errors = process.communicate(timeout=120)
    lines = errors.decode().splitlines()
    return process.returncode, out, lines


def said(lines: list[str]) -> list[str]:
    return [line.removeprefix("tracer: ") for line in lines if line.startswith("tracer: ")]


@pytest.mark.slow
def test_a_script_that_starts_its_own_ranks_trains_prints_and_ends_as_it_would_unrecorded(tmp_path):
    output = tmp_path / "same"
    command = [sys.executable, str(SCRIPTS / "same.py")]
    # Forked, two ranks need not import torch anew.
    plain = start(*command, f"{tmp_path}/plain.store", "fork")
    code, out, lines = end(record(output, "--", *command, f"{tmp_path}/recorded.store", "spawn"))
    plain_code, plain_out, plain_lines = end(plain)
    assert code == plain_code == 7
    assert out == plain_out
    assert b"\xff\x00 as it is\n" in out
    assert len(out.splitlines()) == 31
    own = lines.index(f"tracer: recorded {output}")
    assert [line for line in lines[:own] if not line.startswith("tracer: ")] == plain_lines
    assert said(lines)[0].endswith(
        "up to 11 training steps of each rank that it starts"
    )  # 2 to wait, and three blocks of 3
    assert lines[own + 1].startswith("same · ")
    assert any(line.startswith("MAIN PROBLEM ") for line in lines[own:])
    assert any(line.startswith("NEXT ") for line in lines[own:])

    found = report(summarize(output))
    assert (found.run.strategy, found.run.world_size, found.run.backend) == ("ddp", 2, "gloo")
    manifest, _ = read_manifest(output)
    assert [parameter.name for parameter in manifest.parameters] == [
        f"{layer}.{name}" for layer in (0, 2, 3) for name in ("weight", "bias")
    ]
    assert sorted(index for bucket in manifest.buckets for index in bucket.parameters) == list(range(6))
    assert manifest.controls.nosync is None
    assert "would change this training" in manifest.controls.reasons["nosync"]
    # Two steps of two microbatches, each of which synchronizes one bucket.
    for rank in analyzers.load(output).ranks:
        assert (rank.events.named("gloo:all_reduce") & rank.gloo).sum() == 4
    assert [file.name for file in tmp_path.iterdir() if "store" not in file.name] == ["same"]


@pytest.mark.slow
def test_a_rank_imports_little_that_its_script_would_not(tmp_path):
    """Whatever else is installed with tracer has no part in somebody's training."""
    script = tmp_path / "modules.py"
    loop = str(SCRIPTS / "loop.py")
    script.write_text(f"import runpy, sys\nrunpy.run_path({loop!r}, run_name='__main__')\nprint(*sys.modules)\n")
    plain = start(sys.executable, str(script))
    code, out, lines = end(record(tmp_path / "out", "--ranks", "1", "--device", "cpu", str(script)))
    plain_code, plain_out, _ = end(plain)
    assert (code, plain_code) == (0, 0), lines
    alone, recorded = (set(said.decode().splitlines()[-1].split()) for said in (plain_out, out))
    packages = {name.partition(".")[0] for name in recorded - alone} - sys.stdlib_module_names
    assert packages - {"torch", "numpy"} == {"analyzers", "tracer", "msgspec"}


@pytest.mark.slow
def test_a_terminal_is_told_how_far_the_recording_is_and_a_reader_that_goes_away_changes_no_exit_code(tmp_path):
    ours, theirs = os.openpty()
    script = [str(SCRIPTS / "loop.py"), "--steps", "40", "--exit", "code"]
    environment = environment_of_training() | {"TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "tracer", "record", *QUICK, "-o", str(tmp_path / "out"), "--ranks", "1", *script]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    said = b""
    while b"tracer: recorded" not in said:
        said += os.read(ours, 4096)
    os.close(ours)
    out, _ = process.communicate(timeout=120)
    assert (process.returncode, out) == (7, b"rank 0 trained 40 steps, loss below 10: True\n")
    # 2 steps to wait, and on a CPU three blocks of 3.
    assert b"\rtracer: step 11 of 11: recorded; the script goes on" in said


@pytest.mark.slow
def test_hosts_record_a_run_each_its_ranks_until_one_of_them_crashes(tmp_path):
    rendezvous = ["--rdzv-backend", "static", "--master-addr", "127.0.0.1", "--master-port", "29547"]
    hosts = [
        record(
            tmp_path / place / "run",
            *("--ranks", "1", "--nnodes", "2", "--node-rank", str(rank), *rendezvous, "--every", "18", "--keep", "1"),
            *(str(SCRIPTS / "loop.py"), "--steps", "10000", "--crash", "1:52"),
        )
        for rank, place in enumerate("ab")
    ]
    for (code, _, lines), place in zip(map(end, hosts), "ab", strict=True):
        assert code != 0
        assert any("the last of" in line and f"/{place}/run/step" in line for line in said(lines)), lines
    assert "the loss is not a number" in "\n".join(lines)
    # What began before the crash has no round, and is nowhere.
    folders = sorted(str(place.relative_to(tmp_path)) for place in tmp_path.glob("*/run/*/*"))
    assert folders == ["a/run/step38/ranks0-0", "b/run/step38/ranks1-1"]
    shutil.copytree(tmp_path / "b" / "run", tmp_path / "a" / "run", dirs_exist_ok=True)
    together, apart = (
        analyzers.load(tmp_path / "a" / "run" / "step38"),
        analyzers.load([tmp_path / "b" / "run" / "step38", tmp_path / "a" / "run" / "step38" / "ranks0-0"]),
    )
    for run in (together, apart):
        assert [rank.rank for rank in run.ranks] == [0, 1]
        assert list(run.manifest.host_of_rank) == ["0", "1"]
        assert not any("missing ranks" in str(warning) for warning in run.warnings)


@pytest.mark.slow
def test_bytes_that_are_no_utf8_reach_the_script_and_name_its_recording(tmp_path):
    script = tmp_path / os.fsdecode(b"tr\xffain.py")
    shutil.copy(SCRIPTS / "bytes.py", script)
    word = os.fsdecode(b"\xe9")
    output = tmp_path / os.fsdecode(b"run\xfe")
    code, out, lines = end(record(output, "--ranks", "1", "--device", "cpu", "--", str(script), word))
    assert (code, out) == (0, b"\xe9\n"), lines
    assert (output / "rank0.json.gz").is_file()
    manifest, _ = read_manifest(output)
    assert (manifest.name, manifest.command[-1]) == ("run\ufffd", "\ufffd")
    assert manifest.command[-2].endswith("tr\ufffdain.py")


@pytest.mark.slow
def test_a_session_in_a_loop_of_one_s_own(tmp_path):
    output = tmp_path / uuid.uuid4().hex
    ranks = [start(sys.executable, str(SCRIPTS / "sessions.py"), str(output), "40", rank) for rank in "01"]
    ended = [end(rank) for rank in ranks]
    assert [code for code, _, _ in ended] == [0, 0], ended
    # Begun after the first step; a recording of three blocks on a CPU, each twelve steps; the newest two are kept.
    assert [out for _, out, _ in ended] == [
        b"0 ['step0', 'step13', 'step25'] [[0, 1], [0, 1], [0, 1]]\n",
        b"1 [] []\n",
    ]
    assert sorted(place.name for place in output.iterdir()) == ["step13", "step25"]
    for place in output.iterdir():
        assert [rank.rank for rank in analyzers.load(place).ranks] == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("crash", "rounds"), [("0:8", 0), ("1:8", 0), ("1:60", 1)])
def test_whichever_rank_of_a_session_fails_what_all_had_is_kept(tmp_path, crash, rounds):
    output = tmp_path / "out"
    ranks = [start(sys.executable, str(SCRIPTS / "sessions.py"), str(output), "90", rank, crash) for rank in "01"]
    ended = [end(rank) for rank in ranks]
    assert all(code != 0 for code, _, _ in ended), ended
    manifest, _ = read_manifest(output)
    assert len(manifest.controls.full.blocks if manifest.controls.full else []) == rounds
    assert [rank.rank for rank in analyzers.load(output).ranks] == [0, 1]
    assert sorted(place.name for place in tmp_path.iterdir()) == ["out", "out.store"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "early", "takes"),
    [
        (
            ["--steps", "5"],
            True,
            "the script took 5 steps; a whole recording takes 109, the shortest with steps that are timed without the",
        ),
        (["--steps", "20"], True, "with --wait 5 --warmup 1 --active 4 --rounds 1 it takes 20"),
        (["--steps", "50"], False, "with --wait 5 --warmup 1 --active 4 --rounds 3 it takes 50"),
        (["--steps", "60", "--crash", "1:30"], True, "the script took 31 steps"),
        (["--steps", "20", "--exit", "os"], True, "the recording ended after at least 4 of 109 steps"),
    ],
)
def test_a_script_that_ends_before_its_recording_leaves_a_report(tmp_path, words, early, takes):
    command = [sys.executable, "-m", "tracer", "record", "-o", str(tmp_path / "out"), "--ranks", "2"]
    _, _, lines = end(start(*command, str(SCRIPTS / "loop.py"), *words))
    assert any(takes in line for line in said(lines)), lines
    assert any(line.startswith("MAIN PROBLEM ") for line in lines)
    found = report(summarize(tmp_path / "out"))
    assert len({window.step for window in found.windows}) == (2 if early else 8)
    assert found.run.world_size == 2
    # That of a round is what this machine's steps are worth.
    assert not early or found.summary.headline.trust == "low"


@pytest.mark.slow
def test_a_plain_script_is_not_run_on_every_rank(tmp_path):
    command = [sys.executable, "-m", "tracer", "record", "-o", str(tmp_path / "out")]
    script = [str(SCRIPTS / "loop.py"), "--plain", "--steps", "20"]
    stopped, warned = start(*command, "--device", "cpu", *script), start(*command, "--ranks", "2", *script)
    code, out, lines = end(stopped)
    assert (code, out) == (1, b"")
    assert said(lines)[0].endswith("2 ranks, on the CPU; 109 training steps of each")
    assert said(lines)[-1].endswith(
        f"To record it on one: tracer record -o {tmp_path / 'out'} --device cpu --ranks 1 {' '.join(script)}"
    )
    code, out, lines = end(warned)
    assert (code, len(out.splitlines())) == (0, 2)
    # Where steps take long, how long the recording takes is said before it.
    behind = [line for line in said(lines)[1:] if "more steps are to be recorded" not in line]
    assert behind[0].startswith("warning: the script joined no process group in its first step")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_ends_the_recording_and_not_the_script(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", tmp_path], check=False).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    try:
        (tmp_path / "fill").write_bytes(bytes(96 * 1024))
        code, out, lines = end(record(tmp_path / "out", "--ranks", "1", str(SCRIPTS / "loop.py"), "--plain"))
        assert (code, out) == (0, b"rank 0 trained 60 steps, loss below 10: True\n")
        # Which of its writes is the first to fail is the sizes' to say.
        assert re.search(r"is the disk full\?|No space left on device", said(lines)[-1])
        assert [file.name for file in tmp_path.iterdir()] == ["fill"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.slow
def test_how_a_script_is_parallelized_is_found_and_optimizers_of_several_parts_count_once_a_step(tmp_path):
    names = ("sharded", "pipeline")
    recordings = [record(tmp_path / name, "--ranks", "2", "--", str(SCRIPTS / "parallel.py"), name) for name in names]
    for process in recordings:
        code, _, lines = end(process)
        assert code == 0, lines
    sharded, pipeline = (read_manifest(tmp_path / name)[0] for name in names)

    assert (sharded.strategy, pipeline.strategy) == ("fsdp+tensor", "pipeline")
    (mesh,) = sharded.parallelism.mesh
    assert (mesh.dims, mesh.shape, mesh.ranks, set(mesh.groups)) == (["dp", "tp"], [1, 2], [0, 1], {"0", "1"})
    (unit,) = sharded.parallelism.fsdp
    assert (unit.modules, unit.count, unit.shard_dims) == ("*", 2, ["dp"])
    assert [(row.modules, row.styles) for row in sharded.parallelism.tensor] == [
        ("*.up", ["ColwiseParallel"]),
        ("*.down", ["RowwiseParallel"]),
    ]
    found = pipeline.parallelism.pipeline
    assert (found.schedule, found.microbatches, found.stages) == ("ScheduleInterleaved1F1B", 2, 4)
    assert found.stages_of_rank == {"0": [0, 2], "1": [1, 3]}
    assert pipeline.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == ""

    for rank in analyzers.load(tmp_path / "pipeline").ranks:
        # Two steps, each of two optimizers, and every forward of two parts with two microbatches.
        assert rank.events.named("Optimizer.step#AdamW.step").sum() == 4
