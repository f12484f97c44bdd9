"""Check of the order in which links send: by priority, and within a priority in the order of arrival.

It uses arrivals alone. A packet joins a switch's queues when it arrives there. It begins to be sent at its arrival at
the next node, minus the time that it takes on the link. So packets that a switch forwards unchanged, and that reach it
only once, have a time of joining and one of beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.soak.scenario import Scenario
from fanin.simulator import SECOND
from fanin.simulator.links import Packets, Transit

_TYPE, _TOS = 12, 15  # bytes of a frame
_PRECEDENCE = 5  # lowest bit of the precedence in TOS
_KNOWN_BY = slice(26, 64)  # addresses, ports, and the header of a packet between hosts identify it
_SLACK = SECOND // 10**9  # rates are rounded


class _Arrivals(NamedTuple):
    """Arrivals, each array [packets].

    Attributes:
        links: Number of the link.
        times: Time in picoseconds.
        lengths: Length in bytes.
        priorities: Priority.
        names: Identifies a packet; 0 if it is too short.
    """

    links: NDArray[np.int64]
    times: NDArray[np.int64]
    lengths: NDArray[np.int64]
    priorities: NDArray[np.int64]
    names: NDArray[np.uint64]


class SendingOrder:
    """An observer of a run with priorities, on links whose times are known according to judged_by()."""

    def __init__(self, scenario: Scenario) -> None:
        self._topology = scenario.topology
        self._strict = scenario.links.pause is None  # otherwise a packet may wait because of a pause
        self._arrived: list[_Arrivals] = []
        length = _KNOWN_BY.stop - _KNOWN_BY.start
        self._factors = np.random.default_rng(0).integers(1, 2**63, length, dtype=np.uint64) | np.uint64(1)

    @staticmethod
    def judged_by(scenario: Scenario) -> bool:
        """Return whether arrivals show when packets were sent, and with which priority."""
        links = scenario.links
        late = links.jitter or links.reordering or links.duplication
        return bool(scenario.prioritized and scenario.rate and not late and not links.corruption)

    def __call__(self, arrived: Transit, store: Packets) -> None:
        """Record arrivals."""
        lengths, heads = store.lengths[arrived.packets], store.rows[arrived.packets, : _KNOWN_BY.stop]
        ipv4 = (heads[:, _TYPE] == 0x08) & (heads[:, _TYPE + 1] == 0) & (lengths > _TOS)
        names = (heads[:, _KNOWN_BY].astype(np.uint64) * self._factors).sum(axis=1)
        self._arrived.append(
            _Arrivals(
                arrived.links.copy(),
                arrived.times.copy(),
                lengths.astype(np.int64),
                np.where(ipv4, heads[:, _TOS] >> _PRECEDENCE, 0).astype(np.int64),
                np.where(lengths >= _KNOWN_BY.stop, names, 0),
            )
        )

    def problems(self) -> Iterator[str]:
        """Describe packets that were overtaken, or had to wait, against the order."""
        if not self._arrived:
            return
        every = _Arrivals(*(np.concatenate(column) for column in zip(*self._arrived, strict=True)))
        ends = [pair for link in self._topology.links for pair in ((link.a, link.b), (link.b, link.a))]
        into: dict[str, dict[int, int]] = {}
        for switch in self._topology.switches:
            here = [number for number, (_, far) in enumerate(ends) if far.node == switch.name]
            coming = np.isin(every.links, here)
            names, first, counts = np.unique(every.names[coming], return_index=True, return_counts=True)
            once = (counts == 1) & (names != 0)
            joined = every.times[coming][first[once]]
            into[switch.name] = dict(zip(names[once].tolist(), joined.tolist(), strict=True))
        for number, (near, far) in enumerate(ends):
            if near.node in into:
                sent = every.links == number
                of_link = _Arrivals(*(column[sent] for column in every))
                yield from self._of_a_link(number, of_link, into[near.node], f"{near.node} → {far.node}")

    def _of_a_link(self, number: int, sent: _Arrivals, into: dict[int, int], name: str) -> Iterator[str]:
        link = self._topology.links[number // 2]
        assert link.rate_bits_per_second
        bits = 8 * (sent.lengths + link.properties.virtual_overhead)
        on_its_way = bits * SECOND // link.rate_bits_per_second + round(
            link.properties.virtual_delay * SECOND
        )
        begun = sent.times - on_its_way
        joined = np.array([into.get(one, -1) for one in sent.names.tolist()], np.int64)
        known = joined >= 0
        for priority in np.unique(sent.priorities[known]).tolist():
            of_it = known & (sent.priorities == priority)
            order = np.lexsort((begun[of_it], joined[of_it]))
            in_turn, began = joined[of_it][order], begun[of_it][order]
            earliest_after = np.minimum.accumulate(began[::-1])[::-1]
            # Index of the first packet that clearly came later.
            later = np.searchsorted(in_turn, in_turn + _SLACK, "right")
            overtaken = later < len(began)
            overtaken[overtaken] = earliest_after[later[overtaken]] < began[overtaken] - _SLACK
            if overtaken.any():
                yield f"{name}: {overtaken.sum()} packets of priority {priority} were overtaken by their like"
            lower = np.sort(begun[sent.priorities < priority])
            following = np.searchsorted(lower, in_turn + _SLACK, "right")
            waited = following < len(lower)
            waited[waited] = lower[following[waited]] < began[waited] - _SLACK
            if self._strict and waited.any():
                yield f"{name}: {waited.sum()} packets of priority {priority} waited for lower ones that came after"
