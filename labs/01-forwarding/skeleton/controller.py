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
            # TODO 0: one entry for each route. This one shows the form.
            {
                "table": "MyIngress.ipv4_lpm",
                "match": {"hdr.ipv4.destination": ["10.99.0.0", 16]},
                "action": "MyIngress.forward",
                "params": {"mac": "02:00:00:00:00:63", "port": 9},
            }
        ]
    }
