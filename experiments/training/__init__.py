"""Data-parallel training, the work that all-reduces serve."""
