"""`tracer whatif`: what it prints and writes, and what it refuses in one line."""

import json
from pathlib import Path

import pandas as pd
import pytest
from analyzers.prediction.scenarios import USUAL_MB, from_json

from tests.support.commands import fails
from tests.support.samples import SAMPLES
from tracer.cli import main

RESNET50 = str(SAMPLES / "resnet50-ddp4-bf16")
DDP4 = SAMPLES / "resnet18-ddp4"
FSDP = str(SAMPLES / "resnet18-fsdp4")
SINGLE = str(SAMPLES / "resnet18-ddp1")
LINKS = str(DDP4 / "links.json")

pytestmark = pytest.mark.usefixtures("remembered")


def predicted(capsys, *arguments: str):
    assert main(["whatif", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return from_json(out)


def test_without_options_the_usual_caps_are_predicted_on_the_runs_own_gpus(capsys):
    assert main(["whatif", RESNET50]) == 0
    out, err = capsys.readouterr()
    assert (out.startswith("resnet50-ddp4-bf16 · what if"), err) == (True, "")
    found = predicted(capsys, RESNET50)
    assert [(each.bucket_mb, each.gpus) for each in found.of_settings] == [(cap, 4) for cap in USUAL_MB]
    # The rank that is late costs less than the noise.
    assert found.others == []
    sick = predicted(capsys, str(SAMPLES / "resnet18-ddp2-sick"))
    assert [each.kind for each in sick.others] == ["straggler"] * 4 + ["host"] * 2
    assert sick.others[0].gain_ns > sick.uncertainty_ns
    assert found.schema == "tracer.whatif/2"


def test_microbatches_and_views_are_asked_for(capsys):
    found = predicted(capsys, RESNET50, "--grad-accumulation", "4,2", "--gradient-as-bucket-view")
    assert [(each.kind, each.grad_accumulation) for each in found.others] == [("accumulation", 2), ("accumulation", 4)]
    assert not found.as_recorded
    assert main(["whatif", SINGLE, "--grad-accumulation", "2"]) == 0
    assert "2 microbatches a step, synchronized once" in capsys.readouterr().out


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


def test_hosts_set_the_bandwidth_beyond_one(capsys):
    hosts = ("--gpus-per-host", "8", "--host-gbps", "5")
    found = predicted(capsys, RESNET50, "--gpus", "8,16", "--bucket-mb", "100", *hosts)
    near, far = found.scenarios
    assert (near.link_gbps or 0) > 5 >= (far.link_gbps or 0)
    own = predicted(capsys, RESNET50, "--bucket-mb", "100")
    assert any("5 GB/s per host" in words for words in found.assumptions)
    # What hosts there are changes nothing of how well the run itself is predicted.
    assert found.baseline == own.baseline


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
    assert json.loads((tmp_path / "a.txt").read_text())["schema"] == "tracer.whatif/2"


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
    ],
)
def test_what_is_no_number_is_a_usage_error(arguments):
    with pytest.raises(SystemExit) as ended:
        main(["whatif", RESNET50, *arguments])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([str(SAMPLES / "resnet18-dp4")], "nn.DataParallel"),
        pytest.param([FSDP, "--bucket-mb", "5"], "has no buckets", marks=pytest.mark.slow),
        ([FSDP, "--grad-accumulation", "2"], "of DDP alone"),
        ([FSDP, "--host-time", "0"], "as one CUDA graph (--host-time 0) is of DDP alone"),
        ([FSDP, "--gpus", "1"], "shards nothing"),
        ([FSDP, "--links", LINKS], "has no all_gather"),
        ([RESNET50, "--prefetch", "none"], "FSDP2's"),
        ([str(SAMPLES / "every-collective4")], "no all-reduce of gradients"),
        ([SINGLE, "--gpus", "4"], "--links FILE"),
        ([SINGLE, "--links", LINKS, "--bucket-mb", "25"], "--gpus"),
        ([SINGLE, "--bus-gbps", "300", "--straggler", "all"], "leave --straggler out"),
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


def test_the_reports_page_has_the_usual_predictions(tmp_path, capsys):
    assert main(["report", str(DDP4), "--html", str(tmp_path / "a.html")]) == 0
    assert 'id="whatif"' in (tmp_path / "a.html").read_text()
    assert main(["report", SINGLE, "--html", str(tmp_path / "b.html")]) == 0
    # One GPU has no buckets, but a host.
    assert 'id="whatif"' in (tmp_path / "b.html").read_text()
    assert "Predicted steps over bucket caps" not in (tmp_path / "b.html").read_text()


@pytest.mark.slow
def test_the_page_of_a_sharded_run_has_its_usual_predictions(tmp_path):
    assert main(["report", FSDP, "--html", str(tmp_path / "c.html")]) == 0
    assert "reshard_after_forward=False" in (tmp_path / "c.html").read_text()
