"""Where idle time comes from, as text: drawn."""

from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.frames import TABLES
from tests.support.kineto_files import write
from tests.support.training import document, host, kernel, ranged, step
from tracer.views.sections.idle import idle_section, shortened
from tracer.views.sections.overview import report_text

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def told(folder, *rows):
    return report(summarize(write(folder / "rank0.json", document(rows, world_size=1))))


def test_causes_and_places_are_named_with_their_times(tmp_path):
    sync = host("cudaStreamSynchronize", 14, 3, category="cuda_runtime", correlation=1)
    rows = [step(3, 0, 50), *kernel("a", 1, 2, 8), ranged(LOADER, 8, 5), host("aten::item", 13, 6), sync]
    found = told(tmp_path, *rows, *kernel("b", 25, 30, 0.25))
    shown = report_text(found)
    words = [line.split() for line in shown.splitlines()]
    assert ["input", "0.003", "15.0", "%"] in [line[:4] for line in words]
    assert ["cudaStreamSynchronize", "of", "aten::item", "synchronize"] in [line[:4] for line in words]
    assert "Launches: 2 calls per step, 0.001 ms each; 50.0 %" in " ".join(shown.split())
    assert "most often cudaStreamSynchronize of aten::item" in " ".join(shown.split())
    (window,) = TABLES["windows"].frame(found).to_dict("records")
    assert (window["idle_input_ns"], window["idle_synchronize_ns"], window["idle_ns"]) == (3000, 3000 + 8000, 20000)
    (calls,) = found.idle.synchronizing
    assert (calls.name, calls.call, calls.count, calls.host_ns) == ("aten::item", "cudaStreamSynchronize", 1, 3000)


def test_a_device_that_is_never_idle_has_no_such_section(tmp_path):
    assert idle_section(told(tmp_path, step(3, 0, 50), *kernel("a", 1, 2, 8))) == []


def test_functions_are_named_and_what_that_reveals_is_said(tmp_path):
    sample = {"ph": "i", "cat": "python_sample", "name": "log (train.py:7)", "pid": 9, "tid": 9, "ts": 15}
    rows = [step(3, 0, 50), *kernel("a", 1, 2, 8), *kernel("b", 25, 30, 5)]
    plain, named = (report_text(told(tmp_path, *rows, *more)) for more in ([], [sample]))
    assert ["log", "(train.py:7)", "python"] in [line.split()[:3] for line in named.splitlines()]
    assert "--no-stacks leaves them out" in " ".join(named.split())
    assert "--no-stacks" not in plain


def test_a_long_name_keeps_a_functions_file_and_line():
    function = "Transform.augment (some/deep/package/of/transforms.py:123)"
    assert shortened(function) == "Transform.augment (transforms.py:123)"
    assert shortened("a (b/c.py:1)") == "a (b/c.py:1)"
    assert shortened("x" * 60) == "x" * 41 + "..."
    assert shortened(f"{'f' * 50} (a.py:1)") == "f" * 41 + "..."
