"""In-network all-reduce compared with a ring, as measured by the authors of SwitchML and of ATP, and by NVIDIA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from fanin.assurance.validation.papers.published import PaperComparison, Published
from fanin.experiments.models.packets import in_network_frame
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.topologies.link import ETHERNET_OVERHEAD
from fanin.workers.collective import Algorithm

RATE = 100 * 10**9  # bits/s
LARGE = 16_000_000  # bytes
SMALL = (1_000, 4_000, 16_000, 64_000)
WORKERS = (4, 8, 16)
VALUES = 256  # in a packet

_SWITCHML = (
    "Sapio et al., Scaling distributed machine learning with in-network aggregation, NSDI 2021; the figure and the "
    "sentence are those of the authors' repository, github.com/p4lang/p4app-switchML, README.md and "
    "the benchmark.png of its documentation (read off it, to 15 million elements a second)"
)
_KLENK = (
    "Klenk et al., An in-network architecture for accelerating shared-memory multiprocessor collectives, ISCA 2020, "
    "abstract"
)

# From SwitchML's figure, in millions of elements per second: 2,830, 2,820 and 2,810 of at most 2,880, and NCCL's ring
# 1,380, 1,250 and 975.
LINE = Published(
    what="in-network, 16 workers: share of what links can carry",
    source=_SWITCHML,
    value="98 %",
    least=0.95,
    most=1.0,
    form=".1%",
    why="hosts here take no time for a packet",
)
CONSTANT = Published(
    what="in-network: elements a second of 16 workers over those of 4",
    source=_SWITCHML,
    value="0.99",
    least=0.95,
    most=1.05,
    form=".3f",
    why="hosts here take no time for a packet",
)
_RING = "The published ratios are larger, because NCCL's ring filled only 72, 76 and 63 % of its links."


def _ratio(workers: int, value: float) -> Published:
    """Return a figure that must lie between the ratio of the bytes, less 5 %, and the measured value."""
    return Published(
        what=f"ring over in-network, {workers} workers: time",
        source=_SWITCHML,
        value=f"{value}",
        least=0.95 * 2 * (workers - 1) / workers,
        most=value,
        form=".2f",
        why=_RING,
    )


RATIOS = {4: _ratio(4, 2.05), 8: _ratio(8, 2.26), 16: _ratio(16, 2.88)}
LARGE_RATIO = Published(
    what="ring over in-network, 16 workers, 16 MB: time",
    source=_KLENK,
    value="up to 2",
    least=1.7,
    most=2.1,
    form=".2f",
    why="2(n - 1)/n is 1.875; a ring has latencies, too",
)
SMALL_RATIO = Published(
    what="ring over in-network, 16 workers, 1 to 64 kB: time, at most",
    source=_KLENK,
    value="up to 18",
    least=12.0,
    most=24.0,
    form=".1f",
    why="Here, a step takes 6 µs. In the paper, a step is one between GPUs that share memory.",
)

_ATP = (
    "Lao et al., ATP: in-network aggregation for multi-tenant learning, NSDI 2021; the figure of training throughput "
    "of single jobs as reading notes show it (github.com/wsdbybyd/wsdbybyd.github.io at 05f8106, 2025/07/16), read "
    "off it, to 3 images a second; batches of 32 are those of the benchmark that its authors' repository names, "
    "github.com/in-ATP/ATP-BytePS"
)
BATCH = 32  # images of a worker in a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A neural network that ATP's authors trained.

    Attributes:
        gradient: Bytes of its gradient.
        images: Images per second of one of eight workers.
        ratio: The published ratio of throughputs.
    """

    gradient: int
    images: float
    ratio: Published

    def over_ring(self, network: float, ring: float) -> float:
        """Return the ratio of throughputs of a step in the network, as long as theirs, and one with the ring's sum.

        Args:
            network: Seconds of a sum of LARGE in the network.
            ring: Seconds of a sum of LARGE with the ring.
        """
        return 1 + (ring - network) * self.gradient / LARGE / (BATCH / self.images)


VGG16 = Trained(
    gradient=528 << 20,
    images=177,
    ratio=Published(
        what="VGG16, 8 workers: training throughput in-network over ring",
        source=_ATP,
        value="1.18",
        least=1.08,
        most=1.28,
        form=".2f",
        why="ATP trains 177 images a second and worker, the ring 151; here the ring fills its links, and no sum is "
        "hidden behind computing",
    ),
)
RESNET50 = Trained(
    gradient=98 << 20,
    images=265,
    ratio=Published(
        what="ResNet50, 8 workers: training throughput in-network over ring",
        source=_ATP,
        value="1.24",
        least=1.0,
        most=1.24,
        form=".2f",
        why="ATP trains 265 images a second and worker, the ring 213. Sums are a small part of a step, and explain "
        "only a ratio of 1.06",
    ),
)


def aggregation(switch: Engine) -> Iterator[PaperComparison]:
    """Compare for workers below one switch, with links of 100 Gb/s and 1 us.

    Raises:
        CollectiveError: A run failed.
        UnfinishedError: A run did not finish.
        ControllerError: A run could not begin.
    """

    @cache
    def network(workers: int) -> float:
        return _seconds("in-network", workers, LARGE, switch)

    frame = in_network_frame(VALUES) + ETHERNET_OVERHEAD
    yield LINE.compared_with(8 * LARGE * frame / (4 * VALUES) / RATE / network(16))
    yield CONSTANT.compared_with(network(4) / network(16))
    ring: dict[int, float] = {}
    for workers in WORKERS:
        ring[workers] = _seconds("ring", workers, LARGE, switch)
        yield RATIOS[workers].compared_with(ring[workers] / network(workers))
    for trained in (VGG16, RESNET50):
        yield trained.ratio.compared_with(trained.over_ring(network(8), ring[8]))
    yield LARGE_RATIO.compared_with(ring[16] / network(16))
    yield SMALL_RATIO.compared_with(
        max(_seconds("ring", 16, size, switch) / _seconds("in-network", 16, size, switch) for size in SMALL)
    )


def _seconds(algorithm: Algorithm, workers: int, size: int, switch: Engine) -> float:
    settings = {
        "topology": {"leaf_spine": {"spines": 0, "leaves": 1, "hosts_per_leaf": workers, "rate": RATE}},
        "links": {"delay": 1e-6},
        "algorithm": algorithm,
        "size": f"{size} B",
        "window": 256,
        "values": VALUES,
    }
    measured = run_virtual(Settings.model_validate(settings), switch)
    assert measured.violations == 0
    return measured.median
