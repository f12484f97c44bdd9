"""Experiments: what runs on a network, how it is measured and checked, and how the results are shown."""
