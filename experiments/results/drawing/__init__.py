"""Figures of results, and what goes into them."""
