"""The controller: the entries and groups of each switch of an aggregation tree."""

from typing import Any

GROUP = 1


def entries(switch: str, links: list[dict[str, Any]], workers: list[str], root: str) -> dict[str, Any]:
    """Return the entries and groups of a switch.

    Args:
        switch: The name of the switch, a leaf or a spine.
        links: Every port of every switch: `switch`, `port`, and `neighbour`, a switch or a host.
        workers: The names of the hosts that take part in the job.
        root: The spine that is the root of the tree.
    """
    # TODO 3: find the children of this switch.
    # TODO 4: return an entry of MyIngress.child_at for each child, and the group of all children.
    return {"entries": [], "groups": {GROUP: []}}
