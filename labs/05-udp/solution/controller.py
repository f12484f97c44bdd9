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
    members = [host for host in hosts if host["name"] in workers]
    addressing = [
        {
            "table": "MyEgress.worker_at",
            "match": {"standard.egress_port": host["port"]},
            "action": "MyEgress.address_to",
            "params": {"mac": host["mac"], "ip": host["ip"]},
        }
        for host in members
    ]
    return {
        "entries": forwarding + addressing,
        "groups": {GROUP: [[host["port"], 0] for host in members]},
    }
