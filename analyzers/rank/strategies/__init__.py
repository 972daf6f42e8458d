"""Strategies in one rank's trace: their ranges, calls and actions."""
