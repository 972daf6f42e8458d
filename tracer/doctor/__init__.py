"""What this machine can record, and what is missing for what.

`findings` has what a probe may say; `software`, `gpus`, `trials` and `places` ask Python's packages, the devices, both
profilers and the disks, and `examination` puts all of it in order. `trial_process` tries a profiler in a process of its
own. Torch is imported inside functions alone: that it is missing is a finding, too.

Decisions: docs/dev/decisions/launching.md
"""

from tracer.doctor.examination import Examination, examine
from tracer.doctor.findings import Finding
