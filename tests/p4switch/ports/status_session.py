"""A port that goes down while another one's news are still being handled, in this network namespace."""

import subprocess
import threading
import time

from fanin.p4switch.gnmi.ports import SwitchPorts
from fanin.p4switch.ports.counters import PortCounters
from fanin.p4switch.ports.status import PortMonitor

held, told = threading.Event(), threading.Event()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", "link", *arguments], check=True)


def changed(_: frozenset[int]) -> None:
    told.set()
    held.wait()


for number in "12":
    ip("add", f"h{number}", "type", "veth", "peer", "name", f"s{number}")
    ip("set", f"h{number}", "up")
    ip("set", f"s{number}", "up")
names = {1: "s1", 2: "s2"}
monitor = PortMonitor(names, changed)
ports = SwitchPorts(names, lambda: dict.fromkeys(names, PortCounters()), monitor)
ip("set", "h1", "down")
told.wait()
before = time.time_ns()
ip("set", "h2", "down")
state = ports.read(["s2"])["s2"]
after = time.time_ns()
held.set()
monitor.stop()
assert state.interface is not None
print(state.interface.running, before < state.since < after)
