"""`python -m tracer` is `tracer`."""

import sys

from tracer.cli import program

sys.exit(program())
