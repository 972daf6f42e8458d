"""Try libcuptis of several versions: `python benchmarks/cupti_versions.py LIBRARY...`, each in a process of its own.

Of each: the self-check, a window of known kernels, a window that holds more than its buffers do, and another behind it.
No torch takes part: the driver's API makes the context, as a wheel of CUPTI alone has no torch that goes with it.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

from tracer.recording.windows.device_activity import DeviceActivity
from tracer.recording.windows.libcupti import Cupti, CuptiUnusable
from tracer.recording.windows.native_callbacks import ARENA_BYTES, compile_callbacks
from tracer.recording.windows.self_check import KERNEL, PTX, Driver

KERNELS = 1000
# The shortest record of a kernel has 208 bytes.
TOO_MANY = ARENA_BYTES // 200 + 100_000


def main(libraries: list[str]) -> int:
    """Print one line for each library; return 1 if any failed."""
    failed = 0
    for library in libraries:
        command = ["timeout", "60", sys.executable, __file__, "--one", library]
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        words = tried.stdout.strip() or (tried.stderr.strip().splitlines() or ["said nothing"])[-1]
        failed += tried.returncode != 0
        print(f"{library}: exit code {tried.returncode}; {words}", flush=True)
    return min(failed, 1)


def try_one(library: Path) -> str:
    """Return what was found of a library. Raises CuptiUnusable or AssertionError for what is wrong with it."""
    driver = Driver()
    kernel = _kernel(driver)
    cupti = Cupti(library)
    activity = DeviceActivity(cupti, compile_callbacks())
    activity.check(driver)
    sizes = (_recorded(activity, driver, kernel, KERNELS),)
    lost = "nothing"
    try:
        _recorded(activity, driver, kernel, TOO_MANY)
    except CuptiUnusable as error:
        lost = str(error)
    sizes += (_recorded(activity, driver, kernel, KERNELS),)
    assert sizes == (KERNELS, KERNELS), sizes
    return f"API {cupti.version}: self-check right, {sizes} of {KERNELS} kernels; of {TOO_MANY} in one window: {lost}"


def _recorded(activity: DeviceActivity, driver: Driver, kernel: ctypes.c_void_p, launches: int) -> int:
    one = ctypes.c_uint(1)
    with activity:
        for _ in range(launches):
            driver.call("cuLaunchKernel", kernel, one, one, one, one, one, one, ctypes.c_uint(0), None, None, None)
        driver.call("cuCtxSynchronize")
    return sum(row.name == KERNEL for row in activity.rows())


def _kernel(driver: Driver) -> ctypes.c_void_p:
    """The self-check's kernel, in the first device's own context."""
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuInit", ctypes.c_uint(0))
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
    driver.call("cuCtxSetCurrent", context)
    driver.call("cuModuleLoadData", ctypes.byref(module), PTX.encode())
    driver.call("cuModuleGetFunction", ctypes.byref(kernel), module, KERNEL.encode())
    return kernel


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(try_one(Path(sys.argv[2])))
    else:
        sys.exit(main(sys.argv[1:]))
