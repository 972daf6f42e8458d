"""Runs behind URLs: fsspec's memory, and S3 as moto serves it."""

import io
import os
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import fsspec
import pytest
import s3fs
from moto.server import ThreadedMotoServer

from analyzers import paths
from analyzers.errors import UnknownPlace, UnusableRun
from analyzers.paths import Remote, _Answering, names, place, size
from analyzers.run.layout import find
from tracer.cli import main

DDP4 = Path(__file__).resolve().parents[1] / "traces" / "resnet18-ddp4"


def report(capsys, where: object, *more: str) -> str:
    assert main(["report", str(where), "--json", *more]) == 0
    return capsys.readouterr().out


def refusal(capsys, where: str) -> str:
    assert main(["report", where]) != 0
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Traceback" not in err, err
    return err


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


@pytest.fixture(scope="module")
def server():
    made = ThreadedMotoServer(port=0, verbose=False)
    made.start()
    yield "http://{}:{}".format(*made.get_host_and_port())
    made.stop()


def ask_at(monkeypatch, address: str) -> None:
    """As botocore's environment variables say it."""
    said = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "we", "SECRET_ACCESS_KEY": "know", "DEFAULT_REGION": "us-east-1"}
    for name, value in said.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(server, monkeypatch):
    """An S3 of our own, and a bucket with a run in it."""
    ask_at(monkeypatch, server)
    client = boto3.client("s3")
    client.create_bucket(Bucket="traces")
    for file in DDP4.rglob("*"):
        if file.is_file():
            client.upload_file(str(file), "traces", f"h200/resnet18-ddp4/{file.relative_to(DDP4)}")
    yield client
    s3fs.S3FileSystem.clear_instance_cache()


RUN = "s3://traces/h200/resnet18-ddp4"


@pytest.mark.slow
def test_memory_reports_what_the_folder_does(memory, capsys):
    memory.put(str(DDP4), "/bucket/resnet18-ddp4", recursive=True)
    assert report(capsys, "memory://bucket/resnet18-ddp4/") == report(capsys, DDP4)


@pytest.mark.slow
def test_s3_reports_what_the_folder_does(bucket, capsys):
    assert report(capsys, RUN, "--workers", "1") == report(capsys, DDP4)


@pytest.mark.slow
def test_processes_of_their_own_read_s3_too(bucket, capsys):
    assert report(capsys, RUN, "--workers", "2") == report(capsys, DDP4)


def test_a_file_url_is_a_path(capsys):
    assert place(DDP4.as_uri()) == DDP4
    assert report(capsys, DDP4.as_uri()) == report(capsys, DDP4)


def test_one_object_is_one_trace(bucket, tmp_path, capsys):
    shutil.copy(DDP4 / "rank2.json.gz", tmp_path)
    bucket.upload_file(str(tmp_path / "rank2.json.gz"), "traces", "alone/rank2.json.gz")
    assert report(capsys, "s3://traces/alone/rank2.json.gz") == report(capsys, tmp_path / "rank2.json.gz")


@pytest.mark.parametrize("run", [None, 3, [], [None], b"run"])
def test_what_names_no_run_is_a_line(run):
    with pytest.raises(UnknownPlace, match="names no run: give a folder of traces"):
        find(run)


def test_a_missing_bucket_is_a_line(bucket, capsys):
    assert "s3://nowhere/run: no such file or folder" in refusal(capsys, "s3://nowhere/run")
    assert "s3://traces/nothing: no such file or folder" in refusal(capsys, "s3://traces/nothing")


def test_missing_credentials_are_a_line(bucket, tmp_path, capsys, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    assert f"{RUN}: cannot be opened (credentials are missing or refused" in refusal(capsys, RUN)


def test_a_vanished_object_costs_its_rank(bucket, capsys, monkeypatch):
    find(RUN)  # lists the folder
    bucket.delete_object(Bucket="traces", Key="h200/resnet18-ddp4/rank2.json.gz")
    out = report(capsys, RUN, "--workers", "1")
    assert f"left out: {RUN}/rank2.json.gz: cannot be read (no such object or bucket)" in out


def test_a_server_that_has_gone_is_a_line(capsys, monkeypatch):
    ask_at(monkeypatch, "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    said = refusal(capsys, "s3://traces/run")
    assert said.startswith("tracer: s3://traces/run: cannot be opened (the server refuses the connection: "), said
    s3fs.S3FileSystem.clear_instance_cache()


class Answers(BaseHTTPRequestHandler):
    """A server that answers each path with the status that it names: /403/run."""

    def do_HEAD(self) -> None:
        self.send_response(int(self.path.split("/")[1]))
        self.end_headers()

    do_GET = do_HEAD  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def web():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (404, "no such file or folder; give"),
        (403, "cannot be opened (access denied: the server answers HTTP 403)"),
        (401, "cannot be opened (access denied: the server answers HTTP 401)"),
        (500, "cannot be opened (the server answers HTTP 500)"),
    ],
)
def test_what_a_web_server_answers_is_told_apart(web, capsys, status, why):
    assert f"{web}/{status}/run: {why}" in refusal(capsys, f"{web}/{status}/run")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("localhost:9", "the server refuses the connection: check that it runs, and its port"),
        ("127.0.0.1:9", "the server refuses the connection: check that it runs, and its port"),
        ("no-such-host.invalid", "its host is not known: check the name, and this machine's network"),
    ],
)
def test_a_server_that_is_not_reached_is_told_apart_from_a_missing_run(capsys, host, why):
    assert refusal(capsys, f"http://{host}/run") == f"tracer: http://{host}/run: cannot be opened ({why})\n"


