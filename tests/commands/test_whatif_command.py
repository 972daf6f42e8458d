"""`tracer whatif`: what it prints and writes, and what it refuses in one line."""

import json
from pathlib import Path

import pandas as pd
import pytest

from analyzers.prediction import from_json
from analyzers.settings import USUAL_MB
from tests.support.commands import fails, remember_samples
from tests.support.samples import SAMPLES
from tracer.cli import main

RESNET50 = str(SAMPLES / "resnet50-ddp4-bf16")
DDP4 = SAMPLES / "resnet18-ddp4"
FSDP = str(SAMPLES / "resnet18-fsdp4")
SINGLE = str(SAMPLES / "resnet18-ddp1")
LINKS = str(DDP4 / "links.json")


@pytest.fixture(autouse=True)
def _remembered(monkeypatch) -> None:
    remember_samples(monkeypatch)


def predicted(capsys, *arguments: str):
    assert main(["whatif", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return from_json(out)


def test_without_options_all_that_a_run_can_have_is_predicted(capsys):
    assert main(["whatif", RESNET50]) == 0
    out, err = capsys.readouterr()
    assert (out.startswith("resnet50-ddp4-bf16 · what if"), err) == (True, "")
    found = predicted(capsys, RESNET50)
    assert [(each.bucket_mb, each.gpus) for each in found.of_settings] == [(cap, 4) for cap in USUAL_MB]
    assert {"straggler", "alike", "buffers", "host", "graph"} <= {each.kind for each in found.others}
    assert found.schema == "tracer.whatif/3"


def test_what_is_asked_for_by_name_is_all_there_is(capsys):
    found = predicted(capsys, RESNET50, "--grad-accumulation", "4,2", "--host-time", "0.5,0", "--straggler", "2")
    assert {(each.kind, each.value) for each in found.scenarios} == {
        *(("accumulation", 2), ("accumulation", 4), ("host", 0.5), ("graph", 0.0)),
        *(("straggler", what) for what in ("all", "compute", "host", "input")),
    }
    assert {each.kind for each in predicted(capsys, RESNET50, "--only", "buffers,alike").scenarios} == {
        "buffers",
        "alike",
    }
    views = predicted(capsys, RESNET50, "--gradient-as-bucket-view")
    assert not views.as_recorded
    assert all("gradient_as_bucket_view=True" in each.words for each in views.scenarios)


def test_caps_and_gpus_are_each_taken_once_in_order(capsys):
    found = predicted(capsys, RESNET50, "--bucket-mb", "25,default,0.5,25", "--gpus", "64,4,64")
    assert [(each.bucket_mb, each.gpus) for each in found.scenarios] == [
        (cap, gpus) for gpus in (4, 64) for cap in (25.0, None, 0.5)
    ]
    assert found.scale_out is not None


def test_a_single_gpu_is_predicted_on_measured_links_or_on_given_ones(capsys):
    measured = predicted(capsys, SINGLE, "--links", LINKS, "--gpus", "4", "--bucket-mb", "25")
    assert (measured.links, measured.baseline.gpus) == ("the given calibration", 1)
    given = predicted(
        capsys, SINGLE, "--bus-gbps", "300", "--latency-us", "20", "--gpus", "2,4", "--bucket-mb", "default"
    )
    # The latency is literally that of every group.
    assert [each.latency_us for each in given.scenarios] == [20.0, 20.0]
    assert given.links == "as given"


def test_gradients_travel_as_asked_for_and_buffers_stay_at_home(capsys):
    (own,) = predicted(capsys, str(DDP4), "--bucket-mb", "25").scenarios
    (half,) = predicted(capsys, str(DDP4), "--bucket-mb", "25", "--grad-dtype", "bf16").scenarios
    assert [2 * each for each in half.buckets] == own.buckets
    (silent,) = predicted(capsys, RESNET50, "--bucket-mb", "25", "--no-broadcast-buffers").scenarios
    (loud,) = predicted(capsys, RESNET50, "--bucket-mb", "25").scenarios
    assert silent.predicted_step_ns < loud.predicted_step_ns


def test_files_are_written_whole_and_replaced_only_with_force(tmp_path: Path, capsys):
    names = {"--csv": "a.csv", "--plot": "a.png", "--html": "a.html", "-o": "a.txt"}
    written = [word for option, name in names.items() for word in (option, str(tmp_path / name))]
    assert main(["whatif", RESNET50, "--bucket-mb", "1,25", *written]) == 0
    out, err = capsys.readouterr()
    assert (out, "open it in a browser" in err) == ("", True)
    assert len(pd.read_csv(tmp_path / "a.csv")) == 2
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert 'id="whatif"' in (tmp_path / "a.html").read_text()
    assert "Predicted steps" in (tmp_path / "a.txt").read_text()
    for option, name in names.items():
        code, said = fails(capsys, "whatif", RESNET50, option, str(tmp_path / name))
        assert (code, "give --force" in said) == (1, True)
    assert main(["whatif", RESNET50, "--json", "-o", str(tmp_path / "a.txt"), "--force"]) == 0
    assert json.loads((tmp_path / "a.txt").read_text())["schema"] == "tracer.whatif/3"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--links", LINKS, "--bus-gbps", "300"], "give one"),
        (["--latency-us", "20"], "--latency-us requires --bus-gbps"),
        (["--gpus-per-host", "8"], "give both"),
        (["--host-gbps", "50"], "give both"),
        (["--plot", "a.gif"], "a picture ends in .png, .svg, .pdf"),
    ],
)
def test_options_that_contradict_one_another_are_refused(capsys, arguments, words):
    code, said = fails(capsys, "whatif", RESNET50, *arguments)
    assert (code, words in said) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bucket-mb", "0"],
        ["--bucket-mb", "1,,2"],
        ["--bucket-mb", "nan"],
        ["--bucket-mb", "inf"],
        ["--gpus", "0"],
        ["--gpus", "4,x"],
        ["--bus-gbps", "-1"],
        ["--latency-us", "-1"],
        ["--grad-dtype", "int8"],
        ["--straggler", "all"],
    ],
)
def test_what_is_no_number_is_a_usage_error(arguments):
    with pytest.raises(SystemExit) as ended:
        main(["whatif", RESNET50, *arguments])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([FSDP, "--bucket-mb", "5"], "has no buckets"),
        ([FSDP, "--grad-accumulation", "2"], "is of DDP"),
        ([FSDP, "--gpus", "1"], "shards nothing"),
        ([FSDP, "--links", LINKS, "--no-prefetch"], "has no all_gather"),
        ([RESNET50, "--no-prefetch"], "FSDP2's"),
        ([RESNET50, "--only", "speed"], "there is no such kind"),
        ([str(SAMPLES / "every-collective4"), "--bucket-mb", "5"], "do not show the gradients"),
        ([SINGLE, "--gpus", "4"], "--links FILE"),
        ([SINGLE, "--links", LINKS, "--bucket-mb", "25"], "--gpus"),
        ([SINGLE, "--straggler", "0"], "leave --straggler 0 out"),
        ([str(SAMPLES / "nowhere")], "nowhere"),
        ([RESNET50, "--links", "nowhere.json"], "nowhere.json"),
    ],
)
def test_what_cannot_be_replayed_is_one_clear_line(capsys, arguments, words):
    code, said = fails(capsys, "whatif", *arguments)
    assert (code, words in said) == (1, True)


def test_a_calibration_without_all_reduces_is_refused(tmp_path, capsys):
    file = tmp_path / "links.json"
    row = {"collective": "broadcast", "group_size": 4, "bytes": 1024, "time_ns": 1000}
    file.write_text(json.dumps({"schema": "tracer.calibration/1", "rows": [row]}))
    code, said = fails(capsys, "whatif", RESNET50, "--links", str(file))
    assert (code, "has no all_reduce" in said) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "words"), [(str(DDP4), "Predicted steps over bucket caps"), (SINGLE, "one CUDA graph")]
)
def test_the_reports_page_has_the_usual_predictions(tmp_path, run, words):
    assert main(["report", run, "--html", str(tmp_path / "a.html")]) == 0
    page = (tmp_path / "a.html").read_text()
    assert 'id="whatif"' in page
    assert words in page


@pytest.mark.slow
def test_the_page_of_a_sharded_run_has_its_usual_predictions(tmp_path):
    assert main(["report", FSDP, "--html", str(tmp_path / "c.html")]) == 0
    assert "reshard_after_forward=False" in (tmp_path / "c.html").read_text()
