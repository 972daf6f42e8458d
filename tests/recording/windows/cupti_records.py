"""CUPTI's records, as its headers declare them, and a CUPTI that walks over them."""

import ctypes
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

import numpy as np

from tracer.recording.windows.libcupti import CONCURRENT_KERNEL, MEMCPY, MEMCPY2, MEMSET


def of(kind, *fields):
    """A struct of fields `(type, names)`."""
    members = [(name, field) for field, names in fields for name in names.split()]
    return type("Record", (ctypes.Structure,), {"_fields_": members, "KIND": kind})


# cupti_activity_deprecated.h of CUDA 13.2: CUpti_ActivityKernel9, which CUDA 12.9 and 13.0 write.
Kernel = of(
    CONCURRENT_KERNEL,
    (c_uint32, "kind"),
    (c_uint8, "cacheConfig sharedMemoryConfig"),
    (c_uint16, "registersPerThread"),
    (c_uint32, "partitionedGlobalCacheRequested partitionedGlobalCacheExecuted"),
    (c_uint64, "start end completed"),
    (c_uint32, "deviceId contextId streamId"),
    (c_int32 * 3, "grid block"),
    (c_int32, "staticSharedMemory dynamicSharedMemory"),
    (c_uint32, "localMemoryPerThread localMemoryTotal correlationId"),
    (c_int64, "gridId"),
    (c_void_p, "name reserved0"),
    (c_uint64, "queued submitted"),
    (c_uint8, "launchType isSharedMemoryCarveoutRequested sharedMemoryCarveoutRequested padding"),
    (c_uint32, "sharedMemoryExecuted"),
    (c_uint64, "graphNodeId"),
    (c_uint32, "shmemLimitConfig graphId"),
    (c_void_p, "pAccessPolicyWindow"),
    (c_uint32, "channelID channelType clusterX clusterY clusterZ clusterSchedulingPolicy"),
    (c_uint64, "localMemoryTotal_v2"),
    (c_uint32, "maxPotentialClusterSize maxActiveClusters"),
)
# cupti_activity.h: CUpti_ActivityMemcpy6, MemcpyPtoP4, Memset4.
Memcpy = of(
    MEMCPY,
    (c_uint32, "kind"),
    (c_uint8, "copyKind srcKind dstKind flags"),
    (c_uint64, "bytes start end"),
    (c_uint32, "deviceId contextId streamId correlationId runtimeCorrelationId pad"),
    (c_void_p, "reserved0"),
    (c_uint64, "graphNodeId"),
    (c_uint32, "graphId channelID channelType"),
    (c_uint8 * 4, "isDeviceLaunched"),
    (c_uint64, "copyCount"),
)
PeerCopy = of(
    MEMCPY2,
    (c_uint32, "kind"),
    (c_uint8, "copyKind srcKind dstKind flags"),
    (c_uint64, "bytes start end"),
    (c_uint32, "deviceId contextId streamId srcDeviceId srcContextId dstDeviceId dstContextId correlationId"),
    (c_void_p, "reserved0"),
    (c_uint64, "graphNodeId"),
    (c_uint32, "graphId channelID channelType"),
)
Memset = of(
    MEMSET,
    (c_uint32, "kind value"),
    (c_uint64, "bytes start end"),
    (c_uint32, "deviceId contextId streamId correlationId"),
    (c_uint16, "flags memoryKind"),
    (c_uint32, "pad"),
    (c_void_p, "reserved0"),
    (c_uint64, "graphNodeId"),
    (c_uint32, "graphId channelID channelType"),
    (c_uint8 * 4, "isDeviceLaunched"),
)


def record(struct, start, end, **fields):
    return struct(kind=struct.KIND, start=start, end=end, **fields)


class WalkingCupti:
    """A CUPTI that knows where the records of the buffers it was given begin."""

    def __init__(self, *buffers):
        self.buffers = [np.frombuffer(b"".join(map(bytes, records)), dtype=np.uint8).copy() for records in buffers]
        self._after = {}
        for buffer, records in zip(self.buffers, buffers, strict=True):
            place = base = buffer.ctypes.data
            self._after[base, None] = place if records else None
            for one in records:
                following = place + ctypes.sizeof(one)
                self._after[base, place] = following if following < base + len(buffer) else None
                place = following

    def next_record(self, buffer, valid_bytes, record):
        following = self._after[buffer, record.value]
        record.value = following if following is not None else record.value
        return following is not None
