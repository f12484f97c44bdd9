"""Diagnosis: the likely causes of a slow run, found from its measurements."""
