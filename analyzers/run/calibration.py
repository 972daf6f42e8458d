"""Calibration files: measured times of collectives over sizes, read and interpolated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType
from numpy.typing import ArrayLike

from analyzers.arrays import Float64
from analyzers.errors import UnreadableCalibration
from analyzers.json_documents import encoded
from analyzers.paths import Place, read_file
from analyzers.redaction import redacted_url
from analyzers.texts import brief
from analyzers.trace import KINDS, bus_factor

SCHEMA = "tracer.calibration/1"
# From this size on a bus bandwidth no longer grows with the size, so that the largest measured one stands for more.
FLAT_FROM_BYTES = 64 * 2**20

LARGEST_INTEGER = 2**62


class CalibratedLinks(msgspec.Struct, frozen=True):
    """The links under the measured group, as in LinkFacts."""

    devices: list[str] = []
    backend: str | None = None
    transport: str | None = None
    limit_gbps: float | None = None
    source: str | None = None


class CalibrationRow(msgspec.Struct, frozen=True):
    """One collective at one size.

    `time_ns`: the mean of back-to-back operations, the median of three blocks.
    """

    collective: str
    group_size: int
    dtype: str | None
    bytes: int
    time_ns: int
    algbw_gbps: float
    busbw_gbps: float


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What links can do: a collective at a size each.

    Rows by hand, or from nccl-tests' output, need `collective`, `group_size`, `bytes`, `time_ns` alone.
    """

    schema: str = SCHEMA
    links: CalibratedLinks | None = None
    rows: list[CalibrationRow]

    __repr__ = brief


class _WrittenRow(msgspec.Struct, frozen=True):
    """A row as someone may have written it by hand: bandwidths follow from the time, whatever it says of them."""

    collective: str
    group_size: Annotated[int, Meta(ge=2, le=LARGEST_INTEGER)]
    bytes: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)]
    time_ns: Annotated[float, Meta(ge=1, le=LARGEST_INTEGER)]
    dtype: str | None = None


class _WrittenCalibration(msgspec.Struct, frozen=True):
    schema: str
    rows: Annotated[list[_WrittenRow], Meta(min_length=1)]
    links: CalibratedLinks | UnsetType | None = UNSET


def calibration_row(collective: str, group_size: int, dtype: str | None, nbytes: int, time_ns: int) -> CalibrationRow:
    """Build a row with the bandwidths, in GB/s, that follow from its bytes and its time."""
    algbw_gbps = nbytes / time_ns
    busbw_gbps = algbw_gbps * bus_factor(collective, group_size)
    return CalibrationRow(collective, group_size, dtype, nbytes, time_ns, algbw_gbps, busbw_gbps)


def read_calibration(path: Place, *, piped: bool = False) -> Calibration:
    """Read a calibration file, which may have been written by hand or made from nccl-tests' output.

    Needed are the schema, and of each row collective, group_size, bytes and time_ns; bandwidths are always derived
    from these. With `piped` it may be a FIFO. Raises UnreadableCalibration.
    """
    remedy = f"write one with `tracer calibrate -o {redacted_url(path.name)}`"
    try:
        written = msgspec.json.decode(read_file(path, piped=piped), type=_WrittenCalibration)
    except OSError as error:
        raise UnreadableCalibration(f"{path}: cannot be read ({error.strerror or error}); {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableCalibration(f"{path} is not a calibration file ({error}); {remedy}") from error
    if written.schema != SCHEMA:
        raise UnreadableCalibration(f"{path}: schema {written.schema[:80]!r} is not {SCHEMA!r}; {remedy}")
    for number, row in enumerate(written.rows):
        if row.collective not in KINDS:
            kinds = ", ".join(KINDS)
            raise UnreadableCalibration(f"{path}: rows[{number}]: {row.collective[:80]!r} is not one of {kinds}")
    rows = [
        calibration_row(row.collective, row.group_size, row.dtype, row.bytes, round(row.time_ns))
        for row in written.rows
    ]
    return Calibration(links=None if written.links is UNSET else written.links, rows=rows)


def to_json(calibration: Calibration) -> str:
    """Encode the calibration as its file has it."""
    return encoded(calibration)


@dataclass(frozen=True)
class TimingCurve:
    """How long one collective takes a group of so many, over sizes: what was measured, by size, in bytes and ns.

    Between two sizes the logarithm of time is linear in the logarithm of size. (Leaving out every other row of an NCCL
    all-reduce table by factors of 2 from 32 KiB to 64 MiB, that was 4 % off on average; time linear in the logarithm of
    size 6 %, bus bandwidth linear in it 10 %.) Beyond the largest bandwidth is its bandwidth, below the smallest time
    is its time.
    """

    group_size: int
    sizes: tuple[int, ...]
    times_ns: tuple[float, ...]

    def time_ns(self, nbytes: ArrayLike) -> Float64:
        """Return the time for each size, in ns: a float array in the sizes' shape."""
        sizes = np.asarray(nbytes, dtype=np.float64)
        within = np.clip(sizes, self.sizes[0], self.sizes[-1])
        time_ns = np.exp(np.interp(np.log(within), np.log(self.sizes), np.log(self.times_ns)))
        return np.asarray(time_ns * np.maximum(sizes / self.sizes[-1], 1.0), dtype=np.float64)


def curve(calibration: Calibration, collective: str, group_size: int) -> TimingCurve | None:
    """Build the curve for a collective in a group with this size, None where nothing was measured.

    dtype is ignored: a link moves bytes. Several rows of one size count as their mean time.
    """
    times: dict[int, list[int]] = {}
    for row in calibration.rows:
        if (row.collective, row.group_size) == (collective, group_size):
            times.setdefault(row.bytes, []).append(row.time_ns)
    if not times:
        return None
    sizes = tuple(sorted(times))
    return TimingCurve(group_size, sizes, tuple(sum(times[size]) / len(times[size]) for size in sizes))


def peak_busbw_gbps(calibration: Calibration, collective: str, group_size: int, nbytes: int) -> float | None:
    """Return the bus bandwidth, in GB/s, that these links were measured to reach at this size.

    None where it was not measured: another collective or group size, a size below the smallest, or above the largest
    unless that is 64 MiB or more, where bus bandwidth is flat.
    """
    measured = curve(calibration, collective, group_size)
    if measured is None or nbytes < measured.sizes[0]:
        return None
    if nbytes > measured.sizes[-1] and measured.sizes[-1] < FLAT_FROM_BYTES:
        return None
    return nbytes / float(measured.time_ns(nbytes)) * bus_factor(collective, group_size)
