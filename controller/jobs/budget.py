"""The parts of a network that its jobs hold: slots at each switch, and UDP ports on each host."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fanin.controller.errors import ControllerError
from fanin.controller.network import Network
from fanin.controller.planner import OURS, Planner
from fanin.controller.tree import FIRST_UDP_PORT, LAST_UDP_PORT, SLOTS, Job, Tree


class NoRoomError(ControllerError):
    """A shortage for which a job has to wait until others have ended; the text explains what is missing."""


@dataclass(frozen=True, slots=True)
class SlotAllocation:
    """A place where a job can be granted a lease.

    Attributes:
        tree: The tree, with hosts, slots and UDP port. Its lease id is not valid yet.
    """

    tree: Tree

    @property
    def job(self) -> Job:
        """Return the job; its lease id is not valid yet."""
        return self.tree.job

    def slots_at(self, switch: str) -> range:
        """Return the slots at a switch; an empty range if the switch is not in the tree."""
        job = self.job
        here = any(part.switch == switch for part in self.tree.aggregators)
        return range(job.base, job.base + job.slots) if here else range(0)


class Budget:
    """The free slots and ports of a network.

    It finds places that share nothing, and reserves them until they are given back.

    Args:
        network: The network; may be replaced later.
        planner: Its aggregation_tree() makes the trees.
    """

    def __init__(self, network: Network, planner: Planner = OURS) -> None:
        self.network = network
        self._planner = planner
        self._slots: set[SlotAllocation] = set()
        self._ports: set[SlotAllocation] = set()  # places whose port is in use

    def take(self, hosts: Sequence[str], slots: int) -> SlotAllocation:
        """Reserve a place with `slots` consecutive slots, the same at every switch of its tree.

        Of trees with different roots it takes one whose root has most slots free.

        Raises:
            NoRoomError: If there is no place now.
            ControllerError: If there can never be one.
        """
        trees = self._trees(hosts, slots)
        for tree in trees:
            for free in self._gaps(tree):
                if len(free) >= slots:
                    place = SlotAllocation(replace(tree, job=replace(tree.job, base=free.start)))
                    self._slots.add(place)
                    self._ports.add(place)
                    return place
        raise NoRoomError(self._shortage([part.switch for part in trees[0].aggregators], slots))

    def most(self, hosts: Sequence[str]) -> int:
        """Return how many slots take() can reserve for these hosts now.

        Raises:
            NoRoomError: If the hosts have no free port in common.
            ControllerError: If there can never be a place.
        """
        return max(len(free) for tree in self._trees(hosts, 1) for free in self._gaps(tree))

    def give_back_slots(self, place: SlotAllocation) -> None:
        """Free the slots, since the lease is withdrawn. May be called twice."""
        self._slots.discard(place)

    def give_back(self, place: SlotAllocation) -> None:
        """Free the slots and the port, since the workers have ended, too. May be called twice."""
        self._slots.discard(place)
        self._ports.discard(place)

    def held(self, switch: str) -> int:
        """Return how many of the switch's slots are in use."""
        return sum(len(place.slots_at(switch)) for place in self._slots)

    def _trees(self, hosts: Sequence[str], slots: int) -> list[Tree]:
        """Return the possible trees of a job, the one whose root has most slots free first."""
        # A tree depends on the port, by which jobs spread over roots.
        trees = [
            self._planner.aggregation_tree(self.network, Job(1, tuple(hosts), port, 0, slots))
            for port in self._free_ports(hosts)
        ]
        return sorted(trees, key=lambda tree: self.held(tree.root.switch))

    def _free_ports(self, hosts: Sequence[str]) -> Sequence[int]:
        of_host = {
            host: {place.job.udp_port for place in self._ports if host in place.job.hosts} for host in hosts
        }
        ports = range(FIRST_UDP_PORT, LAST_UDP_PORT + 1)
        if free := [port for port in ports if not any(port in used for used in of_host.values())]:
            return free
        busiest = max(of_host, key=lambda host: len(of_host[host]))
        raise NoRoomError(
            f"the hosts of the job have no free UDP port in common; there are {len(ports)}, and {busiest} "
            f"uses {len(of_host[busiest])} for other jobs"
        )

    def _gaps(self, tree: Tree) -> Sequence[range]:
        """Return the ranges of slots that are free at all switches of a tree, in order; some may be empty."""
        found = (place.slots_at(part.switch) for part in tree.aggregators for place in self._slots)
        gaps, base = [], 0
        for taken in sorted((taken for taken in found if taken), key=lambda taken: taken.start):
            gaps.append(range(base, taken.start))
            base = max(base, taken.stop)
        return [*gaps, range(base, SLOTS)]

    def _shortage(self, switches: Sequence[str], slots: int) -> str:
        fullest = max(switches, key=self.held)
        free = SLOTS - self.held(fullest)
        scattered = "" if free < slots else " in a row, the same at all its switches"
        return f"{fullest} has {free:,} of {SLOTS:,} slots free; the job needs {slots:,}{scattered}"
