"""Scenarios: settings in files, the points that they describe, and the tools to run a point with."""
