"""Profiled windows of a recording, and how long single steps take.

`step_blocks` has the order of blocks, `step_times` times steps without waiting for devices, and their hosts, `outlook`
says from the early ones what a recording will take. `kineto_window` records through torch.profiler, `forward_ranges`
marks modules for it, `cupti_window` device activity alone: `libcupti` finds CUPTI, `native_callbacks` take its buffers,
`records` decodes them, `device_activity` brings these together and has `self_check` see that what is read is what was
done. `python_samples` samples stacks beside a full window, whose frames `stack_frames` names. All leave traces through
`trace_file`.

Decisions: docs/dev/decisions/recording.md
"""

from tracer.recording.windows.cupti_window import CuptiWindow
from tracer.recording.windows.device_activity import checked_activity, other_user, why_unusable
from tracer.recording.windows.forward_ranges import module_ranges
from tracer.recording.windows.kineto_window import KinetoWindow, is_ours, ours
from tracer.recording.windows.libcupti import CuptiUnusable, loaded_cupti
from tracer.recording.windows.outlook import Outlook, pace_s
from tracer.recording.windows.python_samples import PythonSamples
from tracer.recording.windows.step_blocks import EARLY, FULL, ROUND, StepBlock, blocks_of_round, early_block
from tracer.recording.windows.step_times import HostTimes, StepTimes
from tracer.recording.windows.trace_file import COUNTER, HostRow
