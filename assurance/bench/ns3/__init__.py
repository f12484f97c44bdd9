"""Comparison of ns-3 with virtual time."""
