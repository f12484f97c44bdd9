"""A run to be diagnosed: its measurements, and the places of its links and workers in the topology."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median_high
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.models.paths import Delays
from fanin.experiments.models.prediction import predicted_seconds, predicted_training_step
from fanin.experiments.models.timers import virtual_window
from fanin.experiments.results.measured import Row
from fanin.experiments.results.usage import LinkUse, Usage
from fanin.experiments.scenario.settings import Settings
from fanin.topologies.model import Link, Role, Topology

Direction = tuple[str, str]  # from one node to the next
Busy = Mapping[Direction, float]  # shares of the time of all-reduces

_TIERS: dict[str, int] = {"host": 0} | {role: tier for tier, role in enumerate(get_args(Role), start=1)}
_SLOWED = 0.8  # share of the usual rate below which a link is slow; packet sizes change the rate by less than a fifth
# A cause that costs a smaller share of the time is not named. Estimates are wrong by a few hundredths, and one that
# costs a fifth is to be named.
THRESHOLD = 0.15
MOSTLY = 0.5  # share of a time that bytes, latencies and computing must explain, or something else is wrong
_ALIKE = 0.95  # share of the busiest link's time from which another link is as busy


@dataclass(frozen=True)
class Case:
    """A run to be diagnosed.

    Of `settings` no loss is used, no other property of a link but its rate and delay, no lateness and no slow worker.

    Attributes:
        settings: The settings of the run.
        row: The run's row of results.
        usage: The counts of its links and workers.
    """

    settings: Settings
    row: Row
    usage: Usage

    @property
    def topology(self) -> Topology:
        """Return the whole network."""
        return self.settings.network

    @property
    def seconds(self) -> float:
        """Return the time of all all-reduces together in seconds, each from the first call to the last result."""
        return self.usage.seconds

    @cached_property
    def links(self) -> dict[Direction, LinkUse]:
        """Return the links that were used, with their counts until the job's last sum."""
        return {(link.near, link.far): link for link in self.usage.links if link.phase == "job"}

    @cached_property
    def busy(self) -> Busy:
        """Return the share of the time for which each link sent, without links of hosts outside the job.

        Packets of a lower priority than the job's are left out, as the job's packets do not wait for them.
        """
        return {
            way: min(1.0, link.busy_seconds * (1 - link.lower_bytes / (link.wire_bytes or 1)) / self.seconds)
            for way, link in self.links.items()
            if not self.others.intersection(way)
        }

    @cached_property
    def others(self) -> frozenset[str]:
        """Return the hosts outside the job that have sent or received; its own servers are in it."""
        inside = {*self.settings.members, *self.servers}
        hosts = {host.name for host in self.topology.hosts} - inside
        return frozenset(node for way in self.links for node in way if node in hosts)

    @property
    def servers(self) -> tuple[str, ...]:
        """Return the hosts of the job's own parameter servers."""
        return self.settings.servers[: self.settings.trees] if self.settings.algorithm == "in-network" else ()

    @property
    def busiest(self) -> LinkUse:
        """Return the link that sent for the longest time."""
        return self.links[max(self.busy, key=self.busy.__getitem__)]

    @property
    def busiest_text(self) -> str:
        """Describe the busiest link, and how many links are as busy."""
        most = max(self.busy.values())
        alike = sum(share >= _ALIKE * most for share in self.busy.values()) - 1
        also = f" and {alike} {'other is' if alike == 1 else 'others are'} as busy" if alike else ""
        return f"the busiest link, {self.busiest.name}, sent for {percent(most)} of the time{also}"

    @cached_property
    def computing(self) -> NDArray[np.float64] | None:
        """Return the seconds for which each worker computed in all steps; None if nobody has counted them."""
        known = [one for worker in self.usage.workers if (one := worker.computing_seconds) is not None]
        return np.array(known) if known else None

    @cached_property
    def in_each_step(self) -> NDArray[np.float64]:
        """Return the seconds for which each worker computed, [workers, steps], or in all steps, [workers, 1]."""
        assert self.computing is not None
        known = [one for worker in self.usage.workers if (one := worker.step_computing_seconds) is not None]
        return np.array(known) if known else self.computing[:, np.newaxis]

    @property
    def longest_computing(self) -> float:
        """Return the seconds for which the slowest worker of each step computed, for all steps together."""
        return float(self.in_each_step.max(axis=0).sum())

    @cached_property
    def loading(self) -> NDArray[np.float64]:
        """Return the seconds for which each worker waited for data in all steps; 0 if nobody has counted them."""
        return np.array([worker.loading_seconds or 0.0 for worker in self.usage.workers])

    @cached_property
    def stopped_seconds(self) -> float:
        """Return for how long workers were stopped, all together; they are taken to stop one after the other."""
        return sum(worker.stopped_seconds or 0.0 for worker in self.usage.workers)

    @property
    def idle(self) -> float | None:
        """Return the mean share of the time in which workers did not compute; None if it is not known."""
        return None if self.computing is None else 1 - float(self.computing.mean()) / self.seconds

    @property
    def exposed(self) -> float:
        """Return the share of the time in which communication delayed the slowest worker; at most 1."""
        if self.computing is None:
            return 1.0
        steps = self.in_each_step.shape[1]
        busy = self.in_each_step + self.loading[:, np.newaxis] / steps
        return max(0.0, 1 - float(busy.max(axis=0).sum()) / self.seconds)

    @property
    def saved_at_most(self) -> float:
        """Return the share of the time that better communication can save in steps, whose links send the same bytes.

        They can do so once the forward pass is over.
        """
        step = self.settings.step
        assert step is not None
        computing = self.longest_computing / self.seconds
        loading = float(self.loading.max()) / self.seconds
        forward = step.forward / (step.forward + step.backward or 1.0)
        return max(0.0, 1 - loading - max(computing, forward * computing + max(self.busy.values())))

    @property
    def step_seconds(self) -> float:
        """Return the mean time of an all-reduce, or of a training step."""
        return self.seconds / len(self.usage.workers[0].began)

    @property
    def sending(self) -> float:
        """Return for how many seconds of an all-reduce or step the busiest link sends, without what slows it down."""
        return max(self.own.values()) * self.step_seconds

    @property
    def slowness(self) -> float:
        """Return by which factor the slowest worker of a step computed longer than the table `step` has it."""
        step = self.settings.step
        assert step is not None
        each = self.longest_computing / len(self.usage.workers[0].began)
        return each / (step.forward + step.backward) if each else 1.0

    @property
    def window(self) -> int:
        """Return how many packets a worker may have in flight."""
        return self.row.get("window") or virtual_window(self.settings)

    @cached_property
    def overtaken(self) -> float:
        """Return the largest share of the time for which a link sent packets of a higher priority than the job's."""
        longest = max(link.overtaken_seconds or 0.0 for link in self.links.values())
        return min(1.0, longest / self.seconds)

    @cached_property
    def explained(self) -> float:
        """Return the share of the time that bytes, latencies and computing explain.

        This is the share of the busiest link, or that of the analytical model, which knows no loss and only the hosts'
        links. A replayed trace has no such model: its share is that in which the slowest worker computed.
        """
        computed = 0.0 if self.computing is None or self.settings.step is not None else 1 - self.exposed
        return max(self.closed_form, computed, *self.busy.values())

    @property
    def closed_form(self) -> float:
        """Return the share of the time that the analytical model predicts; 0 if there is no prediction."""
        if self.settings.step is not None and self.computing is not None:
            step = self.predicted(busiest=self.sending)
            loading = float(self.loading.max()) / self.seconds
            return 0.0 if step is None else min(1.0, step / self.step_seconds + loading)
        seconds = self.row.get("closed_form_seconds") or self.predicted() or 0.0
        return min(1.0, seconds / self.step_seconds)

    @cached_property
    def _alike(self) -> Settings:
        """Return the settings with the rate of the slowest worker's link for all: the model between hosts needs one."""
        if self.settings.algorithm == "in-network":
            return self.settings
        links = [self.topology.links_of(name)[0] for name in self.settings.members]
        rates = [link.rate_bits_per_second for link in links]
        return (
            self.settings
            if None in rates
            else self.with_rates(dict.fromkeys(links, min(filter(None, rates))))
        )

    @cached_property
    def healthy(self) -> Settings:
        """Return the settings with the usual rate on slow links."""
        slow = {frozenset(way): way for way in self.slow}
        return self.with_rates(
            {self.topology.link_between(*way): round(self.usual_rate(way)) for way in slow.values()}
        )

    def with_rates(self, rates: Mapping[Link, int]) -> Settings:
        """Return the settings with other rates of some links, in bits/s."""
        if all(link.rate_bits_per_second == rate for link, rate in rates.items()):
            return self.settings
        links = tuple(
            link.model_copy(update={"rate_bits_per_second": rates.get(link, link.rate_bits_per_second)})
            for link in self.topology.links
        )
        topology = self.topology.model_copy(update={"links": links}).model_dump(mode="json")
        return Settings.model_validate(self.settings.model_dump(mode="json") | {"topology": topology})

    def predicted(
        self,
        settings: Settings | None = None,
        window: int | None = None,
        *,
        delays: Delays = "fixed",
        slowness: float | None = None,
        busiest: float = 0.0,
    ) -> float | None:
        """Predict the seconds of an all-reduce, or of a training step with the computing that was measured.

        Args:
            settings: Other settings; None: those of the run, where all hosts' links are like the slowest one.
            window: Packets in flight; None: those of the run.
            delays: See Paths.
            slowness: Factor by which the slowest worker computes longer than in the table `step`; None: as measured.
            busiest: Seconds for which the busiest link sends in a step.

        Returns:
            Seconds; None if nothing predicts them, as for a replayed trace.
        """
        settings, window = settings or self._alike, window or self.window
        if settings.step is not None and self.computing is not None:
            slower = self.slowness if slowness is None else slowness
            return predicted_training_step(settings, window, slowness=slower, busiest=busiest, delays=delays)
        if settings.size is None or self.computing is not None:
            return None
        return predicted_seconds(settings, settings.size, window, delays=delays)

    # -- tiers

    def role(self, node: str) -> str:
        """Return "host" or the role of a switch."""
        return self._roles[node]

    def tier(self, node: str) -> int:
        """Return the tier of a node: 0 for a host, from 1 up for switches."""
        return _TIERS[self._roles[node]]

    def climbs(self, way: Direction) -> bool:
        """Return whether the link leads up."""
        return self.tier(way[0]) < self.tier(way[1])

    def between_switches(self, way: Direction) -> bool:
        """Return whether neither end of the link is a host."""
        return min(self.tier(node) for node in way) > 0

    def siblings(self, way: Direction) -> list[Direction]:
        """Return the links that can replace this one between two tiers: up from the same switch, or down to it.

        The link itself is one of them.
        """
        below, above = way if self.climbs(way) else way[::-1]
        others = [
            node
            for node in self.topology.neighbours(below).values()
            if self._roles[node] == self._roles[above]
        ]
        return [(below, one) if self.climbs(way) else (one, below) for one in others]

    def below(self, switch: str) -> frozenset[str]:
        """Return the hosts below a switch."""
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
        """Return the rate at which the link sent in bits/s; None if it sent nothing."""
        link = self.links.get(way)
        return 8 * link.wire_bytes / link.busy_seconds if link is not None and link.busy_seconds else None

    def usual_rate(self, way: Direction) -> float:
        """Return the rate at which most links between the same tiers send in bits/s."""
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
        """Return the links that send at less than the usual rate of links between the same tiers."""
        return [
            way
            for way in self.busy
            if self.links[way].waited_seconds
            is not None  # otherwise busy_seconds was calculated from the nominal rate
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
        """Return how busy links would be if slow ones sent at the usual rate."""
        slow = set(self.slow)
        return {
            way: share * (self.rate(way) or 0.0) / self.usual_rate(way) if way in slow else share
            for way, share in self.busy.items()
        }

    @cached_property
    def own(self) -> Busy:
        """Return `repaired` without the traffic that hosts outside the job send and receive."""
        return {way: share * self._own_share(way) for way, share in self.repaired.items()}

    def _own_share(self, way: Direction) -> float:
        """Return the job's share of a link's bytes, estimated from what the hosts behind the link sent or received."""
        below = way[0] if self.climbs(way) else way[1]
        hosts = self.below(below) if self.tier(below) else frozenset({below})
        carried = {host: self._at_host(host, up=self.climbs(way)) for host in hosts}
        ours = [carried[host] - self._foreign(host, up=self.climbs(way)) for host in hosts - self.others]
        theirs = sum(carried.values()) - sum(ours)
        # The sum of many workers is one packet.
        own = max(ours, default=0) if self.settings.algorithm == "in-network" else sum(ours)
        return own / (own + theirs) if theirs else 1.0

    def _foreign(self, host: str, *, up: bool) -> float:
        """Return the bytes at a worker's link that come from hosts outside the job, or go to them.

        A worker sends as many bytes for the job as it receives, so the rest of one direction is theirs. All workers
        together receive from outside what others have sent, but not received.
        """
        more = self._at_host(host, up=up) - self._at_host(host, up=not up)
        outside = sum(self._at_host(one, up=not up) - self._at_host(one, up=up) for one in self.others)
        rest = self._unequal[up]
        return max(0, more) * min(1.0, max(0, outside) / rest) if rest else 0.0

    @cached_property
    def _unequal(self) -> dict[bool, int]:
        """Return by how much workers sent more than they received, together (True), and the reverse (False)."""
        more = [
            self._at_host(host, up=True) - self._at_host(host, up=False) for host in self.settings.members
        ]
        return {True: sum(max(0, one) for one in more), False: sum(max(0, -one) for one in more)}

    def relief(self, before: Busy, after: Busy, *, waited: bool = True) -> float:
        """Return the share of the time that a change of links' loads from `before` to `after` would save.

        If all links are busy at once, as in a pipeline, the gain is how much less busy the busiest link is. If they are
        busy one after the other, it is the gain of the single link. How much of that gain falls into times when other
        links are idle is estimated as random.

        Args:
            before: The loads now.
            after: The loads after the change.
            waited: Whether only links at which packets wait count. Others delay nothing, unless they become faster.
        """
        gains = [before[way] - after[way] for way in before if not waited or self._waited(way)]
        gain, rest = max(gains, default=0.0), max(after.values())
        return max(0.0, min(gain, max(max(before.values()) - rest, gain * (1 - rest))))

    def _waited(self, way: Direction) -> bool:
        """Return whether packets waited, on average, at least as long as it takes to send them.

        It is True if nobody has counted that.
        """
        link = self.links[way]
        return link.waited_seconds is None or link.waited_seconds >= link.busy_seconds

    def _at_host(self, host: str, *, up: bool) -> int:
        leaf = self.topology.host(host).leaf
        link = self.links.get((host, leaf) if up else (leaf, host))
        return link.wire_bytes - link.lower_bytes if link else 0


def percent(share: float) -> str:
    """Format a share for the evidence."""
    return f"{share:.0%}"
