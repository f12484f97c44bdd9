"""Rates to which `tc` limits the interfaces of ports, as Mininet's TCLink sets them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator

_RATE = re.compile(r"^(?:class htb|class hfsc|qdisc tbf) .*?\brate ([\d.]+)([KMGT]?)bit\b", re.MULTILINE)
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# Below the kernel's rate, so that packets wait in the switch and not in the kernel. BMv2 waits for the kernel instead.
_SHARE = 0.99
_QUEUE_PACKETS = 64  # BMv2's queues


def link_options(ports: Iterable[str]) -> Iterator[str]:
    """Yield an option --link for each port whose interface has a rate.

    A program sees the depth of a queue only if the queue is the switch's own.

    Args:
        ports: The ports as the option -i has them, PORT@INTERFACE.
    """
    for port in ports:
        number, _, interface = port.partition("@")
        rate = _rate(interface)
        if rate is not None:
            yield f"--link={number}:rate={rate * _SHARE:.0f},queue_packets={_QUEUE_PACKETS}"


def _rate(interface: str) -> float | None:
    """Return the smallest rate of an interface's classes and queueing disciplines in bits per second, if it has any."""
    # As text: tc writes classes as JSON since version 6.2 only, but never did without -json.
    shown = "".join(_shown(what, interface) for what in ("class", "qdisc"))
    rates = [float(number) * _UNITS[unit] for number, unit in _RATE.findall(shown)]
    return min(rates) if rates else None


def _shown(what: str, interface: str) -> str:
    try:
        done = subprocess.run(
            ["tc", what, "show", "dev", interface], capture_output=True, text=True, check=False
        )
    except OSError:  # the switch itself reports that tc is missing
        return ""
    return done.stdout
