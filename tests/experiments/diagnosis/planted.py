"""Scenarios drawn by seed, each with one cause of slowness, or none, of which its file says nothing by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fanin.experiments.models.flows import loads, ways
from fanin.experiments.scenario.settings import Settings
from fanin.simulator.fabric import Cluster
from fanin.simulator.job_spec import JobSpec
from fanin.topologies.link import LinkProperties
from fanin.topologies.model import Link, Topology
from fanin.topologies.shapes import leaf_spine
from fanin.workers.recovery import Recovery

CAUSES = (
    "nothing wrong",
    "oversubscription",
    "collision",
    "straggler",
    "loss",
    "pause storm",
    "noisy neighbour",
    "slow link",
    "window",
    "deadlock",
    "priority inversion",
)
BETWEEN_HOSTS = ("ring", "halving-doubling", "double-binary-tree", "parameter-server")
MICROSECOND = 1e-6
CLOCKWISE = Path(__file__).parents[3] / "scenarios" / "lessons" / "clockwise.py"
GIGABIT = 10**9


@dataclass(frozen=True, slots=True)
class Planted:
    """A point, what is wrong with it, and what else happens in its network."""

    cause: str
    settings: Settings
    prepare: Callable[[Cluster], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class _Draw:
    """Draws of a scenario: it has a network in which hosts can send at full rate wherever they like."""

    random: random.Random
    leaves: int
    hosts_per_leaf: int
    spines: int
    rate: int
    delay: float
    algorithm: str
    size: int

    @property
    def pick(self) -> random.Random:
        return self.random

    def topology(self, uplink_share: float = 1.0, **changes: Any) -> Topology:
        """uplink_share: of what hosts below a leaf can send."""
        hosts = changes.pop("hosts_per_leaf", self.hosts_per_leaf)
        spines = changes.pop("spines", self.spines)
        uplink_rate = round(self.rate * hosts / spines * uplink_share)
        properties = LinkProperties(delay=self.delay)
        return leaf_spine(spines, self.leaves, hosts, self.rate, uplink_rate, properties)

    def settings(self, topology: Topology, **changes: Any) -> Settings:
        """The network spelled out, link by link."""
        made = {
            "topology": topology.model_dump(mode="json"),
            "algorithm": self.algorithm,
            "size": f"{self.size} B",
            "window": self.random.choice([128, 256, 512]),
            "repetitions": 1,
            "paths": "spray" if self.algorithm != "in-network" else "ecmp",
            "seed": self.random.randrange(1000),
        }
        return Settings.model_validate(made | changes).settled


def plant(seed: int) -> Planted:
    """The causes take turns, so that any run of seeds has all of them alike."""
    cause = CAUSES[seed % len(CAUSES)]
    return _PLANTERS[cause](_draw(random.Random(seed)))


def _draw(pick: random.Random, algorithms: Sequence[str] = ("in-network", *BETWEEN_HOSTS)) -> _Draw:
    leaves, hosts_per_leaf = pick.choice([(2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2)])
    return _Draw(
        random=pick,
        leaves=leaves,
        hosts_per_leaf=hosts_per_leaf,
        spines=pick.randint(1, 3),
        rate=pick.choice([1, 10, 25]) * GIGABIT,
        delay=pick.choice([1, 2]) * MICROSECOND,
        algorithm=pick.choice(algorithms),
        size=pick.choice([100_000, 150_000, 250_000]),
    )


def _between_hosts(draw: _Draw, *algorithms: str) -> _Draw:
    return _draw(draw.random, algorithms or BETWEEN_HOSTS)


def _clean(draw: _Draw) -> Planted:
    """A network without a fault, or with one from which the job does not suffer."""
    innocent = draw.pick.choice(
        [
            *(_plain, _little_late, _marking, _pausing, _packed_ring, _fault_elsewhere, _quiet_neighbour),
            *(_first_of_all, _watched),
        ]
    )
    return innocent(draw)


def _plain(draw: _Draw) -> Planted:
    return Planted("nothing wrong", draw.settings(draw.topology(), **_some_workers(draw)))


def _little_late(draw: _Draw) -> Planted:
    settings = draw.settings(draw.topology(), **_some_workers(draw))
    return Planted(
        "nothing wrong", settings.model_copy(update={"lateness": 0.02 * 8 * draw.size / draw.rate})
    )


def _marking(draw: _Draw) -> Planted:
    topology = draw.topology().with_properties(ecn_bytes=30_000)
    return Planted("nothing wrong", draw.settings(topology, **_some_workers(draw)))


def _pausing(draw: _Draw) -> Planted:
    """Where queues are long enough."""
    pause = {"xoff_bytes": 100_000, "xon_bytes": 50_000}
    return Planted("nothing wrong", draw.settings(draw.topology().with_properties(pause=pause)))


def _packed_ring(draw: _Draw) -> Planted:
    """One flow leaves each leaf, for which uplinks suffice that would not for all."""
    draw = _between_hosts(draw, "ring")
    topology = draw.topology(1 / draw.hosts_per_leaf, spines=1)
    return Planted("nothing wrong", draw.settings(topology, placement="packed"))


def _fault_elsewhere(draw: _Draw) -> Planted:
    """At a host that takes no part."""
    topology = draw.topology()
    chosen, *members = topology.ranked_hosts
    (link,) = topology.links_of(chosen.name)
    rate, loss = draw.pick.choice([(draw.rate // 5, 0.0), (draw.rate, 0.05)])
    topology = _with_link(topology, link, rate, loss=loss)
    return Planted("nothing wrong", draw.settings(topology, hosts=tuple(host.name for host in members)))


def _quiet_neighbour(draw: _Draw) -> Planted:
    """On links that have room for both."""
    topology = draw.topology(spines=1)
    hosts = [topology.hosts_of(leaf.name) for leaf in topology.leaves]
    ours = tuple(host.name for below in hosts for host in below[1:])
    theirs = tuple(below[0].name for below in hosts)
    settings = draw.settings(topology, hosts=ours)
    return Planted("nothing wrong", settings, partial(_another_job, hosts=theirs, elements=draw.size))


def _first_of_all(draw: _Draw) -> Planted:
    """The job's packets go before those of a neighbour that fills the uplinks."""
    theirs = draw.pick.randint(0, 5)
    planted = _noisy_neighbour(draw, draw.pick.randint(theirs + 1, 7), theirs)
    return Planted("nothing wrong", planted.settings, planted.prepare)


