"""HTA's own classes on exact frames: the one import of HTA.

HTA takes every time for microseconds and rounds those that are not whole. Whole nanoseconds need no rounding, but its
two thresholds, which are numbers of microseconds, have to be said in nanoseconds.
"""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hta.analyzers import critical_path_analysis
from hta.common.trace import Trace
from hta.common.trace_parser import infer_gpu_type
from hta.common.trace_symbol_table import TraceSymbolTable
from hta.configs.parser_config import ParserConfig
from hta.trace_analysis import TraceAnalysis
from hta.trace_diff import DeviceType, LabeledTrace, TraceDiff

from analyzers.units import NS_PER_US

if TYPE_CHECKING:
    import pandas as pd

# HTA's default for kernels that follow one another; its documentation says ns, its traces are in us.
KERNEL_WAIT_NS = 30 * NS_PER_US
# Who holds it may change what all threads share: HTA's threshold, where output goes, logging, warnings.
_OF_PROCESS = threading.RLock()


class ExactTrace(Trace):  # type: ignore[misc]  # HTA has no types
    """A Trace that is parsed already."""

    def __init__(
        self,
        frames: Mapping[int, pd.DataFrame],
        symbols: list[str],
        files: Mapping[int, str],
        metadata: Mapping[int, Mapping[str, Any]],
        origin_ns: int,
    ) -> None:
        # Not HTA's own __init__: it looks for files, and refuses any that are not called .json or .gz.
        self.traces = dict(frames)
        self.symbol_table = TraceSymbolTable()
        self.symbol_table.add_symbols(symbols)
        device = infer_gpu_type(None, self.symbol_table.get_sym_id_map())
        self.meta_data = {rank: {**rank_metadata, "device_type": device} for rank, rank_metadata in metadata.items()}
        self.min_ts = origin_ns
        self.trace_files = dict(files)
        self.trace_path = ""
        self.parser_config = ParserConfig.get_default_cfg()
        self.is_parsed = True

    def parse_traces(self, *arguments: Any, **options: Any) -> None:
        """Do nothing: the rows are here. HTA's comparison of traces asks for it all the same."""

    def get_trace_start_unixtime_ns(self, rank: int) -> int:
        """Return the run's first event, in ns since the epoch."""
        return int(self.min_ts)


class ExactAnalysis(TraceAnalysis):  # type: ignore[misc]
    """HTA's analyses of a run. All times are ns, those in columns that it calls `(us)` too."""

    def __init__(self, trace: ExactTrace) -> None:
        self.t = trace

    def critical_path_analysis(self, *arguments: Any, **options: Any) -> Any:
        """Return what HTA's returns, with its threshold between kernels in ns, and names looked up once."""
        with _OF_PROCESS:
            threshold_us = critical_path_analysis.KERNEL_KERNEL_DELAY_THRESHOLD_US
            node_name = critical_path_analysis.CPGraph._get_node_name
            critical_path_analysis.KERNEL_KERNEL_DELAY_THRESHOLD_US = threshold_us * NS_PER_US
            critical_path_analysis.CPGraph._get_node_name = _node_name
            try:
                return super().critical_path_analysis(*arguments, **options)
            finally:
                critical_path_analysis.KERNEL_KERNEL_DELAY_THRESHOLD_US = threshold_us
                critical_path_analysis.CPGraph._get_node_name = node_name

    def get_idle_time_breakdown(
        self, *arguments: Any, consecutive_kernel_delay: int = KERNEL_WAIT_NS, **options: Any
    ) -> Any:
        """Return what HTA's returns, `consecutive_kernel_delay` in ns."""
        return super().get_idle_time_breakdown(*arguments, consecutive_kernel_delay=consecutive_kernel_delay, **options)


def _node_name(graph: Any, event: int) -> str:
    """Return an event's name from a dict: HTA asks pandas, once for each node and log line, a third of all its time."""
    if event < 0:
        return "ROOT"
    names: dict[int, str] | None = vars(graph).get("name_of_event")
    if names is None:
        symbols, rows = graph.symbol_table.get_sym_table(), graph.trace_df["name"]
        names = {row: symbols[code] for row, code in zip(rows.index.tolist(), rows.tolist(), strict=True)}
        graph.name_of_event = names
    return names[event]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence HTA, which logs, prints and warns as it goes, within a block."""
    with (
        _OF_PROCESS,
        _without_logs(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    root = logging.getLogger()
    handlers, disabled = root.handlers[:], logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        # It logs through the root logger, which gets a handler by that.
        root.handlers[:] = handlers
        logging.disable(disabled)


def compare(
    control: ExactTrace, test: ExactTrace, ranks: tuple[int, int], steps: tuple[int, int], device: str
) -> pd.DataFrame:
    """Compare a step of each by HTA, on the side that `device` names (CPU, GPU); times in ns."""
    labeled = LabeledTrace("Control", control), LabeledTrace("Test", test)
    comparison: pd.DataFrame = TraceDiff.compare_traces(*labeled, *ranks, *steps, DeviceType[device])
    return comparison
