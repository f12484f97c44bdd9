"""Single links of a scenario, and links as fast as those inside a server."""

from __future__ import annotations

import pytest

from fanin.experiments.models.prediction import predicted_seconds
from fanin.experiments.results.measured import row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.units import SECOND


def point(**changes: object) -> Settings:
    document = {"topology": {"leaf_spine": {"rate": "100 Gb/s", "hosts_per_leaf": 2}}, "size": "400 kB"}
    return Settings.model_validate(document | changes).settled


def test_in_a_scenario_it_stands_above_what_links_say_of_all() -> None:
    shape = {"leaf_spine": {"hosts_per_leaf": 2}, "overrides": [{"link": ["h1", "leaf1"], "loss": "1%"}]}
    settings = point(topology=shape, links={"loss": 0.5, "delay": "7 us"})
    again = Settings.model_validate(settings.model_dump(mode="json"))
    assert again.key == settings.key
    for network in (settings.network, again.network):
        found = {
            link.b.node if link.a.node == "leaf1" else link.a.node: link.properties for link in network.links
        }
        assert (found["h1"].loss, found["h1"].delay) == (0.01, 7e-6)
        assert (found["h2"].loss, found["h2"].delay) == (0.5, 7e-6)


def test_a_link_that_is_down_stays_down_whatever_links_say() -> None:
    shape = {"leaf_spine": {"hosts_per_leaf": 2}, "overrides": [{"link": ["leaf1", "spine1"], "down": True}]}
    network = point(topology=shape, links={"delay": "7 us"}).network
    assert "spine1" not in network.neighbours("leaf1").values()
    assert {link.properties.delay for link in network.links} == {7e-6}


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_one_slow_link_slows_everybody(switch: Engine, algorithm: str) -> None:
    shape = {"leaf_spine": {"rate": "100 Gb/s", "hosts_per_leaf": 2}}
    slow = shape | {"overrides": [{"link": ["h1", "leaf1"], "rate": "10 Gb/s"}]}
    rows = [
        row(settings, run_virtual(settings, switch))
        for settings in (point(topology=one, algorithm=algorithm) for one in (shape, slow))
    ]
    assert rows[1]["median_seconds"] > 3 * rows[0]["median_seconds"]
    assert (rows[1]["closed_form_seconds"] is None) == (algorithm == "ring")


def test_a_link_of_nvlink_s_rate_takes_as_long_as_its_bits_do(switch: Engine) -> None:
    """1.8 TB/s: a packet of 1,100 bytes takes 611 ps."""
    shape = {"leaf_spine": {"spines": 0, "leaves": 1, "hosts_per_leaf": 2, "rate": "14.4 Tb/s"}}
    settings = point(topology=shape, size="4 MB", window=1024, coalescing=0, links={"delay": "1 ns"})
    assert SECOND == 10**12
    expected = predicted_seconds(settings, 4_000_000, 1024)
    assert expected is not None
    assert run_virtual(settings, switch).median == pytest.approx(expected, rel=0.1)
