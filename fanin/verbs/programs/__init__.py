"""Verbs about P4 programs, which need no network."""
