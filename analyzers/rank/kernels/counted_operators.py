"""Operators whose FLOPs are counted, innermost ones only.

|aten::linear                     |
   |aten::addmm        |              counted; linear is not, since addmm is what computes
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, distinct
from analyzers.trace import COUNTED, Category, Events, flops_of, matrix_dtype


class Precision(StrEnum):
    """What a device multiplies: its peak differs from one to the next."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    TFLOAT32 = "tfloat32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8 = "float8"
    OTHER = "other"


_PRECISION = {
    "Double": Precision.FLOAT64,
    "Float": Precision.FLOAT32,
    "Half": Precision.FLOAT16,
    "BFloat16": Precision.BFLOAT16,
    **dict.fromkeys(("Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz"), Precision.FLOAT8),
}
# Kernels that multiply float32 on tensor cores, as TF32: cuDNN's and cuBLAS' names say so, CUTLASS' have the shape of
# the instruction (16x8x8) or the class of operation; and nvjet, cuBLAS' for Hopper and later, runs on nothing else.
_ON_TENSOR_CORES = re.compile(r"tf32|1688|tensor_?op|nvjet", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class CountedOperators:
    """Calls of operators that have a count: their rows among the events, sorted."""

    events: Events
    row: Int64

    def flops(self, rows: Int64, with_tensor_cores: Mask) -> Counter[Precision]:
        """Add up the FLOPs of some calls by precision; of each it is said whether float32 ran as TF32.

        Sums are exact: they are Python's, since they may pass 64 bits.
        """
        events = self.events
        kinds = distinct(events.name[rows], events.inputs[rows], with_tensor_cores.astype(np.int64))
        columns = (column.tolist() for column in (*kinds.columns, kinds.count))
        total: Counter[Precision] = Counter()
        for name, inputs, is_tensor, count in zip(*columns, strict=True):
            shapes = events.shapes[inputs]
            precision = _PRECISION.get(matrix_dtype(events.names[name], shapes), Precision.OTHER)
            if precision == Precision.FLOAT32 and is_tensor:
                precision = Precision.TFLOAT32
            total[precision] += count * (flops_of(events.names[name], shapes) or 0)
        return total


def with_count(events: Events) -> CountedOperators:
    """Return the calls that have a count, and hold no other that has one."""
    named = np.array([name in COUNTED for name in events.names], dtype=bool)
    rows = np.flatnonzero((events.category == Category.OPERATOR) & (events.inputs >= 0) & named[events.name])
    kinds = distinct(events.name[rows], events.inputs[rows])
    named_inputs = zip(*(column.tolist() for column in kinds.columns), strict=True)
    has_count = [flops_of(events.names[name], events.shapes[inputs]) is not None for name, inputs in named_inputs]
    rows = rows[np.array(has_count, dtype=bool)[kinds.index]]
    return CountedOperators(events, np.sort(_keep_innermost(events, rows)))


def _keep_innermost(events: Events, rows: Int64) -> Int64:
    """Return those rows in which no other begins, on their thread."""
    rows = rows[np.lexsort((-events.end_ns[rows], events.start_ns[rows], events.thread[rows]))]
    if len(rows) < 2:
        return rows
    same_thread = events.thread[rows][1:] == events.thread[rows][:-1]
    holds_next = same_thread & (events.start_ns[rows][1:] < events.end_ns[rows][:-1])
    innermost: Int64 = rows[~np.r_[holds_next, False]]
    return innermost


def on_tensor_cores(names: tuple[str, ...], code: Int64) -> Mask:
    """Return which kernels, by the codes of their names, multiply on tensor cores whatever their operators hold."""
    named: Mask = np.array([*(_ON_TENSOR_CORES.search(name) is not None for name in names), False], dtype=bool)
    return named[np.where(code == UNKNOWN, len(names), code)]
