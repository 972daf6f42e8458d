"""Recording inside the training process: schedule, profiles, controls, `run.json`.

`tracer.Session`, and `unchanged_script` which the `hook` arms, drive a `recorder` step by step; the room `windows`
profiles and times steps, `rendezvous` lets ranks meet. `model_facts`, the room `strategies`, `link_rates` and
`device_states` find out what trains, how it is parallelized, over which links, on devices in which state,
`training_settings` with what, `host_states` what holds the hosts up; `rank_part` and `run_json` write it down,
`collect` puts the recording in its place. `rank_process` is for processes that are ranks, `torch_compat` has what
differs between versions of torch. Importing this room imports torch.

Decisions: docs/dev/decisions/recording.md
"""

from tracer.recording.collect import Finisher, Taking
from tracer.recording.device_states import open_gpus
from tracer.recording.hook import HOOK_FOLDER
from tracer.recording.link_rates import NCCL_LOG, LinkMember, link_of, nccl_logs, peer_link
from tracer.recording.model_facts import find_model, gpus_of
from tracer.recording.rank_part import RUN, Facts, RankPart, facts_of, typical_round, write_part
from tracer.recording.rank_process import (
    LAUNCHER,
    OUT_OF_MEMORY,
    PROGRESS,
    REFUSAL,
    WORK,
    die_with,
    leave_notes,
    note_session,
    pick_device,
    progress_of,
    read_errors,
    reasons,
    refusing,
    seldom_progress_of,
    take_notes,
)
from tracer.recording.recorder import Progress, Recorder, Subject, silent
from tracer.recording.rendezvous import Meeting, NotAllCame
from tracer.recording.strategies import inner
from tracer.recording.torch_compat import compile_in_place, rank_and_size, trace_violations, wrap_ddp
from tracer.recording.windows import FULL
