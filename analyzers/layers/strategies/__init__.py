"""Strategies across ranks: what one rank alone cannot say of them."""
