"""Training steps drawn by seed, each with one cause of idle workers, two at once, or none.

The scenarios of planted.py only sum; these compute, too. Times are drawn around what the sums of a gradient take, so
that each cause costs about a third of a step or more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fanin.experiments.models.prediction import predicted_seconds
from fanin.experiments.models.timers import virtual_window
from fanin.experiments.scenario.settings import Settings
from fanin.topologies.link import LinkProperties
from fanin.topologies.model import Link, Topology
from fanin.topologies.shapes import leaf_spine

GIGABIT = 10**9
STEPS = 2


@dataclass(frozen=True, slots=True)
class PlantedStep:
    """A point and the causes that are planted in it, none for a step in which nothing is wrong."""

    causes: tuple[str, ...]
    settings: Settings


@dataclass(frozen=True, slots=True)
class _Draw:
    """A network in which hosts can send at full rate, and a gradient that takes `alone` seconds to sum in it."""

    pick: random.Random
    topology: Topology
    algorithm: str
    size: int

    def settings(self, topology: Topology | None = None, **changes: Any) -> Settings:
        made = {
            "topology": (topology or self.topology).model_dump(mode="json"),
            "algorithm": self.algorithm,
            "size": f"{self.size} B",
            "repetitions": STEPS,
            "paths": "spray" if self.algorithm != "in-network" else "ecmp",
            "seed": self.pick.randrange(1000),
        }
        return Settings.model_validate(made | changes).settled

    def alone(self, size: int | None = None) -> float:
        settings = self.settings()
        seconds = predicted_seconds(settings, size or self.size, virtual_window(settings))
        assert seconds is not None
        return seconds

    def step(self, computing: float, **changes: Any) -> dict[str, Any]:
        """A table `step` that computes so many times as long as the whole gradient takes, in few buckets."""
        seconds = computing * self.alone()
        table = {"forward": seconds / 3, "backward": 2 * seconds / 3, "bucket": f"{self.size // 16 * 4} B"}
        return {"step": table | changes}

    def host(self) -> str:
        return self.pick.choice(self.topology.hosts).name

    def slow(self) -> list[dict[str, Any]]:
        return [{"host": self.host(), "factor": self.pick.choice([2.0, 2.5, 3.0])}]


def _draw(pick: random.Random) -> _Draw:
    leaves, hosts = pick.choice([(2, 2), (2, 3), (2, 4), (3, 2), (4, 2)])
    spines, rate = pick.randint(1, 2), pick.choice([1, 10, 25]) * GIGABIT
    properties = LinkProperties(delay=pick.choice([1e-6, 2e-6]))
    topology = leaf_spine(spines, leaves, hosts, rate, rate * hosts // spines, properties)
    algorithm = pick.choice(["in-network", "in-network", "ring", "halving-doubling"])
    return _Draw(pick, topology, algorithm, pick.choice([256_000, 512_000, 768_000]))


def _clean(draw: _Draw) -> Settings:
    """Sums are hidden behind the backward pass, but for the last bucket, or a fault costs too little."""
    computing = draw.pick.choice([4.0, 6.0])
    innocent = draw.pick.choice(["plain", "slower", "loading", "lossy"])
    if innocent == "lossy":
        return draw.settings(draw.topology.with_properties(loss=1e-4), **draw.step(computing))
    if innocent == "slower":
        return draw.settings(**draw.step(computing, stragglers=[{"host": draw.host(), "factor": 1.05}]))
    loading = 0.03 * computing * draw.alone() if innocent == "loading" else 0.0
    return draw.settings(**draw.step(computing, loading=loading))


def _data_loader(draw: _Draw) -> Settings:
    computing = draw.pick.choice([3.0, 5.0])
    loading = draw.pick.choice([0.6, 1.0, 2.0]) * computing * draw.alone()
    return draw.settings(**draw.step(computing, loading=loading))


def _straggler(draw: _Draw) -> Settings:
    return draw.settings(**draw.step(draw.pick.choice([3.0, 5.0]), stragglers=draw.slow()))


def _no_overlap(draw: _Draw) -> Settings:
    draw = replace(draw, size=4 * draw.size)
    return draw.settings(**draw.step(draw.pick.choice([1.2, 1.5]), bucket=f"{draw.size} B"))


def _small_buckets(draw: _Draw) -> Settings:
    """So many that their latencies alone take longer than the backward pass."""
    draw, bucket = replace(draw, size=draw.size // 8), draw.pick.choice([512, 1024])
    return draw.settings(**draw.step(draw.pick.choice([1.0, 1.5]), bucket=f"{bucket} B"))


def _large_buckets(draw: _Draw) -> Settings:
    """Two, of which the first is ready when little is left to compute."""
    draw = replace(draw, size=4 * draw.size)
    bucket = draw.size * draw.pick.choice([8, 9]) // 10 // 4 * 4
    return draw.settings(**draw.step(draw.pick.choice([1.2, 1.5]), bucket=f"{bucket} B"))


def _communication(draw: _Draw) -> Settings:
    """Sums take far longer than computing, however they are cut."""
    return draw.settings(**draw.step(draw.pick.choice([0.1, 0.2])))


def _slow_link(draw: _Draw) -> Settings:
    link = draw.pick.choice(_host_links(draw.topology))
    slower = _with_rate(draw.topology, link, draw.pick.choice([6, 8, 10]))
    return draw.settings(slower, **draw.step(draw.pick.choice([1.0, 1.5])))


def _loss(draw: _Draw) -> Settings:
    lossy = draw.topology.with_properties(loss=draw.pick.choice([0.02, 0.03]))
    return draw.settings(lossy, **draw.step(draw.pick.choice([0.5, 0.8])))


def _latency(draw: _Draw) -> Settings:
    """Vectors of one or two packets, and long ways."""
    far = draw.topology.with_properties(delay=draw.pick.choice([10e-6, 20e-6]))
    return draw.settings(far, size=draw.pick.choice(["256 B", "512 B", "1 kB"]), repetitions=6)


def _cut(draw: _Draw, micro_batches: int, **changes: Any) -> Settings:
    hosts = len(draw.topology.hosts)
    stages = next(stages for stages in (4, 3, 2) if not hosts % stages)
    copies = hosts // stages
    seconds = 40 * draw.alone() / micro_batches
    table = {
        "pipeline": stages,
        "layers": stages,
        "micro_batches": micro_batches * copies,
        "forward": stages * seconds / 3,
        "backward": 2 * stages * seconds / 3,
        "activations": "4 KiB",
        "bucket": f"{draw.size // 16 // stages // 4 * 4} B",
    }
    size = draw.size // (4 * stages) * 4 * stages
    return draw.settings(size=f"{size} B", repetitions=1, parallelism=table | changes)


def _bubble(draw: _Draw) -> Settings:
    return _cut(draw, draw.pick.choice([1, 2]))


def _bubble_and_straggler(draw: _Draw) -> Settings:
    return _cut(draw, 2, stragglers=[{"host": draw.host(), "factor": 2.5}])


def _full_pipeline(draw: _Draw) -> Settings:
    return _cut(draw, 24)


def _loader_and_straggler(draw: _Draw) -> Settings:
    computing = draw.pick.choice([3.0, 5.0])
    return draw.settings(
        **draw.step(computing, loading=1.6 * computing * draw.alone(), stragglers=draw.slow())
    )


def _loader_and_small_buckets(draw: _Draw) -> Settings:
    small = _small_buckets(draw)
    assert small.step is not None
    assert small.size is not None
    window = virtual_window(small)
    bucket = small.step.bucket or 0
    one = predicted_seconds(small, bucket, window) or 0.0
    loading = 0.8 * one * small.size / bucket
    return small.model_copy(update={"step": small.step.model_copy(update={"loading": loading})})


def _loader_and_slow_link(draw: _Draw) -> Settings:
    link = draw.pick.choice(_host_links(draw.topology))
    factor = draw.pick.choice([6, 8, 10])
    loading = 0.8 * factor * draw.alone()
    return draw.settings(_with_rate(draw.topology, link, factor), **draw.step(1.0, loading=loading))


def _straggler_and_slow_link(draw: _Draw) -> Settings:
    link = draw.pick.choice(_host_links(draw.topology))
    slow = [{"host": draw.host(), "factor": 6.0}]
    return draw.settings(_with_rate(draw.topology, link, 7), **draw.step(1.0, stragglers=slow))


def _host_links(topology: Topology) -> list[Link]:
    hosts = {host.name for host in topology.hosts}
    return [link for link in topology.links if hosts & {link.a.node, link.b.node}]


def _with_rate(topology: Topology, chosen: Link, slower: int) -> Topology:
    assert chosen.rate_bits_per_second
    changed = chosen.model_copy(update={"rate_bits_per_second": chosen.rate_bits_per_second // slower})
    return topology.model_copy(
        update={"links": tuple(changed if link is chosen else link for link in topology.links)}
    )


_PLANTERS: tuple[tuple[tuple[str, ...], Callable[[_Draw], Settings]], ...] = (
    ((), _clean),
    ((), _full_pipeline),
    (("data loader",), _data_loader),
    (("straggler",), _straggler),
    (("no overlap",), _no_overlap),
    (("small buckets",), _small_buckets),
    (("large buckets",), _large_buckets),
    (("communication",), _communication),
    (("slow link",), _slow_link),
    (("loss",), _loss),
    (("latency",), _latency),
    (("pipeline bubble",), _bubble),
    (("pipeline bubble", "straggler"), _bubble_and_straggler),
    (("data loader", "straggler"), _loader_and_straggler),
    (("data loader", "small buckets"), _loader_and_small_buckets),
    (("data loader", "slow link"), _loader_and_slow_link),
    (("straggler", "slow link"), _straggler_and_slow_link),
)


def plant_step(seed: int) -> PlantedStep:
    """The kinds take turns, so that any run of seeds has all of them alike."""
    causes, planter = _PLANTERS[seed % len(_PLANTERS)]
    return PlantedStep(causes, planter(_draw(random.Random(seed))))
