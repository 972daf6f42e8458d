"""The headline: the problem that one would name, its remedy, and how far to trust it."""

import pytest

from analyzers.reporting.build import report
from analyzers.reporting.headline import LARGE
from analyzers.run.loading import Run
from analyzers.units import rounded_percent
from tests.support.drawing import draw, meet
from tests.support.samples import REPORTED, SAMPLES, reported

# What a colleague would say of the samples that show one thing.
SAID = {
    "resnet18-ddp1": ("launch_bound", "the CPU launches too slowly"),
    "resnet18-ddp2-sick": ("straggler", "rank 1's CPU launches late: the other rank spends 72 % of its step waiting"),
    "resnet18-fsdp4": (
        "launch_bound",
        "GPUs are idle, or wait for rank 3, whose CPU is hardly slower than the others'",
    ),
    "resnet18-dp4": ("data_parallel", "nn.DataParallel drives all of them from one process"),
    "resnet50-ddp4-bf16": ("kernel_gaps", "none is large: 90 % of the step is compute"),
}


@pytest.mark.parametrize(("name", "code", "words"), [(name, *said) for name, said in SAID.items()])
def test_samples_are_called_what_they_are(name: str, code: str, words: str):
    headline = reported(SAMPLES / name).summary.headline
    assert (headline.code, words in headline.sentence) == (code, True)


@pytest.mark.parametrize("path", REPORTED)
def test_the_headline_holds_together(path):
    document = reported(path)
    headline, shares = document.summary.headline, document.summary.shares
    assert (headline.problem is None) == (headline.share is None) == (headline.code is None)
    if headline.problem is not None and headline.share >= LARGE:
        assert headline.sentence == headline.problem
    elif headline.problem is not None:
        small, lost = headline.sentence.split("; the largest loss: ")
        assert small.startswith("none is large: ")
        # A part of the step is called by a shorter name where it is small.
        assert lost == headline.problem or f"{rounded_percent(headline.share)} of the {headline.step_word}" in lost
    assert headline.profiled_step_ns == document.summary.windows["span_ns"].median
    assert (headline.trust == "high") == (headline.why is None)
    assert headline.sentence[-1] != "."
    unresolved = shares["exposed_unresolved_ns"] or 0
    assert headline.trust == "low" or unresolved <= 0.1


def test_what_is_missing_is_not_called_transfer():
    document = report(meet("aaaa..", world_size=8))
    headline = document.summary.headline
    assert headline.code == "exposed_unresolved"
    assert "is not known, since 1 of 8 ranks is here" in headline.problem
    assert headline.remedy.startswith("read the traces of all ranks together")
    assert (headline.trust, "7 of 8 ranks are missing" in headline.why) == ("low", True)


def test_a_device_that_is_all_compute_has_no_problem():
    headline = report(Run("drawn", None, (draw(step="3333", compute="aaaa"),))).summary.headline
    assert headline.sentence == "none: 100 % of the step is compute, and no loss takes 1 %"
    assert (headline.problem, headline.remedy, headline.communication) == (None, None, None)


def test_communication_that_is_not_there_is_said():
    headline = report(meet("..", "..", compute=("aa", "aa"))).summary.headline
    assert headline.communication == "none was found"


@pytest.mark.parametrize(
    ("name", "trust", "why"),
    [
        ("resnet18-ddp1", "low", "the profiler makes the step much longer"),
        ("resnet18-ddp2-sick", "fair", "the profiler makes the step longer"),
        ("every-collective4", "fair", "how much the profiler slows the step is not known"),
        ("resnet50-ddp4-bf16", "high", None),
    ],
)
def test_trust_is_graded(name: str, trust: str, why: str | None):
    headline = reported(SAMPLES / name).summary.headline
    assert (headline.trust, headline.why) == (trust, why)
