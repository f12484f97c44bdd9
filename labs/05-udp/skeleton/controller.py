"""The controller: the entries of both tables, and the multicast group of the workers."""

from typing import Any

GROUP = 1


def entries(hosts: list[dict[str, Any]], workers: list[str]) -> dict[str, Any]:
    """Return the entries and groups of the switch.

    Args:
        hosts: All hosts, each with `name`, `ip`, `mac` and `port`.
        workers: The names of the hosts that take part in the job.
    """
    forwarding = [
        {
            "table": "MyIngress.ipv4_host",
            "match": {"hdr.ipv4.destination": host["ip"]},
            "action": "MyIngress.forward",
            "params": {"port": host["port"]},
        }
        for host in hosts
    ]
    # TODO 4: add entries of MyEgress.worker_at, and the members of the multicast group as [port, 0].
    return {"entries": forwarding, "groups": {GROUP: []}}
