"""Samples of Python's stack: true shares, names without places, and nothing of the program's changed."""

import hashlib
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from analyzers.rank.host import Host
from analyzers.rank.idle.host_states import HostStates
from analyzers.trace import read_trace
from tracer.recording.windows import KinetoWindow, PythonSamples, python_samples
from tracer.recording.windows.python_samples import SIGNAL
from tracer.recording.windows.stack_frames import StackNames

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="timers for one thread are Linux's")
NS_PER_MS = 1_000_000
MATRIX = torch.ones(32, 32)


def busy(ms, text):
    end = time.perf_counter_ns() + ms * NS_PER_MS
    while time.perf_counter_ns() < end:
        pass


def asleep(ms, text):
    time.sleep(ms / 1000)


def in_one_call(ms, text):
    hashlib.sha256(text)


def text_for(ms):
    """So many bytes take about so long to hash, in one call of C."""
    text = bytes(1 << 20)
    begun = time.perf_counter_ns()
    hashlib.sha256(text)
    return bytes(max(int(len(text) * ms * NS_PER_MS / (time.perf_counter_ns() - begun)), 1))


def named(function, name):
    """The same function under another name, as if it stood in the program so."""
    return type(function)(function.__code__.replace(co_name=name, co_qualname=name), function.__globals__)


def sampled(folder, function, lengths_ms, steps=8):
    """How long functions took by their own clock, and by the samples of a window: they lie between operators."""
    functions = {f"takes_{ms}": (named(function, f"takes_{ms}"), ms, text_for(ms)) for ms in lengths_ms}
    took, found = Counter(), Counter()
    with KinetoWindow("cpu", 1, steps) as window:
        window.step()
        with PythonSamples() as samples:
            for _ in range(steps):
                for name, (call, ms, text) in functions.items():
                    torch.mm(MATRIX, MATRIX)
                    begun = time.perf_counter_ns()
                    call(ms, text)
                    took[name] += time.perf_counter_ns() - begun
                torch.mm(MATRIX, MATRIX)
                window.step()
    assert samples.why_not is None
    window.write(folder, 0, list(samples.rows()))
    events = read_trace(folder / "rank0.json.gz").events
    states = HostStates(Host(events)).of_thread(threading.get_native_id())
    for name, ns in zip(states.name.tolist(), (states.end_ns - states.start_ns).tolist(), strict=True):
        found[events.names[name].partition(" ")[0] if name >= 0 else ""] += ns
    return took, found


@pytest.mark.slow
@pytest.mark.parametrize("function", [busy, asleep, in_one_call])
def test_functions_have_their_true_share(tmp_path, function):
    """Where another program takes the core, it may do so between two samples: one window of three is enough."""
    for attempt in range(3):
        took, found = sampled(tmp_path / str(attempt), function, (1, 3, 10))
        told = {name: found[name] / ns for name, ns in took.items()}
        if all(0.9 <= share <= 1.1 for share in told.values()):
            return
    pytest.fail(f"found {told} of what they took")


def wait_for_samples(samples, count=3):
    while len(samples._samples) < count:
        pass


def test_nothing_of_the_programs_signals_and_timers_changes(monkeypatch):
    heard = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append("alarm"))
    try:
        dispositions = {number: signal.getsignal(number) for number in signal.valid_signals()}
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        with PythonSamples() as samples:
            changed = [n for n in dispositions if signal.getsignal(n) != dispositions[n]]
            assert changed == [SIGNAL]
            wait_for_samples(samples)
            while not heard:
                pass
            assert signal.getitimer(signal.ITIMER_REAL)[1] == pytest.approx(0.01)
        assert {number: signal.getsignal(number) for number in dispositions} == dispositions
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def mine(*_):
    """A handler of the program's."""


@pytest.mark.parametrize("disposition", [mine, signal.SIG_IGN])
def test_a_signal_that_the_program_has_taken_is_left_to_it(disposition):
    before = signal.signal(SIGNAL, disposition)
    try:
        with PythonSamples() as samples:
            assert samples.why_not == "the program handles, ignores or blocks SIGURG"
        assert signal.getsignal(SIGNAL) == disposition
    finally:
        signal.signal(SIGNAL, before)


def test_a_handler_that_comes_meanwhile_stays():
    with PythonSamples():
        signal.signal(SIGNAL, mine)
    try:
        assert signal.getsignal(SIGNAL) == mine
    finally:
        signal.signal(SIGNAL, signal.SIG_DFL)


def test_a_program_that_puts_all_signals_back_ends_the_sampling_alone():
    """As Lightning does behind fit, and whoever resets what it inherits."""
    with PythonSamples() as samples:
        wait_for_samples(samples)
        for number in (SIGNAL, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)):
            signal.signal(number, signal.SIG_DFL)
        until = time.monotonic() + 0.01
        while time.monotonic() < until:
            pass
    assert samples.why_not is None
    assert list(samples.rows())


