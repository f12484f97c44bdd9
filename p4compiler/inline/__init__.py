"""Inlining: blocks with everything they instantiate and call -> flat blocks."""
