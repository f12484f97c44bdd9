"""What a host's network card does with the packets of a worker."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.hosts.stations import BURST, PeerPort
from fanin.topologies.shapes import leaf_spine
from fanin.workers.host_based.algorithm import Group, HostBasedWorker
from fanin.workers.host_based.transport import ACK, DATA, Ends
from fanin.workers.wire import HEADERS

Bytes = NDArray[np.uint8]


def test_streams_take_turns_on_the_link_and_acknowledgements_go_first() -> None:
    """A parameter server on each of three hosts: every worker sends both others 20 packets, the last a short one."""
    topology = leaf_spine(0, 1, 3, 10**10, 10**10)
    hosts = topology.ranked_hosts
    worker = HostBasedWorker(Group(0, 3, "parameter-server", window=64))
    port = PeerPort(worker, hosts[0], topology.switch(hosts[0].leaf).mac, [host.ip for host in hosts])
    worker.start(np.ones(3 * 19 * 256 + 3, np.float32), 0.0)
    early = np.concatenate([Ends(2, 0, 0).header(DATA, number=1), np.zeros(1024, np.uint8)])
    worker.receive(early.reshape(1, -1), 0.0)

    sent = [packet for batch in port.frames_to_send(0.0) for packet in batch]
    kinds = [int(packet[HEADERS]) for packet in sent]
    assert kinds == [ACK] + [DATA] * 40
    runs = [(peer, len(list(run))) for peer, run in groupby(packet[33] for packet in sent[1:])]
    assert [length for _, length in runs] == [BURST, BURST, BURST, BURST, 4, 4]
    assert len({peer for peer, _ in runs}) == 2
