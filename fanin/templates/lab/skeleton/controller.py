"""The controller: the entries of the switch."""

from typing import Any


def entries(hosts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an entry for each host, which has a `mac` and a `port`."""
    return {"entries": []}  # TODO 2
