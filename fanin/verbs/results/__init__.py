"""Verbs about the results of finished runs."""
