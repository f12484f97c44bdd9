"""Packet ports: interfaces, emulated links, and what has crossed them."""
