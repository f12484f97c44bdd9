"""Verbs about results of runs that have ended."""
