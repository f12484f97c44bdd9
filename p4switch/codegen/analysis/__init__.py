"""Analyses of a program before its C is written."""
