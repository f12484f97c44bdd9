"""The settings of one run: its network, its job, its world. A scenario file describes one or many of them (file.py)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema
from pydantic_core import PydanticKnownError

from fanin.controller.errors import ControllerError
from fanin.controller.plan import PathChoice
from fanin.controller.tree import FIRST_UDP_PORT, LAST_UDP_PORT, SLOTS, Job, aggregation_tree
from fanin.experiments.protocol import OURS, Protocol, protocol_of
from fanin.experiments.scenario.placement import Placement, place
from fanin.experiments.scenario.tables.arrivals import Arrivals
from fanin.experiments.scenario.tables.compression import Compression
from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.experiments.scenario.tables.decoding import Decoding
from fanin.experiments.scenario.tables.failures import Failures
from fanin.experiments.scenario.tables.faults import Fault, fault_problems
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
from fanin.experiments.schedule_file import SUFFIXES, is_file, problem_of
from fanin.experiments.workloads.neural_networks import DTYPE_BYTES
from fanin.topologies.link import VIRTUAL_ONLY, LinkModel, LinkProperties
from fanin.topologies.model import Link, Topology
from fanin.topologies.override import override
from fanin.topologies.units import Seconds
from fanin.workers import wire
from fanin.workers.collective import Algorithm, Operation, Transport, WindowScope
from fanin.workers.host_based.algorithms.registry import algorithm_names
from fanin.workers.host_based.congestion_control import MakeControl
from fanin.workers.host_based.transport import FIRST_PEER_PORT, MAX_FLOWS, MAX_PAYLOAD, PAYLOAD
from fanin.workers.values import quantization

VIRTUAL_WINDOW = 512  # packets that a worker may have in flight, unless a scenario says otherwise

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

# Keys of Settings that work in virtual time only; link.VIRTUAL_ONLY has those of links.
_VIRTUAL_ONLY = (
    *("lateness", "step", "traffic", "other_job", "collective", "congestion"),
    *(
        "tcp",
        "payload",
        "priority",
        "faults",
        "min_workers",
        "parallelism",
        "workload",
        "trees",
        "queue_samples",
    ),
    *("failures", "decoding", "serving", "arrivals", "storage"),
)

# Keys that a table parallelism replaces, or that do not work for a model that is cut.
_NOT_PARALLEL = (
    *("lateness", "step", "traffic", "other_job", "collective"),
    *("compression", "sparsity", "faults", "min_workers", "failures", "storage"),
)

# Keys that do not work with a trace of a training.
_NOT_WITH_TRACE = (*_NOT_PARALLEL, "parallelism")


def _known_or_file(algorithm: str) -> str:
    """Return the name of an algorithm, or of a file."""
    if is_file(algorithm) or algorithm in (names := algorithm_names()):
        return algorithm
    expected = f"{', '.join(map(repr, names))}, or a file of yours, such as {algorithm}{SUFFIXES[0]}"
    raise PydanticKnownError("literal_error", {"expected": expected})


KeyPath = tuple[str, ...]  # the tables that contain a key, and its name


class Settings(Table):
    """One point of a scenario: everything that a run depends on."""

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
        return self._outside[: len(self._outside) - self._servers_needed]

    @property
    def file_servers(self) -> tuple[str, ...]:
        """Return the hosts of file servers, the last ones among the bystanders."""
        return self.bystanders[-self.storage.servers :] if self.storage else ()

    @property
    def servers(self) -> tuple[str, ...]:
        """Return the hosts of parameter servers: one for each tree, then one for each other job in the network."""
        return self._outside[len(self._outside) - self._servers_needed :]

    @cached_property
    def _outside(self) -> tuple[str, ...]:
        """Return the hosts without workers, in the network's order."""
        members = set(self.members)
        return tuple(host.name for host in self.network.ranked_hosts if host.name not in members)

    @cached_property
    def _servers_needed(self) -> int:
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
        return "sample" if values > CHECKED_VALUES and not self._only_whole else "all"

    @property
    def _only_whole(self) -> str:
        """Return why results can be checked only if all of them are; empty if blocks can be checked by themselves."""
        if self.compression.kind != "none" and self.algorithm != "in-network":
            return "compression depends on whole vectors"
        algorithms = (self.algorithm, self.other_job.algorithm if self.other_job else None)
        if self.protocol != OURS and "in-network" in algorithms:
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
            if self.other_job is None or self.other_job.algorithm != "in-network":
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
        names = [host.name for host in self.network.hosts]
        if self.workers is not None and self.workers > len(names):
            yield f"workers: is {self.workers}, but the topology has {len(names)} hosts; enlarge it"
            return
        if is_file(self.algorithm) and (problem := problem_of(self.algorithm, len(self.members))):
            yield f"algorithm: {problem}"
        if self.hosts and (self.workers is not None or self.placement != "packed"):
            yield "hosts: replaces workers and placement; leave those out"
        if [self.size, self.training, self.decoding, self.serving, self.arrivals].count(None) != 4:
            yield "size: give size, such as '4 MB', or one of the tables training, decoding, serving and arrivals"
        if self.training is not None and self.sparsity:
            yield "sparsity: is that of random vectors, and a training has gradients; leave out one of them"
        if self._servers_needed > len(self._outside):
            needed, there = self._servers_needed, len(self._outside)
            hosts = "a host" if needed == 1 else f"{needed} hosts"
            yield (
                f"protocol: {self.implementation.name} needs {hosts} without workers for its servers, and there are "
                f"{there}; set workers, or enlarge the topology"
            )
            return
        if self.algorithm == "in-network" and wire.BITS[self.values] == 16:
            if self.protocol != OURS:
                yield f"values: {self.values} are integers of 16 bits, which {self.implementation.name} does not have"
            elif len(self.members) > (most := quantization.MAX_WORKERS[16]):
                yield f"values: {self.values} are integers of 16 bits, for {most} workers at most; set 64 or 256"
            if self.workload is not None and DTYPE_BYTES[self.workload.dtype] < ELEMENT_BYTES:
                yield (
                    f"workload.dtype: is {self.workload.dtype!r}, whose bytes values = {self.values} halves again; "
                    "set dtype = 'fp32', of which each gradient travels as an integer of 16 bits"
                )
        if FIRST_PEER_PORT + len(self.members) * self.flows_per_pair > 1 << 16:
            ports = (1 << 16) - FIRST_PEER_PORT
            yield f"flows_per_pair: times {len(self.members)} workers must be at most {ports}, the UDP ports left"
        if self.paths != "ecmp" and self.controller:
            yield "paths: the user's own controller plans the routes; leave out one of them"
        if unknown := sorted(set(self.hosts) - set(names)):
            yield f"hosts: no host is called {', '.join(unknown)}; there are {', '.join(names)}"
        elif (
            self.hosts or self.algorithm == "in-network"
        ) and not self.controller:  # it may allow other trees
            try:
                aggregation_tree(self.network, Job(1, self.members, server=next(iter(self.servers), None)))
            except ControllerError as error:
                yield f"hosts: {error}" if self.hosts else f"topology: {error}"
        if self.check == "sample" and self._only_whole:
            yield f"check: a sample cannot be checked, because {self._only_whole}; set 'all' or 'none'"
        if self.step and self.step.buckets and self.size != sum(one.size for one in self.step.buckets):
            yield "size: must be that of all step.buckets together; leave them out, or change it"
        if self.step and self.lateness:
            yield "lateness: cannot be combined with step; use step.variation to make workers differ"
        for table in ("step", "parallelism"):
            slow = [one.host for one in computing.stragglers] if (computing := getattr(self, table)) else []
            if strangers := sorted(set(slow) - set(self.members)):
                hosts = ", ".join(self.members)
                yield f"{table}.stragglers: {', '.join(strangers)} is not a worker's host; those are {hosts}"
            if len(set(slow)) < len(slow):
                yield f"{table}.stragglers: names a host twice; give each one factor"
        ring = self.algorithm == "ring" and self.collective == "all-reduce"
        if self.compression.kind != "none" and self.algorithm != "in-network" and not ring:
            yield "compression: works with a ring only; set algorithm = 'ring', and leave out collective"
        yield from fault_problems(self.faults, self.network, self.members)
        yield from self._not_virtual() if self.world == "virtual" else self._not_live()

    def _not_virtual(self) -> Iterator[str]:
        if self.switch != "embedded":
            yield f"switch: {self.switch!r} cannot run in virtual time; set world = 'live'"
        if self.training is not None:
            yield from self.training.problems(len(self.members))
        for table in [
            name
            for name in ("training", "decoding", "serving", "arrivals")
            if getattr(self, name) is not None
        ]:
            for name in self._changed(*_NOT_PARALLEL, "parallelism", "repetitions"):
                yield f"{name}: cannot be combined with {table}; leave out one of them"
        if not self.checksums:
            yield "checksums: is live only; leave it out, or set world = 'live'"
        if self.segments is not None:
            yield "segments: is live only; leave it out, or set world = 'live'"
        if not self.topology.offload:
            yield "topology.offload: is live only; leave it out, or set world = 'live'"
        bystanders = self.bystanders
        needed = {
            "traffic": self.traffic.hosts if self.traffic else 0,
            "other_job": 2 * self.other_job.jobs if self.other_job else 0,
            "serving": 1 if self.serving else 0,
            "storage": self.storage.servers if self.storage else 0,
        }
        for name, count in needed.items():
            if len(bystanders) < count:
                words = {1: "a host that is not a worker", 2: "two hosts that are not workers"}
                hosts = words.get(count, f"{count} hosts that are not workers")
                yield f"{name}: needs {hosts}, and there are {len(bystanders)}; set workers"
        if self.min_workers is not None:
            if self.min_workers > len(self.members):
                yield f"min_workers: is {self.min_workers}, more than the {len(self.members)} workers; reduce it"
            if self.collective != "all-reduce" or self.compression.kind != "none":
                yield "min_workers: works with plain all-reduces only; leave out collective and compression"
        if self.arrivals is not None:
            yield from self.arrivals.problems(len(self.members), algorithm_names())
            if self.implementation.make_server is not None and not self._outside:
                yield f"workers: jobs of protocol {self.implementation.name} need hosts for servers; leave some out"
            if self.trees > 1:
                yield "trees: cannot be combined with arrivals; leave out one of them"
        if self.serving is not None:
            yield from self.serving.problems(len(self.members))
        if self.failures is not None and (self.step is None or self.traffic is None):
            yield "failures: needs a table step, and a table traffic with pattern = 'checkpoint'; add them"
        elif self.failures is not None and self.traffic is not None and self.traffic.pattern != "checkpoint":
            yield f"traffic.pattern: is {self.traffic.pattern!r}, but failures need 'checkpoint'"
        elif self.failures and self.traffic and (self.traffic.duration or 0) > (self.traffic.period or 0):
            yield "traffic.duration: failures need one checkpoint; set it to traffic.period at most"
        if self.topology.reconfiguration is not None:
            yield from self._not_over_circuits()
        if self.storage is not None:
            if self.step is None:
                yield "storage: needs a table step, whose steps wait for their data; add it"
            if self.repetitions < 2:
                yield "repetitions: storage needs at least 2 steps, since the first one does not count; set it"
            for name in self._changed("traffic", "other_job", "faults", "min_workers"):
                yield f"{name}: cannot be combined with storage; leave out one of them"
        if self.traffic is not None and self.other_job is not None:
            yield "other_job: uses all hosts that traffic would need; leave out one of them"
        if self.other_job is not None:
            window = self.window or VIRTUAL_WINDOW
            trees = self.trees if self.algorithm == "in-network" else 1
            others = self.other_job.jobs * (self.other_job.window or window)
            if self.shared_slots is None and trees * window + others > SLOTS:
                own = f"window for each of {trees} trees" if trees > 1 else "window"
                yield f"other_job.window: together with {own} exceeds the {SLOTS:,} slots of a switch; reduce one"
        if self.traffic is not None:
            yield from self.traffic.problems(len(self.network.hosts))
            rates = {self.network.links_of(name)[0].rate_bits_per_second for name in bystanders}
            if None in rates and self.traffic.load is not None:
                yield "traffic.load: is a share of the hosts' links, which have no rate; set the topology's rate"
        yield from self._not_parallel()
        if self.collective != "all-reduce":
            yield from self._no_exchange()
            if self.step:
                yield f"collective: {self.collective!r} cannot be combined with step; leave out one of them"
        if self.collective == "all-to-all" and self.elements and self.elements % len(self.members):
            yield f"size: must be a multiple of {ELEMENT_BYTES * len(self.members)} bytes, a part for each worker"
        if self.congestion.control.startswith("dcqcn") and self.between_hosts:
            rates = {self.network.links_of(host.name)[0].rate_bits_per_second for host in self.network.hosts}
            if None in rates:
                yield "congestion.control: DCQCN starts at the rate of a host's link; set the topology's rate"

    def _no_exchange(self) -> Iterator[str]:
        """Yield why an operation other than all-reduce cannot be carried out."""
        if self.algorithm not in ("ring", "in-network"):
            yield f"collective: {self.collective!r} needs algorithm = 'ring' or 'in-network'"
        if self.algorithm != "in-network":
            return
        if self.collective == "all-to-all":
            yield "collective: 'all-to-all' goes from host to host; set algorithm = 'ring'"
        if not self.implementation.ours or self.worker is not None:
            yield f"collective: only fanin's own protocol and worker do {self.collective!r}; set algorithm = 'ring'"
        if self.trees > 1:
            yield f"trees: {self.collective!r} has one tree; leave it out"
        if self.faults:
            yield f"faults: cannot be combined with {self.collective!r} in the network; set algorithm = 'ring'"

    def _not_over_circuits(self) -> Iterator[str]:
        if len(self.network.switches) > 1:
            count = len(self.network.switches)
            yield f"topology.reconfiguration: an optical switch is the only one, and there are {count}; leave it out"
        if self.algorithm == "in-network":
            yield "algorithm: an optical switch adds up nothing; set algorithm = 'ring', or another one between hosts"
        for name in self._changed(
            *("traffic", "other_job", "storage", "serving", "arrivals", "parallelism", "workload"),
            *("training", "decoding", "faults", "min_workers"),
        ):
            yield f"{name}: cannot be combined with topology.reconfiguration; leave out one of them"

    def _not_parallel(self) -> Iterator[str]:
        if (self.parallelism or (self.workload and self.workload.trace)) and self._servers_needed:
            yield f"protocol: {self.implementation.name} has servers, which work with plain all-reduces only"
        if self.parallelism is not None:
            yield from self.parallelism.problems(len(self.members), self.elements or 0)
            for name in self._changed(*_NOT_PARALLEL):
                yield f"{name}: cannot be combined with parallelism; leave out one of them"
        if self.workload is not None and self.workload.trace:
            for name in self._changed(*_NOT_WITH_TRACE):
                yield f"{name}: cannot be combined with workload.trace; leave out one of them"
            if self.repetitions > 1:
                yield "repetitions: cannot be combined with workload.trace, which has its own steps; leave it out"
        if self.algorithm == "in-network":
            jobs = LAST_UDP_PORT - FIRST_UDP_PORT + 1
            other = self.other_job is not None and self.other_job.algorithm == "in-network"
            if self.trees + (self.other_job.jobs if other and self.other_job else 0) > jobs:
                yield f"trees: is {self.trees}, but switches make {jobs} sums at once, with other_job; reduce it"
            elif self.sums > jobs:
                yield (
                    f"parallelism: needs {self.sums} sums of gradients, but switches make {jobs} at once; "
                    "set fewer trees, or algorithm = 'ring'"
                )
            elif self.shared_slots is None and (self.window or 1) * self.sums > SLOTS:
                yield (
                    f"window: is {self.window} for each of {self.sums} sums at once, more than the {SLOTS:,} slots "
                    "of a switch; reduce it"
                )
            if (self.elements or SLOTS) < self.sums:
                yield f"trees: is {self.trees}, but vectors have {self.elements} values; reduce it"

    def _changed(self, *names: str) -> list[str]:
        """Return those of these keys that do not have their default."""
        return [name for name in names if getattr(self, name) != type(self).model_fields[name].default]

    def _not_live(self) -> Iterator[str]:
        for name in self._changed(*_VIRTUAL_ONLY):
            yield f"{name}: is virtual only; leave it out, or set world = 'virtual'"
        if self.flows_per_pair > 1 and self.transport in (None, "tcp") and self.algorithm != "in-network":
            yield "flows_per_pair: tcp has one flow; set transport = 'selective-repeat' or 'go-back-n'"
        for name in ("local_steps", "compute_time", "stalls", "stall_time", "split") if self.training else ():
            if getattr(self.training, name) != Training.model_fields[name].default:
                yield f"training.{name}: is virtual only; leave it out, or set world = 'virtual'"
        if self.topology.reconfiguration is not None:
            yield "topology.reconfiguration: is virtual only; leave it out, or set world = 'virtual'"
        for name in VIRTUAL_ONLY:
            if name in self.links.given:
                yield f"links.{name}: is virtual only; leave it out, or set world = 'virtual'"
        emulated = [name for name in self.links.given if name not in ("loss", *VIRTUAL_ONLY)]
        if self.links.corruption and not self.checksums and self.algorithm == "in-network":
            yield "checksums: without them, corruption changes sums; leave it out, or set links.corruption = 0"
        if self.switch == "bmv2" and emulated:
            yield f"links.{emulated[0]}: BMv2 emulates no links; set switch = 'embedded', or leave it out"
        if self.switch == "bmv2" and self.loopback is not None:
            yield (
                f"protocol: {self.implementation.name} needs a loopback port with a delay, and BMv2 delays no packets; "
                "set switch = 'embedded'"
            )


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


def setting_columns(settings: Settings) -> dict[str, str | int | float | None]:
    """Return every key of KEYS, and columns that the network derives from the settings."""
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
        "intensity": settings.workload.intensity if settings.workload else None,
    }
