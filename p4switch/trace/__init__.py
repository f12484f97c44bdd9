"""Traces of packets inside the switch: recorded by traced programs, decoded, and shown as text or JSON."""
