"""Observation of a running network: a snapshot of its state, why a job makes no progress, metrics, and logs."""
