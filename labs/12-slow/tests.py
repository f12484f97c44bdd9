"""Tests of a program that finds out why training is slow."""

import random
from functools import cache, partial
from typing import Any

from fanin.classroom.bench import Bench, lab_test
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch
from fanin.topologies.link import LinkProperties
from fanin.topologies.model import Link, Topology
from fanin.topologies.shapes import leaf_spine

GIGABIT = 10**9
STEPS = 2
NOTHING = "nothing"
FAULTS = ("data loader", "slow worker", "lossy link", "slow link", "small window", "noisy neighbour")
INNOCENT = ("plain", "a little slower", "a little loading", "rare loss", "a quiet neighbour")
RECORDED = (3, 0, 5, 1, 4, 2)  # the faults of the runs in runs/, in their order
LEAST_COMPUTING = 0.6  # of the time, in a run in which nothing is wrong
LINK_COUNTS = ("bytes", "packets", "lost", "busy_seconds", "mean_queue", "longest_queue")


def _network(draw: random.Random, **properties: Any) -> tuple[Topology, int]:
    """Return two racks in which no link is too slow, and the rate of the hosts."""
    hosts, rate = draw.choice([3, 4]), draw.choice([10, 25]) * GIGABIT
    return leaf_spine(1, 2, hosts, rate, rate * hosts, LinkProperties.model_validate(properties)), rate


def _with_link(topology: Topology, chosen: Link, slower: int = 1, **properties: Any) -> Topology:
    """Return the network with another rate or other properties of one link."""
    assert chosen.rate_bits_per_second
    changed = chosen.model_copy(
        update={
            "rate_bits_per_second": chosen.rate_bits_per_second // slower,
            "properties": chosen.properties.model_copy(update=properties),
        }
    )
    links = tuple(changed if link is chosen else link for link in topology.links)
    return topology.model_copy(update={"links": links})


def _settings(
    draw: random.Random, topology: Topology, rate: int, step: dict[str, Any], **more: Any
) -> Settings:
    """Return training steps that compute twice as long as their gradient takes on a link of a host."""
    size = draw.choice([200_000, 300_000])
    seconds = 2 * 8 * size / rate
    table = {"forward": seconds / 3, "backward": 2 * seconds / 3, "bucket": f"{size // 8} B"}
    table |= {name: seconds * value if name == "loading" else value for name, value in step.items()}
    made = {
        "topology": topology.model_dump(mode="json"),
        "algorithm": "in-network",
        "size": f"{size} B",
        "window": 256,
        "repetitions": STEPS,
        "seed": draw.randrange(1000),
        "step": table,
    }
    return Settings.model_validate(made | more).settled


def _planted(fault: str, draw: random.Random) -> tuple[Settings, Topology]:
    """Return a scenario with one of FAULTS or INNOCENT, and the network as it was planned."""
    plan, rate = _network(draw)
    topology = plan
    step: dict[str, Any] = {}
    more: dict[str, Any] = {}
    host = draw.choice(topology.hosts).name
    (link,) = topology.links_of(host)
    match fault:
        case "data loader":
            step["loading"] = draw.choice([0.6, 1.0, 1.5])
        case "slow worker":
            step["stragglers"] = [{"host": host, "factor": draw.choice([1.8, 2.5])}]
        case "lossy link":
            topology = _with_link(topology, link, loss=draw.choice([0.03, 0.06]))
        case "slow link":
            topology = _with_link(topology, link, draw.choice([8, 10]))
        case "small window":
            plan, rate = _network(draw, delay=draw.choice([2e-5, 4e-5]))
            topology = plan
            more["window"] = draw.choice([4, 8])
        case "noisy neighbour":
            plan, more = _two_jobs(topology, noisy=True)
            topology = plan
        case "a little slower":
            step["stragglers"] = [{"host": host, "factor": 1.05}]
        case "a little loading":
            step["loading"] = 0.05
        case "rare loss":
            topology = _with_link(topology, link, loss=0.0005)
        case "a quiet neighbour":
            more = _two_jobs(topology, noisy=False)[1]
    return _settings(draw, topology, rate, step, **more), plan


def _two_jobs(topology: Topology, *, noisy: bool) -> tuple[Topology, dict[str, Any]]:
    """Return a network with a job on one host of each leaf, and another job on all others.

    Args:
        topology: The network, whose uplinks have room for all hosts.
        noisy: Give the uplinks only the rate of a host, which the other job fills.
    """
    below = [topology.hosts_of(leaf.name) for leaf in topology.leaves]
    hosts = {host.name for host in topology.hosts}
    for link in topology.links:
        if noisy and not hosts & {link.a.node, link.b.node}:
            topology = _with_link(topology, link, len(below[0]))
    size, repetitions = ("400 kB", 3) if noisy else ("1.6 MB", 1)
    other = {"algorithm": "halving-doubling", "size": size, "repetitions": repetitions}
    return topology, {"hosts": tuple(each[0].name for each in below), "other_job": other}


