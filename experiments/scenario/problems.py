"""Settings of a run that do not work together: the checks across the keys of a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fanin.controller.errors import ControllerError
from fanin.controller.tree import FIRST_UDP_PORT, LAST_UDP_PORT, SLOTS, Job, aggregation_tree
from fanin.experiments.protocol import OURS
from fanin.experiments.scenario.tables.faults import fault_problems
from fanin.experiments.scenario.tables.training import Training
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.experiments.schedule_file import is_file, problem_of
from fanin.experiments.workloads.neural_networks import DTYPE_BYTES
from fanin.topologies.link import VIRTUAL_ONLY
from fanin.workers import wire
from fanin.workers.host_based.algorithms.registry import algorithm_names
from fanin.workers.host_based.transport import FIRST_PEER_PORT
from fanin.workers.values import quantization

if TYPE_CHECKING:
    from fanin.experiments.scenario.settings import Settings

# Keys of Settings that work in virtual time only; link.VIRTUAL_ONLY has those of links.
_VIRTUAL_ONLY = (
    *("lateness", "step", "traffic", "other_job", "collective", "congestion", "tcp", "payload", "priority"),
    *("faults", "min_workers", "parallelism", "workload", "trees", "queue_samples"),
    *("failures", "decoding", "serving", "arrivals", "storage"),
)

# Keys that a table parallelism replaces, or that do not work for a model that is cut.
_NOT_PARALLEL = (
    *("lateness", "step", "traffic", "other_job", "collective"),
    *("compression", "sparsity", "faults", "min_workers", "failures", "storage"),
)

# Keys that do not work with a trace of a training.
_NOT_WITH_TRACE = (*_NOT_PARALLEL, "parallelism")


def problems(run: Settings) -> Iterator[str]:
    """Yield what is wrong with the settings of a run: each names a key, the reason, and what to do."""
    names = [host.name for host in run.network.hosts]
    if run.workers is not None and run.workers > len(names):
        yield f"workers: is {run.workers}, but the topology has {len(names)} hosts; enlarge it"
        return
    if is_file(run.algorithm) and (problem := problem_of(run.algorithm, len(run.members))):
        yield f"algorithm: {problem}"
    if run.hosts and (run.workers is not None or run.placement != "packed"):
        yield "hosts: replaces workers and placement; leave those out"
    if [run.size, run.training, run.decoding, run.serving, run.arrivals].count(None) != 4:
        yield "size: give size, such as '4 MB', or one of the tables training, decoding, serving and arrivals"
    if run.training is not None and run.sparsity:
        yield "sparsity: is that of random vectors, and a training has gradients; leave out one of them"
    if run.servers_needed > len(run.outside):
        needed, there = run.servers_needed, len(run.outside)
        hosts = "a host" if needed == 1 else f"{needed} hosts"
        yield (
            f"protocol: {run.implementation.name} needs {hosts} without workers for its servers, and there are "
            f"{there}; set workers, or enlarge the topology"
        )
        return
    if run.algorithm == "in-network" and wire.BITS[run.values] == 16:
        if run.protocol != OURS:
            yield f"values: {run.values} are integers of 16 bits, which {run.implementation.name} does not have"
        elif len(run.members) > (most := quantization.MAX_WORKERS[16]):
            yield f"values: {run.values} are integers of 16 bits, for {most} workers at most; set 64 or 256"
        if run.workload is not None and DTYPE_BYTES[run.workload.dtype] < ELEMENT_BYTES:
            yield (
                f"workload.dtype: is {run.workload.dtype!r}, whose bytes values = {run.values} halves again; "
                "set dtype = 'fp32', of which each gradient travels as an integer of 16 bits"
            )
    ports = (1 << 16) - FIRST_PEER_PORT
    # After a fault, a job in the network may fall back to the ring.
    if (run.between_hosts or run.faults) and len(run.members) * run.flows_per_pair > ports:
        yield f"flows_per_pair: times {len(run.members)} workers must be at most {ports}, the UDP ports left"
    if run.paths != "ecmp" and run.controller:
        yield "paths: the user's own controller plans the routes; leave out one of them"
    if unknown := sorted(set(run.hosts) - set(names)):
        yield f"hosts: no host is called {', '.join(unknown)}; there are {', '.join(names)}"
    elif (run.hosts or run.algorithm == "in-network") and not run.controller:  # which may allow other trees
        try:
            aggregation_tree(run.network, Job(1, run.members, server=next(iter(run.servers), None)))
        except ControllerError as error:
            yield f"hosts: {error}" if run.hosts else f"topology: {error}"
    if run.check == "sample" and run.only_whole:
        yield f"check: a sample cannot be checked, because {run.only_whole}; set 'all' or 'none'"
    if run.step and run.step.buckets and run.size != sum(one.size for one in run.step.buckets):
        yield "size: must be that of all step.buckets together; leave them out, or change it"
    if run.step and run.lateness:
        yield "lateness: cannot be combined with step; use step.variation to make workers differ"
    for table in ("step", "parallelism"):
        slow = [one.host for one in computing.stragglers] if (computing := getattr(run, table)) else []
        if strangers := sorted(set(slow) - set(run.members)):
            hosts = ", ".join(run.members)
            yield f"{table}.stragglers: {', '.join(strangers)} is not a worker's host; those are {hosts}"
        if len(set(slow)) < len(slow):
            yield f"{table}.stragglers: names a host twice; give each one factor"
    ring = run.algorithm == "ring" and run.collective == "all-reduce"
    if run.compression.kind != "none" and run.algorithm != "in-network" and not ring:
        yield "compression: works with a ring only; set algorithm = 'ring', and leave out collective"
    yield from fault_problems(run.faults, run.network, run.members)
    yield from _not_virtual(run) if run.world == "virtual" else _not_live(run)


def _not_virtual(run: Settings) -> Iterator[str]:
    if run.switch != "embedded":
        yield f"switch: {run.switch!r} cannot run in virtual time; set world = 'live'"
    if run.training is not None:
        yield from run.training.problems(len(run.members))
    for table in [
        name for name in ("training", "decoding", "serving", "arrivals") if getattr(run, name) is not None
    ]:
        for name in _changed(run, *_NOT_PARALLEL, "parallelism", "repetitions"):
            yield f"{name}: cannot be combined with {table}; leave out one of them"
    if not run.checksums:
        yield "checksums: is live only; leave it out, or set world = 'live'"
    if run.segments is not None:
        yield "segments: is live only; leave it out, or set world = 'live'"
    if not run.topology.offload:
        yield "topology.offload: is live only; leave it out, or set world = 'live'"
    yield from _too_few_bystanders(run)
    if run.min_workers is not None:
        if run.min_workers > len(run.members):
            yield f"min_workers: is {run.min_workers}, more than the {len(run.members)} workers; reduce it"
        if run.collective != "all-reduce" or run.compression.kind != "none":
            yield "min_workers: works with plain all-reduces only; leave out collective and compression"
    if run.arrivals is not None:
        yield from run.arrivals.problems(len(run.members), algorithm_names())
        if run.implementation.make_server is not None and not run.outside:
            yield f"workers: jobs of protocol {run.implementation.name} need hosts for servers; leave some out"
        if run.trees > 1:
            yield "trees: cannot be combined with arrivals; leave out one of them"
    if run.serving is not None:
        yield from run.serving.problems(len(run.members))
    yield from _with_failures(run)
    if run.topology.reconfiguration is not None:
        yield from _not_over_circuits(run)
    yield from _with_storage(run)
    yield from _with_other_traffic(run)
    yield from _not_parallel(run)
    if run.collective != "all-reduce":
        yield from _no_exchange(run)
        if run.step:
            yield f"collective: {run.collective!r} cannot be combined with step; leave out one of them"
    if run.collective == "all-to-all" and run.elements and run.elements % len(run.members):
        yield f"size: must be a multiple of {ELEMENT_BYTES * len(run.members)} bytes, a part for each worker"
    if run.congestion.control.startswith("dcqcn") and run.between_hosts:
        rates = {run.network.links_of(host.name)[0].rate_bits_per_second for host in run.network.hosts}
        if None in rates:
            yield "congestion.control: DCQCN starts at the rate of a host's link; set the topology's rate"


def _too_few_bystanders(run: Settings) -> Iterator[str]:
    bystanders = run.bystanders
    needed = {
        "traffic": run.traffic.hosts if run.traffic else 0,
        "other_job": 2 * run.other_job.jobs if run.other_job else 0,
        "serving": 1 if run.serving else 0,
        "storage": run.storage.servers if run.storage else 0,
    }
    for name, count in needed.items():
        if len(bystanders) < count:
            words = {1: "a host that is not a worker", 2: "two hosts that are not workers"}
            hosts = words.get(count, f"{count} hosts that are not workers")
            yield f"{name}: needs {hosts}, and there are {len(bystanders)}; set workers"


def _with_failures(run: Settings) -> Iterator[str]:
    if run.failures is not None and (run.step is None or run.traffic is None):
        yield "failures: needs a table step, and a table traffic with pattern = 'checkpoint'; add them"
    elif run.failures is not None and run.traffic is not None and run.traffic.pattern != "checkpoint":
        yield f"traffic.pattern: is {run.traffic.pattern!r}, but failures need 'checkpoint'"
    elif run.failures and run.traffic and (run.traffic.duration or 0) > (run.traffic.period or 0):
        yield "traffic.duration: failures need one checkpoint; set it to traffic.period at most"


def _with_storage(run: Settings) -> Iterator[str]:
    if run.storage is None:
        return
    if run.step is None:
        yield "storage: needs a table step, whose steps wait for their data; add it"
    if run.repetitions < 2:
        yield "repetitions: storage needs at least 2 steps, since the first one does not count; set it"
    for name in _changed(run, "traffic", "other_job", "faults", "min_workers"):
        yield f"{name}: cannot be combined with storage; leave out one of them"


def _with_other_traffic(run: Settings) -> Iterator[str]:
    if run.traffic is not None and run.other_job is not None:
        yield "other_job: uses all hosts that traffic would need; leave out one of them"
    if run.other_job is not None:
        window = run.window or run.VIRTUAL_WINDOW
        trees = run.trees if run.algorithm == "in-network" else 1
        others = run.other_job.jobs * (run.other_job.window or window)
        if run.shared_slots is None and trees * window + others > SLOTS:
            own = f"window for each of {trees} trees" if trees > 1 else "window"
            yield f"other_job.window: together with {own} exceeds the {SLOTS:,} slots of a switch; reduce one"
    if run.traffic is not None:
        yield from run.traffic.problems(len(run.network.hosts))
        rates = {run.network.links_of(name)[0].rate_bits_per_second for name in run.bystanders}
        if None in rates and run.traffic.load is not None:
            yield "traffic.load: is a share of the hosts' links, which have no rate; set the topology's rate"


def _no_exchange(run: Settings) -> Iterator[str]:
    """Yield why an operation other than all-reduce cannot be carried out."""
    if run.algorithm not in ("ring", "in-network"):
        yield f"collective: {run.collective!r} needs algorithm = 'ring' or 'in-network'"
    if run.algorithm != "in-network":
        return
    if run.collective == "all-to-all":
        yield "collective: 'all-to-all' goes from host to host; set algorithm = 'ring'"
    if not run.implementation.ours or run.worker is not None:
        yield f"collective: only fanin's own protocol and worker do {run.collective!r}; set algorithm = 'ring'"
    if run.trees > 1:
        yield f"trees: {run.collective!r} has one tree; leave it out"
    if run.faults:
        yield f"faults: cannot be combined with {run.collective!r} in the network; set algorithm = 'ring'"


def _not_over_circuits(run: Settings) -> Iterator[str]:
    if len(run.network.switches) > 1:
        count = len(run.network.switches)
        yield f"topology.reconfiguration: an optical switch is the only one, and there are {count}; leave it out"
    if run.algorithm == "in-network":
        yield "algorithm: an optical switch adds up nothing; set algorithm = 'ring', or another one between hosts"
    for name in _changed(
        run,
        *("traffic", "other_job", "storage", "serving", "arrivals", "parallelism", "workload"),
        *("training", "decoding", "faults", "min_workers"),
    ):
        yield f"{name}: cannot be combined with topology.reconfiguration; leave out one of them"


def _not_parallel(run: Settings) -> Iterator[str]:
    if (run.parallelism or (run.workload and run.workload.trace)) and run.servers_needed:
        yield f"protocol: {run.implementation.name} has servers, which work with plain all-reduces only"
    if run.parallelism is not None:
        yield from run.parallelism.problems(len(run.members), run.elements or 0)
        for name in _changed(run, *_NOT_PARALLEL):
            yield f"{name}: cannot be combined with parallelism; leave out one of them"
    if run.workload is not None and run.workload.trace:
        for name in _changed(run, *_NOT_WITH_TRACE):
            yield f"{name}: cannot be combined with workload.trace; leave out one of them"
        if run.repetitions > 1:
            yield "repetitions: cannot be combined with workload.trace, which has its own steps; leave it out"
    if run.algorithm == "in-network":
        jobs = LAST_UDP_PORT - FIRST_UDP_PORT + 1
        other = run.other_job is not None and run.other_job.algorithm == "in-network"
        if run.trees + (run.other_job.jobs if other and run.other_job else 0) > jobs:
            yield f"trees: is {run.trees}, but switches make {jobs} sums at once, with other_job; reduce it"
        elif run.sums > jobs:
            yield (
                f"parallelism: needs {run.sums} sums of gradients, but switches make {jobs} at once; "
                "set fewer trees, or algorithm = 'ring'"
            )
        elif run.shared_slots is None and (run.window or 1) * run.sums > SLOTS:
            yield (
                f"window: is {run.window} for each of {run.sums} sums at once, more than the {SLOTS:,} slots "
                "of a switch; reduce it"
            )
        if (run.elements or SLOTS) < run.sums:
            yield f"trees: is {run.trees}, but vectors have {run.elements} values; reduce it"


def _not_live(run: Settings) -> Iterator[str]:
    for name in _changed(run, *_VIRTUAL_ONLY):
        yield f"{name}: is virtual only; leave it out, or set world = 'virtual'"
    if run.flows_per_pair > 1 and run.transport in (None, "tcp") and run.algorithm != "in-network":
        yield "flows_per_pair: tcp has one flow; set transport = 'selective-repeat' or 'go-back-n'"
    for name in ("local_steps", "compute_time", "stalls", "stall_time", "split") if run.training else ():
        if getattr(run.training, name) != Training.model_fields[name].default:
            yield f"training.{name}: is virtual only; leave it out, or set world = 'virtual'"
    if run.topology.reconfiguration is not None:
        yield "topology.reconfiguration: is virtual only; leave it out, or set world = 'virtual'"
    for name in VIRTUAL_ONLY:
        if name in run.links.given:
            yield f"links.{name}: is virtual only; leave it out, or set world = 'virtual'"
    emulated = [name for name in run.links.given if name not in ("loss", *VIRTUAL_ONLY)]
    if run.links.corruption and not run.checksums and run.algorithm == "in-network":
        yield "checksums: without them, corruption changes sums; leave it out, or set links.corruption = 0"
    if run.switch == "bmv2" and emulated:
        yield f"links.{emulated[0]}: BMv2 emulates no links; set switch = 'embedded', or leave it out"
    if run.switch == "bmv2" and run.loopback is not None:
        yield (
            f"protocol: {run.implementation.name} needs a loopback port with a delay, and BMv2 delays no packets; "
            "set switch = 'embedded'"
        )


def _changed(run: Settings, *names: str) -> list[str]:
    """Return those of these keys that do not have their default."""
    return [name for name in names if getattr(run, name) != type(run).model_fields[name].default]
