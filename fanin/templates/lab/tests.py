"""Tests of the lab NAME."""

from typing import Any

from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest

HOSTS: list[dict[str, Any]] = [{"mac": f"02:00:00:00:00:{port:02x}", "port": port} for port in (1, 2, 3)]


def _switch(bench: Bench) -> SwitchUnderTest:
    switch = bench.switch("program.p4")
    bench.step("entries() of your controller.py is called with three hosts")
    switch.install(bench.python("controller.py").call("entries", HOSTS), "controller.py: entries()")
    return switch


def _frame(destination: str) -> Packet:
    return Ether(src=HOSTS[0]["mac"], dst=destination, type=0x88B5) / b"hello"


@lab_test("A frame reaches its destination", points=2)
def reaches(bench: Bench) -> None:
    switch = _switch(bench)
    for host in HOSTS[1:]:
        switch.send(1, _frame(host["mac"]), f"host 1 sends a frame to host {host['port']}")
        switch.expect((host["port"], _frame(host["mac"])))


@lab_test("A frame to an unknown destination is dropped")
def unknown(bench: Bench) -> None:
    switch = _switch(bench)
    switch.send(1, _frame("02:00:00:00:00:77"), "host 1 sends a frame to a host that does not exist")
    switch.expect()


@lab_test("Frames drawn at random", hidden=True)
def at_random(bench: Bench) -> None:
    switch = _switch(bench)
    for _ in range(10):
        host = bench.random.choice(HOSTS)
        switch.send(1, _frame(host["mac"]), f"host 1 sends a frame to host {host['port']}")
        switch.expect((host["port"], _frame(host["mac"])))
