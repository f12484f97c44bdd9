"""Verbs about P4 programs that need no network."""