def _watched(draw: _Draw) -> Planted:
    """A watchdog over pauses that are short, or do not come."""
    watchdog = {"detection_time": 1e-3, "restoration_time": 1e-3}
    pause = {"xoff_bytes": 100_000, "xon_bytes": 50_000, "watchdog": watchdog}
    return Planted("nothing wrong", draw.settings(draw.topology().with_properties(pause=pause)))


def _another_job(cluster: Cluster, hosts: tuple[str, ...], elements: int, priority: int = 0) -> None:
    """A ring whose timers wait however long its packets queue."""
    timers = Recovery(initial_rto=1.0, min_rto=1.0)
    spec = JobSpec(hosts=hosts, window=128, recovery=timers, algorithm="ring", priority=priority)
    cluster.start(spec, [[np.ones(elements, np.float32) for _ in hosts]])


def _oversubscription(draw: _Draw) -> Planted:
    """With as many flows from leaf to leaf as there can be, spread by packet: a hash's collisions are another cause."""
    share = 1 / draw.pick.choice([2, 3, 4, 6])
    if draw.algorithm == "in-network":
        share /= draw.hosts_per_leaf  # of which each uplink carries one vector
    topology = draw.topology(share)
    return Planted("oversubscription", draw.settings(topology, placement="spread"))


def _collision(draw: _Draw) -> Planted:
    """Draw networks until flows meet between switches; what a hash makes of addresses and ports cannot be drawn."""
    while True:
        draw = _between_hosts(draw, "ring")
        spines = draw.hosts_per_leaf
        long = {"size": draw.pick.choice(["250 kB", "400 kB"])}  # else latencies alone set the time
        settings = draw.settings(draw.topology(spines=spines), placement="spread", paths="ecmp", **long)
        switches = {switch.name for switch in settings.network.switches}
        found = loads(ways(settings))
        if max(count for (_, far), count in found.items() if far in switches) >= 2:
            return Planted("collision", settings)


def _straggler(draw: _Draw) -> Planted:
    settings = draw.settings(draw.topology(), repetitions=2, **_some_workers(draw))
    alone = 8 * draw.size / draw.rate
    lateness = draw.pick.choice([1.0, 2.0, 4.0]) * alone
    return Planted("straggler", settings.model_copy(update={"lateness": lateness}))


def _loss(draw: _Draw) -> Planted:
    """Plant loss on all links, or on one."""
    topology = draw.topology()
    if draw.pick.random() < 0.5:
        topology = topology.with_properties(loss=draw.pick.choice([0.005, 0.01, 0.02]))
    else:
        topology = _with_link(
            topology, draw.pick.choice(_host_links(topology)), loss=draw.pick.choice([0.02, 0.05])
        )
    return Planted("loss", draw.settings(topology))


def _pause_storm(draw: _Draw) -> Planted:
    """Thresholds of less than two packets, on links so long that a pause outlasts what waits.

    In half of all cases a watchdog drops it.
    """
    draw = _between_hosts(draw, "parameter-server")
    delay = draw.pick.choice([10, 15]) * MICROSECOND
    pause: dict[str, object] = {"xoff_bytes": 500, "xon_bytes": 0}
    if draw.pick.random() < 0.5:
        pause["watchdog"] = {"detection_time": delay, "restoration_time": draw.pick.choice([1, 4]) * delay}
    topology = draw.topology().with_properties(delay=delay, pause=pause)
    topology = topology.model_copy(
        update={"links": tuple(_at_least(link, 10 * GIGABIT) for link in topology.links)}
    )
    size = draw.pick.choice(["250 kB", "400 kB"])
    return Planted("pause storm", draw.settings(topology, size=size, window=512))


