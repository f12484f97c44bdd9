"""Data-parallel training: the work that all-reduces are for."""
