"""DCQCN's use of a link compared with two models: its authors' fluid model, and a queue fed by single senders.

Both are integrated here, and share nothing with the senders of virtual time. The fluid model is that of Zhu et al.,
"Congestion control for large-scale RDMA deployments", SIGCOMM 2015, section 5, without its byte counter: a sender in
virtual time has none. It takes marks to be rare and independent. Where a queue marks every packet above a threshold,
they are neither: one mark cuts a rate for a whole interval, however few the marked packets are. The second model is for
that case.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import expm1, inf, log1p

from fanin.assurance.validation.theory.bottleneck import PACKET_BYTES, Bottleneck, Used
from fanin.assurance.validation.theory.derived import Derived
from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.p4switch.engine.engine import Engine
from fanin.topologies.shapes import leaf_spine
from fanin.workers.host_based.congestion_control import DcqcnParameters

RATE = 40 * 10**9  # bits/s, of every link
DELAY = 1e-6  # s, of every link
FEEDBACK = (
    4 * DELAY
)  # from a mark in an empty queue to the sender: one link on, and two back, and a packet's time
STEP = 0.5e-6  # s, of both integrations

# The parameters of the paper, which has them for 40 Gb/s. All increases after those of the fast recovery are alike, as
# in the fluid model, and alpha begins near its final value.
AS_PUBLISHED = Congestion(
    control="dcqcn-ns3",
    initial_alpha=0.1,
    alpha_interval=55e-6,
    decrease_interval=50e-6,
    increase_interval=55e-6,
    fast_recovery=5,
    additive_rate=40_000_000,
    hyper_rate=40_000_000,
    min_rate=10_000_000,
)
KMIN, KMAX = 5_000, 200_000  # bytes, as published
SETTLED, END = 18e-3, 30e-3  # s: when rates and the queue have settled, and for how long the run lasts
FLUID = ((2, 0.01), (2, 0.1), (8, 0.1), (16, 0.1))  # senders, and the probability of a mark just below KMAX

STEEP = Congestion(control="dcqcn-paper")
THRESHOLDS = (5_000, 20_000, 100_000)  # bytes
STEEP_END = 10e-3  # s


def dcqcn(switch: Engine) -> Iterator[Derived]:
    """Compare the use of a link, and its queue, for several senders below one switch.

    Raises:
        UnfinishedError: The flows ended too early.
    """
    for alpha in (1.0, 0.05):
        congestion = STEEP.model_copy(update={"initial_alpha": alpha})
        parameters = congestion.dcqcn(RATE)
        assert parameters is not None
        for threshold in THRESHOLDS:
            ours = _bottleneck(2, {"ecn_bytes": threshold}).used(congestion, 0.0, STEEP_END, switch)
            yield Derived(
                what=f"DCQCN, all marked from {threshold // 1000} kB, alpha from {alpha:g}: link used",
                theory=one_by_one(2, parameters, threshold).share,
                virtual=ours.share,
                form=".1%",
                lowest=-0.08,
                highest=0.08,
            )
    parameters = AS_PUBLISHED.dcqcn(RATE)
    assert parameters is not None
    for senders, probability in FLUID:
        marks = {"ecn_bytes": KMIN, "ecn_max_bytes": KMAX, "ecn_probability": probability}
        theory = fluid(senders, parameters, probability)
        ours = _bottleneck(senders, marks).used(AS_PUBLISHED, SETTLED, END, switch)
        name = f"DCQCN, {senders} senders, marks up to {probability:.0%}"
        yield Derived(
            what=f"{name}: link used",
            theory=theory.share,
            virtual=ours.share,
            form=".1%",
            lowest=-0.03,
            highest=0.03,
        )
        yield Derived(
            what=f"{name}: queue, kB",
            theory=theory.queue / 1e3,
            virtual=ours.queue / 1e3,
            form=".1f",
            lowest=-0.4,
            highest=0.4,
        )


def _bottleneck(senders: int, marks: Mapping[str, float]) -> Bottleneck:
    topology = leaf_spine(0, 1, 1 + senders, rate=RATE, properties={"delay": DELAY, **marks})
    receiver, *others = (host.name for host in topology.ranked_hosts)
    return Bottleneck(
        topology=topology, senders=others, receiver=receiver, link=(topology.leaves[0].name, receiver)
    )


def fluid(senders: int, parameters: DcqcnParameters, probability: float) -> Used:
    """Integrate the fluid model for equal senders that begin at the rate of their links."""
    rate = RATE / 8 / PACKET_BYTES  # packets/s
    least, more = (bits / 8 / PACKET_BYTES for bits in (parameters.min_rate, parameters.additive_rate))
    gain, timer = parameters.gain, parameters.increase_interval
    current = target = rate
    alpha, queue = parameters.initial_alpha, 0.0  # packets
    delayed = deque([(0.0, current)] * round(FEEDBACK / STEP))
    used = total = 0.0
    first, last = round(SETTLED / STEP), round(END / STEP)
    for step in range(last):
        waiting = queue * PACKET_BYTES
        marked = 0.0 if waiting <= KMIN else (waiting - KMIN) / (KMAX - KMIN) * probability
        delayed.append((1.0 if waiting > KMAX else marked, current))
        share, before = delayed.popleft()
        cut, congested = (
            _any(share, before * interval)
            for interval in (parameters.decrease_interval, parameters.alpha_interval)
        )
        steps = _timers(share, before, timer)  # increases per second
        recovered = (1 - share) ** (parameters.fast_recovery * timer * before)
        if step >= first:
            used += min(1.0, senders * current / rate if not queue else 1.0)
            total += waiting
        queue = max(0.0, queue + STEP * (senders * current - rate))
        gap = target - current
        target += STEP * (more * recovered * steps - gap * cut / parameters.decrease_interval)
        current += STEP * (gap / 2 * steps - current * alpha / 2 * cut / parameters.decrease_interval)
        alpha += STEP * gain / parameters.alpha_interval * (congested - alpha)
        target, current = (min(max(value, least), rate) for value in (target, current))
    return Used(used / (last - first), total / (last - first))


def _any(share: float, packets: float) -> float:
    """Return the probability that at least one of this many packets is marked."""
    return 1.0 if share >= 1 else -expm1(packets * log1p(-share))


def _timers(share: float, rate: float, timer: float) -> float:
    """Return how often per second the timer of a sender expires that every mark restarts."""
    if share in (0.0, 1.0):
        return (1 - share) / timer
    exponent = -timer * rate * log1p(-share)
    return rate * share / expm1(exponent) if exponent < 700 else 0.0


@dataclass(slots=True)
class _Sender:
    """DCQCN's reaction point with timers, as in network cards, advanced in small steps."""

    parameters: DcqcnParameters
    current: float
    sent: float  # share of the next packet
    target: float = field(init=False)
    alpha: float = field(init=False)
    increases: int = 0
    decrease_at: float = inf
    alpha_at: float = inf
    increase_at: float = inf
    cut: bool = False
    congested: bool = False
    marks: deque[float] = field(default_factory=deque)  # when they arrive

    def __post_init__(self) -> None:
        self.target, self.alpha = self.current, self.parameters.initial_alpha

    def advance(self, now: float) -> None:
        """Process timers and marks until `now` (seconds)."""
        parameters = self.parameters
        marked = False
        while self.marks and self.marks[0] <= now:
            self.marks.popleft()
            marked = True
        if self.decrease_at <= now:
            if self.cut:
                if self.increases:
                    self.target = self.current
                self.current = max(parameters.min_rate, self.current * (1 - self.alpha / 2))
                self.increases, self.cut = 0, False
                self.increase_at = self.decrease_at + parameters.increase_interval
            self.decrease_at += parameters.decrease_interval
        if self.alpha_at <= now:
            self.alpha += parameters.gain * (self.congested - self.alpha)
            self.congested = False
            self.alpha_at += parameters.alpha_interval
        if self.increase_at <= now:
            if self.increases >= parameters.fast_recovery:
                first = self.increases == parameters.fast_recovery
                self.target += parameters.additive_rate if first else parameters.hyper_rate
                self.target = min(self.target, RATE)
            self.current = (self.current + self.target) / 2
            self.increases += 1
            self.increase_at += parameters.increase_interval
        if marked and self.alpha_at == inf:
            self.decrease_at, self.alpha_at = (
                now + parameters.decrease_interval,
                now + parameters.alpha_interval,
            )
        elif marked:
            self.congested = True
        self.cut = self.cut or marked


def one_by_one(senders: int, parameters: DcqcnParameters, threshold: float) -> Used:
    """Integrate the queue of senders, each with its own timers, if all packets above a threshold are marked."""
    every = [_Sender(parameters, RATE, index / senders) for index in range(senders)]
    capacity = RATE / 8 * STEP
    queue = used = total = 0.0
    steps = round(STEEP_END / STEP)
    for step in range(steps):
        now = step * STEP
        arriving = 0.0
        for sender in every:
            sender.advance(now)
            arriving += sender.current / 8 * STEP
            sender.sent += sender.current / 8 * STEP / PACKET_BYTES
            if sender.sent >= 1:
                sender.sent %= 1
                if queue > threshold:
                    sender.marks.append(now + queue * 8 / RATE + FEEDBACK)
        total += queue
        used += min(queue + arriving, capacity) / capacity
        queue = max(0.0, queue + arriving - capacity)
    return Used(used / steps, total / steps)