def _noisy_neighbour(draw: _Draw, ours_first: int = 0, theirs_first: int = 0) -> Planted:
    """One host of each leaf is ours; the others are another job's, which alone fills the uplinks.

    ours_first, theirs_first: priorities.
    """
    draw = _draw(draw.random, ("in-network", "ring"))
    topology = draw.topology(1 / draw.hosts_per_leaf, hosts_per_leaf=draw.hosts_per_leaf, spines=1)
    hosts = [topology.hosts_of(leaf.name) for leaf in topology.leaves]
    ours = tuple(below[0].name for below in hosts)
    theirs = tuple(below[i].name for i in range(1, draw.hosts_per_leaf) for below in hosts)
    settings = draw.settings(topology, hosts=ours, priority=ours_first)
    neighbours = partial(
        _another_job, hosts=theirs, elements=draw.size, priority=theirs_first
    )  # four times ours
    return Planted("noisy neighbour", settings, neighbours)


def _priority_inversion(draw: _Draw) -> Planted:
    """Before the packets of a job that matters go those of one that fills the uplinks."""
    ours = draw.pick.randint(1, 6)  # 0 would be a network without priorities
    planted = _noisy_neighbour(draw, ours, draw.pick.randint(ours + 1, 7))
    return Planted("priority inversion", planted.settings, planted.prepare)


def _deadlock(draw: _Draw) -> Planted:
    """A network that is a ring, and routes that go round it, each host's to one two leaves on."""
    rate = draw.pick.choice([10, 25]) * GIGABIT
    pause = {"xoff_bytes": 20_000, "xon_bytes": 10_000}
    full = leaf_spine(3, 3, 2, rate, 2 * rate, LinkProperties.model_validate({"pause": pause}))
    gone = [{"leaf1", "spine2"}, {"leaf2", "spine3"}, {"leaf3", "spine1"}]
    ring = full.without([link for link in full.links if {link.a.node, link.b.node} in gone])
    settings = draw.settings(
        ring,
        algorithm="ring",
        size=draw.pick.choice(["400 kB", "600 kB", "1 MB"]),
        paths="ecmp",
        controller=CLOCKWISE,
        hosts=("h1", "h5", "h3", "h2", "h6", "h4"),
    )
    return Planted("deadlock", settings)


def _slow_link(draw: _Draw) -> Planted:
    """A host's, or the only one up from a leaf."""
    topology = draw.topology(spines=1)
    uplinks = [link for link in topology.links if link not in _host_links(topology)]
    slower = draw.pick.choice([2, 3, 5])
    if draw.pick.random() < 0.5:
        link = draw.pick.choice(_host_links(topology))
    else:
        link, slower = draw.pick.choice(uplinks), slower * draw.hosts_per_leaf
    assert link.rate_bits_per_second
    return Planted(
        "slow link", draw.settings(_with_link(topology, link, link.rate_bits_per_second // slower))
    )


def _window(draw: _Draw) -> Planted:
    topology = draw.topology().with_properties(delay=draw.pick.choice([10, 20, 40]) * MICROSECOND)
    return Planted("window", draw.settings(topology, window=draw.pick.choice([2, 4, 8])))


def _some_workers(draw: _Draw) -> dict[str, object]:
    """All, or fewer."""
    hosts = draw.leaves * draw.hosts_per_leaf
    return {"workers": draw.pick.randint(3, hosts), "placement": draw.pick.choice(["packed", "spread"])}


def _at_least(link: Link, rate: int) -> Link:
    return link.model_copy(update={"rate_bits_per_second": max(rate, link.rate_bits_per_second or rate)})


def _host_links(topology: Topology) -> list[Link]:
    hosts = {host.name for host in topology.hosts}
    return [link for link in topology.links if hosts & {link.a.node, link.b.node}]


def _with_link(topology: Topology, chosen: Link, rate: int | None = None, **properties: Any) -> Topology:
    """With another rate, or other properties, of one link."""
    changed = Link(
        a=chosen.a,
        b=chosen.b,
        rate_bits_per_second=rate or chosen.rate_bits_per_second,
        properties=chosen.properties.model_copy(update=properties),
    )
    links = tuple(changed if link is chosen else link for link in topology.links)
    return topology.model_copy(update={"links": links})


_PLANTERS: dict[str, Callable[[_Draw], Planted]] = {
    "nothing wrong": _clean,
    "oversubscription": _oversubscription,
    "collision": _collision,
    "straggler": _straggler,
    "loss": _loss,
    "pause storm": _pause_storm,
    "noisy neighbour": _noisy_neighbour,
    "slow link": _slow_link,
    "window": _window,
    "deadlock": _deadlock,
    "priority inversion": _priority_inversion,
}
