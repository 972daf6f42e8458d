"""Sessions: a training loop of one's own, recorded and reported.

`session` is `tracer.Session`. Importing this room imports torch.

Decisions: docs/dev/decisions/recording.md
"""

from tracer.errors import refuse_windows

refuse_windows("tracer.Session")

from tracer.sessions.session import OnReport, Session  # noqa: E402  # it needs what Windows lacks
