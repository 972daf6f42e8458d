"""FIFOs and devices where a cache, a log directory or a server has files: passed over at once."""

import gzip
import json
import os
import stat
import threading
import urllib.error
import urllib.request

import pytest

from tests.support.cached import entries, told
from tests.support.kineto_files import small_trace
from tracer.reading import list_runs
from tracer.serving import LOOPBACK, Site, server


def fifo(path):
    os.mkfifo(path)


def endless(path):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # as /dev/zero
    except PermissionError:
        pytest.skip("only root makes devices")


def link(path):
    if not path.with_name("fifo").exists():
        os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")


KINDS = pytest.mark.parametrize("make", [fifo, endless, link])


@KINDS
def test_in_the_place_of_a_cache_entry_it_is_read_past_and_replaced(cache, run, capsys, make):
    first = told(capsys, run)
    for entry in entries(cache):
        entry.unlink()
        make(entry)
    assert told(capsys, run) == first
    assert all(entry.is_file() and not entry.is_symlink() for entry in entries(cache))


def test_an_entry_that_claims_to_be_larger_than_the_cache_is_none(cache, run, capsys):
    first = told(capsys, run)
    for entry in entries(cache):
        os.truncate(entry, 1 << 40)  # sparse: it takes no disk
    assert told(capsys, run) == first
    assert all(entry.stat().st_size < 1 << 30 for entry in entries(cache))


@KINDS
@pytest.mark.parametrize("name", ["other.json", "other.json.gz"])
def test_in_a_log_directory_it_is_no_run_and_the_others_are(tmp_path, make, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "other.json").write_text(json.dumps(small_trace(rank=0)))
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "other.json.gz").write_bytes(gzip.compress(json.dumps(small_trace(rank=0)).encode()))
    (tmp_path / "none").mkdir()
    make(tmp_path / "none" / name)
    assert [run.name for run in list_runs(tmp_path)] == ["packed", "run"]


@KINDS
def test_in_the_place_of_a_served_file_it_is_not_found(tmp_path, make):
    """A file may become one after it was listed."""
    make(tmp_path / "page.html")
    with server(Site({"/": tmp_path / "page.html"}, root=""), 0, or_next=False) as serving:
        threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{LOOPBACK}:{serving.server_address[1]}/")
        serving.shutdown()
