"""Flows of a scenario's traffic: their sources, destinations, sizes and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle

import numpy as np

from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.traffic import Sizes, Traffic
from fanin.experiments.workloads.flow_trace import read_flows
from fanin.simulator.flows import FinishedFlow, FlowSpec

# Cumulative distributions of flow sizes in bytes, with straight lines between the points. Web search is from DCTCP's
# paper (Alizadeh et al., SIGCOMM 2010), hadoop is Facebook's (Roy et al., SIGCOMM 2015); both as tabulated with HPCC
# (Li et al., SIGCOMM 2019; alibaba-edu/High-Precision-Congestion-Control, traffic_gen).
_DISTRIBUTIONS: dict[Sizes, tuple[tuple[float, float], ...]] = {
    "web-search": (
        (0, 1), (0.15, 1e4), (0.20, 2e4), (0.30, 3e4), (0.40, 5e4), (0.53, 8e4), (0.60, 2e5), (0.70, 1e6),
        (0.80, 2e6), (0.90, 5e6), (0.97, 1e7), (1, 3e7),
    ),
    "hadoop": (
        (0, 1), (0.01, 100), (0.02, 200), (0.05, 300), (0.15, 350), (0.20, 400), (0.30, 500), (0.40, 600),
        (0.50, 700), (0.60, 1e3), (0.67, 2e3), (0.70, 7e3), (0.72, 3e4), (0.82, 5e4), (0.87, 8e4), (0.90, 1.2e5),
        (0.95, 3e5), (0.975, 1e6), (0.99, 2e6), (1, 1e7),
    ),
}  # fmt: skip
_DRAW = 3  # separates these random numbers from others of the same seed

Request = tuple[FlowSpec, ...]  # flows that begin together; the request ends with the last of them


def mean_size(traffic: Traffic) -> float:
    """Return the mean size of a flow in bytes."""
    if traffic.sizes is None:
        assert traffic.size is not None
        return float(traffic.size)
    shares, sizes = np.array(_DISTRIBUTIONS[traffic.sizes]).T
    return float(np.sum(np.diff(shares) * (sizes[1:] + sizes[:-1]) / 2))


def requests(settings: Settings) -> list[Request]:
    """Return what a point's traffic sends, ordered by time for each host; empty without traffic."""
    if settings.traffic is None or settings.traffic.load == 0:
        return []
    others = {*settings.members, *settings.servers}
    hosts = [host.name for host in settings.network.hosts if host.name not in others]
    return _PATTERNS[settings.traffic.pattern](settings, settings.traffic, hosts)


def completed(wanted: Sequence[Request], flows: Sequence[FinishedFlow]) -> list[FinishedFlow]:
    """Return each request as one flow with all its bytes, which took as long as its slowest flow."""
    found, place = [], 0
    for request in wanted:
        parts = flows[place : place + len(request)]
        place += len(request)
        found.append(
            replace(
                parts[0], size=sum(part.size for part in parts), seconds=max(part.seconds for part in parts)
            )
        )
    return found


def _poisson(settings: Settings, traffic: Traffic, hosts: Sequence[str]) -> list[Request]:
    """Let each host send flows to hosts that are drawn for each flow."""
    found: list[Request] = []
    for number, host in enumerate(hosts):
        draw = _generator(settings, number)
        others = [other for other in hosts if other != host]
        for start in _arrivals(settings, traffic, host, draw, 1):
            to = others[draw.integers(len(others))]
            found.append((FlowSpec(source=host, destination=to, size=_size(traffic, draw), start=start),))
    return found


def _on_off(settings: Settings, traffic: Traffic, hosts: Sequence[str]) -> list[Request]:
    """Let each host send to one other host, with pauses drawn so that links are busy for `load` of the time."""
    assert traffic.load is not None
    assert traffic.duration is not None
    found: list[Request] = []
    for (host, to), number in zip(_paired(settings, hosts), range(len(hosts)), strict=True):
        draw = _generator(settings, number)
        pause = 8 * mean_size(traffic) / _rate(settings, host) * (1 / traffic.load - 1)
        now = traffic.begin + float(draw.exponential(pause))
        while now < traffic.begin + traffic.duration:
            size = _size(traffic, draw)
            found.append((FlowSpec(source=host, destination=to, size=size, start=now),))
            now += 8 * size / _rate(settings, host) + float(draw.exponential(pause))
    return found


def _incast(settings: Settings, traffic: Traffic, hosts: Sequence[str]) -> list[Request]:
    """Let hosts send to the first host at the same time, like workers that write a checkpoint."""
    draw, (to, *others) = _generator(settings, 0), hosts
    found: list[Request] = []
    for start in _times(traffic):
        senders = draw.choice(len(others), min(traffic.fan or len(others), len(others)), replace=False)
        flows = [(others[sender], _size(traffic, draw)) for sender in sorted(senders.tolist())]
        found += [(FlowSpec(source=host, destination=to, size=size, start=start),) for host, size in flows]
    return found


