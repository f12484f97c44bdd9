"""The treatment of a worker's packets by its host's network card."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.hosts.card import BURST, Card
from fanin.simulator.hosts.stations import PeerPort, addresses
from fanin.topologies.shapes import leaf_spine
from fanin.workers.host_based.participant import Group, HostBasedWorker
from fanin.workers.host_based.transport import ACK, DATA, Ends
from fanin.workers.wire import HEADERS

Bytes = NDArray[np.uint8]


def test_streams_take_turns_on_the_link_and_acknowledgements_go_first() -> None:
    """A parameter server on each of three hosts: every worker sends both others 20 packets, the last a short one."""
    topology = leaf_spine(0, 1, 3, 10**10, 10**10)
    hosts = topology.ranked_hosts
    worker = HostBasedWorker(Group(0, 3, "parameter-server", window=64))
    (link,) = topology.links_of(hosts[0].name)
    gateway = topology.switch(hosts[0].leaf).mac
    port = PeerPort(worker, hosts[0], gateway, addresses(hosts), Card(link, ahead=1e-3))
    worker.start(np.ones(3 * 19 * 256 + 3, np.float32), 0.0)
    early = np.concatenate([Ends(2, 0, 0).header(DATA, number=1), np.zeros(1024, np.uint8)])
    worker.receive(early.reshape(1, -1), 0.0)

    sent = [packet for batch in port.frames_to_send(0.0) for packet in batch]
    kinds = [int(packet[HEADERS]) for packet in sent]
    assert kinds == [ACK] + [DATA] * 40
    runs = [(peer, len(list(run))) for peer, run in groupby(packet[33] for packet in sent[1:])]
    assert [length for _, length in runs] == [BURST, BURST, BURST, BURST, 4, 4]
    assert len({peer for peer, _ in runs}) == 2


def test_a_connection_that_begins_later_does_not_wait_until_the_windows_of_others_have_left() -> None:
    """A packet of 1,088 bytes takes 889.6 ns at 10 Gb/s, so that of 64 some 57 us pass until the last has left."""
    (link,) = leaf_spine(0, 1, 2, 10**10, 10**10).links_of("h1")
    card, ahead = Card(link, ahead=4e-6), 4e-6
    packets = [np.full((count, 1088), number, np.uint8) for number, count in enumerate((64, 64, 24))]
    order: list[int] = []
    card.send("first", packets[0])
    card.send("second", packets[1])
    order += [int(frames[0, 0]) for frames in card.take(0.0) for _ in frames]
    assert 0 < len(order) * 889.6e-9 - ahead <= 889.6e-9
    card.send("late", packets[2])
    while card.ready_at is not None:
        order += [int(frames[0, 0]) for frames in card.take(card.ready_at) for _ in frames]
    assert order == 3 * (BURST * [0] + BURST * [1] + BURST * [2]) + 5 * (BURST * [0] + BURST * [1])


def test_a_connection_that_is_alone_gives_the_link_its_whole_window() -> None:
    (link,) = leaf_spine(0, 1, 2, 10**10, 10**10).links_of("h1")
    card = Card(link, ahead=4e-6)
    card.send("peer", np.zeros((64, 1088), np.uint8))
    assert sum(map(len, card.take(0.0))) == 64
    assert card.ready_at is None


def test_acknowledgements_overtake_data_that_has_not_been_given_to_the_link() -> None:
    (link,) = leaf_spine(0, 1, 2, 10**10, 10**10).links_of("h1")
    card = Card(link, ahead=0.0)
    card.send("peer", np.zeros((3, 1088), np.uint8))
    card.send("other", np.zeros((3, 1088), np.uint8))
    assert [len(frames) for frames in card.take(0.0)] == [1]
    card.acknowledge(np.ones((1, 64), np.uint8))
    assert card.take(0.0) == []  # the link is busy
    assert card.ready_at is not None
    (frames,) = card.take(card.ready_at)
    assert frames.shape == (1, 64)
