"""The closed form of a point in virtual time: what is known in-network beside latency and bandwidth."""

from __future__ import annotations

from typing import Any

import pytest

from fanin.experiments.models.prediction import predicted_call_seconds, predicted_seconds
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.topologies.shapes import leaf_spine
from fanin.workers.host_based.algorithms.registry import ALGORITHMS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("leaves", [1, 2])
@pytest.mark.parametrize("repetitions", [1, 3])
@pytest.mark.parametrize("size", ["4 kB", "400 kB", "600 kB"])
def test_packets_without_values_go_first_unless_a_vector_like_it_went_before(
    switch: Engine, size: str, repetitions: int, leaves: int
) -> None:
    """The window is 512 packets of 1 KiB: where there are more, they always do."""
    shape = {"spines": leaves - 1, "leaves": leaves, "hosts_per_leaf": 4 // leaves, "rate": "100 Gb/s"}
    settings = Settings.model_validate(
        {"topology": {"leaf_spine": shape}, "size": size, "repetitions": repetitions}
    )
    measured = run_virtual(settings, switch)
    assert measured.closed_form_seconds == pytest.approx(measured.median, rel=0.06)


FAT_TREE = {"fat_tree": {"k": 2, "hosts_per_leaf": 2, "rate": "100 Gb/s"}}
SERVERS = {
    "servers": {"servers_per_leaf": 1, "hosts_per_server": 2, "rate": "400 Gb/s", "nic_rate": "100 Gb/s"}
}


@pytest.mark.parametrize("topology", [FAT_TREE, SERVERS])
@pytest.mark.parametrize("repetitions", [1, 3])
@pytest.mark.parametrize("size", ["4 kB", "200 kB", "1 MB"])
def test_more_tiers_take_longer_ways_at_the_rate_of_the_slowest(
    switch: Engine, size: str, repetitions: int, topology: dict[str, Any]
) -> None:
    settings = Settings.model_validate({"topology": topology, "size": size, "repetitions": repetitions})
    measured = run_virtual(settings, switch)
    assert measured.closed_form_seconds == pytest.approx(measured.median, rel=0.06)


@pytest.mark.few(4)
@pytest.mark.parametrize("placement", ["packed", "spread"])
@pytest.mark.parametrize(("nics", "tolerance"), [(1, 0.12), (2, 0.26)])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_hosts_of_a_server_share_its_network_cards(
    switch: Engine, algorithm: str, nics: int, tolerance: float, placement: str
) -> None:
    """Four GPUs of 2,400 Gb/s behind one card of 25 Gb/s, or two, which do not always carry the same."""
    shape = {
        "leaves": nics,
        "spines": 1,
        "nics_per_server": nics,
        "servers_per_leaf": 4,
        "hosts_per_server": 4,
        "rate": "2400 Gb/s",
        "nic_rate": "25 Gb/s",
    }
    given = {"size": "2 MB", "algorithm": algorithm, "placement": placement, "paths": "spray"}
    settings = Settings.model_validate({"topology": {"servers": shape}} | given).settled
    measured = run_virtual(settings, switch)
    assert measured.usage is not None
    # Some begin long before the last one, whose barrier waits behind their packets.
    assert measured.closed_form_seconds == pytest.approx(measured.usage.seconds, rel=tolerance)


@pytest.mark.few(6)
@pytest.mark.parametrize("placement", ["packed", "spread"])
@pytest.mark.parametrize("size", ["40 kB", "400 kB"])
@pytest.mark.parametrize(
    ("algorithm", "tolerance"),
    [("ring", 0.06), ("halving-doubling", 0.2), ("parameter-server", 0.2), ("double-binary-tree", 0.3)],
)
def test_each_hop_has_its_own_latency(
    switch: Engine, algorithm: str, tolerance: float, size: str, placement: str
) -> None:
    """Long cables between racks: packed, a ring has few hops over them, spread all."""
    network = leaf_spine(1, 4, 4, 10**11, 4 * 10**11, {"delay": 1e-6}, {"delay": 1e-5}).model_dump(
        mode="json"
    )
    settings = Settings.model_validate(
        {"topology": network, "size": size, "algorithm": algorithm, "placement": placement}
    ).settled
    measured = run_virtual(settings, switch)
    assert measured.closed_form_seconds == pytest.approx(measured.median, rel=tolerance)


@pytest.mark.few(5)
@pytest.mark.parametrize("window", [32, 64, 512])
@pytest.mark.parametrize(
    ("algorithm", "shards", "tolerance"),
    [
        ("ring", None, 0.05),
        ("halving-doubling", None, 0.07),
        ("double-binary-tree", None, 0.1),
        ("parameter-server", None, 0.06),
        ("parameter-server", 1, 0.06),
    ],
)
def test_a_window_limits_each_connection(
    switch: Engine, algorithm: str, shards: int | None, tolerance: float, window: int
) -> None:
    """A window of 140 packets fills a host's link; connections that send at once share it."""
    shape = {"spines": 0, "leaves": 1, "hosts_per_leaf": 8, "rate": "100 Gb/s"}
    settings = Settings.model_validate(
        {
            "topology": {"leaf_spine": shape},
            "size": "1 MB",
            "algorithm": algorithm,
            "shards": shards,
            "window": window,
        }
    ).settled
    measured = run_virtual(settings, switch)
    assert measured.closed_form_seconds == pytest.approx(measured.median, rel=tolerance)


def test_a_call_takes_as_long_as_its_busiest_link_between_switches(switch: Engine) -> None:
    """Spread over two racks, each hop of a ring of 8 crosses the spine, so that an uplink carries 4 of its 8 flows."""
    shape = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s"}
    common = {"topology": {"leaf_spine": shape}, "algorithm": "ring", "size": "1 MB"}
    packed, spread = (Settings.model_validate(common | {"placement": how}) for how in ("packed", "spread"))
    assert predicted_call_seconds(packed) == predicted_seconds(packed, 10**6, 512)
    predicted, alone = predicted_call_seconds(spread), predicted_seconds(spread, 10**6, 512)
    assert predicted is not None
    assert alone is not None
    assert predicted / alone == pytest.approx(4, rel=0.05)
    assert predicted == pytest.approx(run_virtual(spread, switch).median, rel=0.05)


def test_a_call_of_a_step_is_a_bucket() -> None:
    shape = {"spines": 1, "leaves": 2, "hosts_per_leaf": 2, "rate": "10 Gb/s"}
    common = {"topology": {"leaf_spine": shape}, "algorithm": "ring"}
    step = {"forward": "1 ms", "backward": "2 ms", "bucket": "100 kB"}
    buckets = Settings.model_validate(common | {"size": "1 MB", "step": step})
    bucket = Settings.model_validate(common | {"size": "100 kB"})
    assert predicted_call_seconds(buckets) == predicted_call_seconds(bucket)


@pytest.mark.parametrize("paths", ["ecmp", "spray", "adaptive"])
def test_links_between_switches_that_hosts_share_are_counted_however_paths_are_chosen(
    switch: Engine, paths: str
) -> None:
    shape = {"spines": 2, "leaves": 4, "hosts_per_leaf": 2, "rate": "40 Gb/s", "oversubscription": 4}
    given = {"size": "256 kB", "algorithm": "halving-doubling", "placement": "spread", "paths": paths}
    settings = Settings.model_validate({"topology": {"leaf_spine": shape}} | given).settled
    predicted = predicted_call_seconds(settings)
    assert predicted == pytest.approx(run_virtual(settings, switch).median, rel=0.2)
