"""Comparison of fanin's times with analytical models, other simulators and papers, and of live and virtual time."""
