"""Strategies seen from all ranks: experts' tokens, attention against transfers.

`owned_instances` has collectives by module and pass; `token_routing` and `experts` make rows of experts, `attention`
of a sequence that is spread over ranks.

Decisions: docs/decisions/layers.md
"""

from analyzers.layers.strategies.attention import AttentionRow, AttentionTransfers, attention_rows
from analyzers.layers.strategies.experts import ExpertRow, expert_notices, expert_rows

__all__ = ["AttentionRow", "AttentionTransfers", "ExpertRow", "attention_rows", "expert_notices", "expert_rows"]
