"""All-reduce between hosts over UDP: a schedule over the reliable transport, with sockets for each peer."""

import math
import select
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import Closing
from fanin.workers.host_based.participant import Group, HostBasedStatistics, HostBasedWorker
from fanin.workers.host_based.schedules import peers
from fanin.workers.host_based.transport import HEADER_BYTES, PAYLOAD
from fanin.workers.recovery import Recovery
from fanin.workers.udp import UdpSocket

MAX_SEGMENTS = 65507 // (HEADER_BYTES + PAYLOAD)
# Seconds of silence after which no peer is assumed to wait for an acknowledgement.
_LINGER = 0.25


@dataclass(frozen=True, slots=True)
class UdpGroupConfig:
    """Settings of a group of hosts that exchange data over UDP.

    Attributes:
        group: The worker's place in its group.
        addresses: IPv4 address and first UDP port, by rank. A rank has as many ports as it has flows to its peers; see
            Group.port().
        segments: See udp.InNetworkConfig.
        offload: See udp.InNetworkConfig.
        recovery: Settings of loss recovery.

    Raises:
        ValueError: If there is not one address for each worker, or `segments` is out of range.
    """

    group: Group
    addresses: tuple[tuple[str, int], ...]
    segments: int = MAX_SEGMENTS
    offload: bool = True
    recovery: Recovery = field(default_factory=Recovery)

    def __post_init__(self) -> None:
        if len(self.addresses) != self.group.workers:
            raise ValueError(
                f"there must be an address for each of {self.group.workers} workers, not {len(self.addresses)}"
            )
        if not 1 <= self.segments <= MAX_SEGMENTS:
            raise ValueError(f"segments must be from 1 to {MAX_SEGMENTS}, not {self.segments}")


class UdpAllReduce(Closing):
    """A Collective between hosts over UDP.

    Between all-reduces the worker does not answer: a peer whose last acknowledgement was lost waits for the next
    all-reduce, or for close(), which continues to answer until all is quiet.

    Raises:
        OSError: See udp.UdpSocket.
    """

    def __init__(self, config: UdpGroupConfig) -> None:
        self.config = config
        group = config.group
        self.worker = HostBasedWorker(group, config.recovery)
        self._sockets: dict[tuple[int, int], UdpSocket] = {}
        self._by_descriptor: dict[int, UdpSocket] = {}
        self._poll = select.poll()
        destinations, sources = peers(group.algorithm, group.rank, group.workers, group.shards)
        try:
            for peer in sorted({*destinations, *sources}):
                for flow in range(group.flows):
                    self._open(peer, flow)
        except BaseException:
            self._close()
            raise

    def _open(self, peer: int, flow: int) -> None:
        group = self.config.group
        own, other = self.config.addresses[group.rank], self.config.addresses[peer]
        udp_socket = UdpSocket(
            (own[0], own[1] + group.port(peer, flow)),
            (other[0], other[1] + group.port(group.rank, flow)),
            segments=self.config.segments,
            offload=self.config.offload,
        )
        self._sockets[peer, flow] = self._by_descriptor[udp_socket.fileno()] = udp_socket
        self._poll.register(udp_socket, select.POLLIN)

    @property
    def statistics(self) -> HostBasedStatistics:
        """Return the totals so far."""
        return self.worker.statistics

    def all_reduce(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return the sum of `x` over all workers; see Collective.

        Raises:
            StallError: If nothing new arrived for too long.
        """
        worker = self.worker
        worker.start(x, time.monotonic(), out)
        while True:
            self._send()
            if worker.finished:
                return worker.finish()
            deadline = worker.deadline()
            assert deadline is not None
            self._receive(deadline - time.monotonic())

    def _send(self) -> None:
        for peer, batch, flow in self.worker.datagrams_to_send(time.monotonic()):
            self._sockets[peer, flow].send(batch)

    def _receive(self, timeout: float) -> bool:
        """Process what arrives within `timeout` seconds, and return whether anything did."""
        ready = self._poll.poll(math.ceil(max(timeout, 0) * 1000))
        for descriptor, _ in ready:
            for batch in self._by_descriptor[descriptor].receive(0):
                self.worker.receive(batch, time.monotonic())
        return bool(ready)

    def close(self) -> None:
        """Answer until all is quiet, and release the ports."""
        try:
            while self._sockets and self._receive(_LINGER):
                self._send()
        finally:
            self._close()

    def _close(self) -> None:
        for udp_socket in self._sockets.values():
            udp_socket.close()
        self._sockets = {}
