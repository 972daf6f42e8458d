"""Signatures and credentials of URLs, wherever the program says something of them."""

import http.server
import json
import pickle
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import tracer
from analyzers.errors import LostRank
from analyzers.paths import Remote, place
from analyzers.redaction import redacted
from analyzers.run.layout import RankFile
from tests.support.kineto_files import small_trace
from tests.support.ports import free_port
from tracer.cli import main
from tracer.errors import TracerError
from tracer.reading.dask_cluster import Cluster

DDP4 = Path(__file__).resolve().parents[1] / "traces" / "resnet18-ddp4"
SECRET = "5f00dbad5ec2e7"
QUERY = f"X-Amz-Credential=AKIA{SECRET}%2F20261120&X-Amz-Signature={SECRET}/"


class Answering(http.server.BaseHTTPRequestHandler):
    """Gives its one file to whoever has signed; 403 for all else, as S3 says of what may be missing."""

    body = json.dumps(small_trace(rank=0)).encode()

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path, _, query = self.path.partition("?")
        code = {"/run/rank0.json": 200 if SECRET in query else 403, "/gone.json": 404, "/broken.json": 500}.get(
            path, 403
        )
        self.send_response(code)
        self.send_header("Content-Length", str(len(self.body) if code == 200 else 0))
        self.end_headers()
        if code == 200 and self.command == "GET":
            self.wfile.write(self.body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def refusal(capsys, *arguments: str) -> str:
    try:
        assert main(arguments) != 0
    except SystemExit as ended:
        assert ended.code == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1, err
    assert SECRET not in err and "Traceback" not in err
    return err


def test_a_signed_url_is_read_and_its_signature_is_nowhere(address, tmp_path, capsys, monkeypatch):
    url = f"{address}/run/rank0.json?{QUERY}"
    monkeypatch.chdir(tmp_path)
    for more in (["--json"], ["--csv", "tables"], ["--html", "page.html", "-o", "text"], ["--by", "step"]):
        assert main(["report", url, *more]) == 0
        out, err = capsys.readouterr()
        assert SECRET not in out + err and "X-Amz" not in out + err
    assert main(["report", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["name"] == "rank0.json"
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes(), file


def test_http_errors_are_called_what_they_are(address, capsys):
    refused = f"http://127.0.0.1:{free_port()}/rank0.json?{QUERY}"
    err = refusal(capsys, "report", refused)
    assert "cannot be opened (" in err and "no such" not in err and "refuses the connection" in err
    assert "no such file" in refusal(capsys, "report", f"{address}/gone.json?{QUERY}")
    assert "access denied: the server answers HTTP 403" in refusal(
        capsys, "report", f"{address}/run/rank0.json?X-Amz-Signature=wrong"
    )
    assert "HTTP 500" in refusal(capsys, "report", f"{address}/broken.json?{QUERY}")


@pytest.mark.parametrize(
    "url",
    [
        f"https://host/run?{QUERY}", f"zzz://host/run?sig={SECRET}", f"memory://a::s3://b/c?token={SECRET}",
        f"zzz://me:{SECRET}@host/run", f"file://me:{SECRET}@elsewhere/run", f"zzz://{SECRET}@host/run",
        f"filecache::http://me:{SECRET}@127.0.0.1:1/rank0.json.gz?key={SECRET}",
        f" http://me:{SECRET}@127.0.0.1:1/r?key={SECRET}",
        f"http:/me:{SECRET}@127.0.0.1:1/r?{SECRET}", f"http:///me:{SECRET}@127.0.0.1:1/r",
        f"zzz://h/r?key=(a) '{SECRET}'",
        f"zzz://me:{SECRET}/x@host/run", f"zzz://host/run#access_token={SECRET}", f"ftp://me:pa@{SECRET}@nowhere.invalid/r",
    ],
)  # fmt: skip
def test_no_refusal_holds_a_secret(url, capsys, monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: (_ for _ in ()).throw(OSError(-2, f"unknown: {url}")))
    assert "***" in refusal(capsys, "report", url)


def test_usage_errors_hold_no_secret(capsys):
    refusal(capsys, "report", "traces", f"--htm=https://host/x?{QUERY}")
    refusal(capsys, "report", "traces", "--scheduler", f"ftp://me:{SECRET}@host")
    refusal(capsys, "report", "traces", "--links", f"http://127.0.0.1:1/x?key={SECRET}")


@pytest.mark.parametrize("user", [f"me:{SECRET}", "u:PW"])
def test_a_schedulers_address_is_shown_without_its_password(user, capsys):
    err = refusal(capsys, "report", str(DDP4), "--scheduler", f"tls://{user}@127.0.0.1:1")
    assert user not in err and "no Dask scheduler answers" in err


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("no secret here: a?b=c, s3://bucket/run@2/rank0.json", None),
        ("see https://docs.pytest.org/en/stable", None),
        ("http://host:8080/run@2/rank0.json is fine", None),
        ("tcp://10.0.0.1:8786: no scheduler", None),
        ("/data/a:/data/b@2, C:/me@home, file:///run@2", None),
        (f"http:/me:{SECRET}@h/p?key=1: no such file", "http:/***@h/p?*** no such file"),
        (f"url='https://h/p?{QUERY}' failed", "url='https://h/p?***' failed"),
        (f"(caused by https://me:{SECRET}@h/p)", "(caused by https://***@h/p)"),
        (
            f"exceeded with url: /p?X-Goog-Signature={SECRET}&b=c (x)",
            "exceeded with url: /p?X-Goog-Signature=***&b=c (x)",
        ),
        (f"?sv=1&sig={SECRET}%3D", "?sv=1&sig=***"),
        (f"AccountName=a;AccountKey={SECRET}==;x", "AccountName=a;AccountKey=***;x"),
        (f"Authorization: Bearer {SECRET}", "Authorization: Bearer ***"),
    ],
)
def test_what_is_redacted(said, shown):
    assert redacted(said) == (said if shown is None else shown)
    assert redacted(redacted(said)) == redacted(said)


def test_a_signed_place_is_shown_without_and_opened_with_its_signature():
    file = place(f"https://me:{SECRET}@host/run/rank0.json.gz?{QUERY}#{SECRET}")
    assert isinstance(file, Remote)
    assert (file.name, file.suffix) == ("rank0.json.gz", ".gz")
    assert SECRET in file.url and file.url.endswith(f"{QUERY}#{SECRET}")
    for shown in (str(file), repr(file), f"{file}", str(file.parent), repr(file.parent), str(file / "x"), repr([file])):
        assert SECRET not in shown
    assert (file.parent / "run.json").url == f"https://me:{SECRET}@host/run/run.json?{QUERY}#{SECRET}"
    assert pickle.loads(pickle.dumps(file)) == file
    assert place("s3://bucket/odd?name/rank0.json").name == "rank0.json"


def test_a_file_systems_own_words_are_redacted(monkeypatch, capsys):
    """Of whatever library, in whatever form: the secrets of the URL that was asked for are known."""

    def fails(*_, **__):
        raise RuntimeError(f"cannot: AKIA{SECRET}/20261120 and me, {SECRET}")

    monkeypatch.setattr(MemoryFileSystem, "info", fails)
    assert "cannot" in refusal(capsys, "report", f"memory://me:{SECRET}@host/run?{QUERY}")


class Quarrelling:
    """A cluster's client and executor, whose worker complains of what it was asked for."""

    def get_executor(self, pure):
        return self

    def nthreads(self):
        return {"worker": 1}

    def submit(self, read, fn, versions, file):
        future = Future()
        future.set_exception(MemoryError(f"{file.path.url} does not fit; AKIA{SECRET}/20261120"))
        return future


def test_a_workers_own_words_are_redacted():
    file = RankFile(place(f"memory://host/run/rank0.json?{QUERY}"), None, None, False)
    (lost,) = Cluster(Quarrelling(), "tcp://nowhere", lambda file: None).map(len, [file])
    assert isinstance(lost, LostRank) and "MemoryError on its worker" in str(lost)
    assert SECRET not in f"{lost} {file!r} {lost!r}"


URL = f"http://host/out?X-Amz-Signature={SECRET}"
OUTPUTS = [
    *(("report", str(DDP4), option) for option in ("-o", "--csv", "--html")),
    *(("compare", str(DDP4), str(DDP4), option) for option in ("-o", "--html")),
    *(("hta", str(DDP4), "idle", option) for option in ("-o", "--csv")),
    *(("whatif", str(DDP4), option) for option in ("-o", "--csv", "--html", "--plot", "--links")),
    ("plot", str(DDP4), "-o"), ("export", str(DDP4), "-o"), ("calibrate", "-o"), ("record", "-o"), ("sweep", "-o"),
    ("tensorboard", str(DDP4), "--logdir"),
]  # fmt: skip


@pytest.mark.parametrize("words", OUTPUTS)
def test_what_is_written_is_named_by_a_path(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url in (URL, f" {URL}", f"filecache::{URL}", "file:///elsewhere/out"):
        with pytest.raises(SystemExit) as ended:
            main([*words, url])
        assert ended.value.code == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and "give a path on this machine" in err and SECRET not in err, err
    with pytest.raises(SystemExit) as ended:
        main([*words, ""])
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.count("\n") == 1 and "'' is empty" in err, err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("output", [URL, ""])
def test_a_sessions_folder_is_named_by_a_path(output):
    with pytest.raises(TracerError) as refused:
        tracer.Session(output)
    assert "give a path on this machine" in str(refused.value) and SECRET not in str(refused.value)
