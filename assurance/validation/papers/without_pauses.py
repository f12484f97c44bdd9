"""IRN (selective repeat and queues that overflow) compared with RoCE, whose go-back-N needs priority flow control."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.validation.papers.loss_recovery import RATE, TIMER, run
from fanin.assurance.validation.papers.published import PaperComparison, Published
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.traffic import requests
from fanin.p4switch.engine.engine import Engine
from fanin.topologies.link import Pause
from fanin.topologies.shapes import fat_tree
from fanin.workers.host_based.transport import PAYLOAD

PACKET_BYTES = 1112  # a full packet on a link, including all headers and the gap between frames
DELAY = 2e-6  # s, of every link
LINKS = 6  # on the longest path
QUEUE = 240_000  # bytes: twice what the longest path holds
XOFF, XON = 220_000, 200_000
IRN_WINDOW, ROCE_WINDOW = 110, 1024  # packets: what the longest path holds, and more than that
SEEDS = (0, 1)

_NEVER = 1.0  # s: pauses prevent loss, so no timer may expire


_SOURCE = "Mittal et al., Revisiting network support for RDMA, SIGCOMM 2018, abstract"
_WHY = "the abstract does not state what the 6 and the 83 % refer to, and this scenario is not one of the paper's"


def _less(what: str, least: float, why: str) -> Published:
    return Published(
        what=f"IRN versus RoCE with PFC: {what} less by",
        source=_SOURCE,
        value="6 to 83 %",
        least=least,
        most=0.83,
        form=".0%",
        why=why,
    )


MEAN = _less("flows' mean time", 0.06, _WHY)
SLOWDOWN = _less("flows' mean slowdown", 0.06, _WHY)
TAIL = _less("flows' 99th percentile of time", 0.0, "the longest flows fill their links either way")


def without_pauses(
    switch: Engine, seeds: tuple[int, ...] = SEEDS, duration: float = 1e-3
) -> Iterator[PaperComparison]:
    """Compare for 52 hosts of a fat tree that begin flows to one another for `duration` seconds.

    There is no congestion control.

    Raises:
        UnfinishedError: A flow did not arrive.
    """
    found = []
    for irn in (True, False):
        times, slowdowns = np.concatenate([_times(irn, seed, duration, switch) for seed in seeds], axis=1)
        found.append((times.mean(), slowdowns.mean(), np.quantile(times, 0.99)))
    for published, irn, roce in zip((MEAN, SLOWDOWN, TAIL), *found, strict=True):
        yield published.compared_with(float(1 - irn / roce))


def _times(irn: bool, seed: int, duration: float, switch: Engine) -> NDArray[np.float64]:
    """Return each flow's seconds, and its slowdown against the time that its bytes and the longest path take."""
    room = {"queue_bytes": QUEUE} if irn else {"pause": Pause(xoff_bytes=XOFF, xon_bytes=XON)}
    topology = fat_tree(6, rate=RATE, properties={"delay": DELAY, **room})
    settings = {
        "topology": {"fat_tree": {"k": 6, "rate": RATE}},
        "workers": 2,  # for a job that is not run: a scenario needs one
        "size": "4 B",
        "seed": seed,
        "traffic": {"pattern": "poisson", "sizes": "hadoop", "load": 0.7, "duration": duration},
    }
    flows = [flow for request in requests(Settings.model_validate(settings)) for flow in request]
    arrived = (
        run(topology, flows, "selective-repeat", IRN_WINDOW, TIMER, switch)
        if irn
        else run(topology, flows, "go-back-n", ROCE_WINDOW, _NEVER, switch)
    )
    seconds = np.array([flow.seconds for flow in arrived])
    packet = 8 * PACKET_BYTES / RATE
    alone = np.array([-(-flow.size // PAYLOAD) * packet for flow in arrived]) + LINKS * (DELAY + packet)
    return np.stack([seconds, seconds / alone])
