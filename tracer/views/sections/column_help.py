"""Help for tables' columns: what each head means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tracer.views import Block, Column, Section, Table

_TRANSFER = "From the moment the last member arrives until the collective ends. A faster network shortens only this."
_WAITING = "Exposed time before the last member of a collective arrives."
# By a column's title, whichever table it stands in.
_EVERYWHERE = {
    "step": "From the first device event of a step to the first of the next, under the profiler.",
    "span": "From the first device event of a step to the first of the next, under the profiler.",
    "windows": "How many profiled steps these medians are taken over.",
    "(min - max)": "The shortest and the longest profiled step.",
    "compute": "The device runs at least one kernel that is not communication, whatever else runs at the same time.",
    "exposed comm": "The device communicates and computes nothing.",
    "exposed waiting": f"{_WAITING} Part of the exposed communication.",
    "exposed copy": "The device copies or fills memory, and neither computes nor communicates.",
    "idle": "The device does nothing. The section on idle time says why.",
    "overlap": "The share of all communication that runs at the same time as compute.",
    "starts": "Time since the run's earliest event.",
    "starts, ms": "Time since the run's earliest event.",
    "share": "The share of the step; for kernels and operators, of all device time.",
    "calls": "How often it ran in all profiled steps.",
    "median us": "The median duration of one call.",
    "size": "The message's bytes, counted as nccl-tests counts them. 1 MB is 1e6 bytes.",
    "why": "Why it belongs to no collective.",
    "transfer": _TRANSFER,
    "waiting": _WAITING,
    "exposed": "Communication while nothing computes.",
    "hidden": "Communication that runs at the same time as compute.",
    "bucket": "DDP's bucket, numbered in the order of a step.",
    "(quartiles)": "Half of all measurements lie in this range.",
    "imbalance": "The largest rank's figure over the mean of all ranks.",
    "pass": "Forward or backward.",
    "length": "The kernel's duration, waiting included.",
    "queued": "Ready and launched, but not begun: another collective is ahead of it, or no SM is free.",
    "late": "Launched when the device had already run out of compute.",
    "slow": "The transfer's own length.",
    "late launch": "Launched after its last gradient was ready: the CPU is the limit.",
    "communication": "All communication of the group, hidden or not.",
    "unresolved": "Waiting or transfer: not known which, because members are missing or could not be matched.",
    "transfer at most": f"{_TRANSFER} Part of it may be waiting.",
}
# Heads that mean something else, or occur only, in one section of the page.
_BY_SECTION: dict[str, dict[str, str]] = {
    "idle": {
        "ms": "Per step, the mean of all windows.",
        "of idle": "The share of all idle time.",
        "cause": "Why the device was idle.",
        "phase": "The part of the step that the CPU was in.",
        "forward": "Idle time while the CPU was in the forward pass.",
        "backward": "Idle time while the CPU was in the backward pass.",
        "optimizer": "Idle time while the CPU was in the optimizer.",
        "between steps": "Idle time while the CPU was between two steps.",
        "the CPU is in": "The operator or module that the CPU ran while the device was idle.",
        "times": "How often per step.",
    },
    "groups": {
        "ranks": "The members, or how many groups of how many ranks.",
        "exposed": "Time in which this group communicates, no other group does, and nothing computes.",
        "carries": "What the group's communication is for.",
        "of exposed": "The share of this step's exposed communication.",
    },
    "communication": {
        "kind": "The collective operation.",
        "ranks": "Which ranks take part.",
        "for": "What is communicated.",
        "times": "How many of them were measured.",
        "transfer ms": _TRANSFER,
        "waited ms": "How long a member waits for the last one, in the mean.",
        "busbw GB/s": "Bytes over transfer, times what a ring moves per byte. Compares over kinds, group sizes "
        "and with nccl-tests. 1 GB is 1e9 bytes.",
        "calibrated GB/s": "What `tracer calibrate` measured on these links for this kind, group and size.",
        "of calibrated": "The measured bandwidth as a share of the calibrated one.",
        "total ms": "All durations added up, over all ranks.",
        "median ms": "The median duration.",
    },
    "collectives": {
        "index": "The collective's number in the report's JSON.",
        "step": "The step in which it runs.",
        "kind": "The collective operation.",
        "ranks": "Which ranks take part.",
        "for": "What is communicated.",
        "transfer ms": _TRANSFER,
        "waited ms": "The shortest and the longest that a member waits for the last one.",
        "busbw GB/s": "Bytes over transfer, times what a ring moves per byte. 1 GB is 1e9 bytes.",
        "of calibrated": "The bandwidth as a share of what calibration measured for this kind, group and size.",
        "of link": "The bandwidth as a share of the link's own rate.",
    },
    "waiting": {
        "waited": "What this rank lost in collectives before the last member arrived.",
        "caused": "What all other ranks lost because this rank arrived last.",
        "by launch": "Its CPU launched late.",
        "by compute": "Its compute ran longer.",
        "by collective": "Its previous collective ended late.",
        "by input": "It waited for input.",
        "by unknown": "The trace does not show why.",
    },
    "buckets": {
        "parameters": "How many parameters' gradients it holds.",
        "of all exposed": "Its share of the step's exposed communication.",
        "hidden beside": "The layers whose compute ran during its reduction, longest first.",
        "layers": "The first and the last layer whose gradients it holds.",
    },
    "layers": {
        "type": "The module's class.",
        "forward": "Compute that its forward pass launched.",
        "backward": "Compute that its backward pass launched.",
        "gradients": "Bytes of its gradients.",
        "prefetched": "Whether it was launched before the module's turn.",
        "resharded after forward": "Whether the parameters were freed after the forward pass.",
        "copy in": "Copies into the buffer that is communicated.",
        "copy out": "Copies out of the buffer that was communicated.",
        "reduction": "Kernels that reduce gradients outside of the collective.",
        "unknown": "The trace does not show why.",
    },
    "experts": {
        "tokens most": "Tokens that the busiest rank's experts receive.",
        "tokens mean": "Tokens that a rank's experts receive in the mean.",
        "dispatch waiting": "Waiting for the ranks that send tokens to this rank's experts.",
        "dispatch transfer": "The transfer of tokens to the experts' ranks.",
        "combine waiting": "Waiting for the ranks that send tokens back.",
        "combine transfer": "The transfer of tokens back from the experts' ranks.",
        "attention": "Compute of the attention operators, the mean over ranks.",
        "longer": "What takes longer: the attention or its communication.",
    },
    "kernels": {
        "ms": "All calls added up, over all profiled steps.",
        "place": "The place in the CUDA graph.",
        "region": "The compiled region or CUDA graph.",
    },
    "whatif": {
        "cap": "The bucket cap, MB.",
        "buckets": "How many buckets the gradients make.",
        "step": "What a step would take: the recorded steps, replayed with what is changed.",
        "nine in ten": "Where nine of ten such steps are expected.",
        "gain": "What it takes off the step with the run's own settings, predicted by the same replay.",
        "against own": "The change against the run's own settings, predicted by the same replay.",
        "exposed comm": "Communication with no kernel beside it that computes.",
        "compute waits": "What of that costs time, and moments before collectives begin; the rest is beside copies.",
        "efficiency": "A step of one GPU that synchronizes nothing, over the predicted step.",
        "best cap": "The bucket cap with the shortest step.",
        "communication": "Whether communication is hidden behind compute.",
    },
    "pipeline": {
        "forward": "Compute of all forwards of this stage.",
        "backward": "Compute of all backwards of this stage.",
        "bubble": "From the stage's first action to its last, the time in which its device runs nothing but messages.",
        "schedule": "What is left of the bubble with equal stages and free messages.",
        "unequal stages": "What unequal durations add to the bubble.",
        "rest": "What messages and the CPU add to the bubble.",
    },
}


def explained(section: Section, name: str) -> list[Block]:
    """Return the section with the help of its tables' columns; `name` is the section's on the page."""
    meanings = _EVERYWHERE | _BY_SECTION.get(name, {})
    return [
        replace(block, columns=_helped(block.columns, meanings)) if isinstance(block, Table) else block
        for block in section
    ]


def _helped(columns: Sequence[Column], meanings: Mapping[str, str]) -> list[Column]:
    return [column if column.help else replace(column, help=meanings.get(column.title, "")) for column in columns]
