"""Words by which options choose what a view shows.

They stand apart from what draws, so that a command's help need not load that.
"""

from __future__ import annotations

from typing import Literal

# Ways of looking closer at a run.
By = Literal[
    "rank", "step", "collective", "group", "bucket", "layer", "expert", "kernel", "pipeline", "cause", "charge"
]
# Kinds of pictures: of a report alone, of it with what the links were measured to give, of a sweep.
BANDWIDTH, SCALING = "bandwidth", "scaling"
KINDS = ("breakdown", "timeline", "buckets", "layers", BANDWIDTH, SCALING)
# Bytes of an element, by the data type's name.
ITEMSIZE = {"bf16": 2, "fp16": 2, "fp32": 4}
