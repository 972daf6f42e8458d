"""Inputs: a file's first bytes say who reads it, and a process's rows are let go of before the next one's are read."""

import gc
import weakref

import analyzers.rank.summary
from analyzers.run.inputs import INPUTS, kind_of, looks_like_input
from analyzers.run.layout import trace_files
from tests.support.kineto_files import small_trace, write
from tests.support.nsys_exports import ranks
from tests.support.nsys_exports import write as write_export


def test_a_file_is_read_by_whom_its_first_bytes_name():
    kineto, nsys = INPUTS
    assert kind_of(b'{"schemaVersion": 1') is kineto
    assert kind_of(b"SQLite format 3\0\x10") is nsys
    assert kind_of(b"") is kineto
    assert looks_like_input(b'[{"ph": "X"')
    assert not looks_like_input(b'{"a": 1}')


def test_of_a_folder_traces_of_kinetos_come_first(tmp_path):
    write_export(tmp_path / "rank1.sqlite", ranks())
    assert [file.name for file in trace_files(tmp_path)] == ["rank1.sqlite"]
    write(tmp_path / "rank0.json", small_trace())
    assert [file.name for file in trace_files(tmp_path)] == ["rank0.json"]


def test_one_processs_rows_are_there_at_once(tmp_path, monkeypatch):
    read, alive = [], analyzers.rank.summary.summarize_rank

    def noted(trace, **options):
        gc.collect()
        assert not [reference for reference in read if reference() is not None]
        read.append(weakref.ref(trace.events))
        return alive(trace, **options)

    monkeypatch.setattr(analyzers.rank.summary, "summarize_rank", noted)
    run = analyzers.summarize(write_export(tmp_path / "a.sqlite", ranks()))
    assert len(run.ranks) == len(read) == 2
