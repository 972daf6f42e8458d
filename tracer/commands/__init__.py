"""One file per subcommand: its options, one call, and what it prints.

`record` (and `record_script`, for a SCRIPT), `report`, `compare`, `whatif`, `view`, `export`, `plot`,
`tensorboard`, `calibrate`, `sweep`, `hta`, `doctor`; what several share is in `options`.
`completion` writes the scripts by which shells complete all of these.

Decisions: docs/decisions/structure.md
"""

from tracer.commands import (
    calibrate,
    compare,
    completion,
    doctor,
    export,
    hta,
    plot,
    record,
    report,
    sweep,
    tensorboard,
    view,
    whatif,
)

# In the order in which `tracer --help` lists them.
COMMANDS = (record, report, compare, whatif, view, export, plot, tensorboard, calibrate, sweep, hta, doctor)
# The one that runs a SCRIPT.
RECORD = record.NAME
SHELLS = completion.SHELLS
completion_script = completion.completion_script
record_words = record.words_apart

__all__ = ["COMMANDS", "RECORD", "SHELLS", "completion_script", "record_words"]
