"""Operators whose FLOPs are counted, innermost only, and what devices can do.

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
from analyzers.texts import finder
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
    named: Mask = np.array([*map(finder(_ON_TENSOR_CORES), names), False], dtype=bool)
    return named[np.where(code == UNKNOWN, len(names), code)]


_TERA = 1e12
_COLUMNS = (
    *(Precision.FLOAT64, Precision.FLOAT32, Precision.TFLOAT32, Precision.FLOAT16, Precision.BFLOAT16),
    Precision.FLOAT8,
)
# TFLOP/s without sparsity (data sheets that print only sparse figures are halved), for matrix products: tensor or
# matrix cores where they take the precision, with sums in float32. None: the device has no such units, or no figure.
# An entry counts where its words are in the device's name as CUDA or HIP gives it; the first that fits.
_PEAKS: tuple[tuple[str, tuple[float | None, ...]], ...] = (
    # Device                  float64 float32   TF32 float16 bfloat16 float8
    # NVIDIA GB200 NVL72 and HGX B200 data sheets, a GPU's part.
    (r"GB200\b", (40.0, 80.0, 1250.0, 2500.0, 2500.0, 5000.0)),
    (r"B200\b", (37.0, 75.0, 1125.0, 2250.0, 2250.0, 4500.0)),
    # NVIDIA H200 data sheet (SXM and NVL columns).
    (r"H200 NVL\b", (60.0, 60.0, 417.5, 835.5, 835.5, 1670.5)),
    (r"G?H200\b", (66.9, 66.9, 494.7, 989.4, 989.4, 1978.9)),
    # NVIDIA H100 Tensor Core GPU architecture (white paper, tables 1 and 2); H100 NVL data sheet.
    (r"H100 NVL\b", (60.0, 60.0, 417.5, 835.5, 835.5, 1670.5)),
    (r"H100 PCIe\b", (51.2, 51.2, 378.3, 756.5, 756.5, 1513.0)),
    (r"H100(?: SXM5?| 80GB HBM3)", (66.9, 66.9, 494.7, 989.4, 989.4, 1978.9)),
    # NVIDIA A100 data sheet; PG509 is its SXM board. A30, A40, A10: their data sheets.
    (r"A100\b", (19.5, 19.5, 156.0, 312.0, 312.0, None)),
    (r"A30\b", (10.3, 10.3, 82.0, 165.0, 165.0, None)),
    (r"A40\b", (None, 37.4, 74.8, 149.7, 149.7, None)),
    (r"A10\b", (None, 31.2, 62.5, 125.0, 125.0, None)),
    # NVIDIA L40S and L4 data sheets.
    (r"L40S\b", (None, 91.6, 183.0, 362.05, 362.05, 733.0)),
    (r"L4\b", (None, 30.3, 60.0, 121.0, 121.0, 242.5)),
    # NVIDIA T4 data sheet; NVIDIA V100 data sheet (SXM2, PCIe, V100S). They know neither bfloat16 nor TF32.
    (r"T4\b", (None, 8.1, None, 65.0, None, None)),
    (r"V100S\b", (8.2, 16.4, None, 130.0, None, None)),
    (r"V100-PCIE\b", (7.0, 14.0, None, 112.0, None, None)),
    (r"V100-(?:SXM[23]|DGXS)\b", (7.8, 15.7, None, 125.0, None, None)),
    # NVIDIA Ada and Ampere GA102 GPU architecture (white papers): half of the rate with sums in float16.
    (r"RTX 4090\b(?! (?:D|Laptop))", (None, 82.6, 82.6, 165.2, 165.2, 330.3)),
    (r"RTX 3090\b(?! (?:Ti|Laptop))", (None, 35.6, 35.6, 71.0, 71.0, None)),
    # AMD Instinct data sheets, matrix rates. A device is one of the two dies of an MI250 or MI250X; some drivers give
    # both the same name, which then tells nothing.
    (r"MI325X\b", (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9)),
    (r"MI300X\b", (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9)),
    (r"MI250X\b(?! ?/)", (47.9, 47.9, None, 191.5, 191.5, None)),
    (r"(?<!/)(?<!/ )MI250\b", (45.3, 45.3, None, 181.05, 181.05, None)),
    (r"MI210\b", (45.3, 45.3, None, 181.0, 181.0, None)),
)


def peak_flops_per_s(device: str, precision: Precision) -> float | None:
    """Return the most that a device of that name can do at a precision; None where it is in no data sheet here."""
    for pattern, rates in _PEAKS:
        if re.search(rf"(?<![A-Za-z0-9]){pattern}", device):
            rate = dict(zip(_COLUMNS, rates, strict=True)).get(precision)
            return None if rate is None else rate * _TERA
    return None
