"""Transport that NCCL chose, and its link's own rate where known.

Rates are in one direction, in GB/s (1e9 bytes), which is what a bus bandwidth compares with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from analyzers.errors import install_hint
from analyzers.paths import read_text

NCCL_LOG = "nccl.%p.log"
SYS_CLASS = Path("/sys/class")
MB_PER_GB = 1_000
MBIT_PER_GB = 8_000
GBIT_PER_GB = 8

# One lane, in GB/s, by PCIe generation: transfers per second times the line code's share of payload (8b/10b for the
# first two, 128b/130b, from the sixth on 242 of a flit's 256 bytes), as PCI-SIG's specifications have them.
PCIE_LANE_GBPS = {
    1: 2.5 / 8 * 8 / 10,
    2: 5 / 8 * 8 / 10,
    3: 8 / 8 * 128 / 130,
    4: 16 / 8 * 128 / 130,
    5: 32 / 8 * 128 / 130,
    6: 64 / 8 * 242 / 256,
}


class Link(msgspec.Struct, frozen=True):
    """What ranks communicate over: NCCL's word for it, its rate in GB/s one way, and who says so or why it is null."""

    transport: str | None
    limit_gbps: float | None
    source: str


class LinkMember(msgspec.Struct, frozen=True):
    """One rank of a group: its host, the name of its device, and NVML's name for that where it is a GPU."""

    host: str
    device: str
    uuid: str | None


class _Unknown(Exception):
    """Why a rate is not known."""


def nccl_logs(folder: Path) -> list[Path]:
    """Return the logs that NCCL left in a folder, one per process."""
    return sorted(folder.glob(NCCL_LOG.replace("%p", "*")))


def nccl_transport(logs: Sequence[Path]) -> str | None:
    """Return the transports that NCCL's log names for its channels: `P2P/CUMEM`, `NET/Socket`; null if silent."""
    channels = re.findall(r"Channel .* via (P2P|SHM|NET)/?([A-Za-z]*)", _text(logs))
    return " + ".join(sorted({"/".join(filter(None, names)) for names in channels})) or None


def link_of(backend: str, members: Sequence[LinkMember], logs: Sequence[Path], sys_class: Path = SYS_CLASS) -> Link:
    """Find the link under a process group, from NCCL's logs, NVML and the kernel's /sys/class."""
    if backend != "nccl":
        return Link(None, None, f"{backend} on the CPU: no link of known rate")
    transport = nccl_transport(logs)
    try:
        limit_gbps, source = _rate(transport, members, _text(logs), sys_class)
    except _Unknown as unknown:
        return Link(transport, None, str(unknown))
    return Link(transport, limit_gbps, source)


def peer_link(members: Sequence[LinkMember]) -> Link:
    """Find the link between GPUs of one host that access one another's memory, whatever NCCL would choose."""
    try:
        limit_gbps, source = _gpus("P2P", members)
    except _Unknown as unknown:
        return Link(None, None, str(unknown))
    return Link(None, limit_gbps, source)


def _text(logs: Sequence[Path]) -> str:
    return "".join(map(read_text, logs))


def _rate(transport: str | None, members: Sequence[LinkMember], log: str, sys_class: Path) -> tuple[float, str]:
    """GB/s, and who says so. Raises _Unknown."""
    if transport is None:
        raise _Unknown("NCCL's log names no transport (where NCCL_DEBUG is set, the log is not kept)")
    if " + " in transport:
        raise _Unknown(f"ranks communicate over more than one transport: {transport}")
    if transport.startswith("NET"):
        return _network(transport, members, log, sys_class)
    return _gpus(transport, members)


def _network(transport: str, members: Sequence[LinkMember], log: str, sys_class: Path) -> tuple[float, str]:
    if len({member.host for member in members}) == 1:
        raise _Unknown(f"{transport} between ranks of one host: its data need not pass through a network card")
    # NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>; NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE
    listed = " ".join(re.findall(rf"{transport} : Using (.*)", log))
    if transport == "NET/IB":
        cards = {f"infiniband/{name}/ports/{port}/rate" for name, port in re.findall(r"\](\w+):(\d+)/", listed)}
    else:
        cards = {f"net/{name}/speed" for name in re.findall(r"\]([^:\s]+):", listed)}
    if len(cards) != 1:
        raise _Unknown(f"{transport} over {len(cards) or 'unnamed'} network cards: what one ring gets is not known")
    file = sys_class / cards.pop()
    try:
        number = float(read_text(file).split()[0])  # net: Mbit/s, -1 where virtual; infiniband: `400 Gb/sec (4X NDR)`
    except (OSError, ValueError, IndexError) as error:
        raise _Unknown(f"{file}: does not say the card's rate") from error
    if number <= 0:
        raise _Unknown(f"{file}: the card has no rate of its own")
    return number / (GBIT_PER_GB if transport == "NET/IB" else MBIT_PER_GB), str(file)


