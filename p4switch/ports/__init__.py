"""Packet ports: interfaces, emulated links, and counters."""
