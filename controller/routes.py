"""The paths of ordinary packets: up by any of the shortest, then down to the leaf of their destination."""

from collections.abc import Mapping
from functools import cached_property
from math import prod

from fanin.controller.network import Network


class Routes:
    """The paths in a network whose links join neighbouring tiers. Names stand for switches."""

    def __init__(self, network: Network) -> None:
        self._tiers = [[switch.name for switch in tier] for tier in network.tiers]
        self._tier_of = {name: number for number, tier in enumerate(self._tiers) for name in tier}
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
        return self._climbs[switch].get(leaf) == 0

    def next_hops(self, switch: str, leaf: str) -> tuple[str, ...]:
        """Return the neighbours on a shortest path to `leaf`, in the order of ports.

        The result is empty if the switch is that leaf, or is on no path to it.
        """
        climb = self._climbs[switch].get(leaf)
        if switch == leaf or climb is None:
            return ()
        if climb:
            return tuple(n for n in self._up[switch] if self._climbs[n].get(leaf) == climb - 1)
        return tuple(n for n in self._down[switch] if self._climbs[n].get(leaf) == 0)

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

    @cached_property
    def _climbs(self) -> Mapping[str, Mapping[str, int]]:
        """Return for each switch and leaf how many links a path to the leaf goes up at least."""
        climbs: dict[str, dict[str, int]] = {name: {name: 0} for name in self._tiers[0]}
        for tier in self._tiers[1:]:
            for name in tier:
                climbs[name] = {leaf: 0 for child in self._down[name] for leaf in climbs[child]}
        for tier in reversed(self._tiers[:-1]):
            for name in tier:
                for parent in self._up[name]:
                    for leaf, climb in climbs[parent].items():
                        if climb + 1 < climbs[name].get(leaf, climb + 2):
                            climbs[name][leaf] = climb + 1
        return climbs

    @cached_property
    def _most_up(self) -> list[int]:
        """Return for each tier how many neighbours above a switch has at most, or 1."""
        return [max([1, *(len(self._up[name]) for name in names)]) for names in self._tiers]

    @cached_property
    def _most_down(self) -> list[int]:
        """Return for each tier how many paths down to one leaf a switch has at most, or 1."""
        return [
            max(
                [1, *(len(self.next_hops(name, leaf)) for name in names for leaf in self._leaves_below(name))]
            )
            for names in self._tiers
        ]

    def _leaves_below(self, switch: str) -> list[str]:
        return [leaf for leaf, climb in self._climbs[switch].items() if not climb]
