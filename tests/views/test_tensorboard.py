"""What TensorBoard reads back of runs and sweeps, and our tab of it, asked as TensorBoard asks."""

import argparse
import configparser
import gzip
import html
import http.client
import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import metadata
from werkzeug.exceptions import NotFound
from werkzeug.serving import make_server
from werkzeug.test import Client

from analyzers.lazy_fields import replaced as replace
from analyzers.reporting.per_step import series
from tests.support.commands import fails
from tests.support.hostile import EVIL_CELL
from tests.support.ports import answers, free_port
from tests.support.samples import reported
from tests.support.sweeping import cell, studied, write_cell, write_sweep
from tracer.cli import main
from tracer.commands import tensorboard as command
from tracer.errors import TracerError
from tracer.own_python import safe_environment
from tracer.reading.run_listing import list_runs
from tracer.serving import tensorboard as board
from tracer.views.html.report_page import error_html, scripts_policy
from tracer.views.html.scaling_page import scaling_html
from tracer.views.markdown import sections_markdown
from tracer.views.palette import SPLIT_PARTS
from tracer.views.sections.overview import report_sections
from tracer.views.tensorboard import plugin as tab
from tracer.views.tensorboard.event_files import (
    BAR,
    SHARE,
    UNPROFILED,
    report_files,
    run_scalars,
    scalars,
    sessions,
    study_files,
)
from tracer.views.tensorboard.plugin import ASSETS, STATIC

pytestmark = pytest.mark.usefixtures("remembered")

SAMPLES = Path(__file__).resolve().parents[2] / "traces"
DDP4 = SAMPLES / "resnet18-ddp4"


def accumulated(folder: Path):
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def read_scalars(folder: Path) -> dict[tuple[int, str], float]:
    found = accumulated(folder)
    tags = [tag for tag in found.Tags()["tensors"] if not tag.startswith(("report", "study", "_hparams_"))]
    return {(event.step, tag): float(event.tensor_proto.float_val[0]) for tag in tags for event in found.Tensors(tag)}


def read_text(folder: Path, tag: str) -> str:
    (event,) = accumulated(folder).Tensors(tag)
    return event.tensor_proto.string_val[0].decode()


