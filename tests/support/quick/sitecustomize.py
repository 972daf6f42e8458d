"""In processes that tests start to train on a CPU: nothing looks through what torch's imports leave, for a second each.

Without triton, which a CPU has no use for, and which would call leaked what it does not see freed.
"""

import atexit
import gc
import sys

sys.modules["triton"] = None  # type: ignore[assignment]  # as if it were not installed
gc.disable()
atexit.register(gc.freeze)
