"""Strategies as all ranks together show them: what one rank alone cannot say of them."""
