"""The controller of the router: which entries its table gets."""

from typing import Any


def entries(routes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries of the router.

    Args:
        routes: The routes, each with `prefix` (such as 10.1.0.0), `length` (such as 16), and the `mac` and `port` of
            the next hop.
    """
    return {
        "entries": [
            {
                "table": "MyIngress.ipv4_lpm",
                "match": {"hdr.ipv4.destination": [route["prefix"], route["length"]]},
                "action": "MyIngress.forward",
                "params": {"mac": route["mac"], "port": route["port"]},
            }
            for route in routes
        ]
    }
