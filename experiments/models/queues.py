"""The analytical model of requests that wait in the queues of servers: quantiles of the slowest of several answers."""

from __future__ import annotations

from math import exp, factorial, isclose


def waiting_share(load: float, slots: int) -> float:
    """Return the share of questions that wait in an M/M/c queue (Erlang's C formula, 1917).

    Args:
        load: Share of the time for which a slot is busy, below 1.
        slots: Questions that a server answers at once, c.
    """
    offered = load * slots
    full = offered**slots / factorial(slots) / (1 - load)
    return full / (sum(offered**k / factorial(k) for k in range(slots)) + full)


def later_than(seconds: float, service: float, load: float, slots: int) -> float:
    """Return the share of questions that take longer than `seconds` in an M/M/c queue, waiting and service together.

    Args:
        seconds: The time.
        service: Mean seconds of the service, which is exponential.
        load: See waiting_share().
        slots: See waiting_share().
    """
    served, left = 1 / service, slots * (1 - load) / service
    waits = waiting_share(load, slots)
    alone = exp(-served * seconds)
    if isclose(served, left):
        return (1 - waits) * alone + waits * (1 + served * seconds) * alone
    both = (left * alone - served * exp(-left * seconds)) / (left - served)
    return (1 - waits) * alone + waits * both


def response_quantile(share: float, fan_out: int, service: float, load: float, slots: int) -> float:
    """Return the seconds that a share of requests does not exceed, each of which waits for `fan_out` answers.

    The answers are taken to be independent. The model is therefore too high: servers that are asked together are busy
    together. See Nelson and Tantawi, "Approximate analysis of fork/join synchronization in parallel queues", IEEE
    Transactions on Computers 37, 1988, section 3.

    Args:
        share: The share of requests.
        fan_out: Number of answers of a request.
        service: Mean seconds of the service.
        load: See waiting_share().
        slots: See waiting_share().
    """
    late = 1 - share ** (1 / fan_out)
    low, high = 0.0, service
    while later_than(high, service, load, slots) > late:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if later_than(middle, service, load, slots) > late else (low, middle)
    return high
