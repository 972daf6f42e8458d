"""CUPTI's records, made as its headers declare them, and decoded again."""

import ctypes

import pytest

from tests.recording.windows.cupti_records import Kernel, Memcpy, Memset, PeerCopy, WalkingCupti, record
from tracer.recording.windows import CuptiUnusable
from tracer.recording.windows.records import device_rows

MANGLED = ctypes.create_string_buffer(b"_ZN2at6native6vectorIfLi4EEEvPT_")
PLAIN = ctypes.create_string_buffer(b"triton_poi_fused_relu_0")
WHERE = {"deviceId": 1, "contextId": 2, "streamId": 7, "correlationId": 90}


def rows(*buffers):
    cupti = WalkingCupti(*buffers)
    return device_rows(cupti, cupti.buffers)


def test_a_kernel():
    (row,) = rows(
        [
            record(
                Kernel,
                1000,
                1500,
                **WHERE,
                name=ctypes.addressof(MANGLED),
                grid=(3, 2, 1),
                block=(128, 1, 1),
                registersPerThread=24,
                staticSharedMemory=100,
                dynamicSharedMemory=28,
            )
        ]
    )
    assert (row.category, row.name) == ("kernel", "void at::native::vector<float, 4>(float*)")
    assert (row.start_ns, row.end_ns, row.device, row.stream) == (1000, 1500, 1, 7)
    assert row.arguments == {
        "device": 1,
        "context": 2,
        "stream": 7,
        "correlation": 90,
        "registers per thread": 24,
        "shared memory": 128,
        "grid": [3, 2, 1],
        "block": [128, 1, 1],
    }


def test_a_name_that_is_not_mangled_stays_as_it_is_and_graph_nodes_are_told():
    (row,) = rows([record(Kernel, 1, 2, **WHERE, name=ctypes.addressof(PLAIN), graphNodeId=5)])
    assert row.name == "triton_poi_fused_relu_0"
    assert row.arguments["graph node id"] == 5


def test_copies_and_memsets_are_called_as_kineto_calls_them():
    copied = record(Memcpy, 3, 9, **WHERE, copyKind=1, srcKind=2, dstKind=3, bytes=4096)
    cleared = record(Memset, 10, 12, **WHERE, memoryKind=3, bytes=512)
    first, second = rows([cleared], [copied])
    assert (first.category, first.name, first.arguments["bytes"]) == (
        "gpu_memcpy",
        "Memcpy HtoD (Pinned -> Device)",
        4096,
    )
    assert (second.category, second.name, second.arguments["bytes"]) == ("gpu_memset", "Memset (Device)", 512)
    assert (first.start_ns, first.end_ns, first.stream, first.arguments["correlation"]) == (3, 9, 7, 90)


def test_a_copy_between_devices_says_which():
    (row,) = rows(
        [record(PeerCopy, 1, 2, **WHERE, copyKind=10, srcKind=3, dstKind=3, srcDeviceId=1, dstDeviceId=4, bytes=8)]
    )
    assert row.name == "Memcpy PtoP (Device -> Device)"
    places = {key: value for key, value in row.arguments.items() if "Device" in key}
    assert places == {"fromDevice": 1, "inDevice": 1, "toDevice": 4}
    assert "device" not in row.arguments


def test_kinds_that_are_not_read_are_passed_over():
    other = record(Memset, 1, 2, **WHERE)
    other.kind = 46
    assert [row.start_ns for row in rows([other, record(Memset, 3, 4, **WHERE)])] == [3]


def test_an_empty_buffer_has_no_rows():
    assert rows([]) == []


@pytest.mark.parametrize(("start", "end"), [(0, 0), (5, 4)])
def test_records_without_times_are_not_passed_over_in_silence(start, end):
    with pytest.raises(CuptiUnusable, match="1 of 2 records have no times"):
        rows([record(Memset, start, end, **WHERE), record(Memset, 3, 4, **WHERE)])