@pytest.fixture(scope="module")
def logdir(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("logdir")
    assert main(["tensorboard", str(DDP4), str(SAMPLES / "resnet18-dp4"), "--logdir", str(folder)]) == 0
    return folder


# Event files.


def test_scalars_are_the_reports_numbers(logdir):
    windows = {(window.rank, window.step): window for window in reported(DDP4).windows}
    for rank in range(4):
        found = read_scalars(logdir / DDP4.name / f"rank{rank}")
        steps = {step for step, _ in found}
        assert steps == {step for own, step in windows if own == rank}
        for step in steps:
            window = windows[rank, step]
            assert found[step, "step/ms, profiled"] == pytest.approx(window.span_ns / 1e6, rel=1e-6)
            assert found[step, "communication/overlap"] == pytest.approx(window.overlap, rel=1e-6)
            for part in SPLIT_PARTS:
                share = getattr(window, part.field) / window.span_ns
                assert found[step, SHARE.format(part.label)] == pytest.approx(share, rel=1e-6)


def test_all_ranks_together_are_the_series(logdir):
    together = series(reported(DDP4))[0]
    found = read_scalars(logdir / DDP4.name)
    assert found == {
        (figures.step, tag): float(np.float32(value))
        for figures in together.steps
        for tag, value in scalars(figures).items()
    } | {(together.steps[0].step, tag): float(np.float32(value)) for tag, value in run_scalars(reported(DDP4)).items()}
    bar = reported(DDP4).summary.bar
    assert found[together.steps[0].step, UNPROFILED] == np.float32(bar.step_ns / 1e6)
    assert found[together.steps[0].step, BAR.format("compute")] == np.float32(bar.compute_ns / bar.step_ns)
    assert sum(share for (_, tag), share in found.items() if tag.startswith(BAR.format(""))) == pytest.approx(1)
    assert any("busbw" in tag for _, tag in found)
    for figures in together.steps:
        assert sum(figures.shares.values()) == pytest.approx(1)


def test_busbw_of_a_step_is_its_bytes_over_its_transfers():
    for figures in series(reported(DDP4))[0].steps:
        own = [row for row in reported(DDP4).collectives if row.step == figures.step and row.purpose == "gradients"]
        bus_bytes = sum(row.busbw_gbps * row.transfer_ns for row in own)
        assert figures.gradients_busbw_gbps == pytest.approx(bus_bytes / sum(row.transfer_ns for row in own))


def test_devices_of_one_process_are_told_apart(logdir):
    folders = {folder.name for folder in (logdir / "resnet18-dp4").iterdir() if folder.is_dir()}
    assert folders == {f"rank0-device{device}" for device in range(4)}


def test_the_report_is_text(logdir):
    shown = read_text(logdir / DDP4.name, "report/by rank")
    assert shown == sections_markdown(report_sections(reported(DDP4)))
    for by, words in (("rank", "A step takes"), ("bucket", "DDP's buckets"), ("layer", "layer4.1.conv2")):
        assert words in read_text(logdir / DDP4.name, f"report/by {by}").replace("\\", "")


def test_the_same_report_gives_the_same_bytes():
    assert report_files(reported(DDP4)) == report_files(reported(DDP4))


def test_names_cannot_write_markdown():
    found = reported(DDP4)
    shown = sections_markdown(report_sections(replace(found, run=replace(found.run, name=EVIL_CELL, model="| [x](y)"))))
    assert "<script>" not in shown
    assert "\x1b" not in shown
    assert "\\| \\[x\\](y)" in shown


def test_nothing_is_replaced_without_force(tmp_path, capsys):
    file = tmp_path / DDP4.name / command.EVENTS
    file.parent.mkdir()
    file.write_text("precious")
    arguments = ["tensorboard", str(DDP4), "--logdir", str(tmp_path)]
    code, err = fails(capsys, *arguments)
    assert (code, file.read_text()) == (1, "precious")
    assert "--force" in err
    assert main([*arguments, "--force"]) == 0
    assert f"next: tensorboard --logdir {tmp_path}" in capsys.readouterr().out
    assert read_scalars(file.parent)


def test_two_runs_of_one_name_are_a_usage_error(tmp_path, capsys):
    assert fails(capsys, "tensorboard", str(DDP4), str(DDP4), "--logdir", str(tmp_path))[0] == 2


def test_without_tensorboard_the_error_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(board.importlib.util, "find_spec", lambda name: None)
    code, err = fails(capsys, "tensorboard", str(DDP4), "--logdir", str(tmp_path))
    assert code == 1
    assert "pip install 'tracer-toolkit[tensorboard]'" in err
    with pytest.raises(TracerError, match="pip install"):
        board.serve_tensorboard(tmp_path, "/root")


def test_tensorboard_is_started_on_loopback(tmp_path):
    words = board.command(tmp_path, 7)
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[words.index("--port") + 1] == "7"


@pytest.mark.filterwarnings("ignore:html5lib:DeprecationWarning")
def test_tensorboard_reads_by_itself_and_starts_no_server_of_its_data(tmp_path):
    """That server answers whoever asks, at a port of its own."""
    words = board.command(tmp_path, 7)
    parser = argparse.ArgumentParser()
    importlib.import_module("tensorboard.plugins.core.core_plugin").CorePluginLoader().define_flags(parser)
    assert parser.parse_known_args(words[words.index("--logdir") :])[0].load_fast == "false"


# What our process uses of it.
TENSORBOARD = {
    "__init__": "",
    "default": "def get_plugins(): return []",
    "main_lib": "def global_init(): pass",
    "program": """
import os
class TensorBoard:
    def __init__(self, plugins, server_class): pass
    def configure(self, words): self.words = words
    def main(self):
        said = [*self.words[1:], *(name for name in os.environ if name.startswith("TRACER_"))]
        open("said", "w").write(" ".join(said))
        return 0
""",
}


def test_its_path_is_seen_by_its_owner_alone(tmp_path, monkeypatch):
    """Neither in its command, nor in what it writes of itself."""
    (tmp_path / "tensorboard").mkdir()
    for name, text in TENSORBOARD.items():
        (tmp_path / "tensorboard" / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("TRACER_")]:
        monkeypatch.delenv(name)
    assert board.serve_tensorboard(tmp_path, "/unguessable", 7) == 0
    said = tmp_path / "said"
    assert (
        said.read_text()
        == f"--logdir {tmp_path} --host 127.0.0.1 --port 7 --load_fast=false --path_prefix /unguessable"
    )
    assert said.stat().st_mode & 0o777 == 0o600
    assert not any("unguessable" in word for word in board.command(tmp_path, 7))


def status_of(port: int, path: str, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host})
    return connection.getresponse().status


