"""Analyses of a program that compiles: each warns of one kind of slip, under the name that p4c gives it."""
