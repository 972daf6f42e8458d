"""One trace file becomes `Events`: frozen columns, times in integer ns.

In order: `reader` opens a file, which `decoding` inflates, `event_stream` cuts it into events, `columns` makes columns
of these, with `arguments` for what rows carry, and `assembly` makes `events` of the columns, with `header` for the
file's head, apart for each host process; `pieces` has several helpers do it at once. Who reads another kind of
file (`Input`) makes the same columns for `assembly`. `categories` tells rows that are
read from other devices' and other programs', and `copy_collectives` finds copies that communicate. The names of
kernels, collectives and ranges are in `kernel_names`, `collective_calls` and `range_names`, what communication
libraries show of themselves in `libraries`; `operator_flops` knows operators whose inputs say how much they compute.

Decisions: docs/dev/decisions/trace.md
"""

from analyzers.trace.arguments import Args, CallColumns, Codes, call_of
from analyzers.trace.assembly import ProcessRows, assemble
from analyzers.trace.categories import Marks
from analyzers.trace.collective_calls import (
    INTEGRAL,
    KINDS,
    OPEN,
    RECORDED_IN_PART,
    SYNCHRONIZING,
    UNEVEN_MEMBERS,
    Call,
    Group,
    Inputs,
    bus_factor,
    is_description,
    itemsize,
    kind_of_call,
    kind_of_kernel,
    leaves_kind_open,
    library_kernel,
    may_only_post,
    plausible_count,
)
from analyzers.trace.columns import ROW_BYTES, Decoded, EventPart
from analyzers.trace.copy_collectives import find_outermost, with_copy_collectives
from analyzers.trace.events import Events, Health, Samples, launch_rows, launch_times
from analyzers.trace.header import Header, Remedies
from analyzers.trace.kernel_names import Category, Kind, is_communication, looks_like_communication, short_name
from analyzers.trace.libraries import COALESCED, GLOO, GLOO_BACKEND, NCCL, SPANS, Collective, ranks_in_name
from analyzers.trace.operator_flops import COUNTED, matrix_dtype
from analyzers.trace.operator_flops import flops as flops_of
from analyzers.trace.pieces import Helpers
from analyzers.trace.range_names import (
    ACCUMULATE,
    C10D,
    COLLECTIVE_CALLS,
    COPIES_IN,
    DDP_FORWARD,
    DP_FORWARD,
    KERNEL_LAUNCH,
    LIGHT_STEP,
    NODE,
    OF_FSDP,
    OPTIMIZER,
    ROOT,
    SHARDED,
    STEP,
    TAKES_GRADIENT,
    Module,
    is_function,
    module_of,
    own_name,
    range_name,
)
from analyzers.trace.reader import KINETO, Input, Trace, read_trace, yield_notices
