"""Flows between hosts in virtual time: times that theory gives, every byte once, drops and marks as of others."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from fanin.experiments.scenario.tables.congestion import Congestion, Control
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import HostModel
from fanin.simulator.fabric import Fabric
from fanin.simulator.flows import FinishedFlow, Flows, FlowSpec
from fanin.simulator.hosts.card import BURST
from fanin.simulator.job_spec import JobSpec
from fanin.topologies.model import Topology, TopologyError
from fanin.topologies.shapes import leaf_spine
from fanin.workers.collective import Algorithm, Transport
from fanin.workers.host_based.transport import PAYLOAD
from fanin.workers.recovery import Recovery

pytestmark = pytest.mark.slow

GIGABIT = 10**9
PACKET_BITS = 8 * 1112  # of a full packet, with all headers and the gap on the wire
RECOVERY = Recovery(initial_rto=3e-3, min_rto=2e-3, granularity=1e-6)
DELAY = 1e-6


def fabric(topology: Topology, switch: Engine) -> Fabric:
    return Fabric(topology, switch, host=HostModel(coalescing=0.0))


def one_switch(hosts: int, **properties: float) -> Topology:
    return leaf_spine(0, 1, hosts, rate=10 * GIGABIT, properties={"delay": DELAY, **properties})


def to_first(senders: int, size: int) -> list[FlowSpec]:
    return [
        FlowSpec(source=f"h{sender + 2}", destination="h1", size=size, start=1e-5)
        for sender in range(senders)
    ]


def test_a_flow_alone_takes_its_packets_and_one_more_hop(switch: Engine) -> None:
    packets = 100
    flows = Flows(
        fabric(one_switch(2), switch), to_first(1, packets * PAYLOAD), window=packets, recovery=RECOVERY
    )
    assert flows.run(1.0)
    (done,) = flows.completed
    expected = (packets + 1) * PACKET_BITS / (10 * GIGABIT) + 2 * DELAY
    assert done.seconds == pytest.approx(expected, rel=1e-3)
    assert flows.counts.retransmissions == flows.counts.timeouts == 0


def test_incast_shares_the_link_of_the_receiver(switch: Engine) -> None:
    senders, packets = 5, 40
    flows = Flows(
        fabric(one_switch(1 + senders), switch), to_first(senders, packets * PAYLOAD), recovery=RECOVERY
    )
    assert flows.run(1.0)
    last = max(flow.seconds for flow in flows.completed)
    assert last == pytest.approx((senders * packets + 1) * PACKET_BITS / (10 * GIGABIT) + 2 * DELAY, rel=1e-3)


def test_flows_of_one_host_take_turns_on_its_link(switch: Engine) -> None:
    """A short flow does not wait for the whole window of one that begins with it."""
    window, short = 256, 2 * BURST
    flows = Flows(
        fabric(one_switch(3), switch),
        [
            FlowSpec(source="h1", destination="h2", size=4 * window * PAYLOAD),
            FlowSpec(source="h1", destination="h3", size=short * PAYLOAD),
        ],
        window=window,
        recovery=RECOVERY,
    )
    assert flows.run(1.0)
    long, done = flows.completed
    packet = PACKET_BITS / (10 * GIGABIT)
    assert done.seconds == pytest.approx((2 * short + 1) * packet + 2 * DELAY, rel=1e-3)
    assert long.seconds == pytest.approx((4 * window + short + 1) * packet + 2 * DELAY, rel=1e-3)
    assert flows.counts.retransmissions == flows.counts.timeouts == 0


def wait_in_incast(switch: Engine, control: Control) -> int:
    """On average, at the link of the receiver; all arrives in time."""
    marks = {"ecn_bytes": 20_000, "ecn_max_bytes": 100_000, "ecn_probability": 0.5}
    senders, packets = 5, 700
    network = fabric(one_switch(1 + senders, **marks), switch)
    specs = to_first(senders, packets * PAYLOAD)
    flows = Flows(
        network,
        specs,
        window=128,
        recovery=RECOVERY,
        congestion_control=Congestion(control=control).control_of,
    )
    assert flows.run(1.0)
    assert len(flows.completed) == senders
    assert flows.counts.retransmissions == 0
    last = max(flow.seconds for flow in flows.completed)
    ideal = (senders * packets + 1) * PACKET_BITS / (10 * GIGABIT) + 2 * DELAY
    assert last < 1.6 * ideal
    links = network.network.links.counts
    return int(links.waited.max() / links.packets.max())


@pytest.mark.few(0)
def test_incast_under_congestion_control_has_a_shorter_queue_and_arrives(switch: Engine) -> None:
    longest = {control: wait_in_incast(switch, control) for control in get_args(Control)}
    uncontrolled = longest.pop("none")
    assert all(waited < 0.75 * uncontrolled for waited in longest.values()), longest


@pytest.mark.parametrize("transport", ["selective-repeat", "go-back-n"])
def test_what_a_small_queue_drops_is_sent_again(switch: Engine, transport: Transport) -> None:
    network = fabric(one_switch(9, queue_bytes=20_000), switch)
    specs = to_first(8, 60 * PAYLOAD + 5)
    flows = Flows(network, specs, transport=transport, recovery=RECOVERY)
    assert not flows.finished
    assert flows.run(10.0)
    assert flows.finished
    assert network.network.faults["queue drop"] > 0
    assert flows.counts.retransmissions > 0
    assert [(flow.source, flow.size) for flow in flows.completed] == [
        (flow.source, flow.size) for flow in specs
    ]


def test_flows_in_both_directions_and_one_after_the_other(switch: Engine) -> None:
    specs = [
        FlowSpec(source="h1", destination="h4", size=5000),
        FlowSpec(source="h4", destination="h1", size=1),
        FlowSpec(source="h1", destination="h4", size=PAYLOAD, start=0.5),
    ]
    topology = leaf_spine(2, 2, 2, rate=GIGABIT, properties={"delay": DELAY})
    flows = Flows(fabric(topology, switch), specs, recovery=RECOVERY)
    assert not flows.run(0.25)
    assert len(flows.completed) == 2
    assert flows.run(1.0)
    assert max(flow.seconds for flow in flows.completed) < 1e-3


def test_a_job_is_slower_beside_flows_and_has_its_sums(switch: Engine) -> None:
    def seconds(beside: bool) -> float:
        topology = leaf_spine(1, 2, 3, rate=10 * GIGABIT, properties={"delay": DELAY})
        network = fabric(topology, switch)
        vectors = [np.full(100_000, rank, np.float32) for rank in range(2)]
        job = network.start(JobSpec(hosts=("h1", "h4"), recovery=RECOVERY), [vectors])
        if beside:
            noise = [FlowSpec(source=f"h{i}", destination=f"h{i + 3}", size=2_000_000) for i in (2, 3)]
            Flows(network, noise, recovery=RECOVERY)
        assert network.run(10.0)
        for station in job.stations:
            np.testing.assert_allclose(station.outputs[0], 1.0, rtol=1e-3)
        return max(station.ended[0] for station in job.stations)

    assert seconds(beside=True) > 1.2 * seconds(beside=False)


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_a_host_has_flows_and_a_job_and_both_get_what_is_theirs(switch: Engine, algorithm: Algorithm) -> None:
    def ended(flows_too: bool) -> tuple[float, list[float]]:
        topology = leaf_spine(1, 2, 2, rate=10 * GIGABIT, properties={"delay": DELAY})
        network = fabric(topology, switch)
        vectors = [np.full(50_000, rank, np.float32) for rank in range(3)]
        spec = JobSpec(hosts=("h1", "h2", "h3"), recovery=RECOVERY, algorithm=algorithm)
        job = network.start(spec, [vectors])
        ways = [("h1", "h4"), ("h4", "h1"), ("h2", "h3")] if flows_too else []
        specs = [FlowSpec(source=a, destination=b, size=300_000) for a, b in ways]
        flows = Flows(network, specs, recovery=RECOVERY)
        assert network.run(10.0)
        assert flows.run(10.0)
        for station in job.stations:
            np.testing.assert_allclose(station.outputs[0], 3.0, rtol=1e-3)
            assert station.not_ours == 0
        assert not flows.counts.ignored
        assert flows.counts.retransmissions == 0
        return max(station.ended[0] for station in job.stations), [one.seconds for one in flows.completed]

    (alone, none), (beside, times) = ended(flows_too=False), ended(flows_too=True)
    assert none == []
    assert beside > 1.2 * alone
    assert len(times) == 3


def test_a_job_does_not_wait_for_flows_of_its_hosts_that_begin_later(switch: Engine) -> None:
    def ended(flows: list[FlowSpec]) -> float:
        network = fabric(one_switch(3), switch)
        job = network.start(
            JobSpec(hosts=("h1", "h2"), recovery=RECOVERY), [[np.zeros(1000, np.float32)] * 2]
        )
        Flows(network, flows, recovery=RECOVERY)
        assert network.run(10.0)
        return max(station.ended[0] for station in job.stations)

    later = [FlowSpec(source="h1", destination="h3", size=PAYLOAD, start=0.5)]
    assert ended(later) == ended([])


def test_flows_of_a_host_are_given_at_once_and_after_its_job(switch: Engine) -> None:
    network = fabric(one_switch(3), switch)
    spec = FlowSpec(source="h1", destination="h2", size=1)
    Flows(network, [spec], recovery=RECOVERY)
    with pytest.raises(ValueError, match="host h2 has other flows already; give all flows of a host at once"):
        Flows(network, [FlowSpec(source="h3", destination="h2", size=1)], recovery=RECOVERY)
    with pytest.raises(ValueError, match="host h1 has flows already; start jobs before flows"):
        network.start(JobSpec(hosts=("h1", "h3")), [[np.zeros(4, np.float32)] * 2])


def test_a_seed_has_one_history(switch: Engine) -> None:
    def times(seed: int) -> list[FinishedFlow]:
        topology = leaf_spine(4, 2, 4, rate=GIGABIT, properties={"delay": DELAY})
        specs = [FlowSpec(source=f"h{i}", destination=f"h{i + 4}", size=50_000) for i in range(1, 5)]
        flows = Flows(fabric(topology, switch), specs, recovery=RECOVERY, seed=seed)
        assert flows.run(1.0)
        return flows.completed

    assert times(1) == times(1)
    assert len({tuple(flow.seconds for flow in times(seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (FlowSpec(source="h3", destination="h3", size=1), r"flows\[0\]: from h3 to itself"),
        (FlowSpec(source="h3", destination="h4", size=0), r"flows\[0\].size: is 0"),
        (FlowSpec(source="h3", destination="h4", size=1, start=-1.0), r"flows\[0\].start: is -1.0"),
    ],
)
def test_a_flow_that_cannot_be_is_refused(switch: Engine, spec: FlowSpec, message: str) -> None:
    network = fabric(one_switch(4), switch)
    network.start(JobSpec(hosts=("h1", "h2")), [[np.zeros(1, np.float32)] * 2])
    with pytest.raises(ValueError, match=message):
        Flows(network, [spec], recovery=RECOVERY)


def test_a_host_that_there_is_not_is_named(switch: Engine) -> None:
    with pytest.raises(TopologyError, match="h9: no such host"):
        Flows(
            fabric(one_switch(2), switch),
            [FlowSpec(source="h1", destination="h9", size=1)],
            recovery=RECOVERY,
        )
