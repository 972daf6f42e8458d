"""Files of other devices and of other programs are refused in one line that says what they look like."""

import pytest

import analyzers
from analyzers.errors import AnalysisError, UnreadableTrace
from tests.support.kineto_files import small_trace, step, write

HOST = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 9, "tid": 9, "ts": 1, "dur": 2}


def process(name: str) -> dict[str, object]:
    return {"ph": "M", "name": "process_name", "pid": 4, "tid": 0, "args": {"name": name}}


def span(category: str | None, name: str = "work", **more: object) -> dict[str, object]:
    said = {"ph": "X", "name": name, "pid": 4, "tid": 3, "ts": 5, "dur": 2}
    return said | ({"cat": category} if category else {}) | more


OTHER_DEVICES = {
    "MTIA (mtia_ccp_events, mtia_runtime)": [HOST, span("mtia_runtime"), span("mtia_ccp_events")],
    "XPU (xpu_runtime)": [HOST, span("xpu_runtime", "urEnqueueKernelLaunch"), span("kernel", "gemm_kernel")],
    "Ascend (Ascend Hardware, CANN)": [
        HOST | {"ts": "1"},
        process("CANN"),
        process("Ascend Hardware"),
        span(None, "MatMul", ts="5.5"),
    ],
    "a PrivateUse1 device (privateuse1_runtime)": [HOST, span("privateuse1_runtime")],
}


@pytest.mark.parametrize("device", OTHER_DEVICES)
def test_devices_without_rules_are_refused_by_name(tmp_path, device):
    with pytest.raises(UnreadableTrace) as refused:
        analyzers.load(write(tmp_path / "rank0.json", [step(1, 0, 9), *OTHER_DEVICES[device]]))
    assert device in str(refused.value)
    assert "rank0.json" in str(refused.value)


OTHER_PROGRAMS = {
    "viztracer": {"traceEvents": [span("FEE", "f (a.py:1)")], "viztracer_metadata": {"version": "1.0"}},
    "TensorFlow's or JAX's profiler": {"traceEvents": [process("/host:CPU"), span(None, "MatMul")]},
    "Chrome": {"traceEvents": [span("devtools.timeline,v8", "FunctionCall"), process("Renderer")], "metadata": {}},
    "another program": [span("http", "GET")],
}


@pytest.mark.parametrize("program", OTHER_PROGRAMS)
def test_traces_of_other_programs_are_told_so(tmp_path, program):
    with pytest.raises(UnreadableTrace, match=r"no trace of torch\.profiler") as refused:
        analyzers.load(write(tmp_path / "rank0.json", OTHER_PROGRAMS[program]))
    assert program in str(refused.value)


BINARIES = {
    "Perfetto's binary format": b"\x0a\x7b\x40\x01\x08\x00\x1a\x05trace",
    "an SQLite database": b"SQLite format 3\x00\x10\x00",
}


@pytest.mark.parametrize("what", BINARIES)
def test_what_is_no_json_is_told_so(tmp_path, what):
    (tmp_path / "a.pftrace").write_bytes(BINARIES[what])
    with pytest.raises(UnreadableTrace, match=what):
        analyzers.load(tmp_path / "a.pftrace")


def test_json_behind_a_newline_is_json(tmp_path):
    (tmp_path / "a.json").write_text('\n{"name": "\N{LATIN SMALL LETTER E WITH ACUTE}", "traceEvents": []}')
    with pytest.raises(AnalysisError, match="no device activity"):
        analyzers.load(tmp_path / "a.json")


def test_rows_that_may_be_a_devices_make_no_cpu_run(tmp_path):
    """A run is `cpu` only where there are no device rows of any kind."""
    document = [step(1, 0, 9), HOST]
    assert analyzers.load(write(tmp_path / "a.json", document)).ranks[0].is_cpu_run
    with pytest.raises(AnalysisError, match="rows of tpu_op are of no kind that is read"):
        analyzers.load(write(tmp_path / "b.json", [*document, span("tpu_op")]))


def test_what_kineto_writes_beside_is_no_devices(tmp_path):
    document = small_trace()
    document["traceEvents"] += [span("overhead"), span("Trace"), span("something_new")]
    assert len(analyzers.load(write(tmp_path / "a.json", document)).ranks) == 1
