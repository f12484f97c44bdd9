"""Workers on the loopback: addresses that are free, a model switch behind a socket, jobs around it."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from fanin.workers.communicator import Bits, Communicator, NonFinite
from fanin.workers.job.calls import Calls
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.udp import InNetworkAllReduce, InNetworkConfig
from tests.free_ports import free_port
from tests.workers.model_switch import ModelSwitch

T = TypeVar("T")

# A loopback address of this process's own, so that the fixed ports of the protocol are free.
HOST = f"127.{os.getpid() >> 16 & 255}.{os.getpid() >> 8 & 255}.{os.getpid() & 254 | 1}"
SWITCH = (HOST, 0xBEE3)
WINDOW = 16


def free_address() -> tuple[str, int]:
    """An address for UDP on `HOST`."""
    return (HOST, free_port(HOST, socket.SOCK_DGRAM))


def free_tcp_addresses(count: int) -> tuple[tuple[str, int], ...]:
    """Loopback addresses, each with a port of its own."""
    return tuple(("127.0.0.1", free_port()) for _ in range(count))


def free_udp_addresses(count: int) -> tuple[tuple[str, int], ...]:
    """For each rank an address of its own on the loopback and the first of `count` ports."""
    hosts = [f"127.0.2.{rank + 1}" for rank in range(count)]
    return tuple((host, free_port(host, socket.SOCK_DGRAM, count)) for host in hosts)


@contextmanager
def switch(
    workers: list[tuple[str, int]],
    drop_every: int = 0,
    at: tuple[str, int] = SWITCH,
    deaf: Container[int] = (),
) -> Iterator[None]:
    """A switch on a UDP port; a worker's port of the switch is its place in `workers`. deaf: ports without results."""
    model = ModelSwitch(children=len(workers), root=True, lease=5, slots=range(WINDOW))
    wake, stop = socket.socketpair()

    def forward(udp: socket.socket) -> None:
        received = 0
        while wake not in (ready := select.select([udp, wake], [], [])[0]):
            assert ready
            datagram, source = udp.recvfrom(2048)
            received += 1
            if drop_every and received % drop_every == 0:
                continue
            for port, packet in model.receive(workers.index(source), datagram):
                if port not in deaf:
                    udp.sendto(packet, workers[port])

    with wake, stop, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, ThreadPoolExecutor(1) as pool:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        udp.bind(at)
        done = pool.submit(forward, udp)
        try:
            yield
        finally:
            stop.send(b".")
        done.result()


class Place(InNetworkAllReduce):
    """A worker's part in a job that no service knows of; `gone`: what such a one would tell."""

    exact = True

    def __init__(
        self, config: InNetworkConfig, addresses: tuple[tuple[str, int], ...], gone: list[str]
    ) -> None:
        super().__init__(config)
        self.rank, self.workers = config.lease.rank, config.lease.workers
        self.addresses = addresses
        self._gone = gone
        self.calls = Calls(lambda _: None, self.rank)

    def left(self, timeout: float = 0.0) -> list[str]:  # noqa: ARG002
        return self._gone


@contextmanager
def job(
    count: int,
    timeout: float = 20.0,
    at: tuple[str, int] = SWITCH,
    non_finite: NonFinite = "refuse",
    deterministic: bool = False,
    half_bits: Bits = 32,
) -> Iterator[tuple[list[Communicator], list[str]]]:
    here = [free_address() for _ in range(count)]
    addresses = free_tcp_addresses(count)
    gone: list[str] = []
    recovery = Recovery(initial_rto=0.2, min_rto=0.05, give_up=timeout)
    with switch(here, at=at), ExitStack() as members:
        comms = []
        for rank in range(count):
            lease = Lease(5, rank, count, WINDOW)
            config = InNetworkConfig(
                lease,
                here[rank],
                at,
                recovery=recovery,
                non_finite="propagate" if non_finite == "propagate" else "raise",
                deterministic=deterministic,
            )
            place = Place(config, addresses, gone)
            comms.append(
                members.enter_context(
                    Communicator(place, timeout, non_finite=non_finite, half_bits=half_bits)
                )
            )
        yield comms, gone


def everywhere(comms: list[Communicator], do: Callable[[Communicator], T]) -> list[T]:
    with ThreadPoolExecutor(len(comms)) as pool:
        return list(pool.map(do, comms))
