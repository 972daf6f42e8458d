"""Device activity through CUPTI alone, with no Python in its callbacks.

`library` finds CUPTI, `native_callbacks` take its buffers, `records` decodes them, `activity` brings all of it together.

Decisions: docs/decisions/recording.md
"""

from tracer.recording.cupti.activity import DeviceActivity
from tracer.recording.cupti.library import Cupti, CuptiUnusable
from tracer.recording.cupti.records import DeviceRow

__all__ = ["Cupti", "CuptiUnusable", "DeviceActivity", "DeviceRow"]
