"""The analytical model of a long flow over links that lose packets, compared with the simulation."""

from __future__ import annotations

import pytest

from fanin.experiments.models.transports import packets_per_second
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.workers.collective import Transport

DELAY, COALESCING, WINDOW, PACKETS = 10e-6, 1e-6, 256, 6_000
PACKET = (1024 + 66 + 24) * 8 / 25e9
TRIP = 4 * DELAY + 2 * COALESCING + 2 * PACKET  # two links there, two back


def simulated(switch: Engine, transport: Transport, loss: float, packet_time: float = 0.0) -> float:
    """Packets per second of one flow, over two links with this loss each."""
    shape = {"spines": 0, "leaves": 1, "hosts_per_leaf": 4, "rate": "25 Gb/s"}
    point = Settings.model_validate(
        {
            "topology": {"leaf_spine": shape},
            "links": {"loss": loss, "delay": DELAY},
            "workers": 2,
            "size": "4 B",
            "coalescing": COALESCING,
            "congestion": {"control": "none"},
            "recovery": {"initial_rto": "1 ms", "min_rto": "300 us"},
            "tcp": {"packet_time": packet_time},
            "traffic": {
                "pattern": "incast",
                "fan": 1,
                "size": f"{1024 * PACKETS} B",
                "period": "1 s",
                "duration": "1 s",
                "transport": transport,
                "window": WINDOW,
            },
        }
    ).settled
    traffic = run_virtual(point, switch).traffic
    assert traffic is not None
    assert traffic.mean is not None
    return PACKETS / traffic.mean


@pytest.mark.slow
@pytest.mark.few(4)
@pytest.mark.parametrize("loss", [0, 0.001, 0.005])
@pytest.mark.parametrize("transport", ["tcp", "go-back-n", "selective-repeat"])
def test_a_long_flow_is_as_fast_as_predicted(transport: Transport, loss: float, switch: Engine) -> None:
    on_the_way = 1 - (1 - loss) ** 2
    expected = packets_per_second(transport, PACKET, TRIP, WINDOW, on_the_way)
    assert simulated(switch, transport, loss) == pytest.approx(expected, rel=0.25 if loss else 0.06)


@pytest.mark.slow
def test_a_processor_that_is_slower_than_the_link_limits_tcp(switch: Engine) -> None:
    """It handles a packet and an acknowledgement for each."""
    expected = packets_per_second("tcp", PACKET, TRIP, WINDOW, 0.0, 0.4e-6)
    assert expected == pytest.approx(1 / 0.8e-6)
    assert simulated(switch, "tcp", 0.0, 0.4e-6) == pytest.approx(expected, rel=0.1)


def test_without_loss_all_transports_fill_a_link() -> None:
    for transport in ("tcp", "go-back-n", "selective-repeat"):
        assert packets_per_second(transport, 1e-6, 1e-5, 64, 0.0) == pytest.approx(1e6)


def test_a_job_in_the_network_has_no_tcp() -> None:
    """Only hosts that use TCP have packets handled by a processor."""
    shape = {"leaf_spine": {"spines": 0, "leaves": 1, "hosts_per_leaf": 4}}
    said = {
        "topology": shape,
        "workers": 2,
        "size": "4 B",
        "transport": "tcp",
        "tcp": {"packet_time": "1 us"},
    }
    assert Settings.model_validate(said).settled.tcp.packet_time == 0
    ring = Settings.model_validate(said | {"algorithm": "ring"}).settled
    assert (ring.tcp.packet_time, ring.tcp_hosts) == (1e-6, {"h1", "h2"})
    traffic = {"pattern": "permutation", "size": "1 kB", "transport": "tcp"}
    assert Settings.model_validate(said | {"traffic": traffic}).settled.tcp_hosts == {"h3", "h4"}
