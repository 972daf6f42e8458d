"""Sessions: a training loop of one's own, recorded and reported.

`session` is `tracer.Session`. Importing this room imports torch.

Decisions: docs/dev/decisions/recording.md
"""

from tracer.sessions.session import OnReport, Session
