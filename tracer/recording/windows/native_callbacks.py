"""Buffer callbacks for CUPTI in machine code, which run no Python.

CUPTI calls both under its own lock, from whatever thread launches or flushes. A callback in Python would there wait for
the interpreter's lock, while the thread that holds that may wait for CUPTI's (pytorch issue 186295).

    arena      | buffer 0 | buffer 1 | ...        taken before the window, each handed out once a window
    counters   | handed out | returned | valid bytes of buffer 0 | of buffer 1 | ...
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BUFFER_BYTES = 4 << 20  # CUPTI's advice: 1 to 10 MB
BUFFERS = 16
ARENA_BYTES = BUFFERS * BUFFER_BYTES
HANDED_OUT, RETURNED, FIRST_VALID = 0, 1, 2
WORD = 8
CLOCK_REALTIME = 0
NS = 1_000_000_000

# CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc and CUpti_TimestampCallbackFunc of
# cupti_activity.h. Where no buffer is left, one is made and freed again when it comes back, and what it holds is lost:
# CUPTI before 12.9 may crash where it gets none (pytorch/kineto, CuptiActivityApi.cpp), and where it gets one that it
# has already, 12.1 hangs and 13.5 records nothing from then on (benchmarks/cupti_versions.py on an H100).
CODE = """
declare i32 @clock_gettime(i32, ptr)
declare ptr @malloc(i64)
declare void @free(ptr)

define void @requested(ptr %buffer, ptr %size, ptr %most_records) {{
  %number = atomicrmw add ptr inttoptr (i64 {handed_out} to ptr), i64 1 seq_cst
  %is_left = icmp ult i64 %number, {buffers}
  store i64 {buffer_bytes}, ptr %size
  store i64 0, ptr %most_records
  br i1 %is_left, label %ours, label %more
ours:
  %offset = mul i64 %number, {buffer_bytes}
  %address = add i64 %offset, {arena}
  store i64 %address, ptr %buffer
  ret void
more:
  %made = call ptr @malloc(i64 {buffer_bytes})
  store ptr %made, ptr %buffer
  ret void
}}

define void @completed(ptr %context, i32 %stream, i64 %address, i64 %size, i64 %valid) {{
  %offset = sub i64 %address, {arena}
  %number = udiv i64 %offset, {buffer_bytes}
  %is_ours = icmp ult i64 %number, {buffers}
  br i1 %is_ours, label %keep, label %drop
drop:
  %made = inttoptr i64 %address to ptr
  call void @free(ptr %made)
  br label %end
keep:
  %place = mul i64 %number, 8
  %counter = add i64 %place, {first_valid}
  %valid_bytes = inttoptr i64 %counter to ptr
  store i64 %valid, ptr %valid_bytes
  %before = atomicrmw add ptr inttoptr (i64 {returned} to ptr), i64 1 seq_cst
  br label %end
end:
  ret void
}}

define i64 @timestamp() {{
  %time = alloca [2 x i64]
  %second = getelementptr i64, ptr %time, i64 1
  %result = call i32 @clock_gettime(i32 {clock}, ptr %time)
  %seconds = load i64, ptr %time
  %nanoseconds = load i64, ptr %second
  %whole = mul i64 %seconds, {ns}
  %sum = add i64 %whole, %nanoseconds
  ret i64 %sum
}}
"""


@dataclass(frozen=True, eq=False)
class NativeCallbacks:
    """Addresses of the three callbacks, the memory that they hand out, and what keeps all of it alive."""

    requested: int
    completed: int
    timestamp: int
    arena: NDArray[np.uint8]
    counters: NDArray[np.int64]
    keep: tuple[object, ...]

    def reset(self) -> None:
        """Make every buffer available again: nothing may be in flight."""
        self.counters[:] = 0

    def lacking(self) -> int:
        """Return how many buffers more were asked for than there are: the records in those are lost."""
        return max(int(self.counters[HANDED_OUT]) - BUFFERS, 0)

    def filled(self) -> list[NDArray[np.uint8]]:
        """Return the valid bytes of each buffer that CUPTI has given back."""
        sizes = self.counters[FIRST_VALID:].tolist()
        begins = range(0, ARENA_BYTES, BUFFER_BYTES)
        return [self.arena[begin : begin + size] for begin, size in zip(begins, sizes, strict=True) if size]


def compile_callbacks() -> NativeCallbacks:
    """Compile the callbacks over memory of their own, every page of which is there already. Raises ImportError."""
    import llvmlite.binding as llvm

    arena = np.frombuffer(mmap.mmap(-1, ARENA_BYTES), dtype=np.uint8)
    arena[:: mmap.PAGESIZE] = 0
    counters = np.zeros(FIRST_VALID + BUFFERS, dtype=np.int64)
    code = CODE.format(
        arena=arena.ctypes.data,
        buffers=BUFFERS,
        buffer_bytes=BUFFER_BYTES,
        handed_out=counters[HANDED_OUT:].ctypes.data,
        returned=counters[RETURNED:].ctypes.data,
        first_valid=counters[FIRST_VALID:].ctypes.data,
        clock=CLOCK_REALTIME,
        ns=NS,
    )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name in ("clock_gettime", "malloc", "free"):
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value)
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(code), machine)
    engine.finalize_object()
    requested, completed, timestamp = map(engine.get_function_address, ("requested", "completed", "timestamp"))
    return NativeCallbacks(requested, completed, timestamp, arena, counters, (engine, machine))
