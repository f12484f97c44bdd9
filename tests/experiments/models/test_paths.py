"""The traffic of a job: who sends to whom, and over which links."""

from __future__ import annotations

import pytest

from fanin.experiments.models.packets import full_frame
from fanin.experiments.models.paths import Delays, Paths, shares
from fanin.experiments.scenario.settings import Settings
from fanin.workers.collective import HostBasedAlgorithm
from fanin.workers.host_based.algorithms.registry import ALGORITHMS
from fanin.workers.host_based.schedules import peers, schedule


@pytest.mark.parametrize("shards", [None, 1, 3])
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_ranks_send_to_those_of_their_schedules(algorithm: HostBasedAlgorithm, shards: int | None) -> None:
    shape = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s"}
    settings = Settings.model_validate(
        {
            "topology": {"leaf_spine": shape},
            "size": "4 kB",
            "algorithm": algorithm,
            "shards": shards,
            "workers": 7,
        }
    ).settled
    paths = Paths(settings, full_frame(settings))
    racks = [0, 0, 0, 0, 1, 1, 1]
    pairs = [(rank, peer) for rank in range(7) for peer in peers(algorithm, rank, 7, settings.shards)[0]]
    assert paths.round_trip == 2 * max(paths.latency(*pair) for pair in pairs)
    assert paths.mean_links == sum(2 if racks[a] == racks[b] else 4 for a, b in pairs) / len(pairs)
    # All links are alike: the most crowded is a host's, or the one to or from a rack.
    into_host = max(sum(b == rank for _, b in pairs) for rank in range(7))
    out_of_host = max(sum(a == rank for a, _ in pairs) for rank in range(7))
    across = max(sum(racks[a] == rack != racks[b] for a, b in pairs) for rack in (0, 1))
    packet, long = 8 * (full_frame(settings) + 24) / 10e9, 10**6
    assert paths.shared(10, long) == pytest.approx(10 * packet * max(into_host, out_of_host, across))
    per_host = Paths(settings.model_copy(update={"window_per": "host"}), full_frame(settings))
    across = max(len({a for a, b in pairs if racks[a] == rack != racks[b]}) for rack in (0, 1))
    assert per_host.shared(10, long) == pytest.approx(10 * packet * max(into_host, across))


@pytest.mark.parametrize("shards", [None, 1, 3])
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_shares_are_those_of_the_schedule(algorithm: HostBasedAlgorithm, shards: int | None) -> None:
    size = 27_720
    for rank, others in enumerate(shares(algorithm, 7, shards)):
        sends = schedule(algorithm, rank, 7, size, shards=shards).sends
        sent = {
            peer: sum(piece.stop - piece.start for piece in pieces) / size for peer, pieces in sends.items()
        }
        assert others == pytest.approx(sent, rel=0.1)


FAT_TREE = {"fat_tree": {"k": 4, "rate": "10 Gb/s", "core_rate": "1 Gb/s"}}  # 2 hosts at a leaf, 4 in a pod


@pytest.mark.parametrize(
    ("hosts", "slow", "fast", "links"),
    [(("h1", "h2"), 0, 2, 2), (("h1", "h3"), 0, 4, 4), (("h1", "h16"), 2, 4, 6)],
)
def test_between_hosts_each_tier_on_the_way_counts(
    hosts: tuple[str, ...], slow: int, fast: int, links: int
) -> None:
    settings = Settings.model_validate(
        {"topology": FAT_TREE, "size": "4 kB", "algorithm": "ring", "hosts": hosts, "coalescing": 0}
    ).settled
    paths = Paths(settings, full_frame(settings))
    packet, delay = 8 * (full_frame(settings) + 24) / 10e9, 1e-6
    assert paths.latency(0, 1) == pytest.approx(fast * packet + slow * 10 * packet + links * delay)
    assert paths.mean_links == links


@pytest.mark.parametrize(
    ("delays", "late", "noticed"), [("usual", 2e-6, 4e-6), ("fixed", 3e-6, 5e-6), ("longest", 6e-6, 5e-6)]
)
def test_delays_of_links_and_hosts_may_be_taken_as_usual_and_jitter_counted(
    delays: Delays, late: float, noticed: float
) -> None:
    settings = Settings.model_validate(
        {
            "topology": FAT_TREE,
            "size": "4 kB",
            "algorithm": "ring",
            "hosts": ("h1", "h2"),
            "coalescing": "5 us",
            "links": {"delay": "3 us", "jitter": "3 us"},
        }
    ).settled
    packet = 8 * (full_frame(settings) + 24) / 10e9
    paths = Paths(settings, full_frame(settings), delays=delays)
    assert paths.latency(0, 1) == pytest.approx(2 * (packet + late) + noticed)


@pytest.mark.parametrize(
    ("hosts", "links", "slow", "fast"), [(("h1", "h3"), 4, 0, 2), (("h1", "h3", "h16"), 8, 1, 2)]
)
def test_in_network_a_packet_crosses_each_tier_up_to_the_root_and_back(
    hosts: tuple[str, ...], links: int, slow: int, fast: int
) -> None:
    settings = Settings.model_validate(
        {"topology": FAT_TREE, "size": "4 kB", "hosts": hosts, "coalescing": 0}
    ).settled
    paths = Paths(settings, full_frame(settings))
    packet, delay = 8 * (full_frame(settings) + 24) / 10e9, 1e-6
    assert paths.tree_links == links
    assert paths.round_trip == pytest.approx(2 * (fast * packet + slow * 10 * packet + (fast + slow) * delay))
    assert paths.shared(10, 10**6) == pytest.approx(10 * packet * (10 if slow else 1))
