"""All-reduces on loopback while a stranger forges ICMP errors about them; inside a network namespace of its own.

`python -m tests.workers.icmp_session C|numpy` ends where one fails.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

import numpy as np
from scapy.layers.inet import ICMP, IP, IPerror, UDPerror

from fanin.workers.engines import native
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.udp import InNetworkAllReduce, InNetworkConfig
from tests.workers.faulty_network import exact_sum
from tests.workers.model_switch import ModelSwitch

WORKER, SWITCH, STRANGER = ("127.0.0.1", 4000), ("127.0.0.2", 0xBEE3), "127.0.0.3"
WINDOW = 16
Kind = tuple[int, int]
# Unreachable, source quench, redirect, time exceeded, parameter problem: every code, and one that does not exist.
KINDS: list[Kind] = [
    *((3, code) for code in (*range(16), 255)),
    *((4, code) for code in (0, 255)),
    *((5, code) for code in (*range(4), 255)),
    *((11, code) for code in (*range(2), 255)),
    *((12, code) for code in (*range(3), 255)),
]


def forged(kind: Kind, mtu: int = 68) -> bytes:
    """An error about a datagram from the worker to the switch."""
    about = IPerror(src=WORKER[0], dst=SWITCH[0]) / UDPerror(sport=WORKER[1], dport=SWITCH[1])
    more = {"nexthopmtu": mtu} if kind == (3, 4) else {"gw": STRANGER} if kind[0] == 5 else {}
    return bytes(IP(src=STRANGER, dst=WORKER[0]) / ICMP(type=kind[0], code=kind[1], **more) / about)


class Stranger:
    """A host that may send whatever it likes."""

    def __init__(self) -> None:
        self._raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._messages = {kind: forged(kind) for kind in KINDS}

    def forge(self, kind: Kind) -> None:
        self._raw.sendto(self._messages[kind], (WORKER[0], 0))

    @contextmanager
    def flooding(self) -> Iterator[None]:
        """With messages of all kinds, and of many that a datagram was too large, as fast as it can."""
        stop = threading.Event()

        def flood() -> None:
            for kind in cycle([*KINDS, *[(3, 4)] * len(KINDS)]):
                if stop.is_set():
                    return
                self.forge(kind)

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


class Switch:
    """A switch of one worker that, when it is told to, has the stranger forge a message before each of its results."""

    def __init__(self, stranger: Stranger) -> None:
        self.kind: Kind | None = None
        self._stranger = stranger
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(SWITCH)
        threading.Thread(target=self._forward, daemon=True).start()

    def _forward(self) -> None:
        model = ModelSwitch(children=1, root=True, lease=5, slots=range(WINDOW))
        while True:
            datagram, _ = self._udp.recvfrom(2048)
            for _, packet in model.receive(0, datagram):
                if self.kind:
                    self._stranger.forge(self.kind)
                self._udp.sendto(packet, WORKER)


def main(passes: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if passes == "numpy":
        native.library = lambda: None  # type: ignore[assignment]
    elif native.library() is None:
        sys.exit("no C compiler")
    stranger = Stranger()
    switch = Switch(stranger)
    x = np.arange(8_000, dtype=np.float32)
    expected = exact_sum([x], values=256)
    config = InNetworkConfig(
        Lease(id=5, rank=0, workers=1, window=WINDOW),
        WORKER,
        SWITCH,
        segments=4,
        recovery=Recovery(initial_rto=0.2, min_rto=0.05),
    )
    with InNetworkAllReduce(config) as collective:

        def attempt(name: str) -> None:
            try:
                np.testing.assert_array_equal(collective.all_reduce(x), expected)
            except Exception as error:
                sys.exit(f"{name}: {error!r}")

        for kind in KINDS:
            stranger.forge(kind)  # waits on the socket when the first datagram is to be sent
            attempt(f"{kind} before")
            switch.kind = kind
            attempt(f"{kind} meanwhile")
            switch.kind = None
        for round_ in range(5):
            with stranger.flooding():
                attempt(f"flood {round_}")
        assert collective.socket.offload


if __name__ == "__main__":
    main(sys.argv[1])