@pytest.mark.slow
def test_no_route_answers_under_a_foreign_name(tmp_path):
    port, root = free_port(), "/unguessable"
    environment = os.environ | safe_environment() | {board.ROOT: root}
    with subprocess.Popen(board.command(tmp_path, port), env=environment, stderr=subprocess.PIPE, text=True) as serving:
        try:
            while serving.poll() is None and not answers(port):
                time.sleep(0.05)
            for path, status in (
                ("/", 200),
                ("/data/environment", 200),
                ("/data/plugin/tracer/runs", 200),
                ("/no", 404),
            ):
                for host in ("127.0.0.1", f"localhost:{port}"):
                    assert (path, status_of(port, root + path, host)) == (path, status)
                for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}"):
                    assert (path, status_of(port, root + path, host)) == (path, 421)
            for target in (f"http://127.0.0.1:{port}{root}/", f"http://evil.example{root}/", "http://["):
                assert status_of(port, target, "127.0.0.1") == 400
            assert status_of(port, f"{root}/%1b%5b2J", "127.0.0.1") == 404
        finally:
            serving.terminate()
            said = serving.communicate()[1]
        assert "\x1b" not in said
        assert "Traceback" not in said


STUDY = studied([cell("single", 1, 32, 8.0), cell("ddp", 2, 32, 10.0, exposed_ms=1.0)])


def test_a_sweeps_cells_are_sessions_with_their_metrics(tmp_path):
    for name, data in study_files(STUDY, "words").items():
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / command.EVENTS).write_bytes(data)
    config = accumulated(tmp_path).SummaryMetadata(metadata.EXPERIMENT_TAG).plugin_data.content
    infos = metadata.parse_experiment_plugin_data(config)
    assert [info.name for info in infos.hparam_infos] == ["strategy", "gpus", "batch"]
    for each, metrics in sessions(STUDY):
        session = accumulated(tmp_path / each.name)
        content = session.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
        hparams = metadata.parse_session_start_info_plugin_data(content).hparams
        assert hparams["strategy"].string_value == each.strategy
        assert hparams["gpus"].number_value == each.gpus
        for tag, value in metrics.items():
            assert session.Tensors(tag)[0].tensor_proto.float_val[0] == pytest.approx(value, rel=1e-6)
    assert metrics["sweep/efficiency, weak"] == 0.8
    assert {metric.name.tag for metric in infos.metric_infos} >= set(metrics)


def test_a_sweep_by_the_command(tmp_path, capsys):
    folder = tmp_path / "sweep"
    write_sweep(folder, [write_cell(folder, "single", 1, 8), write_cell(folder, "ddp", 2, 8)])
    assert main(["tensorboard", str(folder), "--logdir", str(tmp_path / "logs")]) == 0
    assert "Weak scaling" in read_text(tmp_path / "logs" / "sweep", "study")
    assert read_scalars(tmp_path / "logs" / "sweep" / "ddp2-batch8")[0, "sweep/step, ms"] == 1
    capsys.readouterr()
    write_sweep(tmp_path / "empty", [])
    assert fails(capsys, "tensorboard", str(tmp_path / "empty"), "--logdir", str(tmp_path / "none"))[0] == 1


# The tab.