def test_one_that_is_still_on_its_way_is_ignored():
    with PythonSamples():
        signal.pthread_sigmask(signal.SIG_BLOCK, [SIGNAL])
        while SIGNAL not in signal.sigpending():
            pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [SIGNAL])
    assert signal.getsignal(SIGNAL) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sys": SimpleNamespace(platform="darwin")}, "timers for one thread are Linux's"),
        ({"_is_taken": lambda number: True}, "the program handles, ignores or blocks SIGURG"),
        ({"CLOCK_MONOTONIC": 1 << 20}, "the system has no timer for it ([Errno 22] Invalid argument)"),
        ({"STATUS": Path("/proc/self/none")}, "the system has no timer for it ([Errno 2]"),
    ],
)
def test_where_nothing_can_be_sampled_it_says_why(monkeypatch, change, why):
    for name, value in change.items():
        monkeypatch.setattr(python_samples, name, value)
    dispositions = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with PythonSamples() as samples:
        assert samples.why_not.startswith(why)
        assert list(samples.rows()) == []
    assert {number: signal.getsignal(number) for number in dispositions} == dispositions


def test_a_file_that_signals_are_written_into_gets_none():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    try:
        with PythonSamples() as samples:
            assert samples.why_not.startswith("each signal wakes an event loop")
        assert signal.set_wakeup_fd(before) == writer
    finally:
        os.close(reader)
        os.close(writer)


def test_steps_of_another_thread_are_not_sampled():
    found = []

    def enter():
        with PythonSamples() as samples:
            found.append(samples.why_not)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == ["Python handles signals in the main thread, and another one takes the steps"]


def test_none_are_taken_unless_they_are_asked_for():
    with PythonSamples(sampling=False) as samples:
        assert (samples.why_not, samples._timer, list(samples.rows())) == (None, None, [])


def test_of_too_many_every_other_one_is_kept(monkeypatch):
    monkeypatch.setattr(python_samples, "MOST_SAMPLES", 8)
    with PythonSamples() as samples:
        while samples._period_ns < 4 * python_samples.PERIOD_NS:
            pass
    assert len(samples._samples) < 8
    noted = [noted_ns for noted_ns, _, _ in samples._samples]
    assert noted == sorted(noted)


# Names.


def frames(*places):
    """What is shown of functions that are said to be defined on a line of a file."""
    codes = []
    for name, file, line in places:
        code = compile(f"{line * chr(10)}def {name}(): pass", str(file), "exec").co_consts[0]
        codes.append(code.replace(co_name=name, co_qualname=f"outer.<locals>.{name}"))
    return [(frame.function, frame.is_own) for frame in StackNames().frames(codes, [0] * len(codes))]


def test_files_are_named_without_where_they_lie(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path.parent / "elsewhere"))
    places = [
        ("augment", tmp_path / "job" / "data.py", 3),
        ("augment", "job/data.py", 3),
        ("helper", tmp_path.parent / "elsewhere" / "lib" / "help.py", 1),
        ("secret", "/home/me/private/place/model.py", 9),
        ("cell", "<stdin>", 2),
    ]
    assert frames(*places) == [
        ("augment (job/data.py:4)", True),
        ("augment (job/data.py:4)", True),
        ("helper (lib/help.py:2)", True),
        ("secret (model.py:10)", True),
        ("cell (<stdin>:3)", True),
    ]


def test_libraries_are_not_the_programs_own_and_tracer_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    site = Path(torch.__file__).parents[1]
    places = [
        ("forward", torch.nn.modules.module.__file__, 0),
        ("warning", Path(threading.__file__).with_name("logging") / "__init__.py", 0),
        ("_find_spec", "<frozen importlib._bootstrap>", 0),
        ("call", tmp_path / "cache" / "ab" / "cab.py", 0),
        ("log", site / "transformers" / "trainer.py", 0),
        ("_note", python_samples.__file__, 0),
        ("train", Path(python_samples.__file__).parents[2] / "workload" / "train.py", 0),
    ]
    shown = frames(*places)
    assert [is_own for _, is_own in shown] == [False, False, False, False, True, True]
    assert shown[0][0] == "forward (torch/nn/modules/module.py:1)"
    assert shown[1][0] == "warning (logging/__init__.py:1)"
    assert shown[4][0] == "log (transformers/trainer.py:1)"
    assert shown[5][0].startswith("train (")


def test_a_samples_row_has_the_innermost_function_of_the_programs(tmp_path):
    with PythonSamples() as samples:
        # What is in a comprehension is in the function around it, and what a library does in who called it.
        while len(samples._samples) < 20:
            [sorted(range(10), key=lambda k: -k) for _ in range(10)]
    names = Counter(row.name for row in samples.rows())
    ours = test_a_samples_row_has_the_innermost_function_of_the_programs.__name__
    assert all(name.startswith(f"{ours} (") for name in names)
    row = next(iter(samples.rows()))
    made = row.event(0)
    assert (made["ph"], made["cat"], made["tid"]) == ("i", "python_sample", threading.get_native_id())
    assert "dur" not in made
    assert len(row.arguments["stack"]) == 8
    assert not any(line.startswith("/") for row in samples.rows() for line in row.arguments["stack"])
