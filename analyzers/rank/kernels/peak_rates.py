"""Peak FLOP/s of devices by precision, dense, from their makers' data sheets."""

from __future__ import annotations

import re

from analyzers.rank.kernels.counted_operators import Precision

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