@pytest.fixture
def runs(tmp_path) -> Path:
    """A log directory with a run, a sweep, folders that are none, and a way out."""
    root = tmp_path / "logs"
    shutil.copytree(SAMPLES / "resnet18-ddp1", root / "group" / "one")
    write_sweep(root / "sweep", [write_cell(root / "sweep", "ddp", 2, 8)])
    (root / ".hidden").mkdir()
    (root / ".hidden" / "run.json").write_text("{}")
    shutil.copytree(SAMPLES / "resnet18-ddp1", tmp_path / "outside")
    (root / "way-out").symlink_to(tmp_path / "outside")
    return root


def asked(root: Path | str):
    plugin = tab.TracerPlugin(TBContext(logdir=str(root)))
    apps = plugin.get_plugin_apps()

    def application(environ, start_response):
        return apps[environ["PATH_INFO"]](environ, start_response)

    return plugin, Client(application)


def test_the_tab_lists_runs_and_sweeps_below_the_log_directory(runs):
    plugin, client = asked(runs)
    listed_ = json.loads(client.get("/runs").data)
    assert [(run["name"], run["is_sweep"]) for run in listed_] == [
        ("group/one", False),
        ("sweep", True),
        ("sweep/ddp2-batch8", False),
    ]
    assert plugin.is_active()
    for run in listed_:
        answer = client.get("/report", query_string={"run": run["key"]})
        assert answer.status_code == 200
        assert answer.mimetype == "text/html"
        assert "<h1>" in answer.text
        assert "</html>" in answer.text


@pytest.mark.parametrize("key", ["", "one", "group/one", "../outside", "/etc", "%2e%2e", "way-out"])
def test_a_request_names_no_path(runs, key):
    _, client = asked(runs)
    answer = client.get("/report", query_string={"run": key})
    assert answer.status_code == 404
    assert str(runs) not in answer.text


def test_every_answer_is_guarded(runs):
    _, client = asked(runs)
    for route in ROUTES:
        answer = client.get(route)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert client.post(route).status_code == 405
    assert client.get("/index.js").mimetype == "text/javascript"
    assert "document.baseURI" in client.get("/index.js").text


ROUTES = ("/index.js", "/tab.css", "/runs", "/report")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:6006", "127.0.0.1.evil.example", "10.0.0.5", "[::1]:x", ""]
)
def test_another_name_of_this_machine_is_refused(runs, host):
    _, client = asked(runs)
    for route in ROUTES:
        answer = client.get(route, headers={"Host": host})
        assert answer.status_code == 421
        assert b"group" not in answer.data and b"script" not in answer.data


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:6006", "LOCALHOST:8080"])
def test_a_tunnel_to_tensorboard_may_have_another_port(runs, host):
    assert asked(runs)[1].get("/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("flags", "host", "status"),
    [
        ({"host": "node7"}, "node7:6006", 200),
        ({"host": "node7"}, "node8", 421),
        ({"host": "node7"}, "10.0.0.5", 421),
        ({"bind_all": True}, "10.0.0.5:6006", 200),
        ({"bind_all": True}, "[fe80::1]:6006", 200),
        ({"bind_all": True}, socket.gethostname(), 200),
        ({"bind_all": True}, "evil.example", 421),
        ({"host": "0.0.0.0"}, "10.0.0.5", 200),
        ({"host": "0.0.0.0"}, "evil.example", 421),
    ],
)
def test_whoever_starts_tensorboard_for_others_may_reach_it_as_such(runs, flags, host, status):
    """A name that leads here by somebody's ill will stays refused."""
    plugin = tab.TracerPlugin(TBContext(logdir=str(runs), flags=SimpleNamespace(**flags)))
    client = Client(plugin.get_plugin_apps()["/runs"])
    assert client.get("/", headers={"Host": host}).status_code == status


def outside(place: Path) -> None:
    (place / "rank0.json.gz").unlink()
    (place / "rank0.json.gz").symlink_to(place.parents[2] / "outside" / "rank0.json.gz")


def manifest_outside(place: Path) -> None:
    (place / "run.json").unlink()
    (place / "run.json").symlink_to(place.parents[2] / "outside" / "run.json")