def _checkpoint(settings: Settings, traffic: Traffic, hosts: Sequence[str]) -> list[Request]:
    """Let every worker write its part to one of `hosts`, the storage, which share the workers evenly."""
    draw = _generator(settings, 0)
    return [
        (FlowSpec(source=worker, destination=storage, size=_size(traffic, draw), start=start),)
        for start in _times(traffic)
        for worker, storage in zip(settings.members, cycle(hosts), strict=False)
    ]


def _read(settings: Settings, traffic: Traffic, hosts: Sequence[str]) -> list[Request]:
    """Let every worker read from one of `hosts`, the reverse of a checkpoint."""
    return [
        tuple(replace(flow, source=flow.destination, destination=flow.source) for flow in request)
        for request in _checkpoint(settings, traffic, hosts)
    ]


def _permutation(settings: Settings, traffic: Traffic, hosts: Sequence[str]) -> list[Request]:
    """Let each host send one flow and receive one."""
    draw = _generator(settings, len(hosts))
    return [
        (FlowSpec(source=host, destination=to, size=_size(traffic, draw), start=traffic.begin),)
        for host, to in _paired(settings, hosts)
    ]


def _fan_out(settings: Settings, traffic: Traffic, hosts: Sequence[str]) -> list[Request]:
    """Let `fan` hosts answer each request for inference at the same time; only the answers are sent."""
    assert traffic.fan is not None
    found: list[Request] = []
    for number, host in enumerate(hosts):
        draw = _generator(settings, number)
        others = [other for other in hosts if other != host]
        fan = min(traffic.fan, len(others))
        for start in _arrivals(settings, traffic, host, draw, fan):
            servers = sorted(draw.choice(len(others), fan, replace=False).tolist())
            answers = [(others[server], _size(traffic, draw)) for server in servers]
            found.append(
                tuple(FlowSpec(source=one, destination=host, size=size, start=start) for one, size in answers)
            )
    return found


def _traced(settings: Settings, traffic: Traffic, _: Sequence[str]) -> list[Request]:
    """Let any hosts send the flows of a trace, in which they are numbered by their ranks."""
    assert traffic.trace is not None
    names = [host.name for host in settings.network.ranked_hosts]
    return [
        (
            FlowSpec(
                source=names[flow.source],
                destination=names[flow.destination],
                size=flow.size,
                start=traffic.begin + flow.start,
                kind=flow.port,
            ),
        )
        for flow in read_flows(traffic.trace)
    ]


_PATTERNS: dict[str, Callable[[Settings, Traffic, Sequence[str]], list[Request]]] = {
    "poisson": _poisson,
    "on-off": _on_off,
    "incast": _incast,
    "permutation": _permutation,
    "fan-out": _fan_out,
    "checkpoint": _checkpoint,
    "read": _read,
    "trace": _traced,
}


def _times(traffic: Traffic) -> list[float]:
    """Return the start of each period."""
    assert traffic.period is not None
    assert traffic.duration is not None
    return [
        traffic.begin + number * traffic.period
        for number in range(int(np.ceil(traffic.duration / traffic.period)))
    ]


def _arrivals(
    settings: Settings, traffic: Traffic, host: str, draw: np.random.Generator, flows: int
) -> list[float]:
    """Return the times of a Poisson process, with `flows` flows each, that loads the link of `host` as wanted."""
    assert traffic.load is not None
    assert traffic.duration is not None
    between = 8 * flows * mean_size(traffic) / (traffic.load * _rate(settings, host))
    found, now = [], traffic.begin + float(draw.exponential(between))
    while now < traffic.begin + traffic.duration:
        found.append(now)
        now += float(draw.exponential(between))
    return found


def _paired(settings: Settings, hosts: Sequence[str]) -> list[tuple[str, str]]:
    """Return each host with a different one to send to: a random circle through all hosts."""
    circle = np.array(hosts)[_generator(settings, -1).permutation(len(hosts))].tolist()
    to = dict(zip(circle, circle[1:] + circle[:1], strict=True))
    return [(host, to[host]) for host in hosts]


def _size(traffic: Traffic, draw: np.random.Generator) -> int:
    if traffic.sizes is None:
        assert traffic.size is not None
        return traffic.size
    shares, sizes = zip(*_DISTRIBUTIONS[traffic.sizes], strict=True)
    return int(np.interp(draw.random(), shares, sizes))


def _rate(settings: Settings, host: str) -> int:
    (link,) = settings.network.links_of(host)
    assert link.rate_bits_per_second is not None
    return link.rate_bits_per_second


def _generator(settings: Settings, number: int) -> np.random.Generator:
    return np.random.default_rng((settings.seed, _DRAW, number + 1))
