"""CUPTI's callbacks, called as CUPTI calls them: by address, from any thread."""

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tracer.recording.windows.native_callbacks import BUFFER_BYTES, BUFFERS, compile_callbacks

REQUESTED = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)
COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


@pytest.fixture(scope="module")
def compiled():
    return compile_callbacks()


@pytest.fixture
def callbacks(compiled):
    compiled.reset()
    return compiled


def request(callbacks):
    """The address, size and most records that are given to who asks for a buffer."""
    address, size, most = ctypes.c_void_p(1), ctypes.c_size_t(1), ctypes.c_size_t(1)
    REQUESTED(callbacks.requested)(ctypes.byref(address), ctypes.byref(size), ctypes.byref(most))
    return address.value, size.value, most.value


def complete(callbacks, address, valid_bytes):
    COMPLETED(callbacks.completed)(None, 0, address, BUFFER_BYTES, valid_bytes)


def test_each_buffer_is_handed_out_once_and_then_new_ones(callbacks):
    base = callbacks.arena.ctypes.data
    with ThreadPoolExecutor(8) as threads:
        given = set(threads.map(lambda _: request(callbacks), range(BUFFERS + 5)))
    whole = {(base + number * BUFFER_BYTES, BUFFER_BYTES, 0) for number in range(BUFFERS)}
    assert whole < given
    assert len(given) == BUFFERS + 5  # CUPTI never has one twice
    assert all(size == BUFFER_BYTES for _, size, _ in given)
    assert callbacks.lacking() == 5
    for address, *_ in given - whole:
        ctypes.memset(address, 1, BUFFER_BYTES)
        complete(callbacks, address, 9)
    assert callbacks.filled() == []


def test_filled_has_the_valid_bytes_of_what_was_given_back(callbacks):
    first, second = request(callbacks)[0], request(callbacks)[0]
    callbacks.arena[:3], callbacks.arena[BUFFER_BYTES] = 7, 9
    complete(callbacks, second, 1)
    complete(callbacks, first, 3)
    assert [buffer.tolist() for buffer in callbacks.filled()] == [[7, 7, 7], [9]]


def test_after_a_reset_buffers_are_there_again(callbacks):
    complete(callbacks, request(callbacks)[0], 5)
    callbacks.reset()
    assert callbacks.filled() == []
    assert request(callbacks)[0] == callbacks.arena.ctypes.data


def test_timestamps_are_the_systems_in_ns(callbacks):
    timestamp = ctypes.CFUNCTYPE(ctypes.c_uint64)(callbacks.timestamp)
    before, now, after = time.time_ns(), timestamp(), time.time_ns()
    assert before <= now <= after
