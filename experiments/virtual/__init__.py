"""Runs in virtual time: the compiled program and the same workers, without a network."""
