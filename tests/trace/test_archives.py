"""Traces in archives: read as they come, bounded, or named with what unpacks them."""

import bz2
import gzip
import io
import json
import lzma
import shlex
import shutil
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import analyzers
from analyzers.errors import UnreadableTrace
from analyzers.notices import Code
from analyzers.trace.decoding import Blocks
from analyzers.trace.decoding.archives import Buffered, unpacked_zstd
from tests.support.kineto_files import small_trace
from tests.support.many_processes import document, rows

TEXT = json.dumps(small_trace()).encode()
LONG = json.dumps(document(rows(1, steps=range(600))), indent=1).encode()


def zipped(*members, how=zipfile.ZIP_DEFLATED, streamed=False):
    """An archive; `streamed` as what writes to a pipe leaves it, with sizes behind the data."""

    class Pipe(io.BytesIO):
        def seekable(self):
            return not streamed

        def seek(self, *where):
            if streamed:
                raise io.UnsupportedOperation
            return super().seek(*where)

        def tell(self):
            if streamed:
                raise io.UnsupportedOperation
            return super().tell()

    file = Pipe()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def zstandard(data):
    return subprocess.run(["zstd", "-qc"], input=data, stdout=subprocess.PIPE, check=True).stdout


ARCHIVES = {
    "trace.zip": lambda data: zipped(("a/rank0.json", data)),
    "stored.zip": lambda data: zipped(("rank0.json", data), how=zipfile.ZIP_STORED),
    "streamed.zip": lambda data: zipped(("rank0.json", data), streamed=True),
    "of_gzip.zip": lambda data: zipped(("rank0.json.gz", gzip.compress(data)), how=zipfile.ZIP_STORED),
    "with_more.zip": lambda data: zipped(
        ("a/", ""), ("README.md", "words"), ("__MACOSX/x.json", "{"), ("r.json", data)
    ),
    "trace.json.zst": zstandard,
    "of_two_frames.zst": lambda data: zstandard(data[:100]) + zstandard(data[100:]),
}
needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
CASES = [pytest.param(name, marks=[needs_zstd] if name.endswith(".zst") else []) for name in ARCHIVES]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("data", [TEXT, LONG], ids=["small", "long"])
def test_a_trace_in_an_archive_is_read_as_itself(tmp_path, name, data):
    (tmp_path / "plain.json").write_bytes(data)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / name).write_bytes(ARCHIVES[name](data))
    (plain,) = analyzers.load(tmp_path / "plain.json").ranks
    for path in (tmp_path / "folder" / name, tmp_path / "folder"):
        (trace,) = analyzers.load(path).ranks
        assert not trace.lost
        assert (trace.events.start_ns == plain.events.start_ns).all()


@pytest.mark.parametrize("name", CASES)
def test_an_archive_cut_short_is_read_as_far_as_it_goes(tmp_path, name):
    data = ARCHIVES[name](LONG)
    (tmp_path / name).write_bytes(data[: len(data) * 2 // 3])
    (notice,) = [each for each in analyzers.load(tmp_path / name).warnings if each.code == Code.TRACE_INCOMPLETE]
    assert "cut short" in notice.text


@pytest.mark.parametrize("name", ["trace.zip", pytest.param("trace.json.zst", marks=needs_zstd)])
def test_a_damaged_archive_is_not_trusted(tmp_path, name):
    data = bytearray(ARCHIVES[name](LONG))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UnreadableTrace, match="nothing in it can be trusted"):
        analyzers.load(tmp_path / name)


@pytest.mark.parametrize(
    ("members", "folder"),
    [
        (("rank0.json", "rank1.json"), "traces"),
        (("log/rank0.json", "log/rank1.json.gz"), "traces/log"),
        (("my run/light/rank0.json", "my run/rank0.json"), "'traces/my run'"),
        (("/tmp/a/rank0.json", "/tmp/b/rank1.json"), "traces/tmp"),
        (("run/rank0.json", "run/run.json"), "traces/run"),
    ],
)
def test_an_archive_of_several_traces_is_named_with_the_commands_that_report_it(tmp_path, members, folder):
    path = tmp_path / "logs.zip"
    path.write_bytes(zipped(*((member, TEXT) for member in members)))
    with pytest.raises(UnreadableTrace) as refused:
        analyzers.load(path)
    assert f"unzip logs.zip -d traces, then `tracer report {folder}`" in str(refused.value)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "traces")
    assert (tmp_path / shlex.split(folder)[0]).is_dir()


