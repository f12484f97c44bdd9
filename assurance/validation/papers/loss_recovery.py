"""Go-back-N compared with selective repeat, on links that lose packets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fanin.assurance.validation.papers.published import PaperComparison, Published
from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.experiments.virtual.outcome import UnfinishedError
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import HostModel
from fanin.simulator.fabric import Fabric
from fanin.simulator.flows import FinishedFlow, Flows, FlowSpec
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from fanin.workers.collective import Transport
from fanin.workers.recovery import Recovery

RATE = 40 * 10**9  # bits/s
SIZE = 20_000_000  # bytes of a flow that loses packets
TIMER, LONG_TIMER = 100e-6, 4e-3  # seconds after which unacknowledged packets are retransmitted

_LIMIT = 60.0  # seconds
_HOST = HostModel(coalescing=1e-6)
_NO_CONTROL = Congestion(control="none")

_WANG = "Wang et al., Error recovery of RDMA packets in data center networks, ICCCN 2019, abstract"
_MELO = "Lu et al., Memory efficient loss recovery for hardware-based transport in datacenter, APNet 2017, abstract"
_ROSR = (
    "Zhang, Guo, Sun, RoSR: a novel selective retransmission FPGA architecture for RDMA NICs, IEEE Computer "
    "Architecture Letters 24(2), 2025, abstract"
)

IMPROVED = Published(
    what="go-back-N, 1 % lost, timer of 0.1 ms: share of the throughput without loss",
    source=_WANG,
    value="about 60 %",
    least=0.45,
    most=0.75,
    form=".1%",
    why="each loss costs the packets of one round trip. Here these are the 64 packets of the window; the abstract "
    "does not state the",
)
PLAIN = Published(
    what="go-back-N, 2 % lost, timer of 4 ms: share of the throughput without loss",
    source=_WANG,
    value="nearly 0 above 1 %",
    least=0.0,
    most=0.1,
    form=".1%",
    why="The abstract does not state how long a card then waits; 4 ms is our choice.",
)
MOST = Published(
    what="selective repeat over go-back-N, 5 % lost, window of 256: throughput",
    source=_MELO,
    value="up to 14.02",
    least=7.0,
    most=28.0,
    form=".1f",
    why="the abstract does not state the loss rate. The ratio grows with it and with the window.",
)
ONE_PERCENT = Published(
    what="selective repeat over go-back-N, 1 % lost, window of 256: throughput",
    source=_ROSR,
    value="up to 13.5",
    least=2.0,
    most=13.5,
    form=".1f",
    why="window and timers of the card it is compared with (Xilinx ERNIC) are not in the abstract",
)


def loss_recovery(switch: Engine) -> Iterator[PaperComparison]:
    """Compare for two hosts below a switch, with links of 40 Gb/s and 1 us that lose packets in both directions.

    Raises:
        UnfinishedError: A flow did not arrive.
    """
    unharmed = seconds("go-back-n", 0.0, switch)
    yield IMPROVED.compared_with(unharmed / seconds("go-back-n", 0.01, switch))
    yield PLAIN.compared_with(unharmed / seconds("go-back-n", 0.02, switch, timer=LONG_TIMER))
    yield MOST.compared_with(_ratio(0.05, switch))
    yield ONE_PERCENT.compared_with(_ratio(0.01, switch))


def _ratio(loss: float, switch: Engine) -> float:
    slow, fast = (seconds(one, loss, switch, window=256) for one in ("go-back-n", "selective-repeat"))
    return slow / fast


def seconds(
    transport: Transport,
    loss: float,
    switch: Engine,
    *,
    window: int = 64,
    timer: float = TIMER,
    size: int = SIZE,
) -> float:
    """Return the time of a flow that loses the share `loss` of its packets, and as many of its acknowledgements."""
    each = 1 - (1 - loss) ** 0.5  # loss on each of two links
    topology = leaf_spine(0, 1, 2, rate=RATE, properties={"delay": 1e-6, "loss": each})
    flows = [FlowSpec(source="h1", destination="h2", size=size)]
    (arrived,) = run(topology, flows, transport, window, timer, switch)
    return arrived.seconds


def run(
    topology: Topology,
    flows: Sequence[FlowSpec],
    transport: Transport,
    window: int,
    timer: float,
    switch: Engine,
) -> list[FinishedFlow]:
    """Run flows in virtual time, without congestion control.

    Raises:
        UnfinishedError: Not all arrived.
    """
    recovery = Recovery(initial_rto=timer, min_rto=timer, granularity=1e-6)
    fabric = Fabric(topology, switch, host=_HOST)
    there = Flows(
        fabric,
        flows,
        window=window,
        transport=transport,
        recovery=recovery,
        congestion_control=_NO_CONTROL.control_of,
    )
    if not there.run(_LIMIT):
        raise UnfinishedError(
            f"{transport}: {len(there.completed)} of {len(flows)} flows arrived in {_LIMIT:g} s"
        )
    return there.completed
