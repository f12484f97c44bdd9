"""Mechanisms of networks in virtual time compared with what theory derives: congestion control, pauses, paths."""
