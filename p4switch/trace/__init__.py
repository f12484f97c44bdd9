"""Traces of packets inside the switch: recorded by traced programs, decoded, and shown as text or JSON."""

from fanin.p4switch.trace.events import PacketTrace
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import Tracer

__all__ = ["PacketTrace", "Tracer", "as_text"]