def folder_outside(place: Path) -> None:
    shutil.rmtree(place / "light")
    (place / "light").symlink_to(place.parents[2] / "outside" / "light")


def host_outside(place: Path) -> None:
    (place / "ranks0-0").symlink_to(place.parents[2] / "outside")


def outside_round_about(place: Path) -> None:
    inside = place.parents[1] / ".inside"
    inside.mkdir()
    (inside / "rank0.json.gz").symlink_to(place.parents[2] / "outside" / "light" / "rank0.json.gz")
    shutil.rmtree(place / "light")
    (place / "light").symlink_to(inside)


def nowhere(place: Path) -> None:
    (place / "nosync" / "rank0.json.gz").unlink()
    (place / "nosync" / "rank0.json.gz").symlink_to(place.parents[2] / "gone")


@pytest.mark.parametrize(
    "made", [outside, manifest_outside, folder_outside, host_outside, outside_round_about, nowhere]
)
def test_links_out_of_the_log_directory_are_not_followed(runs, made):
    place = runs / "group" / "one"
    made(place)
    plugin, client = asked(runs)
    key = next(run.key for run in plugin._runs().values() if run.name == "group/one")
    answer = client.get(f"/report?run={key}")
    assert "leads out of the log directory" in answer.text
    assert "A step takes" not in answer.text and "ResNet" not in answer.text


def test_links_within_the_log_directory_are_followed(runs):
    place = runs / "group" / "one"
    shutil.move(place / "light", runs / "shared")
    (place / "light").symlink_to(runs / "shared")
    (place / "loop").symlink_to(place)
    plugin, client = asked(runs)
    key = next(run.key for run in plugin._runs().values() if run.name == "group/one")
    assert "A step takes" in client.get(f"/report?run={key}").text


def test_tensorboard_finds_the_tab_and_its_files_are_shipped():
    setup = configparser.ConfigParser()
    setup.read(SAMPLES.parent / "setup.cfg")
    (line,) = setup["options.entry_points"]["tensorboard_plugins"].split("\n")[1:]
    assert line.partition(" = ")[2] == f"{tab.TracerPlugin.__module__}:{tab.TracerPlugin.__name__}"
    shipped = setup["options.package_data"]["tracer.views.tensorboard"].split()
    assert shipped == ["static/*"]
    for file, _ in ASSETS.values():
        assert (STATIC / file).is_file()


def test_without_runs_the_tab_is_not_active(tmp_path):
    for root in (tmp_path, tmp_path / "none", ""):
        plugin, client = asked(root)
        assert not plugin.is_active()
        assert client.get("/runs").data == b"[]"
    assert plugin.frontend_metadata().es_module_path == "/index.js"


def test_reports_are_read_once_for_each_state_of_their_files(runs, monkeypatch):
    made: list[str] = []
    monkeypatch.setattr(tab, "page", lambda found: made.append(found.name) or "words")
    plugin, client = asked(runs)
    plugin.is_active()
    assert made == []
    key = next(iter(plugin._runs()))
    for _ in range(3):
        assert client.get(f"/report?run={key}").text == "words"
    assert made == ["group/one"]
    (runs / "group" / "one" / "links.json").write_text("{}")
    client.get(f"/report?run={key}")
    assert made == ["group/one"] * 2


def test_what_cannot_be_read_is_said_in_the_tab(runs):
    for file in (runs / "group" / "one").rglob("rank0*"):
        file.write_text("{")
    plugin, client = asked(runs)
    answer = client.get(f"/report?run={next(iter(plugin._runs()))}")
    assert answer.status_code == 200
    assert '<p class="warnings">' in answer.text
    assert "<script" not in answer.text


def test_a_run_of_several_hosts_is_one(tmp_path):
    for part in ("ranks0-1", "ranks2-3"):
        (tmp_path / "big" / part).mkdir(parents=True)
        (tmp_path / "big" / part / "run.json").write_text("{}")
    assert [found.name for found in list_runs(tmp_path)] == ["big"]


