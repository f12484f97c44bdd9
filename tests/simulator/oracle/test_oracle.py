"""Virtual time and a simulator written from the documents alone say the same of random small all-reduces.

Both are exact about the same model. Without loss, times differ only where the documents leave an order open: that in
which a host deals with packets that it looks at together. Mostly they do not differ at all, and by TOLERANCES at most.
With loss each draws its own losses, so means over seeds are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.experiments.results.measured import Measured
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.workers.host_based.algorithms.registry import algorithm_names
from tests.simulator.oracle.simulator import Link, Network, Result, Simulation, Work
from tests.sizes import sized

pytestmark = pytest.mark.slow

TOLERANCES = {
    "in-network": 1e-6,
    "ring": 0.01,
    "double-binary-tree": 0.06,
    "halving-doubling": 0.02,
    "parameter-server": 0.1,
}


@dataclass(frozen=True)
class Case:
    """A point, for both. Rates in Gb/s, times in microseconds."""

    algorithm: str
    racks: int = 1
    hosts: int = 2  # of each rack
    elements: int = 1000
    window: int = 64
    window_per: str = "connection"
    transport: str = "selective-repeat"
    shards: int | None = None
    rate: int = 100
    uplink_rate: int = 100
    delay: float = 1.0
    coalescing: float = 4.0
    loss: float = 0.0
    rto: float | None = None

    def virtual(self, switch: Engine, seed: int = 1) -> Measured:
        shape = {
            "spines": int(self.racks > 1),
            "leaves": self.racks,
            "hosts_per_leaf": self.hosts,
            "rate": f"{self.rate} Gb/s",
        }
        if self.racks > 1:
            shape["uplink_rate"] = f"{self.uplink_rate} Gb/s"
        document: dict[str, Any] = {
            "topology": {"leaf_spine": shape},
            "links": {"delay": f"{self.delay} us", "loss": self.loss},
            "algorithm": self.algorithm,
            "size": f"{self.elements} elements",
            "window": self.window,
            "window_per": self.window_per,
            "transport": self.transport,
            "shards": self.shards,
            "coalescing": f"{self.coalescing} us",
            "seed": seed,
        }
        if self.rto is not None:
            document["recovery"] = {"initial_rto": f"{self.rto} us", "min_rto": f"{self.rto} us"}
        return run_virtual(Settings.model_validate(document).settled, switch)

    def oracle(self, seed: int = 1) -> Result:
        host, uplink = (
            Link(rate * 1e9, self.delay * 1e-6, self.loss) for rate in (self.rate, self.uplink_rate)
        )
        work = Work(
            self.algorithm,
            (1, self.elements),  # the barrier first
            self.window,
            per_host=self.window_per == "host",
            go_back=self.transport == "go-back-n",
            shards=self.shards,
            coalescing=self.coalescing * 1e-6,
            rto=(self.rto or 1e6) * 1e-6,
        )
        return Simulation(Network(self.racks, self.hosts, host, uplink), work, seed).run()


@st.composite
def cases(draw: st.DrawFn, algorithm: str) -> Case:
    racks = draw(st.integers(1, 3))
    hosts = draw(st.integers(1 if racks > 1 else 2, 4))
    return Case(
        algorithm,
        racks,
        hosts,
        draw(st.integers(2, 300)) * draw(st.sampled_from([1, 64, 256])),
        draw(st.sampled_from([1, 2, 5, 16, 64, 300])),
        draw(st.sampled_from(["connection", "host"])),
        draw(st.sampled_from(["selective-repeat", "go-back-n"])),
        draw(st.integers(1, racks * hosts)) if algorithm == "parameter-server" else None,
        draw(st.sampled_from([10, 40, 100])),
        draw(st.sampled_from([10, 100, 400])),
        draw(st.sampled_from([0.5, 1, 7])),
        draw(st.sampled_from([0, 1, 4])),
    )


@pytest.mark.few(3)
@pytest.mark.parametrize("algorithm", algorithm_names())
@settings(max_examples=20)
@given(data=st.data())
def test_without_loss_times_agree(switch: Engine, algorithm: str, data: st.DataObject) -> None:
    case = data.draw(cases(algorithm))
    measured, said = case.virtual(switch), case.oracle()
    assert measured.retransmissions == said.retransmissions == 0
    assert measured.median == pytest.approx(said.seconds[1], rel=TOLERANCES[algorithm])


def test_the_start_decides_about_the_tree_of_the_page(switch: Engine) -> None:
    """The numbers of docs/explanation/validation.md: after a barrier, and with all hosts at the same moment."""
    case = Case("double-binary-tree", hosts=8, elements=250_000)
    assert case.virtual(switch).median == pytest.approx(212.78e-6, abs=0.01e-6)
    assert case.oracle().seconds[1] == pytest.approx(212.78e-6, abs=0.01e-6)
    link = Link(100e9, 1e-6)
    together = Simulation(
        Network(1, 8, link, link), Work(case.algorithm, (case.elements,), case.window)
    ).run()
    assert together.seconds[0] == pytest.approx(209.82e-6, abs=0.01e-6)


def assert_alike(here: Sequence[float], there: Sequence[float]) -> None:
    """Means differ by no more than four standard errors."""
    error = (stdev(here) ** 2 / len(here) + stdev(there) ** 2 / len(there)) ** 0.5
    assert fmean(here) == pytest.approx(fmean(there), abs=4 * error)


@pytest.mark.few(3)
@pytest.mark.parametrize("window_per", ["connection", "host"])
@pytest.mark.parametrize("transport", ["selective-repeat", "go-back-n"])
@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "double-binary-tree", "parameter-server"])
def test_between_hosts_losses_cost_as_much(
    switch: Engine, algorithm: str, transport: str, window_per: str
) -> None:
    """Long waits are cut off: the few longest would decide the mean."""
    case = Case(algorithm, 2, 2, 4_000, 16, window_per, transport, uplink_rate=200, loss=0.01, rto=1000)
    seeds = range(1, sized(20, 400))
    here = [case.virtual(switch, seed) for seed in seeds]
    there = [case.oracle(seed) for seed in range(1, 5 * len(seeds))]
    assert_alike([one.retransmissions for one in here], [one.retransmissions for one in there])
    assert_alike([min(one.median, 8e-3) for one in here], [min(one.seconds[1], 8e-3) for one in there])


@pytest.mark.few(0)
def test_a_timeout_stays_doubled_until_a_packet_sent_once_is_answered(switch: Engine) -> None:
    """Two workers, 5 % loss, timeouts of 1 ms: runs of six and more timeouts are three times as frequent as if each
    answer ended the back-off (RFC 6298, section 5.7, after Karn).
    """
    case = Case("in-network", 1, 2, 256, loss=0.05, rto=1000)
    here = [case.virtual(switch, seed).median for seed in range(1, sized(250, 1200))]
    there = [case.oracle(seed).seconds[1] for seed in range(1, 3000)]
    for timeouts in (1, 2, 4, 6):
        long = (timeouts - 0.5) * 1e-3
        assert_alike([float(one > long) for one in here], [float(one > long) for one in there])
