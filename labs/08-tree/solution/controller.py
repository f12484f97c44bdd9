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
    ports = {link["neighbour"]: link["port"] for link in links if link["switch"] == switch}
    busy = {link["switch"] for link in links if link["neighbour"] in workers}  # leaves with workers
    if switch == root:
        children = sorted(busy)
        action = "MyIngress.child_of_root"
        params = {"children": len(children)}
    elif switch in busy:
        children = [name for name in ports if name in workers]
        action = "MyIngress.child_of_leaf"
        params = {"children": len(children), "parent": ports[root]}
    else:
        return {}
    return {
        "entries": [
            {
                "table": "MyIngress.child_at",
                "match": {"standard.ingress_port": ports[child]},
                "action": action,
                "params": params,
            }
            for child in children
        ],
        "groups": {GROUP: [[ports[child], 0] for child in children]},
    }
