"""Notices: warnings and doubts with a code, a text and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec


class Code(StrEnum):
    """The codes of all notices: programs go by them, never by a notice's words. docs/formats.md lists them."""

    # Files of a run.
    RUN_JSON_MISSING = "run_json_missing"
    RUN_JSON_UNREADABLE = "run_json_unreadable"
    FILE_OF_A_RUN = "file_of_a_run"
    RECORDING_NOTE = "recording_note"
    CALIBRATION_UNREADABLE = "calibration_unreadable"
    TRACE_INCOMPLETE = "trace_incomplete"
    TRACE_IS_NO_JSON = "trace_is_no_json"
    EVENTS_WITHOUT_DURATION = "events_without_duration"
    TIMES_ARE_CORRUPT = "times_are_corrupt"
    LAUNCHES_ARE_LOST = "launches_are_lost"
    PROFILE_DRIFTS = "profile_drifts"
    TORCH_DOUBTS = "torch_doubts"
    NOSYNC_WINDOW_UNREADABLE = "nosync_window_unreadable"
    LIGHT_WINDOW_DOES_NOT_FIT = "light_window_does_not_fit"
    LIGHT_WINDOW_JOINED_IN_PART = "light_window_joined_in_part"
    SHARED_LINKS = "shared_links"
    LAUNCHES_ARE_ESTIMATED = "launches_are_estimated"
    RANK_UNREADABLE = "rank_unreadable"
    RANK_NOT_DRAWN = "rank_not_drawn"
    RANKS_MISSING = "ranks_missing"
    KERNEL_UNKNOWN = "kernel_unknown"
    COMMUNICATION_NOT_FOUND = "communication_not_found"
    RANK_IS_IMPOSSIBLE = "rank_is_impossible"
    # Controls and epochs.
    CONTROL_IS_NULL = "control_is_null"
    SAMPLES_ARE_IMPOSSIBLE = "samples_are_impossible"
    CONTROLS_MISSING = "controls_missing"
    PROFILER_DISTORTS = "profiler_distorts"
    STEPS_SCATTER = "steps_scatter"
    TRAINING_DIVERGED = "training_diverged"
    ACCURACY_IS_NULL = "accuracy_is_null"
    # Steps and their parts.
    STEPS_ARE_NOT_MARKED = "steps_are_not_marked"
    ACTIVITY_OUTSIDE_STEPS = "activity_outside_steps"
    CONTENTION_IS_NULL = "contention_is_null"
    CONTENTION_IS_ESTIMATED = "contention_is_estimated"
    SYNC_COST_OVERSHOT = "sync_cost_overshot"
    CORES_ARE_SHARED = "cores_are_shared"
    DEVICE_IS_SLOWED = "device_is_slowed"
    CLOCKS_ARE_LIMITED = "clocks_are_limited"
    FLOPS_ARE_NULL = "flops_are_null"
    # Communication.
    CLOCKS_DIFFER = "clocks_differ"
    CLOCK_IS_UNKNOWN = "clock_is_unknown"
    STEPS_NUMBERED_APART = "steps_numbered_apart"
    MEMBERS_MISSING = "members_missing"
    UNMATCHED_COMMUNICATION = "unmatched_communication"
    TRANSFER_NOT_SHOWN = "transfer_not_shown"
    BANDWIDTH_IS_NULL = "bandwidth_is_null"
    PURPOSE_OF_REPLAYS = "purpose_of_replays"
    TRAFFIC_IS_NULL = "traffic_is_null"
    LINKS_NOT_CALIBRATED = "links_not_calibrated"
    LINKS_OF_OTHER_DEVICES = "links_of_other_devices"
    LINKS_OF_OTHER_TRANSPORT = "links_of_other_transport"
    UTILIZATION_IS_NULL = "utilization_is_null"
    # Buckets and layers.
    BUCKETS_LEFT_ASIDE = "buckets_left_aside"
    BUCKET_IS_NULL = "bucket_is_null"
    BUCKET_PARAMETERS_UNKNOWN = "bucket_parameters_unknown"
    BUCKET_GRADIENTS_MISSING = "bucket_gradients_missing"
    MODULES_NOT_TRACED = "modules_not_traced"
    LAYERS_OF_SEVERAL_SOURCES = "layers_of_several_sources"
    BACKWARD_WITHOUT_LAYER = "backward_without_layer"
    EXPERTS_GO_BY_ORDER = "experts_go_by_order"
    TOKENS_ARE_NULL = "tokens_are_null"
    TOKENS_OF_OTHER_STEPS = "tokens_of_other_steps"
    PIPELINE_IS_NULL = "pipeline_is_null"
    # Predictions.
    BUCKETS_NOT_BY_RULE = "buckets_not_by_rule"
    HOST_IS_THE_LIMIT = "host_is_the_limit"
    INPUT_STAYS = "input_stays"
    GRAPH_NOT_MEASURED = "graph_not_measured"
    REPLAY_IS_OFF = "replay_is_off"
    HOST_TIMES_UNUSED = "host_times_unused"
    DTYPES_DIFFER = "dtypes_differ"
    FIGURES_OF_ANOTHER_DEVICE = "figures_of_another_device"
    LINKS_EXTRAPOLATED = "links_extrapolated"
    NETWORK_NOT_MEASURED = "network_not_measured"
    # Comparisons and sweeps.
    WINDOWS_DIFFER = "windows_differ"
    DISTORTIONS_DIFFER = "distortions_differ"
    LAYERS_DIFFER = "layers_differ"
    LAYOUTS_DIFFER = "layouts_differ"
    STEPS_TOO_FEW = "steps_too_few"
    LAUNCHES_DIFFER = "launches_differ"
    CELL_LEFT_OUT = "cell_left_out"
    CELL_UNREADABLE = "cell_unreadable"
    TIMED_UNDER_PROFILER = "timed_under_profiler"
    BASELINE_OF_STRATEGY = "baseline_of_strategy"
    EPOCH_IS_ASSUMED = "epoch_is_assumed"
    ACCURACY_MEANS_NOTHING = "accuracy_means_nothing"
    # Read back from a document that holds words alone, or a code that this version does not know.
    SAVED = "saved"

    __str__ = str.__str__

    @classmethod
    def _missing_(cls, value: object) -> Code:
        return cls.SAVED


