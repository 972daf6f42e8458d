"""FSDP2 recorded without steps of the profiler, of which ranks are missing: nothing is to be trusted."""

import gzip
import json

import pytest

from tests.support.samples import SAMPLES
from tracer.cli import main


@pytest.fixture(scope="module")
def unmarked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unmarked")
    for file in (SAMPLES / "resnet18-fsdp4").glob("rank[01].json.gz"):
        document = json.loads(gzip.decompress(file.read_bytes()))
        events = document["traceEvents"]
        document["traceEvents"] = [row for row in events if not str(row.get("name")).startswith("ProfilerStep")]
        (folder / file.name.removesuffix(".gz")).write_text(json.dumps(document))
    return folder


def test_what_if_says_how_little_is_known(unmarked, capsys):
    assert main(["whatif", str(unmarked)]) == 0
    assert "2 of 4 ranks are missing" in capsys.readouterr().out


def test_the_page_is_made(unmarked, tmp_path):
    assert main(["report", str(unmarked), "--html", str(tmp_path / "page.html")]) == 0