@pytest.mark.parametrize("name", ["trace.zip", pytest.param("trace.json.zst", marks=needs_zstd)])
def test_an_archive_that_inflates_without_end_takes_no_memory(tmp_path, name):
    """White space, of which a thousandth is on the disk."""
    (tmp_path / name).write_bytes(ARCHIVES[name](b" " * (1 << 27)))
    tracemalloc.start()
    tracemalloc.reset_peak()
    assert sum(map(len, Blocks(tmp_path / name))) == 1 << 27
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_an_archive_that_export_wrote_is_known(tmp_path):
    (tmp_path / "run.zip").write_bytes(zipped(("lanes.pftrace", b"\n"), ("rank0.json", TEXT)))
    with pytest.raises(UnreadableTrace, match=r"`tracer export` wrote.*unzip run\.zip -d traces"):
        analyzers.load(tmp_path / "run.zip")


def test_an_archive_of_several_traces_or_none_is_refused(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped(("rank0.json", TEXT), ("rank1.json", TEXT)))
    with pytest.raises(UnreadableTrace, match=r"several traces \(rank0\.json, rank1\.json\): unpack it: unzip"):
        analyzers.load(tmp_path / "a.zip")
    (tmp_path / "b.zip").write_bytes(zipped(("words.txt", "words")))
    with pytest.raises(UnreadableTrace, match="without a trace"):
        analyzers.load(tmp_path / "b.zip")


def tarred(data):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("rank0.json")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()


OTHERS = {
    "a.json.xz": (lzma.compress(TEXT), r"unxz a\.json\.xz"),
    "a.json.bz2": (bz2.compress(TEXT), r"bunzip2 a\.json\.bz2"),
    "a.tar": (tarred(TEXT), r"tar xf a\.tar"),
    "a.tar.gz": (gzip.compress(tarred(TEXT)), r"tar xf a\.tar\.gz"),
    "a.7z": (b"7z\xbc\xaf\x27\x1c" + bytes(64), r"7z x a\.7z"),
    "a b.json.lz4": (b"\x04\x22\x4d\x18" + bytes(64), r"unlz4 'a b\.json\.lz4'"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_packings_are_named_with_what_unpacks_them(tmp_path, name):
    data, command = OTHERS[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UnreadableTrace, match=command):
        analyzers.load(tmp_path / name)


@pytest.mark.parametrize("cut", [0, 10])
def test_pythons_own_zstandard_is_used_where_there_is_one(monkeypatch, cut):
    """Python 3.14 brings it; its decompressors are as bzip2's are."""
    zstd = SimpleNamespace(
        ZstdDecompressor=lambda options: bz2.BZ2Decompressor(),
        DecompressionParameter=SimpleNamespace(window_log_max=101),
        ZstdError=OSError,
    )
    monkeypatch.setitem(sys.modules, "compression", SimpleNamespace(zstd=zstd))
    data, lost = bz2.compress(LONG) + bz2.compress(bytes(1 << 21)), []
    source = Buffered(iter([data[: len(data) - cut]]))
    read = b"".join(unpacked_zstd(Path("a.zst"), source.read, lost))
    assert (LONG + bytes(1 << 21)).startswith(read)
    assert (len(read) == len(LONG) + (1 << 21), len(lost)) == (not cut, bool(cut))