# What is said of one rank, file or kernel at a time: a run of many may have any number of them.
REPEATED = frozenset(
    {
        Code.TRACE_INCOMPLETE,
        Code.TRACE_IS_NO_JSON,
        Code.EVENTS_WITHOUT_DURATION,
        Code.TIMES_ARE_CORRUPT,
        Code.LAUNCHES_ARE_LOST,
        Code.PROFILE_DRIFTS,
        Code.TORCH_DOUBTS,
        Code.NOSYNC_WINDOW_UNREADABLE,
        Code.RANK_UNREADABLE,
        Code.RANK_NOT_DRAWN,
        Code.KERNEL_UNKNOWN,
        Code.RANK_IS_IMPOSSIBLE,
        Code.DEVICE_IS_SLOWED,
        Code.STEPS_NUMBERED_APART,
    }
)


# What is merely absent, or was done without harm: a report lists it as notes. All else makes some figure doubtful.
NOTES = frozenset(
    {
        Code.RUN_JSON_MISSING,
        Code.FILE_OF_A_RUN,
        Code.RECORDING_NOTE,
        Code.TRACE_IS_NO_JSON,
        Code.TORCH_DOUBTS,
        Code.LIGHT_WINDOW_JOINED_IN_PART,
        Code.LAUNCHES_ARE_ESTIMATED,
        Code.CONTROL_IS_NULL,
        Code.CONTROLS_MISSING,
        Code.ACCURACY_IS_NULL,
        Code.ACTIVITY_OUTSIDE_STEPS,
        Code.CONTENTION_IS_NULL,
        Code.CONTENTION_IS_ESTIMATED,
        Code.CLOCKS_ARE_LIMITED,
        Code.FLOPS_ARE_NULL,
        Code.CLOCKS_DIFFER,
        Code.STEPS_NUMBERED_APART,
        Code.BANDWIDTH_IS_NULL,
        Code.PURPOSE_OF_REPLAYS,
        Code.TRAFFIC_IS_NULL,
        Code.LINKS_NOT_CALIBRATED,
        Code.UTILIZATION_IS_NULL,
        Code.BUCKET_IS_NULL,
        Code.BUCKET_PARAMETERS_UNKNOWN,
        Code.MODULES_NOT_TRACED,
        Code.EXPERTS_GO_BY_ORDER,
        Code.TOKENS_ARE_NULL,
        Code.TOKENS_OF_OTHER_STEPS,
        Code.PIPELINE_IS_NULL,
    }
)


class Notice(msgspec.Struct, frozen=True):
    """One thing that a reader must know: its code, the text, and what to do about it, if anything."""

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
