"""Scenarios: settings as files, the points they stand for, and what a point can run on."""
