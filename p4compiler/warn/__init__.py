"""Analyses of programs that compile. Each warns about one kind of mistake, under p4c's name for it."""
