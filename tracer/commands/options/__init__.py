"""Options that several subcommands share.

`run` reads what to read, `output` says where a result goes, `fail_on` judges it, `progress_bar` shows how far it is,
`values` parses what an option is given, and tells a SCRIPT's words from options.
For recording: `devices` has those of devices and hosts, `workload` those of the built-in training; `workload_checks`
asks for torch, and refuses options that contradict one another.

Decisions: docs/dev/decisions/structure.md
"""

from tracer.commands.options.devices import (
    OPTIONS,
    add_device_arguments,
    add_host_arguments,
    devices_of,
    host_count,
    pick_devices,
    torchrun_options,
)
from tracer.commands.options.fail_on import add_gate_argument, judged, parsed
from tracer.commands.options.output import (
    add_output_argument,
    emit,
    read_page,
    refuse_all_existing,
    tell,
    tell_warnings,
    terminal,
    write_page,
)
from tracer.commands.options.progress_bar import begin_line, progress, say, script_progress, working
from tracer.commands.options.run import (
    add_cache_argument,
    add_reading_arguments,
    add_run_argument,
    add_scheduler_argument,
    cell_reader,
    here,
    links_of,
    memory,
    read,
    read_drawn,
    read_here,
    reported,
    run_place,
    sweep_folder,
)
from tracer.commands.options.values import (
    message_size,
    not_negative,
    port_number,
    positive,
    positive_number,
    refusal,
    script_apart,
)
from tracer.commands.options.workload import (
    add_step_arguments,
    add_workload_arguments,
    check_data,
    configuration,
    describe,
    plan_of,
    setup_of,
)
from tracer.commands.options.workload_checks import check_torch, check_workload
