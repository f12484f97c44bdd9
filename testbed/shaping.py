"""Rate limits of links, as lines of `tc -batch`."""

from collections.abc import Iterable

_QUEUE_SECONDS = 0.02
_SUPERFRAME = 65_536
_BURST_SECONDS = 0.001


def shape(interface: str, rate_bits_per_second: int) -> Iterable[str]:
    """Yield lines of `tc -batch` that limit the rate at which `interface` sends. Frames wait in a bounded queue."""
    bytes_per_second = rate_bits_per_second // 8
    # A class may send while its tokens last, and a frame larger than them leaves a debt: the rate holds for
    # superframes of any size. The burst only lets a late timer catch up.
    burst = max(2 * 1_514, int(bytes_per_second * _BURST_SECONDS))
    limit = max(8 * _SUPERFRAME, int(bytes_per_second * _QUEUE_SECONDS))
    yield f"qdisc add dev {interface} root handle 1: htb default 1"
    yield (
        f"class add dev {interface} parent 1: classid 1:1 htb rate {rate_bits_per_second}bit "
        f"burst {burst} cburst {burst} quantum 60000"
    )
    # In bytes: a queue in frames would hold 40 times as much when they are superframes.
    yield f"qdisc add dev {interface} parent 1:1 bfifo limit {limit}"
