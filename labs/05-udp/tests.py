"""Tests of the switch that adds up chunks in UDP datagrams."""

from collections.abc import Sequence
from typing import Any

from scapy.fields import ByteField, IntField, ShortField
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest

UDP_PORT, SWITCH_MAC, SWITCH_IP = 5005, "02:00:00:00:00:fe", "10.0.0.254"
HOSTS: list[dict[str, Any]] = [
    {"name": f"h{n}", "ip": f"10.0.0.{n}", "mac": f"02:00:00:00:00:{n:02x}", "port": n} for n in range(1, 6)
]
WORKERS = ["h1", "h2", "h4"]


class Chunk(Packet):
    """The header of a chunk."""

    name = "chunk"
    fields_desc = [  # noqa: RUF012 - scapy's way
        ByteField("workers", 2),
        ByteField("rank", 0),
        ShortField("slot", 0),
        *(IntField(f"value{number}", 0) for number in range(4)),
    ]


def _switch(bench: Bench, workers: Sequence[str] = WORKERS) -> SwitchUnderTest:
    switch = bench.switch("aggregate.p4")
    bench.step(f"entries() of your controller.py is called; the workers are {', '.join(workers)}")
    switch.install(
        bench.python("controller.py").call("entries", HOSTS, [*workers]), "controller.py: entries()"
    )
    return switch


def _host(name: str) -> dict[str, Any]:
    return next(host for host in HOSTS if host["name"] == name)


def _chunk(rank: int, values: Sequence[int], workers: int, slot: int) -> Packet:
    fields: dict[str, Any] = {f"value{number}": value % (1 << 32) for number, value in enumerate(values)}
    return Chunk(workers=workers, rank=rank, slot=slot, **fields)


def _update(name: str, chunk: Packet) -> Packet:
    host = _host(name)
    ip = IP(src=host["ip"], dst=SWITCH_IP)
    return Ether(src=host["mac"], dst=SWITCH_MAC) / ip / UDP(sport=4000, dport=UDP_PORT, chksum=0) / chunk


def _result(name: str, chunk: Packet) -> Packet:
    host = _host(name)
    ip = IP(src=SWITCH_IP, dst=host["ip"])
    return Ether(src=SWITCH_MAC, dst=host["mac"]) / ip / UDP(sport=UDP_PORT, dport=UDP_PORT, chksum=0) / chunk


def _round(
    switch: SwitchUnderTest, chunks: Sequence[Sequence[int]], workers: Sequence[str], slot: int = 0
) -> None:
    """Let each worker send its chunk, and expect the sum at all of them after the last."""
    sums = [sum(values) for values in zip(*chunks, strict=True)]
    for rank, (name, values) in enumerate(zip(workers, chunks, strict=True)):
        chunk = _chunk(rank, values, len(workers), slot)
        switch.send(_host(name)["port"], _update(name, chunk), f"{name} sends {[*values]} to slot {slot}")
        if rank + 1 < len(workers):
            switch.expect()
    total = _chunk(len(workers) - 1, sums, len(workers), slot)
    switch.expect(*((_host(name)["port"], _result(name, total)) for name in workers))


@lab_test("UDP datagrams between hosts are forwarded unchanged")
def other_traffic(bench: Bench) -> None:
    switch = _switch(bench)
    ports = UDP(sport=4000, dport=UDP_PORT) / b"no chunk, although it has the port"
    packet = (
        Ether(src=_host("h1")["mac"], dst=_host("h3")["mac"]) / IP(src="10.0.0.1", dst="10.0.0.3") / ports
    )
    switch.send(1, packet, "h1 sends a datagram to port 5005 of h3")
    switch.expect((3, packet))


@lab_test("Every worker receives the sum", points=3)
def multicast(bench: Bench) -> None:
    _round(_switch(bench), [[1, 2, 3, 4], [10, 20, 30, 40], [100, 200, 300, 400]], WORKERS)


@lab_test("Hosts outside of the job receive nothing")
def only_workers(bench: Bench) -> None:
    workers = ["h2", "h5"]
    _round(_switch(bench, workers), [[1, 1, 1, 1], [2, 2, 2, 2]], workers)


@lab_test("Slots are independent, and are used again", points=2)
def slots(bench: Bench) -> None:
    switch = _switch(bench)
    for slot in (2, 9, 2):
        _round(switch, [[slot, 1, 2, 3], [slot, 4, 5, 6], [-slot, 7, 8, 9]], WORKERS, slot)


@lab_test("The program fits a pipeline: no multiplication, one access to each register")
def pipeline(bench: Bench) -> None:
    bench.fits_pipeline("aggregate.p4")


@lab_test("Jobs drawn at random", points=2, hidden=True)
def random_jobs(bench: Bench) -> None:
    for _ in range(4):
        workers = bench.random.sample([host["name"] for host in HOSTS], bench.random.randrange(1, 6))
        switch = _switch(bench, workers)
        for _ in range(3):
            chunks = [[bench.random.randrange(-(1 << 28), 1 << 28) for _ in range(4)] for _ in workers]
            _round(switch, chunks, workers, bench.random.randrange(16))