def _gpus(transport: str, members: Sequence[LinkMember]) -> tuple[float, str]:
    try:
        import pynvml
    except ImportError as error:
        raise _Unknown(f"NVML cannot be asked: {install_hint('record')}") from error
    try:
        pynvml.nvmlInit()
        gpus = [pynvml.nvmlDeviceGetHandleByUUID(nvml_uuid(member.uuid)) for member in members]
        if transport.startswith("P2P") and _over_nvlink(pynvml, gpus):
            return min((_nvlink(pynvml, gpu, gpus) for gpu in gpus), key=lambda rate: rate[0])
        return min((_pcie(pynvml, gpu) for gpu in gpus), key=lambda rate: rate[0])
    except pynvml.NVMLError as error:
        raise _Unknown(f"NVML does not say ({error})") from error


def nvml_uuid(uuid: str | None) -> str:
    """Return NVML's spelling of a GPU's UUID; torch leaves out the prefix."""
    return f"GPU-{(uuid or '').removeprefix('GPU-')}"


def _over_nvlink(nvml: Any, gpus: Sequence[Any]) -> bool:
    """Whether the peers reach one another over NVLink. NCCL's log calls that P2P, and P2P over PCIe too."""
    status = {
        nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK
        for one, other in combinations(gpus, 2)
    }
    if len(status) != 1:
        raise _Unknown("some peers are joined by NVLink and some are not")
    return True in status


def _nvlink(nvml: Any, gpu: Any, gpus: Sequence[Any]) -> tuple[float, str]:
    """All of a GPU's NVLinks that lead to the group. NVML counts raw bytes: 26.56 GB/s for a link sold as 25."""
    speeds = [_link_mb_per_s(nvml, gpu, number) for number in _links_within(nvml, gpu, gpus)]
    if not speeds or 0 in speeds:
        raise _Unknown("NVML does not say the speed of the NVLinks")
    total = sum(speeds) / MB_PER_GB
    return total, f"NVML: {len(speeds)} NVLinks, {total / len(speeds):.4g} GB/s each"


def _links_within(nvml: Any, gpu: Any, gpus: Sequence[Any]) -> Iterable[int]:
    """A GPU's active links to a switch, or straight to another of these GPUs."""
    peers = {nvml.nvmlDeviceGetPciInfo(peer).busId for peer in gpus}
    for number in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(gpu, number):
                continue
        except nvml.NVMLError:
            continue  # a GPU with fewer links says so with an error
        if _far_end(nvml, gpu, number) in (None, *peers):
            yield number


def _far_end(nvml: Any, gpu: Any, number: int) -> Any:
    """The bus id of the GPU that a link leads to; None where it leads to a switch, or NVML does not say."""
    try:
        if nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, number) != nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
            return None
        return nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, number).busId
    except nvml.NVMLError:
        return None


def _link_mb_per_s(nvml: Any, gpu: Any, number: int) -> int:
    """One link's speed in MB/s, 0 where NVML does not say: asked link by link, else the speed all active links share.

    nvml.h: NVML_FI_DEV_NVLINK_GET_SPEED, scope the link; NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON; both "in MBps".
    """
    fields = [(nvml.NVML_FI_DEV_NVLINK_GET_SPEED, number), nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON]
    values = nvml.nvmlDeviceGetFieldValues(gpu, fields)
    speeds = [int(value.value.uiVal) for value in values if value.nvmlReturn == nvml.NVML_SUCCESS]
    return next(filter(None, speeds), 0)


def _pcie(nvml: Any, gpu: Any) -> tuple[float, str]:
    """The widest and fastest that GPU and slot agree on: an idle link runs slower to save power."""
    generation = int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu))
    width = int(nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu))
    if generation not in PCIE_LANE_GBPS:
        raise _Unknown(f"the rate of PCIe generation {generation} is not known here")
    return PCIE_LANE_GBPS[generation] * width, f"NVML: PCIe generation {generation}, {width} lanes"
