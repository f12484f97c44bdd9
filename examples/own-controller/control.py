"""Let every job aggregate at spine2, and so keep spine1 free for other traffic.

fanin's own controller does everything else: routes, admission, multicast groups.
"""

from fanin.controller.errors import ControllerError
from fanin.controller.network import Network
from fanin.controller.tree import Aggregator, Job, Tree

ROOT = "spine2"


def aggregation_tree(network: Network, job: Job) -> Tree:
    """Return a tree with the job's leaves and ROOT.

    Raises:
        ControllerError: The network has no ROOT.
    """
    if ROOT not in {switch.name for switch in network.switches}:
        raise ControllerError(f"{ROOT}: no such switch; build the network with two spines or more")
    racks = {
        leaf.name: tuple(host.name for host in network.hosts_of(leaf.name) if host.name in job.hosts)
        for leaf in network.leaves
    }
    leaves = [Aggregator(leaf, hosts, ROOT) for leaf, hosts in racks.items() if hosts]
    root = Aggregator(ROOT, tuple(leaf.switch for leaf in leaves), None)
    return Tree(job, (*leaves, root))
