"""The paths of ordinary packets: up by any of the shortest, then down to the leaf of their destination."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import zip_longest
from math import prod
from operator import or_

from fanin.controller.network import Network

Hops = tuple[str, ...]  # neighbours, in the order of ports


class Routes:
    """The paths in a network whose links join neighbouring tiers. Names stand for switches."""

    def __init__(self, network: Network) -> None:
        self._tiers = [[switch.name for switch in tier] for tier in network.tiers]
        self._tier_of = {name: number for number, tier in enumerate(self._tiers) for name in tier}
        self._leaves = self._tiers[0] if self._tiers else []
        self._bits = {leaf: 1 << number for number, leaf in enumerate(self._leaves)}
        self._up: dict[str, list[str]] = {}
        self._down: dict[str, list[str]] = {}
        for name, tier in self._tier_of.items():
            around = [n for _, n in sorted(network.neighbours(name).items()) if n in self._tier_of]
            self._up[name] = [n for n in around if self._tier_of[n] > tier]
            self._down[name] = [n for n in around if self._tier_of[n] < tier]

    def up(self, switch: str) -> tuple[str, ...]:
        """Return the neighbours in the tier above, in the order of ports."""
        return tuple(self._up[switch])

    def goes_down(self, switch: str, leaf: str) -> bool:
        """Return whether `leaf` is below `switch`."""
        return bool(self._climbs[switch][0] & self._bits[leaf])

    def next_hops(self, switch: str, leaf: str) -> tuple[str, ...]:
        """Return the neighbours on a shortest path to `leaf`, in the order of ports.

        The result is empty if the switch is that leaf, or is on no path to it.
        """
        return next(iter(self._ways(switch, self._bits[leaf])), ())

    def ways_down(self, switch: str) -> Mapping[Hops, Sequence[str]]:
        """Return the leaves below a switch, without itself, by the next hops that lead there.

        The first leaf of each group decides the order of the groups.
        """
        ways = self._ways(switch, self._climbs[switch][0])
        return {hops: list(self._names(bits)) for hops, bits in _in_order(ways)}

    def ways_up(self, switch: str) -> Mapping[Hops, Sequence[str] | None]:
        """Return the leaves that are not below a switch by the next hops that lead there, in the order of ways_down().

        None stands for all leaves that no other group has. It is the value of the largest group, or that of all
        neighbours above if paths up lead nowhere. A switch of the highest tier has no such group.
        """
        ways = _in_order(self._ways(switch, ~self._climbs[switch][0]))
        most = max((bits for _, bits in ways), key=int.bit_count, default=0)
        found = {hops: None if bits == most else list(self._names(bits)) for hops, bits in ways}
        return found if found or not self._up[switch] else {self.up(switch): None}

    def stride(self, switch: str, *, down: bool) -> int:
        """Return how many consecutive hashes choose the same of a switch's next hops.

        All switches compute the same hash. If each took the last digit, a spine of a fat tree would see only packets
        with one digit, and all but one of its cores would be idle. So each tier takes the digit before the one that the
        previous tier on the path has taken. A digit has as many values as that tier has next hops at most.

        Args:
            switch: The switch.
            down: Whether the next hops lead down.
        """
        tier = self._tier_of[switch]
        if down:
            return prod(self._most_up) * prod(self._most_down[tier + 1 :])
        return prod(self._most_up[:tier])

    def _ways(self, switch: str, leaves: int) -> Mapping[Hops, int]:
        """Return those of these leaves that can be reached, without the switch itself, by the next hops to them."""
        found: defaultdict[Hops, int] = defaultdict(int)
        for climb, reached in enumerate(self._climbs[switch]):
            parts: dict[Hops, int] = {(): reached & leaves & ~self._bits.get(switch, 0)}
            for hop in self._up[switch] if climb else self._down[switch]:
                there = self._reached(hop, max(climb - 1, 0))
                halves = [((*hops, hop), bits & there) for hops, bits in parts.items()]
                halves += [(hops, bits & ~there) for hops, bits in parts.items()]
                parts = {hops: bits for hops, bits in halves if bits}
            for hops, bits in parts.items():
                found[hops] |= bits
        found.pop((), None)
        return found

    def _names(self, leaves: int) -> Iterator[str]:
        """Yield the names of leaves, in the order of the network."""
        while leaves:
            yield self._leaves[(leaves & -leaves).bit_length() - 1]
            leaves &= leaves - 1

    def _reached(self, switch: str, climb: int) -> int:
        """Return the leaves to which a shortest path from `switch` goes up that many links, a bit for each."""
        climbs = self._climbs[switch]
        return climbs[climb] if climb < len(climbs) else 0

    @cached_property
    def _climbs(self) -> Mapping[str, Sequence[int]]:
        """Return for each switch the leaves to which a path goes up 0, 1, 2 … links at least, a bit for each leaf."""
        climbs: dict[str, list[int]] = {}
        for tier in self._tiers:
            for name in tier:
                below = reduce(or_, (climbs[child][0] for child in self._down[name]), self._bits.get(name, 0))
                climbs[name] = [below]
        for tier in reversed(self._tiers[:-1]):
            for name in tier:
                own, known = climbs[name], climbs[name][0]
                for at_once in zip_longest(*(climbs[parent] for parent in self._up[name]), fillvalue=0):
                    own.append(reduce(or_, at_once, 0) & ~known)
                    known |= own[-1]
        return climbs

    @cached_property
    def _most_up(self) -> list[int]:
        """Return for each tier how many neighbours above a switch has at most, or 1."""
        return [max([1, *(len(self._up[name]) for name in names)]) for names in self._tiers]

    @cached_property
    def _most_down(self) -> list[int]:
        """Return for each tier how many paths down to one leaf a switch has at most, or 1."""
        return [
            max([1, *(len(hops) for name in names for hops in self.ways_down(name))]) for names in self._tiers
        ]


def _in_order(ways: Mapping[Hops, int]) -> Sequence[tuple[Hops, int]]:
    """Return the groups of leaves in the order of the first leaf of each."""
    return sorted(ways.items(), key=lambda way: way[1] & -way[1])
