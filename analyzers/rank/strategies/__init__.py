"""Strategies as one rank's trace shows them: what their ranges, calls and actions are."""
