"""A run to be diagnosed: its measurements, and where its links and workers are in the topology."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median_high
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.results.measured import Row
from fanin.experiments.results.usage import LinkUse, Usage
from fanin.experiments.scenario.settings import Settings
from fanin.topologies.model import Role, Topology

Direction = tuple[str, str]  # from one node to the next
Busy = Mapping[Direction, float]  # shares of the time of all-reduces

_TIERS: dict[str, int] = {"host": 0} | {role: tier for tier, role in enumerate(get_args(Role), start=1)}
_SLOWED = 0.8  # of the rate of its like: packets alone make less difference than a fifth
_USED = 0.01  # of the time: what a rate can be told from


@dataclass(frozen=True)
class Case:
    """row: of the results. Of `settings` nothing is used but the topology, the placement, the algorithm and
    the job's own priority: no property of a link, as loss, no lateness, no rate of a single link.
    """

    settings: Settings
    row: Row
    usage: Usage

    @property
    def topology(self) -> Topology:
        """The whole network."""
        return self.settings.network

    @property
    def seconds(self) -> float:
        """Of all all-reduces together, each from the first call to the last result."""
        return self.usage.seconds

    @cached_property
    def links(self) -> dict[Direction, LinkUse]:
        """Return the links that were used, as they were until the job's last sum."""
        return {(link.near, link.far): link for link in self.usage.links if link.phase == "job"}

    @cached_property
    def busy(self) -> Busy:
        """The share of the time for which each link sent, but those of hosts that are not of the job.

        What has a lower priority than the job's packets is left out, as they do not wait for it.
        """
        return {
            way: min(1.0, link.busy_seconds * (1 - link.lower_bytes / (link.wire_bytes or 1)) / self.seconds)
            for way, link in self.links.items()
            if not self.others.intersection(way)
        }

    @cached_property
    def others(self) -> frozenset[str]:
        """Hosts that are not of the job, and have sent or received."""
        hosts = {host.name for host in self.topology.hosts} - set(self.settings.members)
        return frozenset(node for way in self.links for node in way if node in hosts)

    @property
    def busiest(self) -> LinkUse:
        """The link that sent for the longest."""
        return self.links[max(self.busy, key=self.busy.__getitem__)]

    @cached_property
    def computing(self) -> NDArray[np.float64] | None:
        """Seconds for which each worker of a model that is cut computed; None: it is not."""
        known = [one for worker in self.usage.workers if (one := worker.computing_seconds) is not None]
        return np.array(known) if known else None

    @cached_property
    def overtaken(self) -> float:
        """The largest share of the time for which a link sent what has a higher priority than packets of the job."""
        longest = max(link.overtaken_seconds or 0.0 for link in self.links.values())
        return min(1.0, longest / self.seconds)

    @cached_property
    def explained(self) -> float:
        """The share of the time that bytes and latencies account for, as far as can be told.

        That of the busiest link, or what the closed form says: without loss, and with hosts' links alone.
        """
        return max(self.closed_form, *self.busy.values())

    @property
    def closed_form(self) -> float:
        """The share of the time that it says an all-reduce takes; 0: it says nothing."""
        seconds = (self.row.get("closed_form_seconds") or 0.0) * len(self.row["seconds"])
        return min(1.0, seconds / self.seconds)

    # -- tiers

    def tier(self, node: str) -> int:
        """0 of a host, from 1 up of switches."""
        return _TIERS[self._roles[node]]

    def climbs(self, way: Direction) -> bool:
        """Whether it leads up."""
        return self.tier(way[0]) < self.tier(way[1])

    def between_switches(self, way: Direction) -> bool:
        """Whether it does not lead to or from a host."""
        return min(self.tier(node) for node in way) > 0

    def siblings(self, way: Direction) -> list[Direction]:
        """Links between switches that do the same as this one, it among them: up from one switch, or down to it."""
        below, above = way if self.climbs(way) else way[::-1]
        others = [
            node
            for node in self.topology.neighbours(below).values()
            if self._roles[node] == self._roles[above]
        ]
        return [(below, one) if self.climbs(way) else (one, below) for one in others]

    def below(self, switch: str) -> frozenset[str]:
        """The hosts below a switch."""
        found = set()
        for node in self.topology.neighbours(switch).values():
            if self.tier(node) == 0:
                found.add(node)
            elif self.tier(node) < self.tier(switch):
                found |= self.below(node)
        return frozenset(found)

    @cached_property
    def _roles(self) -> dict[str, str]:
        hosts = {host.name: "host" for host in self.topology.hosts}
        return hosts | {switch.name: switch.role for switch in self.topology.switches}

    # -- rates

    def rate(self, way: Direction) -> float | None:
        """At which the link sent, bits/s; None: it sent too little to tell."""
        link = self.links.get(way)
        if link is None or link.busy_seconds < _USED * self.seconds:
            return None
        return 8 * link.wire_bytes / link.busy_seconds

    def usual_rate(self, way: Direction) -> float:
        """At which most links between the same tiers send, bits/s."""
        tiers = self._tiers(way)
        rates = self._rates[tiers]
        if rates:
            return median_high(rates)
        nominal = [
            link.rate_bits_per_second
            for link in self.topology.links
            if self._tiers((link.a.node, link.b.node)) == tiers and link.rate_bits_per_second
        ]
        return median_high(nominal) if nominal else float("inf")

    @cached_property
    def slow(self) -> list[Direction]:
        """Links that send at less than the rate of their like."""
        return [
            way
            for way in self.busy
            if self.links[way].waited_seconds is not None  # else its rate is what it is set to
            and (rate := self.rate(way)) is not None
            and rate < _SLOWED * self.usual_rate(way)
        ]

    def _tiers(self, way: Direction) -> tuple[str, ...]:
        return tuple(sorted(self._roles[node] for node in way))

    @cached_property
    def _rates(self) -> defaultdict[tuple[str, ...], list[float]]:
        found: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
        for way in self.links:
            if (rate := self.rate(way)) is not None:
                found[self._tiers(way)].append(rate)
        return found

    # -- what would be left

    @cached_property
    def repaired(self) -> Busy:
        """How busy links were if slow ones sent at the usual rate."""
        slow = set(self.slow)
        return {
            way: share * (self.rate(way) or 0.0) / self.usual_rate(way) if way in slow else share
            for way, share in self.busy.items()
        }

    @cached_property
    def own(self) -> Busy:
        """As `repaired`, and without what hosts send and receive that are not of this job."""
        return {way: share * self._own_share(way) for way, share in self.repaired.items()}

    def _own_share(self, way: Direction) -> float:
        """Of the bytes of a link, by what the hosts sent, or received, that it carries packets of."""
        below = way[0] if self.climbs(way) else way[1]
        hosts = self.below(below) if self.tier(below) else frozenset({below})
        ours = [self._at_host(host, up=self.climbs(way)) for host in hosts - self.others]
        theirs = sum(self._at_host(host, up=self.climbs(way)) for host in hosts & self.others)
        # Sums of many workers are one packet.
        own = max(ours, default=0) if self.settings.algorithm == "in-network" else sum(ours)
        return own / (own + theirs) if theirs else 1.0

    def relief(self, before: Busy, after: Busy) -> float:
        """The share of the time that it would save if links were busy for `after` in the place of `before`.

        Packets must wait at such a link: where none do, it makes none late. If all links are busy at once, as in a
        pipeline, it saves what the busiest of all is less busy. If one after the other, what the link itself gains; how
        much of that is while the others are idle is left to chance.
        """
        gains = [before[way] - after[way] for way in before if self._waited(way)]
        gain, rest = max(gains, default=0.0), max(after.values())
        return max(0.0, min(gain, max(max(before.values()) - rest, gain * (1 - rest))))

    def _waited(self, way: Direction) -> bool:
        """Whether packets waited longer than it takes to send them, on average; yes, if nobody has counted that."""
        link = self.links[way]
        return link.waited_seconds is None or link.waited_seconds >= link.busy_seconds

    def _at_host(self, host: str, *, up: bool) -> int:
        leaf = self.topology.host(host).leaf
        link = self.links.get((host, leaf) if up else (leaf, host))
        return link.wire_bytes - link.lower_bytes if link else 0


def percent(share: float) -> str:
    """As evidence has it."""
    return f"{share:.0%}"
