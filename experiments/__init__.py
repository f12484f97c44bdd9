"""Experiments: what is run on a network, how it is measured and checked, and how it is shown."""
