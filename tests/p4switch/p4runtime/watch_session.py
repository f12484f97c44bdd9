"""A switch on two veth ports, in the network namespace that this is run in: prints where packets leave.

The ports: all up, the first without a carrier, all up, the second one's interface gone.
"""

import json
import queue
import subprocess
from pathlib import Path

from finsy.proto import p4r

from fanin.p4compiler import compile_once
from fanin.p4switch.p4runtime.device import Device
from fanin.testbed.patience import setting
from tests.p4switch.p4runtime.conftest import Program

TIMEOUT = 20 * setting()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", "link", *arguments], check=True)


def main() -> None:
    for number in "12":
        ip("add", f"h{number}", "type", "veth", "peer", "name", f"s{number}")
        ip("set", f"h{number}", "up")
        ip("set", f"s{number}", "up")
    compiled = compile_once(Path(__file__).parents[1] / "programs/entities.p4")
    program = Program(compiled.p4info, json.dumps(compiled.json).encode())
    device = Device({1: "s1", 2: "s2"}, None, 511)
    changes: queue.SimpleQueue[frozenset[int]] = queue.SimpleQueue()
    found = []

    def look(down: set[int] | None = None) -> None:
        """Once these ports are known to be down."""
        if down is not None:
            while changes.get(timeout=TIMEOUT) != down:
                pass
        found.append([engine.process(7, bytes([0, 0, source, 1, 0, 0]))[0][0] for source in range(4)])

    try:
        pipeline = device.load(program.config)
        device.commit(pipeline)
        engine = pipeline.engine
        monitor = device.monitor
        monitor.listeners |= {lambda: changes.put(monitor.down)}  # called once the device has followed
        entry = program.entry("paths", program.exact(1)).table_entry
        for port in (1, 2):
            entry.action.action_profile_action_set.action_profile_actions.add(
                action=program.action("forward", bytes([port])), weight=1, watch_port=bytes([port])
            )
        pipeline.entities.write(p4r.Update(type="INSERT", entity=p4r.Entity(table_entry=entry)))
        look()
        ip("set", "h1", "down")
        look({1})
        ip("set", "h1", "up")
        look(set())
        ip("del", "h2")
        look({2})
    finally:
        device.stop()
    print(json.dumps(found))


main()
