"""Serving in virtual time: Poisson arrivals of requests, whose answers cross the simulated network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fanin.experiments.models.alone import Alone
from fanin.experiments.models.queues import response_quantile
from fanin.experiments.models.timers import recovery, virtual_window
from fanin.experiments.results.checking import Errors
from fanin.experiments.results.measured import Measured, ServingTimes
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.serving import Serving
from fanin.experiments.virtual.outcome import (
    LIMIT,
    UnfinishedError,
    make_fabric,
    network_figures,
    worker_figures,
)
from fanin.experiments.virtual.usage import LinkMeter, QueueSampler
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.network import MakeNetwork
from fanin.simulator.requests import Question, Request, Requests, Service
from fanin.workers.host_based.transport import PAYLOAD

_DRAW = 8  # separates these random numbers from others of the same seed
_WARM_UP = 0.1  # share of the duration after which queues count as filled


def run_serving(settings: Settings, serving: Serving, switch: Engine, make_network: MakeNetwork) -> Measured:
    """Run a point with a table serving.

    Args:
        settings: The point, with an answer as its vector (Settings.as_vectors).
        serving: Its table.
        switch: The program of its switches.
        make_network: Builds the network, with the arguments of VirtualNetwork.

    Raises:
        UnfinishedError: If the run does not end.
        DeadlockError: If links pause one another in a circle.
        ControllerError: If the controller fails.
    """
    assert settings.elements is not None
    fabric = make_fabric(settings, switch, make_network)
    wanted = list(_requests(settings, serving))
    timers = recovery(settings, transport=serving.transport)
    service = Service(
        request_bytes=serving.request,
        answer_bytes=serving.answer,
        slots=serving.slots,
        reuse=serving.connections == "reused",
        greetings=serving.handshakes,
        window=serving.window,
        transport=serving.transport,
        recovery=timers,
        congestion_control=settings.congestion.control_of,
        seed=settings.seed,
    )
    requests = Requests(fabric, wanted, service)
    meter = LinkMeter(fabric, settings.priority)
    sampler = QueueSampler(fabric.network, settings.queue_samples)
    if not requests.run(LIMIT):
        raise UnfinishedError(f"serving: not finished after {LIMIT:g} s of virtual time")

    began = np.array([request.start for request in wanted])
    seconds = requests.ended - began
    counted = began >= _WARM_UP * serving.duration
    first, last = _WARM_UP * serving.duration, serving.duration
    inside = np.clip(requests.ended, first, last) - np.clip(began, first, last)
    servers = requests.servers.values()
    slots = serving.slots * len(settings.members)
    return Measured(
        seconds=tuple(seconds[counted].tolist()),
        elements=settings.elements,
        retransmissions=requests.counts.retransmissions,
        closed_form_seconds=None,
        window=virtual_window(settings),
        recovery=timers,
        gpu_idle_share=1 - sum(server.busy for server in servers) / slots / float(np.nanmax(requests.ended)),
        usage=Usage(meter.end_phase("job"), (), sampler.samples),
        serving=ServingTimes(
            p99_seconds=float(np.percentile(seconds[counted], 99)),
            predicted_p50_seconds=_predicted(settings, serving, 0.50),
            predicted_p95_seconds=_predicted(settings, serving, 0.95),
            predicted_p99_seconds=_predicted(settings, serving, 0.99),
            mean_request_seconds=float(seconds[counted].mean()),
            requests_per_second=int(counted.sum()) / (last - first),
            requests_in_progress=float(inside.sum()) / (last - first),
            queued_seconds=float(np.mean([wait for server in servers for wait in server.waits])),
        ),
        **Errors().columns,  # there are no sums
        **worker_figures(settings, fabric),
        **network_figures(fabric),
    )


def _requests(settings: Settings, serving: Serving) -> Iterator[Request]:
    """Yield the requests in the order of time."""
    draw = np.random.default_rng((settings.seed, _DRAW))
    workers, front_ends = settings.members, settings.bystanders
    between = 1 / serving.requests_per_second(len(workers))
    now = 0.0
    while (now := now + float(draw.exponential(between))) < serving.duration:
        front_end = front_ends[draw.integers(len(front_ends))]
        asked = draw.choice(len(workers), serving.fan_out, replace=False).tolist()
        times = [serving.service_time] * len(asked)
        if serving.service == "exponential":
            times = draw.exponential(serving.service_time, len(asked)).tolist()
        questions = [Question(workers[rank], seconds) for rank, seconds in zip(asked, times, strict=True)]
        yield Request(front_end, now, questions)


def _predicted(settings: Settings, serving: Serving, share: float) -> float | None:
    """Return the seconds that a share of requests does not exceed according to the model; None if it cannot tell."""
    if serving.service == "constant":
        return None
    served = response_quantile(share, serving.fan_out, serving.service_time, serving.load, serving.slots)
    return _network_seconds(settings, serving) + served


def _network_seconds(settings: Settings, serving: Serving) -> float:
    """Return the time of a request that is alone, without computing: a question and its answer, and new connections.

    A new connection needs its handshakes, and further round trips until its window holds the answer.
    """
    alone, (worker, front_end) = Alone(settings), (settings.members[0], settings.bystanders[0])
    once = alone.seconds(front_end, worker, 1) + alone.seconds(worker, front_end, 1)
    trips = alone.seconds(front_end, worker, serving.request) + alone.seconds(
        worker, front_end, serving.answer
    )
    if serving.connections == "reused":
        return trips
    rounds = serving.handshakes  # each of which has already added a packet to the window
    window = sent = min((settings.congestion.dctcp.initial_window or serving.window) + rounds, serving.window)
    while sent < -(-serving.answer // PAYLOAD):
        window, rounds = min(2 * window, serving.window), rounds + 1
        sent += window
    return trips + rounds * once
