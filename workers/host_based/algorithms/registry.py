"""The all-reduce algorithms between hosts by name."""

from fanin.workers.host_based.algorithms.all_reduce import AllReduce
from fanin.workers.host_based.algorithms.double_binary_tree import DoubleBinaryTree
from fanin.workers.host_based.algorithms.halving_doubling import HalvingDoubling
from fanin.workers.host_based.algorithms.parameter_server import ParameterServer
from fanin.workers.host_based.algorithms.ring import Ring

ALGORITHMS: dict[str, AllReduce] = {
    algorithm.name: algorithm
    for algorithm in (Ring(), HalvingDoubling(), DoubleBinaryTree(), ParameterServer())
}

FROM_FILES: dict[str, AllReduce] = {}  # algorithms of users' files, by the names of the files


def register(algorithm: AllReduce) -> None:
    """Add an algorithm, which scenarios and workers of this process can then name.

    Raises:
        ValueError: If its name is in use.
    """
    if algorithm.name in algorithm_names():
        raise ValueError(f"there is an algorithm called {algorithm.name!r} already; choose another name")
    ALGORITHMS[algorithm.name] = algorithm


def algorithm_named(name: str) -> AllReduce:
    """Return the algorithm of a name.

    Raises:
        ValueError: If there is none between hosts.
    """
    found = ALGORITHMS.get(name) or FROM_FILES.get(name)
    if found is None:
        there = ", ".join(ALGORITHMS)
        raise ValueError(f"{name!r} is no all-reduce algorithm between hosts; choose one of {there}")
    return found


def algorithm_names() -> tuple[str, ...]:
    """Return the names of all algorithms, in the network and between hosts, without those of files."""
    return ("in-network", *ALGORITHMS)
