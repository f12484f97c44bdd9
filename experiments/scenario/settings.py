"""The settings of one run: its network, its job, its world. A scenario file describes one or many of them (file.py)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema
from pydantic_core import PydanticKnownError

from fanin.controller.plan import PathChoice
from fanin.controller.tree import FIRST_UDP_PORT, LAST_UDP_PORT, SLOTS
from fanin.experiments.protocol import OURS, Protocol, protocol_of
from fanin.experiments.scenario.placement import Placement, place
from fanin.experiments.scenario.problems import problems
from fanin.experiments.scenario.tables.arrivals import Arrivals
from fanin.experiments.scenario.tables.compression import Compression
from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.experiments.scenario.tables.decoding import Decoding
from fanin.experiments.scenario.tables.failures import Failures
from fanin.experiments.scenario.tables.faults import Fault
from fanin.experiments.scenario.tables.other_job import OtherJob
from fanin.experiments.scenario.tables.parallelism import Parallelism
from fanin.experiments.scenario.tables.recovery import Recovery
from fanin.experiments.scenario.tables.serving import Serving
from fanin.experiments.scenario.tables.step import Step
from fanin.experiments.scenario.tables.storage import Storage
from fanin.experiments.scenario.tables.table import Priority, Table
from fanin.experiments.scenario.tables.tcp import Tcp
from fanin.experiments.scenario.tables.topology import TopologySettings
from fanin.experiments.scenario.tables.traffic import Traffic
from fanin.experiments.scenario.tables.training import Training
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES, VectorSize
from fanin.experiments.scenario.tables.workload import Workload
from fanin.experiments.scenario.tools import Compiler, SwitchKind
from fanin.experiments.schedule_file import SUFFIXES, is_file
from fanin.topologies.link import LinkModel, LinkProperties
from fanin.topologies.model import Link, Topology
from fanin.topologies.override import override
from fanin.topologies.units import Seconds
from fanin.workers.collective import Algorithm, Operation, Transport, WindowScope
from fanin.workers.collective_worker import IN_SWITCHES
from fanin.workers.host_based.algorithms.registry import algorithm_names
from fanin.workers.host_based.congestion_control import MakeControl
from fanin.workers.host_based.transport import MAX_FLOWS, MAX_PAYLOAD, PAYLOAD

Check = Literal["all", "sample", "none"]
CHECKED_VALUES = 1 << 30  # of all vectors together, of which all are checked; of more, a sample

AUTO = "auto"  # in a scenario file, stands for the algorithm that file.py chooses for each point

FILES = (
    "program",
    "controller",
    "worker",
    "protocol",
    "algorithm",
)  # keys whose values are the user's own files or folder


def _known_or_file(algorithm: str) -> str:
    """Return the name of an algorithm, or of a file."""
    if is_file(algorithm) or algorithm in (names := algorithm_names()):
        return algorithm
    expected = f"{', '.join(map(repr, names))}, or a file of yours, such as {algorithm}{SUFFIXES[0]}"
    raise PydanticKnownError("literal_error", {"expected": expected})


KeyPath = tuple[str, ...]  # the tables that contain a key, and its name
_OF_NETWORK = {"world", "topology", "links", "seed"}  # keys that the network depends on


class Settings(Table):
    """One point of a scenario: everything that a run depends on."""

    # Packets that a worker may have in flight in virtual time, unless a scenario has another number.
    VIRTUAL_WINDOW: ClassVar[int] = 512

    world: Annotated[
        Literal["virtual", "live"], Field(description="run in virtual time, or on a live network")
    ] = "virtual"
    topology: Annotated[TopologySettings, Field(description="the network: a table, or a TOML file with one")]
    links: Annotated[LinkModel, Field(description="what every link does to packets, in each direction")] = (
        LinkModel()
    )
    workers: Annotated[
        int | None, Field(ge=2, description="number of hosts that take part; default: all hosts")
    ] = None
    placement: Annotated[
        Placement, Field(description="how hosts are chosen for the workers, in the order of ranks")
    ] = "packed"
    hosts: Annotated[
        tuple[str, ...], Field(description="the workers' hosts by rank; replaces workers and placement")
    ] = ()
    algorithm: Annotated[
        Algorithm,
        AfterValidator(_known_or_file),
        WithJsonSchema(
            {
                "anyOf": [
                    {"enum": [*algorithm_names(), AUTO], "type": "string"},
                    {"pattern": rf"({'|'.join(map(re.escape, SUFFIXES))})$", "type": "string"},
                ]
            }
        ),
        Field(
            description="the all-reduce algorithm, or a file with a schedule, relative to this file; auto: the one "
            "that the analytical model predicts to be fastest"
        ),
    ] = "in-network"
    trees: Annotated[
        int,
        Field(
            ge=1,
            le=LAST_UDP_PORT - FIRST_UDP_PORT + 1,
            description="in-network, virtual: parts of a vector summed at the same time, each along its own tree",
        ),
    ] = 1
    collective: Annotated[
        Operation,
        Field(
            description="virtual: the collective operation; all but all-reduce need a ring, or in the network fanin's "
            "own protocol"
        ),
    ] = "all-reduce"
    transport: Annotated[
        Transport | None,
        Field(description="between hosts: the transport; default: selective-repeat, in live networks tcp"),
    ] = None
    paths: Annotated[
        PathChoice,
        Field(
            description="between hosts: choice among shortest paths by flow, by packet, by queue, or the first"
        ),
    ] = "ecmp"
    flows_per_pair: Annotated[
        int, Field(ge=1, le=MAX_FLOWS, description="UDP flows between two hosts, which share the data")
    ] = 1
    tcp: Annotated[Tcp, Field(description="virtual: processor time and timers of the transport tcp")] = Tcp()
    congestion: Annotated[
        Congestion, Field(description="between hosts, virtual: how senders react to congestion marks")
    ] = Congestion()
    compression: Annotated[Compression, Field(description="ring: how workers compress vectors")] = (
        Compression()
    )
    shards: Annotated[
        int | None,
        Field(ge=1, description="parameter server: number of shards; default: one for each worker"),
    ] = None
    size: Annotated[VectorSize | None, Field(description="size of each worker's float32 vector")] = None
    training: Annotated[
        Training | None, Field(description="a training of a small model; replaces size and repetitions")
    ] = None
    decoding: Annotated[
        Decoding | None,
        Field(description="virtual: a model that generates text; replaces size and repetitions"),
    ] = None
    serving: Annotated[
        Serving | None,
        Field(
            description="virtual: requests that workers answer; replaces all-reduces, and so size and repetitions"
        ),
    ] = None
    arrivals: Annotated[
        Arrivals | None,
        Field(description="virtual: jobs that arrive and leave by a trace; replaces size and repetitions"),
    ] = None
    repetitions: Annotated[int, Field(ge=1, description="number of all-reduces in a run")] = 1
    window: Annotated[
        int | None,
        Field(ge=1, le=SLOTS, description="packets that a worker, or a connection, may have in flight"),
    ] = None
    slots: Annotated[
        int | None,
        Field(
            ge=1,
            le=SLOTS,
            description="in-network: slots of a switch, if the protocol's jobs share them; default: all",
        ),
    ] = None
    loopback_delay: Annotated[
        Annotated[Seconds, Field(gt=0, le=1)] | None,
        Field(
            description="in-network: time for which switches hold a chunk, in protocols with loopback ports; default: "
            "the protocol's"
        ),
    ] = None
    window_per: Annotated[
        WindowScope,
        Field(description="between hosts over UDP: a window for each connection or for each host"),
    ] = "connection"
    segments: Annotated[
        int | None,
        Field(ge=1, le=62, description="live, UDP: datagrams in a frame; default: what suits the links"),
    ] = None
    payload: Annotated[
        int,
        Field(
            ge=64,
            le=MAX_PAYLOAD,
            multiple_of=ELEMENT_BYTES,
            description="between hosts, virtual: bytes of a vector in a full packet, such as 4096 or 8192 (jumbo)",
        ),
    ] = PAYLOAD
    values: Annotated[
        Literal[64, 128, 256, 512],
        Field(description="in-network: integers in a packet: 64 or 256 of 32 bits, 128 or 512 of 16 bits"),
    ] = 256
    checksums: Annotated[
        bool,
        Field(description="in-network, live: UDP checksums; without them, each datagram has its own frame"),
    ] = True
    recovery: Annotated[Recovery, Field(description="timers of retransmission")] = Recovery()
    sparsity: Annotated[
        float,
        Field(ge=0, le=1, description="share of blocks of 256 elements in which a worker's vector is 0"),
    ] = 0.0
    coalescing: Annotated[
        Seconds, Field(description="virtual: time until a host notices a packet that has arrived")
    ] = 4e-6
    queue_samples: Annotated[
        Annotated[Seconds, Field(gt=0)] | None,
        Field(description="virtual: interval at which queue depths are sampled into queues.parquet"),
    ] = None
    lateness: Annotated[
        Seconds,
        Field(
            description="virtual: mean delay of a worker's call after the barrier; exponential, drawn by seed"
        ),
    ] = 0.0
    traffic: Annotated[
        Traffic | None,
        Field(description="virtual: traffic of hosts outside the job, to one another or to workers"),
    ] = None
    other_job: Annotated[
        OtherJob | None, Field(description="virtual: another job, on hosts outside this one")
    ] = None
    priority: Priority = 0
    step: Annotated[Step | None, Field(description="virtual: the computation of a training step")] = None
    storage: Annotated[
        Storage | None,
        Field(
            description="virtual: file servers from which steps get their data, and which take checkpoints"
        ),
    ] = None
    parallelism: Annotated[
        Parallelism | None, Field(description="virtual: a model cut among the workers, and its steps")
    ] = None
    workload: Annotated[
        Workload | None, Field(description="virtual: the training of a published model, or a trace of one")
    ] = None
    faults: Annotated[
        tuple[Fault, ...], Field(description="virtual: faults of links, switches, workers, the controller")
    ] = ()
    failures: Annotated[
        Failures | None,
        Field(description="virtual: a training of many such steps that fails, and its checkpoints"),
    ] = None
    min_workers: Annotated[
        int | None, Field(ge=2, description="virtual: the job continues while so many workers remain")
    ] = None
    switch: Annotated[SwitchKind, Field(description="live: fanin's own switch, or BMv2")] = "embedded"
    protocol: Annotated[
        str,
        Field(description="in-network: a protocol that comes with fanin, or a folder, relative to this file"),
    ] = OURS
    program: Annotated[
        Path | None, Field(description="P4 program that replaces the protocol's, relative to this file")
    ] = None
    compiler: Annotated[Compiler, Field(description="fanin's own P4 compiler, or p4c")] = "embedded"
    controller: Annotated[
        Path | None, Field(description="Python file that plans the switches' tables, relative to this file")
    ] = None
    worker: Annotated[
        Path | None, Field(description="in-network: Python file with a worker, relative to this file")
    ] = None
    check: Annotated[
        Check | None,
        Field(
            description="results to compare with exact sums: all, a sample of one packet in 16, or none; default: all "
            "if the workers' vectors have up to 2^30 values together, else sample"
        ),
    ] = None
    seed: Annotated[int, Field(ge=0, description="number that all random draws depend on")] = 1

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with changes, and without what was derived from the values before them."""
        copied = super().model_copy(update=update, deep=deep)
        # Networks are large, and few keys change them.
        kept = (update or {}).keys().isdisjoint(_OF_NETWORK)
        for name in ("members", "outside", "servers_needed", *(() if kept else ("network",))):
            copied.__dict__.pop(name, None)
        return copied

    @cached_property
    def network(self) -> Topology:
        """Return the whole network with the properties that `links` sets on every link without an override.

        In a live network, loss is left out, since the P4 program emulates it, so that it works on every switch.
        """
        own, links, seed = self.topology.network, self.links, 0
        if self.world == "live":
            links, seed = links.model_copy(update={"loss": 0.0}), self.seed
        if not links.given:
            return own
        if links.given.keys() == {"pause"}:  # other properties then keep the topology's values
            return own.with_properties(pause=links.pause)
        # Overrides are applied again, since properties of single links take precedence over those of all links.
        changed = self.topology.unchanged.with_properties(**dict(links), seed=seed)
        return override(changed, self.topology.overrides)

    @cached_property
    def members(self) -> tuple[str, ...]:
        """Return the workers' hosts by rank."""
        count = self.workers or len(self.network.hosts)
        return self.hosts or place(self.network, self.placement, count, self.seed)

    @property
    def implementation(self) -> Protocol:
        """Return the protocol, with the user's own files where the scenario names some."""
        return protocol_of(self.protocol, self.program, self.controller, self.worker)

    @property
    def shared_slots(self) -> int | None:
        """Return how many slots all jobs share; None if each has its own."""
        return (self.slots or SLOTS) if self.implementation.shares_slots else None

    @property
    def loopback(self) -> float | None:
        """Return how long packets take through the loopback ports of switches, in seconds; None if there are none."""
        found = self.implementation.loopback(self.world)
        return found and (self.loopback_delay or found)

    @property
    def bystanders(self) -> tuple[str, ...]:
        """Return the hosts without workers or servers, in the network's order."""
        return self.outside[: len(self.outside) - self.servers_needed]

    @property
    def file_servers(self) -> tuple[str, ...]:
        """Return the hosts of file servers, the last ones among the bystanders."""
        return self.bystanders[-self.storage.servers :] if self.storage else ()

    @property
    def servers(self) -> tuple[str, ...]:
        """Return the hosts of parameter servers: one for each tree, then one for each other job in the network."""
        return self.outside[len(self.outside) - self.servers_needed :]

    @cached_property
    def outside(self) -> tuple[str, ...]:
        """Return the hosts without workers, in the network's order."""
        members = set(self.members)
        return tuple(host.name for host in self.network.ranked_hosts if host.name not in members)

    @cached_property
    def servers_needed(self) -> int:
        """Return how many hosts the servers of the protocol need."""
        if self.implementation.make_server is None:
            return 0
        others = self.other_job
        return (self.trees if self.algorithm == "in-network" else 0) + (
            others.jobs if others is not None and others.algorithm == "in-network" else 0
        )

    @property
    def between_hosts(self) -> bool:
        """Return whether the transport between hosts is used, by the job or by other traffic."""
        other = self.other_job is not None and self.other_job.algorithm != "in-network"
        meanwhile = self.traffic is not None or self.storage is not None or other
        return self.algorithm != "in-network" or meanwhile or self._between_stages

    @property
    def _between_stages(self) -> bool:
        """Return whether workers send data to each other from host to host, next to all-reduces."""
        if (
            self.serving is not None
            or self.arrivals is not None
            or (self.workload is not None and self.workload.trace)
        ):
            return True
        return self.parallelism is not None and self.parallelism.model > 1

    @property
    def sums(self) -> int:
        """Return how many sums the switches make at once: one for each group of workers and each tree."""
        return self.trees * (self.parallelism.model if self.parallelism else 1)

    @property
    def in_switches(self) -> frozenset[Operation]:
        """Return the operations that switches carry out. Workers carry out all others among themselves."""
        if self.algorithm != "in-network":
            return frozenset()
        if not self.implementation.ours or self.trees > 1:
            return frozenset({"all-reduce"})
        return IN_SWITCHES

    @property
    def prioritized(self) -> bool:
        """Return whether links have a queue for each priority; if not, all packets are treated alike."""
        others = (part for part in (self.traffic, self.other_job, self.storage) if part is not None)
        return any(part.priority for part in (self, *others))

    def congestion_control(self, topology: Topology, host: str) -> MakeControl:
        """Return what makes the congestion control of a sender at a host."""
        return self.congestion.control_of(topology, host, self.payload)

    @property
    def traffic_transport(self) -> Transport | None:
        """Return the transport of other traffic; None if there is none."""
        if self.traffic is None:
            return None
        own = self.traffic.transport
        return (self.transport or "selective-repeat") if own == "job" else own

    @property
    def tcp_hosts(self) -> frozenset[str]:
        """Return the hosts that use the transport tcp."""
        members = frozenset(self.members)
        others = frozenset(host.name for host in self.network.hosts) - members
        found = members if self.transport == "tcp" else frozenset()
        if self.traffic is not None and self.traffic_transport == "tcp":
            both = self.traffic.pattern in ("checkpoint", "read", "trace")
            found |= others | members if both else others
        if any(table is not None and table.transport == "tcp" for table in (self.serving, self.storage)):
            found |= members | others
        return found

    @property
    def host_link(self) -> Link:
        """Return the link of the first worker's host; the other workers' links are assumed to be equal."""
        (link,) = self.network.links_of(self.members[0])
        return link

    @property
    def elements(self) -> int | None:
        """Return the number of float32 values in a vector; None for a training, decoding or serving."""
        return None if self.size is None else self.size // ELEMENT_BYTES

    @property
    def checks(self) -> Check:
        """Return which results are compared with the exact ones."""
        if self.check is not None:
            return self.check
        vectors = self.as_vectors
        values = (vectors.elements or 0) * len(self.members) * vectors.repetitions
        return "sample" if values > CHECKED_VALUES and not self.only_whole else "all"

    @property
    def algorithms(self) -> frozenset[str]:
        """Return the algorithms of all its jobs."""
        jobs = self.arrivals.jobs if self.arrivals else ()
        others = {self.other_job.algorithm} if self.other_job else set()
        return frozenset({self.algorithm, *others, *(job.algorithm for job in jobs if job.algorithm)})

    @property
    def only_whole(self) -> str:
        """Return why results can be checked only if all of them are; empty if blocks can be checked by themselves."""
        if self.compression.kind != "none" and self.algorithm != "in-network":
            return "compression depends on whole vectors"
        if self.protocol != OURS and "in-network" in self.algorithms:
            return f"protocol {self.protocol} decides what a whole vector must give"
        return ""

    @property
    def as_vectors(self) -> Self:
        """Return these settings with the vectors that a training, or decoding, sums instead of its table.

        The vector of serving is an answer, and that of arrivals the largest one of a job.
        """
        if self.arrivals is not None:
            size = max(job.size for job in self.arrivals.jobs)
            return self.model_copy(update={"size": size, "repetitions": 1})
        if self.serving is not None:
            size = self.serving.vector_bytes
            return self.model_copy(update={"size": size, "repetitions": 1})
        if self.decoding is not None:
            size, sums = self.decoding.vector_bytes, self.decoding.simulated_sums
            return self.model_copy(update={"decoding": None, "size": size, "repetitions": sums})
        if self.training is None:
            return self
        rounds = self.training.rounds(len(self.members))
        size = self.training.vector_bytes
        return self.model_copy(update={"training": None, "size": size, "repetitions": rounds})

    @property
    def key(self) -> str:
        """Return a name that only equal settings have."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def settled(self) -> Self:
        """Return these settings with derived values filled in, and without values that have no effect.

        A product over algorithms and transports then contains each point only once.
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
        if "in-network" not in self.algorithms:
            changes |= {"protocol": OURS, "slots": None}
        if not self.implementation.shares_slots:
            changes |= {"slots": None}
        if self.implementation.loopback(self.world) is None:
            changes |= {"loopback_delay": None}
        if self.algorithm != "parameter-server":
            changes |= {"shards": None}
        if self.storage is not None:
            changes |= {"storage": self.storage.settled}
        if self.parallelism is not None and self.parallelism.pipeline == 1:
            changes |= {"parallelism": self.parallelism.model_copy(update={"schedule": "1f1b"})}
        if not self.between_hosts:
            changes |= {"congestion": Congestion(), "window_per": "connection", "payload": PAYLOAD}
        if self.algorithm == "in-network":
            changes |= {"compression": Compression()}
        elif self.compression.kind != "top-k":
            changes |= {"compression": Compression(kind=self.compression.kind)}
        settled = self.model_copy(update=changes)
        return settled if settled.tcp_hosts else settled.model_copy(update={"tcp": Tcp()})

    def _problems(self) -> Iterator[str]:
        return problems(self)


