"""Help for tables' columns: what figures mean, by their names."""

from __future__ import annotations

_WAITING = "Exposed time before the last member of a collective arrives."
_TRANSFER = "From the moment the last member arrives until the collective ends. A faster network shortens only this."
_STEP = "From the first device event of a step to the first of the next, under the profiler."

# By a figure's name, whichever table it stands in.
HELP = {
    "span_ns": _STEP,
    "compute_ns": (
        "The device runs at least one kernel that is not communication, whatever else runs at the same time."
    ),
    "exposed_comm_ns": "The device communicates and computes nothing.",
    "exposed_wait_ns": f"{_WAITING} Part of the exposed communication.",
    "exposed_copy_ns": "The device copies or fills memory, and neither computes nor communicates.",
    "idle_ns": "The device does nothing. The section on idle time says why.",
    "overlap": "The share of all communication that runs at the same time as compute.",
    "start_ns": "Time since the run's earliest event.",
    "share": "The share of the step; for kernels and operators, of all device time.",
    "calls": "How often it ran in all profiled steps.",
    "median_ns": "The median duration of one call.",
    "bytes": "The message's bytes, counted as nccl-tests counts them. 1 MB is 1e6 bytes.",
    "why": "Why it belongs to no collective.",
    "transfer_ns": _TRANSFER,
    "transfer_at_most_ns": f"{_TRANSFER} Part of it may be waiting.",
    "wait_ns": _WAITING,
    "exposed_ns": "Communication while nothing computes.",
    "overlapped_ns": "Communication that runs at the same time as compute.",
    "bucket": "DDP's bucket, numbered in the order of a step.",
    "quartiles": "Half of all measurements lie in this range.",
    "imbalance": "The largest rank's figure over the mean of all ranks.",
    "direction": "Forward or backward.",
    "dur_ns": "The kernel's duration, waiting included.",
    "queued_ns": "Ready and launched, but not begun: another collective is ahead of it, or no SM is free.",
    "late_launch_ns": "Launched after its last gradient was ready: the CPU is the limit.",
    "comm_ns": "All communication of the group, hidden or not.",
    "unresolved_ns": ("Waiting or transfer: not known which, because members are missing or could not be matched."),
}