@cache
def _switch() -> Engine:
    return load_switch()


def run_of(fault: str, draw: random.Random) -> dict[str, Any]:
    """Run a scenario with a fault in virtual time, and return what was measured, as students get it."""
    run = _run_once(fault, draw)
    # If the last packet of a step is the one that is lost, all wait for a timeout: then the loss does matter.
    while fault == "rare loss" and _computing(run) < LEAST_COMPUTING * run["seconds"]:
        run = _run_once(fault, draw)
    return run


def _computing(run: dict[str, Any]) -> float:
    seconds: list[float] = [worker["computing_seconds"] for worker in run["workers"]]
    return max(seconds)


def _run_once(fault: str, draw: random.Random) -> dict[str, Any]:
    settings, plan = _planted(fault, draw)
    rates = {
        (near.node, far.node): link.rate_bits_per_second
        for link in plan.links
        for near, far in ((link.a, link.b), (link.b, link.a))
    }
    usage = run_virtual(settings, _switch().new_instance()).usage
    assert usage
    return {
        "seconds": usage.seconds,
        "links": [
            {"near": link.near, "far": link.far, "planned_rate": rates[link.near, link.far]}
            | {name: getattr(link, name) for name in LINK_COUNTS}
            for link in usage.links
            if link.phase == "job"
        ],
        "workers": [
            {
                "host": worker.host,
                "computing_seconds": worker.computing_seconds,
                "loading_seconds": worker.loading_seconds,
                "retransmissions": worker.retransmissions,
            }
            for worker in usage.workers
        ],
    }


def recorded(number: int) -> dict[str, Any]:
    """Return the run in runs/NUMBER.json."""
    return run_of(FAULTS[RECORDED[number - 1]], random.Random(number))


def _explained(run: dict[str, Any]) -> str:
    """Return the figures of a run in a few lines, as they are in the dictionary."""
    links = sorted(run["links"], key=lambda link: -link["busy_seconds"])
    workers = "\n".join(f"  {worker}" for worker in run["workers"])
    return (
        f"seconds: {run['seconds']:.6g}\nworkers:\n{workers}\nthe four busiest of {len(links)} links:\n"
        + "\n".join(f"  {link}" for link in links[:4])
    )


def _names(bench: Bench, expected: str, *planted: str) -> None:
    """Draw a network for each of FAULTS or INNOCENT that is planted, and ask the student's program what is wrong."""
    program = bench.python("diagnose.py")
    for fault in planted or (expected, expected):
        bench.step(f"training runs in a network that is drawn at random: {fault}")
        drawn = bench.random.getrandbits(32)
        run = bench.once(f"{fault} {drawn}", partial(run_of, fault, random.Random(drawn)))
        found = program.call("cause", run)
        bench.check(
            found == expected, f"cause() returned {found!r}, expected {expected!r}\n{_explained(run)}"
        )


@lab_test("The faults of the six runs in runs/", points=6)
def answers(bench: Bench) -> None:
    found = bench.python("diagnose.py").call("ANSWERS")
    bench.check(
        isinstance(found, list) and len(found) == len(RECORDED), "ANSWERS must be a list of six texts"
    )
    for number, fault in enumerate(RECORDED, start=1):
        bench.step(f"the fault of runs/{number}.json is named as {found[number - 1]!r}")
        bench.check(found[number - 1] in FAULTS, f"it must be one of {', '.join(FAULTS)}")
        bench.check(found[number - 1] == FAULTS[fault], "it is another one")


@lab_test("A worker waits for its data")
def data_loader(bench: Bench) -> None:
    _names(bench, "data loader")


@lab_test("One worker computes more slowly than the others")
def slow_worker(bench: Bench) -> None:
    _names(bench, "slow worker")


@lab_test("A link loses packets")
def lossy_link(bench: Bench) -> None:
    _names(bench, "lossy link")


@lab_test("A link does not have the rate that was planned")
def slow_link(bench: Bench) -> None:
    _names(bench, "slow link")


@lab_test("Workers have too few packets in flight")
def small_window(bench: Bench) -> None:
    _names(bench, "small window")


@lab_test("Another job fills the links between the switches")
def noisy_neighbour(bench: Bench) -> None:
    _names(bench, "noisy neighbour")


@lab_test("Nothing is wrong, or so little that it does not matter", points=2)
def nothing(bench: Bench) -> None:
    _names(bench, NOTHING, *INNOCENT)


@lab_test("Further networks drawn at random", points=3, hidden=True)
def at_random(bench: Bench) -> None:
    for fault in FAULTS:
        _names(bench, fault)
    _names(bench, NOTHING, *INNOCENT)