def test_every_folder_with_traces_is_a_run(tmp_path):
    """Also without run.json, and where its traces cannot be read: its page says why."""
    documents = {"plain/worker0.pt.trace.json": "{", "other/data.json": '{"schemaVersion": 1, "traceEvents": []}'}
    documents |= {"list/data.json": '[{"ph": "X"}]', "none/config.json": '{"lr": 0.1}', "none/report.json": "{}"}
    for name, text in documents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "data.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    assert [found.name for found in list_runs(tmp_path)] == ["list", "other", "packed", "plain"]


def test_the_tab_shows_the_reports_own_page(runs, tmp_path, capsys):
    plugin, client = asked(runs)
    key = next(run.key for run in plugin._runs().values() if run.name == "group/one")
    file = tmp_path / "page.html"
    assert main(["report", str(runs / "group" / "one"), "--html", str(file)]) == 0
    assert client.get(f"/report?run={key}").text == file.read_text()


def policies(answer) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """What the header and the page itself allow, by directive."""
    (inside,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', answer.text)
    said = (answer.headers["Content-Security-Policy"], html.unescape(inside))
    return tuple({words[0]: set(words[1:]) for words in map(str.split, each.split(";"))} for each in said)


def test_a_page_comes_with_its_policy(runs):
    plugin, client = asked(runs)
    for run in plugin._runs().values():
        header, inside = policies(client.get(f"/report?run={run.key}"))
        assert header.pop("frame-ancestors") == {"'self'"}
        scripts, own = header.pop("script-src"), inside.pop("script-src")
        assert header == inside
        assert own <= scripts | {"'none'"}
        assert all(source.startswith("'sha256-") for source in scripts)
    assert "unsafe" not in scripts_policy().partition("script-src")[2]


def test_the_frame_is_of_no_origin():
    script = (STATIC / "tab.js").read_text()
    assert re.findall(r"sandbox = (.*);", script) == ['"allow-scripts allow-downloads"']
    assert "innerHTML" not in script


def test_names_cannot_write_the_tab():
    for page in (scaling_html(studied([cell("ddp", 2, 8, 1.0)], EVIL_CELL)), error_html(EVIL_CELL, EVIL_CELL)):
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert "\x1b" not in page
        assert "\u202e" not in page
        assert not re.search(r'(?:src|href)="[^#]', page)


@pytest.mark.slow
def test_a_browser_draws_the_page_in_tensorboards_tab(runs):
    """The frame's scripts run, and it can reach nothing of the page around it."""
    sync = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'tracer-toolkit[browser]'")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium, or name it: CHROMIUM=")
    with served(runs) as address, sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        wrong: list[str] = []
        shown = browser.new_page(viewport={"width": 1300, "height": 900})
        shown.on("console", lambda message: message.type == "error" and wrong.append(message.text))
        shown.goto(f"{address}/tab.html")
        frame = shown.frame_locator("iframe")
        sync.expect(frame.locator("#extent")).not_to_have_text("", timeout=30_000)
        assert frame.locator("table.sortable th button").count() > 5
        assert frame.locator("#canvas").evaluate("canvas => canvas.width") > 300
        with pytest.raises(sync.Error, match=r"SecurityError|cross-origin"):
            frame.locator("body").evaluate("() => window.parent.document.title")
        shown.get_by_role("button", name="sweep", exact=False).first.click()
        sync.expect(shown.frame_locator("iframe").locator("h1")).to_contain_text("Scaling", timeout=30_000)
        browser.close()
        assert wrong == []


TAB = b"""<!doctype html>
<html><head><link rel="icon" href="data:,"></head>
<body><script type="module">import("./index.js").then((tab) => tab.render())</script></body></html>
"""


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The plugin's routes, and a page that starts the tab as TensorBoard's does."""
    apps = tab.TracerPlugin(TBContext(logdir=str(root))).get_plugin_apps()

    def application(environ, start_response):
        path = environ["PATH_INFO"]
        if path == "/tab.html":
            start_response("200 OK", [("Content-Type", "text/html")])
            return [TAB]
        return apps[path](environ, start_response) if path in apps else NotFound()(environ, start_response)

    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