def table_in(annotation: Any) -> type[BaseModel] | None:
    """Return the table that a field holds, once or several times; None if it holds values."""
    choices = (annotation, *get_args(annotation))
    return next((c for c in choices if isinstance(c, type) and issubclass(c, BaseModel)), None)


def _single_valued(table: type[BaseModel], above: KeyPath = ()) -> Iterator[KeyPath]:
    for name, field in table.model_fields.items():
        if get_origin(field.annotation) is tuple:
            continue
        inner = table_in(field.annotation)
        if inner is LinkProperties:  # a topology's link properties have no short names; those of `links` have
            continue
        if inner is None:
            yield (*above, name)
        else:
            yield from _single_valued(inner, (*above, name))


# Tables whose names are part of their keys' short names.
_IN_NAMES = {
    "arrivals",
    "burst",
    "compression",
    "congestion",
    "decoding",
    "failures",
    "fat_tree",
    "other_job",
    "parallelism",
    "servers",
    "serving",
    "step",
    "storage",
    "tcp",
    "traffic",
    "watchdog",
    "workload",
}


def _short_name(path: KeyPath) -> str:
    return "_".join(path[-2:]) if _IN_NAMES.intersection(path) else path[-1]


# Short names of all keys with single values; results have columns of the same names. For example, loss is links.loss.
KEYS: Mapping[str, KeyPath] = {
    _short_name(path): path for path in _single_valued(Settings) if path != ("topology", "name")
}


# Columns that only rows with sums in the network have.
OF_SWITCHES = ("protocol", "values")


def setting_columns(settings: Settings) -> dict[str, str | int | float | None]:
    """Return every key of KEYS, and columns that the network derives from the settings.

    Keys that mean nothing between hosts are None there.
    """
    columns: dict[str, str | int | float | None] = {}
    for name, path in KEYS.items():
        value: Any = settings
        for part in path:
            value = None if value is None else getattr(value, part)
        columns[name] = str(value) if isinstance(value, Path) else value
    if "in-network" not in settings.algorithms:
        columns |= dict.fromkeys(OF_SWITCHES)
    return columns | {
        "topology": settings.network.name,
        "workers": len(settings.members),
        "elements": settings.elements,
        "hosts": " ".join(settings.members),
        "intensity": settings.workload.intensity if settings.workload else None,
    }
