"""Benchmarks: how fast things are on this machine."""
