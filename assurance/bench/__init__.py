"""Benchmarks of fanin on this machine."""
