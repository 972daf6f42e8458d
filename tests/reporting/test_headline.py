"""The headline: the problem that one would name, its remedy, and how far to trust it."""

import re

import pytest
from msgspec.structs import replace

from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.run.loading import Run
from tests.support.drawing import draw, meet
from tests.support.samples import REPORTED, SAMPLES, SHARED, reported
from tests.support.training import host, kernel, step, traced

# What a colleague would say of the samples that show one thing.
SAID = {
    "resnet18-ddp1": ("buffers", "DDP broadcasts buffers before every forward: 0.721 ms of 7.54 ms"),
    "resnet18-ddp2-sick": ("straggler", "rank 1's CPU launches late: 3.67 ms of 12.13 ms (30 % of the step)"),
    "resnet18-ddp2-pageable": ("copies", "copies from pageable memory to the device block the CPU: 17.28 ms of 70.50"),
    "resnet18-fsdp4": ("graph", "the CPU launches too slowly"),
    "resnet18-dp4": ("data_parallel", "one process drives all GPUs (nn.DataParallel): at most 36.2"),
    "resnet50-ddp4-bf16": ("graph", "none is large: 91 % of the step is compute; the largest loss: devices pause"),
    "skew-nvlink": ("idle", "GPUs are idle or wait for others for 99 % of the step"),
}


@pytest.mark.parametrize(("name", "code", "words"), [(name, *said) for name, said in SAID.items()])
def test_samples_are_called_what_they_are(name: str, code: str, words: str):
    headline = reported(SAMPLES / name).summary.headline
    assert (headline.code, words in headline.sentence) == (code, True)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no runs beside the checkout")
@pytest.mark.parametrize(
    ("name", "words", "remedy"),
    [
        ("torchrec-a2a4", "what that costs is not known, 1,014 ms at most", "find out what delays rank 2's CPU"),
        ("amd-mi250", "GPUs are idle for 98 %", "take the 2 waits for the device out of the step"),
        ("mfu_2gpu_after.sqlite", "copies from pageable memory to the device", "make small tensors on the device"),
        ("alexnet", "device memory is allocated and freed", "profile later steps: a process's first ones allocate"),
    ],
)
@pytest.mark.slow
def test_what_a_trace_cannot_tell_is_said(name: str, words: str, remedy: str):
    path = SHARED / ("public/nsys" if name.endswith(".sqlite") else "traces-foreign") / name
    summary = reported(path).summary
    remedies = [summary.headline.remedy or "", *(piece.text for piece in summary.advice)]
    assert words in summary.headline.sentence and any(text.startswith(remedy) for text in remedies)


@pytest.mark.parametrize("path", REPORTED)
def test_the_headline_holds_together(path):
    document = reported(path)
    headline, summary = document.summary.headline, document.summary
    assert (headline.problem is None) == (headline.share is None) == (headline.code is None)
    first = next((piece for piece in summary.advice if piece.code == headline.code), None)
    sentence = headline.sentence
    alone = (sentence, sentence.partition("; besides, ")[0], sentence.rpartition("; the largest loss: ")[2])
    assert headline.code == "compute" or headline.problem in (None, *alone)
    if first is not None:
        # The sentence, its remedy and its figure are of one piece of advice.
        assert (headline.remedy, headline.gain_ns, headline.share) == (first.text, first.gain_ns, first.share)
    elif headline.code == "compute":
        assert (headline.problem, headline.gain_ns) == ("compute", None)
        assert headline.share > 0.5
    else:
        assert headline.gain_ns is None
    assert headline.profiled_step_ns == summary.windows["span_ns"].median
    assert (headline.trust == "high") == (headline.why is None)
    assert headline.sentence[-1] != "."
    named = {(piece.rank, "slow" if piece.value == "compute" else "late") for piece in summary.advice if piece.rank}
    assert {(each.rank, each.mark) for each in headline.marked if each.rank} == named


@pytest.mark.parametrize(("at", "named"), [("aten::add_", ", most of it in 1 of aten::add_"), ("", "")])
def test_a_launch_that_lasts_is_named_by_its_operator(tmp_path, at, named):
    """No row says why the call lasts (code that is loaded, a lock of the driver's): that is not claimed."""
    launch = host("hipLaunchKernel", 30, 900, category="cuda_runtime", correlation=77)
    ended = kernel("add", 1, 935, 5)[1]
    rows = [step(3, 0, 1000), *kernel("first", 1, 2, 8), launch, ended | {"args": ended["args"] | {"correlation": 77}}]
    rows += [host(at, 20, 915)] if at else []
    traced(tmp_path, *rows)
    headline = report(summarize(tmp_path, causes=True)).summary.headline
    assert "mostly in launches under way" + named in headline.sentence
    assert headline.sentence.endswith(named or "way")


def test_what_is_missing_is_not_called_transfer():
    document = report(meet("aaaa..", world_size=8))
    headline = document.summary.headline
    assert headline.code == "exposed_unresolved"
    assert "is not known, since 1 of 8 ranks is here" in headline.problem
    assert headline.remedy.startswith("read the traces of all ranks together")
    assert (headline.trust, "7 of 8 ranks are missing" in headline.why) == ("low", True)


def test_a_device_that_is_all_compute_has_no_problem():
    headline = report(Run("drawn", None, (draw(step="3333", compute="aaaa"),))).summary.headline
    assert headline.sentence == "compute: 100 % of the step"
    assert (headline.problem, headline.remedy, headline.communication) == ("compute", None, None)


def test_communication_that_is_not_there_is_said():
    headline = report(meet("..", "..", compute=("aa", "aa"))).summary.headline
    assert headline.communication == "none was found"


@pytest.mark.parametrize(
    ("name", "trust", "why"),
    [
        ("resnet18-ddp1", "low", "the first gain may be anything between 0.380 and 1.06 ms"),
        ("resnet18-ddp2-pageable", "low", "the first gain may be anything between 12.83 and 21.70 ms"),
        (
            "resnet18-ddp2-cured",
            "low",
            "the profile, replayed, was 160.5 % longer than the unprofiled step, and was scaled to that",
        ),
        ("resnet18-fsdp4", "fair", "no step was timed without it (tracer record does)"),
    ],
)
def test_trust_is_graded(name: str, trust: str, why: str):
    headline = reported(SAMPLES / name).summary.headline
    assert (headline.trust, why in headline.why) == (trust, True)


def check_shares(problem: str) -> int:
    """Hold each share of a sentence to the two figures before it; how many there are."""
    found = re.findall(r"([\d,.]+) ms of ([\d,.]+) ms \(([\d.]+) %", problem)
    for part, whole, share in found:
        apart = 0.6 if float(share) >= 10 else 0.06
        assert 100 * float(part.replace(",", "")) / float(whole.replace(",", "")) == pytest.approx(
            float(share), abs=apart
        )
    return len(found)


@pytest.mark.parametrize("path", REPORTED)
def test_a_gains_share_is_of_the_step_beside_it(path):
    check_shares(reported(path).summary.headline.problem or "")


def test_a_gain_is_of_the_unprofiled_step_where_the_bar_is_of_the_profiled_one(monkeypatch):
    profiled = replace(reported(SAMPLES / "resnet18-ddp2-sick").summary.bar, step_ns=99_000_000)
    monkeypatch.setattr("analyzers.reporting.summary.bar_of", lambda analyses: profiled)
    assert check_shares(report(summarize(SAMPLES / "resnet18-ddp2-sick")).summary.headline.problem) == 1