def test_a_server_that_never_answers_is_a_line():
    with pytest.raises(OSError, match="the server does not answer: check its address"):
        paths._said(Remote("http://host/run"), lambda: (_ for _ in ()).throw(TimeoutError()))


def test_no_object_leads_out_of_the_folder(memory, monkeypatch):
    memory.pipe("/bucket/run/rank0.json", b"[]")
    inside, above = "/bucket/run/rank0.json", "/bucket/run/../x.json"
    listed = [inside, above, "/bucket/run/..", "/etc/passwd.json", "/bucket/run/a\\b.json"]
    monkeypatch.setattr(type(memory), "ls", lambda *_, **__: listed)
    assert names(Remote("memory://bucket/run")) == {"rank0.json"}


def test_what_is_missing_is_said_with_its_pip_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert "pip install 'tracer-toolkit[remote]'" in refusal(capsys, "s3://traces/run")


@pytest.mark.parametrize("url", ["zzz://a/b", "s3://", "file://elsewhere/run", "memory://a::s3://b/c"])
def test_urls_that_nothing_opens_are_usage_errors_or_lines(url, capsys):
    try:
        code = main(["report", url])
    except SystemExit as ended:
        code = ended.code
    assert code in (1, 2)
    assert url.partition("::")[0] in capsys.readouterr().err


def test_a_remote_has_of_a_path_what_reading_needs(memory):
    memory.pipe("/bucket/run/rank0.json.gz", b"12345")
    file = Remote("memory://bucket/run/rank0.json.gz")
    assert (file.name, file.suffix, file.parent.name) == ("rank0.json.gz", ".gz", "run")
    assert file.is_file() and not file.is_dir() and file.parent.is_dir() and size(file) == 5
    assert not (file.parent / "rank1.json").exists() and names(file.parent / "light") == frozenset()
    with file.open() as opened:
        assert opened.read(2) == b"12" and opened.read() == b"345"
    with pytest.raises(FileNotFoundError, match="no such object"):
        Remote("memory://bucket/none").read_bytes()
    with pytest.raises(UnusableRun):
        find("memory://bucket/none")
    with pytest.raises(UnknownPlace):
        find("zzz://bucket/none")


@pytest.mark.slow
def test_a_page_and_an_archive_are_made_of_a_remote_run(memory, tmp_path, capsys):
    memory.put(str(DDP4), "/bucket/resnet18-ddp4", recursive=True)
    for where, name in ((str(DDP4), "here"), ("memory://bucket/resnet18-ddp4", "there")):
        assert main(["export", where, "-o", str(tmp_path / f"{name}.pftrace")]) == 0
        assert main(["export", where, "-o", str(tmp_path / f"{name}.zip")]) == 0
    assert (tmp_path / "here.pftrace").read_bytes() == (tmp_path / "there.pftrace").read_bytes()
    assert (tmp_path / "there.zip").stat().st_size == pytest.approx((tmp_path / "here.zip").stat().st_size, rel=0.01)


def test_an_object_that_ends_early_while_it_is_read_is_refused(memory):
    memory.pipe("/bucket/rank0.json", b"x" * 100)
    with Remote("memory://bucket/rank0.json").open() as file:
        assert file.read(60) == b"x" * 60
        # Told as 100 bytes long, by then 80.
        file.file = Shortened(file.file.read(20), size=100)
        assert file.read(60) == b"x" * 20
        with pytest.raises(OSError, match="ended after 80 of 100 bytes"):
            file.read(60)


class Shortened(io.BytesIO):
    def __init__(self, data: bytes, size: int, details: object = None) -> None:
        super().__init__(data)
        self.size, self.details = size, details


def test_an_object_that_changes_while_it_is_read_is_refused(memory, monkeypatch):
    monkeypatch.setattr(paths, "READ_AHEAD", 10)
    memory.pipe("/bucket/rank0.json", b"x" * 100)
    where = Remote("memory://bucket/rank0.json")
    for now, is_same in (({"ETag": "1"}, True), ({"ETag": "2"}, False), (None, False)):
        monkeypatch.setattr(Remote, "_info", lambda self, now=now: now)
        reading = paths._Reading(where, Shortened(b"x" * 100, 100, {"ETag": "1"}))
        if is_same:
            assert len(reading.read()) == 100
            continue
        with pytest.raises(OSError, match="changed while it was read"):
            reading.read()


@pytest.mark.parametrize("where", ["MEMORY://case/run", "Memory://case/run"])
def test_schemes_have_no_case(memory, where):
    memory.pipe("/case/run/rank0.json", b"{}")
    assert place(where) == Remote("memory://case/run")
    assert place(where).is_private and names(place(where)) == {"rank0.json"}
    assert place("HTTP://Host/Run?Key=S").url == "http://Host/Run?Key=S"
    assert place("FILE:///data/Run") == Path("/data/Run")


def test_a_file_that_has_nothing_to_read_now_says_so():
    """As /proc/kmsg, which is a regular file by name."""
    end, other = os.pipe()
    os.set_blocking(end, False)
    with _Answering(io.FileIO(end)) as file, pytest.raises(OSError, match="nothing to read now"):
        file.read(9)
    os.close(other)
