"""TensorBoard plugin: a tab with the page of every run.

TensorBoard loads this by its entry point, `tensorboard_plugins`. Requests name a run by a key of the listing.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Any

from tensorboard.plugins.base_plugin import FrontendMetadata, TBContext, TBPlugin
from werkzeug.wrappers import Request, Response

from analyzers.comparison import study
from analyzers.errors import AnalysisError
from analyzers.json_documents import compact
from analyzers.paths import read_file
from analyzers.prediction import usual
from analyzers.rank import summarize
from analyzers.ranks import MANY
from analyzers.reporting import drawn_ranks, lanes, path_lanes, report
from analyzers.run import find
from tracer.reading import ListedRun, Readers, leads_out, list_runs, read_lanes, read_run
from tracer.serving import names_this_machine
from tracer.views import plain
from tracer.views.html import error_html, report_html, scaling_html, scripts_policy

# How long a listing is good for, and how many runs and reports are kept.
FRESH_S = 5.0
MOST_RUNS = 2_000
MOST_REPORTS = 32
# What we send loads nothing by itself: the tab stands in a page of TensorBoard's, with its policy, and frames ours.
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'"
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
App = Callable[[Any, Any], Any]
Answer = Callable[[Request], Response]
EVERY_ADDRESS = ("0.0.0.0", "::")
STATIC = Path(__file__).with_name("static")
# The files that the tab loads, by the name that it asks for, with their type.
ASSETS = {"index.js": ("tab.js", "text/javascript"), "tab.css": ("tab.css", "text/css")}
# TensorBoard's threads must not be forked.
_HERE = Readers(workers=1)


class TracerPlugin(TBPlugin):  # type: ignore[misc]  # tensorboard has no types
    """The tab."""

    plugin_name = "tracer"

    def __init__(self, context: TBContext) -> None:
        self._root = Path(context.logdir).absolute() if context.logdir else None
        self._listing: tuple[float, Mapping[str, ListedRun]] = (-FRESH_S, {})
        self._reports: OrderedDict[str, tuple[Any, str]] = OrderedDict()
        self._names, self._is_open = _names(context.flags)
        self._list_lock, self._report_lock = threading.Lock(), threading.Lock()

    def frontend_metadata(self) -> FrontendMetadata:
        """Return what TensorBoard shows the tab by."""
        return FrontendMetadata(es_module_path="/index.js", tab_name="Tracer", disable_reload=True)

    def is_active(self) -> bool:
        """Whether there is any run: TensorBoard asks often, and reports are not read for it."""
        return bool(self._runs())

    def get_plugin_apps(self) -> dict[str, App]:
        """Return what TensorBoard serves of ours, by route."""
        answers = {f"/{name}": _serving(name) for name in ASSETS}
        answers |= {"/runs": self._serve_runs, "/report": self._serve_report}
        return {route: self._answering(answer) for route, answer in answers.items()}

    def _answering(self, answer: Answer) -> App:
        """Build a WSGI application that answers requests to read that came under a name of this machine."""

        @Request.application
        def application(request: Request) -> Response:
            host = request.environ.get("HTTP_HOST")
            known = names_this_machine([host] if host else None, self._names, any_address=self._is_open)
            if not known:
                return _respond("not served under this name", "text/plain", HTTPStatus.MISDIRECTED_REQUEST)
            if request.method not in ("GET", "HEAD"):
                return _respond("only to be read", "text/plain", HTTPStatus.METHOD_NOT_ALLOWED)
            return answer(request)

        return application

    def _runs(self) -> Mapping[str, ListedRun]:
        """Return the runs by key, listed anew after a while."""
        with self._list_lock:
            listed_at, by_key = self._listing
            if time.monotonic() - listed_at >= FRESH_S:
                runs = islice(list_runs(self._root), MOST_RUNS) if self._root is not None else ()
                by_key = {run.key: run for run in runs}
                self._listing = time.monotonic(), by_key
            return by_key

    def _serve_runs(self, request: Request) -> Response:
        runs = [{"key": key, "name": plain(run.name), "is_sweep": run.is_sweep} for key, run in self._runs().items()]
        return _respond(compact(runs), "application/json")

    def _serve_report(self, request: Request) -> Response:
        run = self._runs().get(request.args.get("run", ""))
        if run is None:
            return _respond("no such run: reload the page", "text/plain", 404)
        return _respond(self._html(run), "text/html", policy=scripts_policy())

    def _html(self, run: ListedRun) -> str:
        """Return a run's report, made once for each state of its files."""
        with self._report_lock:
            state, (kept, html) = run.state(), self._reports.get(run.key, (None, ""))
            if kept != state:
                html = page(run)
            self._reports[run.key] = state, html
            self._reports.move_to_end(run.key)
            if len(self._reports) > MOST_REPORTS:
                self._reports.popitem(last=False)
            return html


def _names(flags: Any) -> tuple[frozenset[str], bool]:
    """Return the further names that whoever started TensorBoard lets it be reached by, and whether by every address."""
    host = str(getattr(flags, "host", None) or "").lower()
    if getattr(flags, "bind_all", False) or host in EVERY_ADDRESS:
        return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()}), True
    return frozenset({host} - {""}), False


def _serving(name: str) -> Answer:
    return lambda request: _respond(*asset(name))


def _respond(content: str | bytes, mimetype: str, status: int = 200, policy: str = POLICY) -> Response:
    headers = {**HEADERS, "Content-Security-Policy": f"{policy}; frame-ancestors 'self'"}
    return Response(content, status, headers, mimetype=mimetype)


def asset(name: str) -> tuple[bytes, str]:
    """Return a file that the tab loads, and its type."""
    file, mimetype = ASSETS[name]
    return read_file(STATIC / file), mimetype


def page(run: ListedRun) -> str:
    """Build a run's or sweep's page as `tracer report --html` and `tracer sweep` do; if there is none, say why."""
    link = leads_out(run.path, run.root)
    if link is not None:
        return error_html(run.name, f"{link}: leads out of the log directory, or nowhere; copy what it names into it")
    try:
        return _of_sweep(run.path) if run.is_sweep else _of_run(run.path)
    except AnalysisError as error:
        return error_html(run.name, str(error))


def _of_sweep(path: Path) -> str:
    return scaling_html(study(path, summarize))


def _of_run(path: Path) -> str:
    few = len(find(path).files) <= MANY
    run = read_run(path, lanes=few, causes=True, by=_HERE)
    run_report = report(run)
    run = run if few else read_lanes(run, path, drawn_ranks(run_report), by=_HERE)
    drawn, paths = lanes(run, run_report), path_lanes(run, run_report)
    return report_html(run_report, drawn, run.calibration, usual(run), paths)
