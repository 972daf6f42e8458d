"""Effort grows with what there is to do: four times the steps are four times the work, and hardly more."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import pytest

from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import to_json
from tests.support.effort import effort
from tests.support.repeating import repeated
from tests.support.samples import SAMPLES

SAMPLE = SAMPLES / "resnet18-ddp1" / "rank0.json.gz"
# n log n of four times as many, and what each call costs however little it has to do.
MOST = 4.6


@pytest.fixture(scope="module")
def recorded() -> dict:
    return json.loads(gzip.decompress(SAMPLE.read_bytes()))


def written(document: dict, folder: Path) -> Path:
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps(document))
    return folder


@pytest.mark.slow
def test_reports_and_graphs_grow_with_steps(recorded, tmp_path):
    def told(folder: Path) -> None:
        to_json(report(summarize(folder, causes=True)))

    told(written(*repeated([recorded], 1), tmp_path / "first"))  # what is made once, such as tables of patterns
    runs = [written(*repeated([recorded], times), tmp_path / str(times)) for times in (4, 16)]
    few, many = (effort(partial(told, run)) for run in runs)
    assert many < MOST * few
