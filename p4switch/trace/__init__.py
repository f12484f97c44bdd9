"""What happens to a packet inside the switch: recorded by traced programs, decoded, told as text or JSON."""

from p4switch.trace.events import PacketTrace
from p4switch.trace.text import as_text
from p4switch.trace.tracer import Tracer

__all__ = ["PacketTrace", "Tracer", "as_text"]
