"""The settings of one run: its network, its job, its world. A scenario file has one or many of them (file.py)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, Field

from fanin.controller.errors import ControllerError
from fanin.controller.plan import PathChoice
from fanin.controller.tree import FIRST_UDP_PORT, LAST_UDP_PORT, SLOTS, Job, aggregation_tree
from fanin.experiments.scenario.placement import Placement, place
from fanin.experiments.scenario.tables.compression import Compression
from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.experiments.scenario.tables.faults import Fault, fault_problems
from fanin.experiments.scenario.tables.other_job import OtherJob
from fanin.experiments.scenario.tables.parallelism import Parallelism
from fanin.experiments.scenario.tables.recovery import Recovery
from fanin.experiments.scenario.tables.step import Step
from fanin.experiments.scenario.tables.table import Priority, Table
from fanin.experiments.scenario.tables.topology import TopologySettings
from fanin.experiments.scenario.tables.traffic import Traffic
from fanin.experiments.scenario.tables.training import Training
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES, VectorSize
from fanin.experiments.scenario.tools import Compiler, SwitchKind
from fanin.topologies.link import VIRTUAL_ONLY, LinkModel, LinkProperties
from fanin.topologies.model import Link, Topology
from fanin.topologies.override import override
from fanin.topologies.units import Seconds
from fanin.workers.collective import Algorithm, Operation, Transport, WindowScope
from fanin.workers.host_based.transport import FIRST_PEER_PORT, MAX_FLOWS
from fanin.workers.recovery import Recovery as Timers

VIRTUAL_WINDOW = 512  # packets in flight of a worker, where a scenario does not say

FILES = ("program", "controller", "worker")  # keys whose values are files that a user brings

# Of Settings; those of its links: VIRTUAL_ONLY.
_VIRTUAL_ONLY = (
    *("lateness", "step", "traffic", "other_job", "collective", "congestion"),
    *("priority", "faults", "min_workers", "parallelism", "trees", "queue_samples"),
)

# What a table parallelism says in its own way, or is not for a model that is cut.
_NOT_PARALLEL = (
    *("lateness", "step", "traffic", "other_job", "collective"),
    *("compression", "faults", "min_workers"),
)

KeyPath = tuple[str, ...]  # the tables that a key is in, and its name


class Settings(Table):
    """One point of a scenario: all that one run depends on."""

    world: Literal["virtual", "live"] = "virtual"
    topology: TopologySettings
    links: LinkModel = LinkModel()
    workers: Annotated[int | None, Field(ge=2, description="how many hosts take part; left out, all")] = None
    placement: Annotated[Placement, Field(description="which hosts, in which order of ranks")] = "packed"
    hosts: Annotated[
        tuple[str, ...], Field(description="the hosts by rank, in the place of workers and placement")
    ] = ()
    algorithm: Algorithm = "in-network"
    trees: Annotated[
        int,
        Field(
            ge=1,
            le=LAST_UDP_PORT - FIRST_UDP_PORT + 1,
            description="in-network, parts of a vector that are summed along a tree each, at once, virtual",
        ),
    ] = 1
    collective: Annotated[
        Operation, Field(description="what workers do together; all but all-reduce by ring, virtual")
    ] = "all-reduce"
    transport: Annotated[
        Transport | Literal["tcp"] | None,
        Field(description="between hosts; left out, selective-repeat, and live tcp; in-network has its own"),
    ] = None
    paths: Annotated[
        PathChoice,
        Field(
            description="between hosts, which of several shortest ones: by flow, by packet, by queue, the first"
        ),
    ] = "ecmp"
    flows_per_pair: Annotated[
        int, Field(ge=1, le=MAX_FLOWS, description="UDP flows that share what a host sends to another")
    ] = 1
    congestion: Annotated[
        Congestion, Field(description="between hosts, what senders do about congestion marks, virtual")
    ] = Congestion()
    compression: Annotated[Compression, Field(description="of what workers send to each other, by ring")] = (
        Compression()
    )
    shards: Annotated[
        int | None, Field(ge=1, description="of a parameter server; left out, one for each worker")
    ] = None
    size: Annotated[VectorSize | None, Field(description="of each worker's vector of float32")] = None
    training: Annotated[Training | None, Field(description="in the place of size: train; live only")] = None
    repetitions: Annotated[int, Field(ge=1, description="all-reduces of one run")] = 1
    window: Annotated[
        int | None, Field(ge=1, le=SLOTS, description="packets in flight from one to another")
    ] = None
    window_per: Annotated[
        WindowScope,
        Field(description="between hosts over UDP, what has a window: each connection, or each host"),
    ] = "connection"
    segments: Annotated[
        int | None,
        Field(ge=1, le=62, description="datagrams in a frame, live, UDP; left out, what suits links"),
    ] = None
    values: Annotated[Literal[64, 256], Field(description="in a packet, in-network")] = 256
    checksums: Annotated[
        bool, Field(description="UDP's, in-network, live; without, each datagram is a frame of its own")
    ] = True
    recovery: Recovery = Recovery()
    coalescing: Annotated[Seconds, Field(description="how late a host notices a packet, virtual")] = 4e-6
    queue_samples: Annotated[
        Annotated[Seconds, Field(gt=0)] | None,
        Field(description="interval at which queue depths are sampled into queues.parquet, virtual"),
    ] = None
    lateness: Annotated[
        Seconds,
        Field(
            description="on average, of a worker's call after the barrier; exponential, drawn by seed, virtual"
        ),
    ] = 0.0
    traffic: Annotated[
        Traffic | None,
        Field(description="of the hosts that do not take part, to one another or to workers, virtual"),
    ] = None
    other_job: Annotated[
        OtherJob | None, Field(description="of the hosts that do not take part, virtual")
    ] = None
    priority: Priority = 0
    step: Annotated[Step | None, Field(description="computing around each all-reduce, virtual")] = None
    parallelism: Annotated[
        Parallelism | None, Field(description="a model cut among the workers, and its steps, virtual")
    ] = None
    faults: Annotated[
        tuple[Fault, ...], Field(description="of links, switches, workers, the controller, virtual")
    ] = ()
    min_workers: Annotated[
        int | None, Field(ge=2, description="the job goes on as long as so many are left, virtual")
    ] = None
    switch: SwitchKind = "embedded"
    program: Annotated[
        Path | None, Field(description="a P4 program in the place of p4src/fanin.p4, beside the scenario")
    ] = None
    compiler: Compiler = "embedded"
    controller: Annotated[
        Path | None, Field(description="a Python file that plans what switches are told, beside the scenario")
    ] = None
    worker: Annotated[
        Path | None, Field(description="a Python file with a worker, in-network, beside the scenario")
    ] = None
    seed: Annotated[int, Field(ge=0)] = 1

    @cached_property
    def network(self) -> Topology:
        """The whole network, the workers' part and the rest, with what `links` says of every link but those overridden.

        But for live loss, which is the program's own, so that it is to be had on every switch.
        """
        own, links, seed = self.topology.network, self.links, 0
        if self.world == "live":
            links, seed = links.model_copy(update={"loss": 0.0}), self.seed
        if not links.given:
            return own
        if links.given.keys() == {"pause"}:  # which leaves the rest as the topology has it
            return own.with_properties(pause=links.pause)
        # Once more, since what is said of one link stands above what is said of all.
        changed = self.topology.unchanged.with_properties(**dict(links), seed=seed)
        return override(changed, self.topology.overrides)

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The workers' hosts, by rank."""
        count = self.workers or len(self.network.hosts)
        return self.hosts or place(self.network, self.placement, count, self.seed)

    @property
    def bystanders(self) -> tuple[str, ...]:
        """The hosts of the network that are no workers, in their order."""
        members = set(self.members)
        return tuple(host.name for host in self.network.ranked_hosts if host.name not in members)

    @property
    def between_hosts(self) -> bool:
        """Whether anything is sent by the transport between hosts: by the job, or beside it."""
        beside = self.other_job is not None and self.other_job.algorithm != "in-network"
        return self.algorithm != "in-network" or self.traffic is not None or beside or self._between_stages

    @property
    def _between_stages(self) -> bool:
        """Whether parts of a model send each other something, which goes from host to host."""
        return self.parallelism is not None and self.parallelism.model > 1

    @property
    def sums(self) -> int:
        """How many the switches of the network make at once: of groups of workers, along so many trees each."""
        return self.trees * (self.parallelism.model if self.parallelism else 1)

    @property
    def prioritized(self) -> bool:
        """Whether links have a queue for each priority; without, all packets are alike."""
        beside = (part for part in (self.traffic, self.other_job) if part is not None)
        return any(part.priority for part in (self, *beside))

    @property
    def host_link(self) -> Link:
        """The first worker's; the others' are taken to be like it."""
        (link,) = self.network.links_of(self.members[0])
        return link

    @property
    def elements(self) -> int | None:
        """float32 values in a vector; None: training's."""
        return None if self.size is None else self.size // ELEMENT_BYTES

    @property
    def key(self) -> str:
        """A name that only equal settings have."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def settled(self) -> Self:
        """With what depends on other settings filled in, and without what has no effect beside them.

        A product over algorithms and transports then has each of its points once.
        """
        changes: dict[str, Any] = {}
        if self.algorithm == "in-network" and not self._between_stages:
            changes |= {"transport": None, "paths": "ecmp", "flows_per_pair": 1}
        else:
            changes |= {
                "transport": self.transport or ("tcp" if self.world == "live" else "selective-repeat")
            }
        if self.algorithm != "in-network":
            changes |= {"checksums": True, "worker": None, "values": 256, "trees": 1}
        if self.algorithm != "parameter-server":
            changes |= {"shards": None}
        if self.parallelism is not None and self.parallelism.pipeline == 1:
            changes |= {"parallelism": self.parallelism.model_copy(update={"schedule": "1f1b"})}
        if not self.between_hosts:
            changes |= {"congestion": Congestion(), "window_per": "connection"}
        if self.algorithm == "in-network":
            changes |= {"compression": Compression()}
        elif self.compression.kind != "top-k":
            changes |= {"compression": Compression(kind=self.compression.kind)}
        return self.model_copy(update=changes)

    def _problems(self) -> Iterator[str]:
        names = [host.name for host in self.network.hosts]
        if self.workers is not None and self.workers > len(names):
            yield f"workers: is {self.workers}, but the topology has {len(names)} hosts; enlarge it"
            return
        if self.hosts and (self.workers is not None or self.placement != "packed"):
            yield "hosts: says who takes part; leave out workers and placement"
        if (self.size is None) == (self.training is None):
            yield "size: give size, as '4 MB', or a table training"
        if FIRST_PEER_PORT + len(self.members) * self.flows_per_pair > 1 << 16:
            ports = (1 << 16) - FIRST_PEER_PORT
            yield f"flows_per_pair: times {len(self.members)} workers must be at most {ports}, the UDP ports left"
        if self.paths != "ecmp" and self.controller:
            yield "paths: the controller that is brought plans the routes; leave out one of them"
        if unknown := sorted(set(self.hosts) - set(names)):
            yield f"hosts: no host is called {', '.join(unknown)}; there are {', '.join(names)}"
        elif (self.hosts or self.algorithm == "in-network") and not self.controller:  # which may place more
            try:
                aggregation_tree(self.network, Job(1, self.members))
            except ControllerError as error:
                yield f"hosts: {error}" if self.hosts else f"topology: {error}"
        if self.step and self.lateness:
            yield "lateness: leave it out beside step, whose variation says how workers differ"
        for table in ("step", "parallelism"):
            slow = [one.host for one in computing.stragglers] if (computing := getattr(self, table)) else []
            if strangers := sorted(set(slow) - set(self.members)):
                hosts = ", ".join(self.members)
                yield f"{table}.stragglers: {', '.join(strangers)} is not a worker's host; those are {hosts}"
            if len(set(slow)) < len(slow):
                yield f"{table}.stragglers: names a host twice; give each one factor"
        ring = self.algorithm == "ring" and self.collective == "all-reduce"
        if self.compression.kind != "none" and self.algorithm != "in-network" and not ring:
            yield "compression: is gathered round a ring; set algorithm = 'ring', and leave out collective"
        yield from fault_problems(self.faults, self.network, self.members)
        yield from self._not_virtual() if self.world == "virtual" else self._not_live()

    def _not_virtual(self) -> Iterator[str]:
        if self.switch != "embedded":
            yield f"switch: {self.switch!r} cannot run in virtual time; set world = 'live'"
        if self.training is not None:
            yield "training: is live only; set world = 'live', or size in its place"
        if not self.checksums:
            yield "checksums: is live only; leave it out, or set world = 'live'"
        if self.segments is not None:
            yield "segments: is live only; leave it out, or set world = 'live'"
        if not self.topology.offload:
            yield "topology.offload: is live only; leave it out, or set world = 'live'"
        try:
            Timers(**self.recovery.model_dump(exclude_none=True))
        except ValueError as error:
            yield f"recovery: {error}"
        beside = self.bystanders
        needed = {
            "traffic": self.traffic.hosts if self.traffic else 0,
            "other_job": 2 if self.other_job else 0,
        }
        for name, count in needed.items():
            if len(beside) < count:
                hosts = "two hosts that are not workers" if count == 2 else "a host that is not a worker"
                yield f"{name}: needs {hosts}, and there are {len(beside)}; set workers"
        if self.min_workers is not None:
            if self.min_workers > len(self.members):
                yield f"min_workers: is {self.min_workers}, more than the {len(self.members)} workers; make it less"
            if self.collective != "all-reduce" or self.compression.kind != "none":
                yield "min_workers: is of plain all-reduces; leave out collective and compression"
        if self.traffic is not None and self.other_job is not None:
            yield "other_job: has all hosts that traffic would need; leave out one of them"
        if self.other_job is not None:
            window = self.window or VIRTUAL_WINDOW
            trees = self.trees if self.algorithm == "in-network" else 1
            if trees * window + (self.other_job.window or window) > SLOTS:
                own = f"window for each of {trees} trees" if trees > 1 else "window"
                yield f"other_job.window: and {own} are more than the {SLOTS:,} slots of a switch; make one smaller"
        if self.traffic is not None:
            rates = {self.network.links_of(name)[0].rate_bits_per_second for name in beside}
            if None in rates and self.traffic.load is not None:
                yield "traffic.load: is a share of the hosts' links, which have no rate; set topology's rate"
        yield from self._not_parallel()
        if self.collective != "all-reduce":
            if self.algorithm != "ring":
                yield f"collective: {self.collective!r} goes from host to host; set algorithm = 'ring'"
            if self.step:
                yield f"collective: {self.collective!r} has no place in a step, which sums gradients; leave out one"
        if self.collective == "all-to-all" and self.elements and self.elements % len(self.members):
            yield f"size: must be a multiple of {ELEMENT_BYTES * len(self.members)} bytes, a part for each worker"
        if self.congestion.control.startswith("dcqcn") and self.between_hosts:
            rates = {self.network.links_of(host.name)[0].rate_bits_per_second for host in self.network.hosts}
            if None in rates:
                yield "congestion.control: DCQCN begins with the rate of a host's link; set topology's rate"
        if self.transport == "tcp":
            yield "transport: 'tcp' is live only; set 'selective-repeat', 'go-back-n', or world = 'live'"

    def _not_parallel(self) -> Iterator[str]:
        if self.parallelism is not None:
            yield from self.parallelism.problems(len(self.members), self.elements or 0)
            fields = type(self).model_fields
            for name in _NOT_PARALLEL:
                if getattr(self, name) != fields[name].default:
                    yield f"{name}: has no place beside parallelism; leave out one of them"
        if self.algorithm == "in-network":
            jobs = LAST_UDP_PORT - FIRST_UDP_PORT + 1
            beside = self.other_job is not None and self.other_job.algorithm == "in-network"
            if self.trees + beside > jobs:
                yield f"trees: is {self.trees}, and switches know {jobs} sums at once, with other_job; make it fewer"
            elif self.sums > jobs:
                yield (
                    f"parallelism: makes {self.sums} sums of gradients, and switches know {jobs} at once; "
                    "set fewer trees, or algorithm = 'ring'"
                )
            elif (self.window or 1) * self.sums > SLOTS:
                yield (
                    f"window: is {self.window} for each of {self.sums} sums at once, more than the {SLOTS:,} slots "
                    "of a switch; make it smaller"
                )
            if (self.elements or SLOTS) < self.sums:
                yield f"trees: is {self.trees}, and vectors have {self.elements} values; make it fewer"

    def _not_live(self) -> Iterator[str]:
        for name in _VIRTUAL_ONLY:
            if getattr(self, name) != type(self).model_fields[name].default:
                yield f"{name}: is virtual only; leave it out, or set world = 'virtual'"
        if self.flows_per_pair > 1 and self.transport in (None, "tcp") and self.algorithm != "in-network":
            yield "flows_per_pair: tcp has one; set transport = 'selective-repeat' or 'go-back-n'"
        for name in VIRTUAL_ONLY:
            if name in self.links.given:
                yield f"links.{name}: is virtual only; leave it out, or set world = 'virtual'"
        emulated = [name for name in self.links.given if name not in ("loss", *VIRTUAL_ONLY)]
        if self.links.corruption and not self.checksums and self.algorithm == "in-network":
            yield "checksums: without them links that corrupt change sums; leave it out, or set links.corruption = 0"
        if self.switch == "bmv2" and emulated:
            yield f"links.{emulated[0]}: BMv2 emulates no links; set switch = 'embedded', or leave it out"


def table_in(annotation: Any) -> type[BaseModel] | None:
    """The table that a field holds, one or several; None: it holds values."""
    choices = (annotation, *get_args(annotation))
    return next((c for c in choices if isinstance(c, type) and issubclass(c, BaseModel)), None)


def _single_valued(table: type[BaseModel], above: KeyPath = ()) -> Iterator[KeyPath]:
    for name, field in table.model_fields.items():
        if get_origin(field.annotation) is tuple:
            continue
        inner = table_in(field.annotation)
        if (
            inner is LinkProperties
        ):  # of a topology; keys of these names are those of `links`, for all of them
            continue
        if inner is None:
            yield (*above, name)
        else:
            yield from _single_valued(inner, (*above, name))


# Tables whose names are a part of their keys' short names.
_IN_NAMES = {
    "burst",
    "compression",
    "congestion",
    "fat_tree",
    "other_job",
    "parallelism",
    "servers",
    "step",
    "traffic",
    "watchdog",
}


def _short_name(path: KeyPath) -> str:
    return "_".join(path[-2:]) if _IN_NAMES.intersection(path) else path[-1]


# Every key that holds a single value by a short name, which is its column in results, too: loss is links.loss.
KEYS: Mapping[str, KeyPath] = {
    _short_name(path): path for path in _single_valued(Settings) if path != ("topology", "name")
}


def setting_columns(settings: Settings) -> dict[str, str | int | float | None]:
    """Every key of KEYS, and what the network makes of the settings."""
    columns: dict[str, str | int | float | None] = {}
    for name, path in KEYS.items():
        value: Any = settings
        for part in path:
            value = None if value is None else getattr(value, part)
        columns[name] = str(value) if isinstance(value, Path) else value
    return columns | {
        "topology": settings.network.name,
        "workers": len(settings.members),
        "elements": settings.elements,
        "hosts": " ".join(settings.members),
    }
