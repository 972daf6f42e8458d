"""Notices: warnings and doubts with a code, a text and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum, auto
from functools import partial

import msgspec


class Weight(StrEnum):
    """What a notice makes of the figures.

    `note`: doubts none. `warning`: trust is fair at most. `damage`: traces lack what ran, trust is low. `graded`: as
    the reason of trust says.
    """

    NOTE = "note"
    WARNING = "warning"
    DAMAGE = "damage"
    GRADED = "graded"


class CodeFacts(auto):
    """When a code is said and what to do then; `repeats` where a rank, file or kernel each may have it.

    The code is the member's own name: it becomes `value`, in lower case, where the member is made.
    """

    def __init__(self, weight: Weight, when: str, do: str | None = None, repeats: bool = False) -> None:
        super().__init__()
        self.weight, self.when, self.do, self.repeats = weight, when, do, repeats
        _FACTS.append(self)


_FACTS: list[CodeFacts] = []
_note = partial(CodeFacts, Weight.NOTE)
_warning = partial(CodeFacts, Weight.WARNING)
_damage = partial(CodeFacts, Weight.DAMAGE)
_graded = partial(CodeFacts, Weight.GRADED)


class Code(StrEnum):
    """Programs go by codes, never by texts, which may be reworded; an unknown one is read as `saved`.

    When each is given stands in `analyzers/notices.py`.
    """

    facts: CodeFacts

    # Files of a run.
    RUN_JSON_MISSING = _note("the traces lie without a run.json")
    RUN_JSON_UNREADABLE = _warning("run.json cannot be read, or is of another schema")
    FILE_OF_A_RUN = _note("one file of a recorded run is read by itself")
    RECORDING_NOTE = _note("run.json's `notes`: the recording did not end as planned")
    CALIBRATION_UNREADABLE = _warning("links.json cannot be read")
    TRACE_INCOMPLETE = _damage("a part of a trace could not be read: events may be missing there", repeats=True)
    TRACE_IS_NO_JSON = _note(
        "a trace is no valid JSON (control characters, bytes that are no UTF-8, inf, NaN, texts that are not escaped), "
        "and all that figures are made of was read",
        repeats=True,
    )
    EXPORT_LACKS = _note(
        "an export of Nsight Systems lacks what the report could have held, or has what is not read",
        repeats=True,
    )
    EVENTS_WITHOUT_DURATION = _warning("events of a trace have no duration", repeats=True)
    TIMES_ARE_CORRUPT = _damage(
        "device events that begin before their own launch are left out",
        "record again, in a new process for each profile",
        repeats=True,
    )
    LAUNCHES_ARE_LOST = _damage(
        "launches of kernels inside the profile have no event on the device",
        "profile fewer steps, so that no record is dropped",
        repeats=True,
    )
    GRAPH_KERNELS_ARE_LOST = _damage(
        "launches of a CUDA graph have fewer kernels on the device than its other launches",
        "profile fewer steps, so that no record is dropped, or without CUDA graphs",
        repeats=True,
    )
    STEPS_WITHOUT_DEVICE_ROWS = _note("steps are marked of which nothing ran on the device", repeats=True)
    SEVERAL_CYCLES = _note("one file holds several cycles of the profiler: their steps are numbered on", repeats=True)
    TIMES_ARE_LOST = _warning(
        "rows at time 0, which all others are far from, are left out",
        "record again with another version of torch: 2.12 is known for it",
        repeats=True,
    )
    ROWS_TOO_LONG = _graded(
        "device events last longer than their stream's order, or all their like, allow",
        "record again, in a new process for each profile",
        repeats=True,
    )
    STREAM_OUT_OF_ORDER = _warning(
        "device events begin before others that were launched on their stream earlier",
        "record again, in a new process for each profile",
        repeats=True,
    )
    PROFILE_DRIFTS = _warning("a device's clock moves against its host's in the profile", repeats=True)
    TORCH_DOUBTS = _note(
        "torch's own validator (`--validate`) finds something in a trace, or cannot look at it",
        "it comes with torch 2.15",
        repeats=True,
    )
    NOSYNC_WINDOW_UNREADABLE = _warning("the window without gradient synchronization cannot be read", repeats=True)
    LIGHT_WINDOW_DOES_NOT_FIT = _warning("a light window cannot be joined to its full one, whose times are shown")
    LIGHT_WINDOW_JOINED_IN_PART = _note(
        "a rank's light and full windows share nine tenths or more of their device events, not all",
    )
    SHARED_LINKS = _warning("two communicators work at once, and how they share the links was not measured")
    LAUNCHES_ARE_ESTIMATED = _note("when light windows launched is estimated from full ones")
    RANK_UNREADABLE = _warning("a rank is left out, since its file cannot be read", repeats=True)
    RANK_NOT_DRAWN = _warning("a rank could not be read a second time, to be drawn", repeats=True)
    RANKS_MISSING = _graded("the run, or the cell, has fewer ranks than its world size")
    KERNEL_UNKNOWN = _warning("a kernel looks like communication, and no rule knows it", repeats=True)
    COMMUNICATION_NOT_FOUND = _damage("a run of several ranks has no communication that a rule knows")
    RANKS_ARE_GUESSED = _warning(
        "no file says which rank it is: ranks are numbered in order of process id",
        "say it with `--rank FILE=N`, once for each file",
    )
    RANK_IS_IMPOSSIBLE = _warning("a rank or world size is one that no run can have", repeats=True)
    # Controls and epochs.
    EARLY_STEPS_ALONE = _graded(
        "training ended before a round of blocks was whole, and only its early steps were profiled",
        "let it train longer, or record fewer and shorter blocks: --wait, --warmup, --active, --rounds",
    )
    CONTROL_IS_NULL = _note("a control is missing")
    SAMPLES_ARE_IMPOSSIBLE = _warning("a control's steps that last nothing, or years, are left out")
    CONTROLS_MISSING = _note("no step was timed without the profiler, for predictions to be of")
    PROFILER_DISTORTS = _graded("steps under the profiler take longer than without it")
    STEPS_SCATTER = _warning("steps without the profiler scatter")
    ROUNDS_ARE_MISSING = _warning(
        "cells lack some of a sweep's rounds", "give the same `tracer sweep` again: it goes on"
    )
    TRAINING_DIVERGED = _warning("an epoch's loss is no number", "lower --lr, or give --lr-warmup")
    ACCURACY_IS_NULL = _note("there was no test set")
    # Steps and their parts.
    STEPS_ARE_NOT_MARKED = _graded(
        "a trace has no ProfilerStep: all of it is one window",
        "mark steps (profiler.step(), for Nsight Systems an NVTX range), or give what repeats as `--steps`",
    )
    STEPS_ARE_INFERRED = _note(
        "a trace has no ProfilerStep: its steps are told by a range, with which something else agrees in period",
        "mark steps (profiler.step(), for Nsight Systems an NVTX range), or name another range with `--steps`",
    )
    ACTIVITY_OUTSIDE_STEPS = _note("device activity lies outside of the profiled steps")
    PROFILE_START_LEFT_OUT = _note(
        "the profile's start makes its first step longer, which no step without the profiler is",
    )
    CONTENTION_IS_NULL = _note("too little is known of what compute loses beside communication")
    CONTENTION_IS_ESTIMATED = _note("the window without synchronization fits the full one badly")
    SYNC_COST_OVERSHOT = _warning("profiled steps lose more to synchronization than others")
    CORES_ARE_SHARED = _warning("ranks on a CPU take cores from one another")
    DEVICE_IS_SLOWED = _warning(
        "a device's SM clock is over 5 % below that of its like, or its heat or protection holds it down",
        "its host says more: nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE",
        repeats=True,
    )
    DEVICE_IS_SHARED = _warning(
        "a device stands still at even distances, equally long, while work is queued: another process shares it",
        "nvidia-smi names that process",
        repeats=True,
    )
    CLOCKS_ARE_LIMITED = _note("devices are limited by power or settings, and none is slower")
    HOST_IS_HELD_UP = _note(
        "a rank's host lacked a core or collected garbage for over 2 % of its steps, read from disk, or had a slow CPU",
        repeats=True,
    )
    FLOPS_ARE_NULL = _note(
        "too few kernels have counted FLOPs, or the device's peak is not known",
        "profile with record_shapes=True; kernels of CUDA graphs have no shapes",
    )
    # Communication.
    CLOCKS_DIFFER = _note("clocks of ranks are shifted onto one")
    CLOCK_IS_UNKNOWN = _warning("no collective ties a rank's clock to the others'")
    STEPS_NUMBERED_APART = _note("a rank counts its steps as no other does", repeats=True)
    MEMBERS_MISSING = _warning("members of collectives are not in the run: transfers are bounds")
    ENDS_LIE_APART = _warning("members of collectives end too far apart on one clock: no transfer is told")
    PROFILES_BEGIN_APART = _note("ranks waited before another rank's profile began")
    UNMATCHED_COMMUNICATION = _warning("communication kernels fit no kernel of another rank")
    TRANSFER_NOT_SHOWN = _warning("kernels such as DeepEP's low-latency ones may end while what they sent is in flight")
    BANDWIDTH_IS_NULL = _note("collectives have no bytes, or no time")
    PURPOSE_OF_REPLAYS = _note(
        "nothing tells what the collectives in CUDA graphs carry",
        "profile without CUDA graphs to see what they carry",
    )
    TRAFFIC_IS_NULL = _note("bytes of collectives of one purpose are not known")
    LINKS_NOT_CALIBRATED = _note(
        "the links are not calibrated",
        "measure them with `tracer calibrate -o links.json`, and give --links links.json",
    )
    LINKS_OF_OTHER_DEVICES = _warning("the calibration is of other devices")
    LINKS_OF_OTHER_TRANSPORT = _warning("the calibration is of another transport")
    NVLINK_NOT_USED = _warning(
        "NCCL goes over host memory or sockets within a host whose GPUs NVLink joins",
        "NCCL_DEBUG=INFO says why; containers need --ipc=host, and all GPUs",
    )
    UTILIZATION_IS_NULL = _note("the link's own rate is not known")
    # Buckets and layers.
    BUCKETS_LEFT_ASIDE = _warning("run.json's buckets are not those of the traces")
    BUCKET_IS_NULL = _note("reductions of gradients fit no bucket")
    BUCKET_PARAMETERS_UNKNOWN = _note("the parameters of a bucket are not known")
    BUCKET_GRADIENTS_MISSING = _warning("a bucket has parameters without gradients in the traces")
    MODULES_NOT_TRACED = _note(
        "layers are not the model's own modules",
        "profile with_stack and with_modules (not for nn.DataParallel and FSDP)",
    )
    LAYERS_OF_SEVERAL_SOURCES = _warning("ranks' layers come from different sources")
    BACKWARD_WITHOUT_LAYER = _warning("much of the backward belongs to no layer")
    EXPERTS_GO_BY_ORDER = _note("no modules tell experts apart: their layers are numbered")
    TOKENS_ARE_NULL = _note("who sends whom how many tokens is not known: splits or ranks are missing")
    TOKENS_OF_OTHER_STEPS = _note("experts' tokens are of full windows, their times of light ones")
    PIPELINE_IS_NULL = _note(
        "ranks of a pipeline are missing, tell no microbatches apart, or hold different ones",
        "record all ranks, with ranges of modules",
    )
    CHARGES_ARE_NULL = _note(
        "what waited for what is not known: a rank has no launches, or no marked steps, or contradictory times",
        "record the CPU's activity together with the device's, and marked steps, on all ranks",
    )
    # Predictions.
    CALLS_NOT_TIMED = _warning("what one more call takes the host is not known")
    CASTS_NOT_COUNTED = _warning("fewer bytes are predicted without the casts that they take")
    NOTHING_EXPLAINS_IT = _warning("most of what a change would bring is time that no dependency explains")
    GAIN_NOT_TOLD_APART = _warning("what a gain lies between holds 0: it may bring nothing")
    REPLAY_IS_OFF = _warning("the replay of the run's own settings misses its step by more than 5 %")
    DTYPES_DIFFER = _warning("parameters have several dtypes, and are cut into buckets as if of one")
    FIGURES_OF_ANOTHER_DEVICE = _warning("figures of H200s stand in for what other devices' run does not tell")
    LINKS_EXTRAPOLATED = _warning("all-reduces of so many GPUs are not measured")
    NETWORK_NOT_MEASURED = _warning("transfers between hosts are not measured")
    # Comparisons and sweeps.
    WINDOWS_DIFFER = _warning("A's times and B's are of different windows")
    DISTORTIONS_DIFFER = _warning("the profiler stretches A's steps and B's differently")
    LAYERS_DIFFER = _warning("A's layers and B's have different sources")
    LAYOUTS_DIFFER = _warning("A's buckets and B's are not the same")
    STEPS_TOO_FEW = _warning(
        "A and B have too few steps to tell a change from chance", "record with --active 8 or more"
    )
    LAUNCHES_DIFFER = _warning(
        "figures differ by no more than launches of the same thing may",
        "record more launches of each",
    )
    LAUNCHES_UNLIKE = _warning("launches of one side of a comparison differ in their settings, or one is there twice")
    CELL_LEFT_OUT = _warning("a cell of sweep.json makes no sense, or is there twice")
    HOSTS_DIFFER = _warning(
        "launches of a sweep's cell and of its baseline ran on different hosts",
        "record all rounds on one host, in a new folder",
    )
    CELL_UNREADABLE = _warning("a cell's recording cannot be read, or is another cell's")
    TIMED_UNDER_PROFILER = _warning("cells have no step without the profiler")
    BASELINE_OF_STRATEGY = _warning("a 1-GPU cell was recorded under a strategy")
    EPOCH_IS_ASSUMED = _warning("run.json names no data set")
    ACCURACY_MEANS_NOTHING = _warning("epochs are of synthetic data")
    SAVED = _warning("a document held the sentence alone, or a code that this version does not know")

    @classmethod
    def _missing_(cls, value: object) -> Code:
        return cls.SAVED


for _facts in _FACTS:
    Code(_facts.value).facts = _facts


class Notice(msgspec.Struct, frozen=True):
    """What a reader must know, and what to do about it."""

    code: Code
    text: str
    remedy: str | None = None

    def within(self, prefix: str) -> Notice:
        """Return the same notice with its text behind a prefix, which says whose it is."""
        return Notice(self.code, f"{prefix}{self.text}", self.remedy)

    def __str__(self) -> str:
        return self.text if self.remedy is None else f"{self.text}; {self.remedy}"


class Notices:
    """Several notices that one sentence holds: a list here, joined by semicolons where it is shown or saved."""

    __slots__ = ("_notices",)

    def __init__(self, notices: Iterable[Notice]) -> None:
        self._notices = tuple(notices)

    @classmethod
    def saved(cls, text: str) -> Notices:
        """Return what a document holds as words, as one notice."""
        return cls([Notice(Code.SAVED, text)])

    def __iter__(self) -> Iterator[Notice]:
        return iter(self._notices)

    def __str__(self) -> str:
        return "; ".join(map(str, self._notices))

    def __repr__(self) -> str:
        return f"Notices{self._notices!r}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Notices) and self._notices == other._notices

    def __hash__(self) -> int:
        return hash(self._notices)
