"""Workloads people have: published models by name, and traces of trainings."""
