"""What a link does to packets besides its rate: one model for topologies, scenarios, live switches and virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fanin.topologies.units import Bytes, Probability, Seconds

ETHERNET_OVERHEAD = 24  # preamble 8, frame check sequence 4, gap 12
_VIRTUAL_DELAY = 1e-6
_SHORTEST_DELAY = 1e-9


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def given(self) -> dict[str, Any]:
        """What is not as by default."""
        fields = type(self).model_fields
        return {name: value for name, value in self if value != fields[name].default}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Pydantic's: what is printed."""
        return self.given.items()


class Burst(_Table):
    """Loss in bursts (Gilbert-Elliott): probabilities that one begins and ends with a packet, and of loss in it."""

    begin: Probability
    end: Probability
    loss: Probability = 1.0


class Watchdog(_Table):
    """Over pauses that do not end, as SONiC's pfcwd: of each queue of a switch by itself.

    detection_time: seconds for which a queue that has something to send may be paused; then there is a storm, until it
    has not been paused for `restoration_time` seconds. action: meanwhile its packets are dropped, or forwarded all the
    same, or (alert) nothing is done. Storms are counted in any case.
    """

    detection_time: Seconds
    restoration_time: Seconds
    action: Literal["drop", "forward", "alert"] = "drop"


class Pause(_Table):
    """Priority flow control (IEEE 802.1Qbb): when the switch at a link's far end says stop, of each priority by itself.

    It does when more than `xoff_bytes` (on the wire) of what came by this link wait in its queues, and takes it back
    when no more than `xon_bytes` do. In virtual time only.
    """

    xoff_bytes: Bytes
    xon_bytes: Bytes
    watchdog: Watchdog | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.xon_bytes > self.xoff_bytes:
            raise ValueError(
                f"xon_bytes: is {self.xon_bytes}, must be from 0 to xoff_bytes ({self.xoff_bytes})"
            )
        return self


class LinkModel(_Table):
    """What a link does in either direction, drawn for each packet by itself; its rate is the topology's.

    delay: seconds from the last bit sent to the far end's having it; left out or 0: none live, 1 us in virtual time.
    jitter: up to this many seconds more for each packet, which does not overtake the one before.
    queue_bytes: a packet that finds no room at a switch is dropped (None: there always is; hosts always wait).
    ecn_bytes: a packet that finds more waiting at a switch is marked, if it is ECN-capable (RFC 3168).
    ecn_max_bytes, ecn_probability: if given, it is marked with a probability that grows from 0 at ecn_bytes to
    ecn_probability at ecn_max_bytes, and always with more (Kmin, Kmax and Pmax of DCQCN); in virtual time only.
    overhead: bytes that a frame takes on the wire besides its own; left out: none live, as Linux's htb counts, and
    Ethernet's 24 in virtual time.
    loss, corruption, duplication, reordering: probabilities. In a corrupted frame one bit is flipped, anywhere from the
    Ethernet header on, as where the frame check sequence does not see it; checksums above are the receiver's affair.
    displacement: seconds that a reordered packet, and the copy of a duplicated one, may come later.
    """

    delay: Seconds | None = None
    jitter: Seconds = 0.0
    queue_bytes: Bytes | None = None
    ecn_bytes: Bytes | None = None
    ecn_max_bytes: Bytes | None = None
    ecn_probability: Probability | None = None
    overhead: Bytes | None = None
    loss: Probability = 0.0
    corruption: Probability = 0.0
    duplication: Probability = 0.0
    reordering: Probability = 0.0
    displacement: Seconds = 0.0
    burst: Burst | None = None
    pause: Pause | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.delay and self.delay < _SHORTEST_DELAY:
            raise ValueError(f"delay: is {self.delay} s, must be at least 1 ns, or 0")
        if self.reordering and not self.displacement:
            raise ValueError(
                "reordering: needs a displacement, how many seconds later such a packet may come"
            )
        if self.queue_bytes is not None and self.ecn_bytes is not None and self.ecn_bytes >= self.queue_bytes:
            raise ValueError(
                "ecn_bytes: has to be less than queue_bytes, at which packets are dropped, not marked"
            )
        if self.ecn_max_bytes is None and self.ecn_probability is not None:
            raise ValueError("ecn_probability: needs ecn_max_bytes, at which a packet is marked with it")
        if self.ecn_max_bytes is not None and (
            self.ecn_bytes is None or self.ecn_max_bytes <= self.ecn_bytes
        ):
            raise ValueError("ecn_max_bytes: has to be more than ecn_bytes, from which on packets are marked")
        return self

    @property
    def virtual_delay(self) -> float:
        """Seconds in virtual time, where nothing arrives at once."""
        return self.delay or _VIRTUAL_DELAY

    @property
    def virtual_overhead(self) -> int:
        """Bytes in virtual time."""
        return ETHERNET_OVERHEAD if self.overhead is None else self.overhead

    @property
    def ecn_range(self) -> tuple[int | None, int | None, float]:
        """Bytes from which on packets are marked, and always marked; the probability just before."""
        if self.ecn_max_bytes is None:
            return self.ecn_bytes, self.ecn_bytes, 1.0
        return (
            self.ecn_bytes,
            self.ecn_max_bytes,
            1.0 if self.ecn_probability is None else self.ecn_probability,
        )

    @property
    def mean_loss(self) -> float:
        """The probability that a packet does not arrive as it was sent, in the long run."""
        arrives = (1 - self.loss) * (1 - self.corruption)
        if self.burst and self.burst.begin:
            arrives *= 1 - self.burst.loss * self.burst.begin / (self.burst.begin + self.burst.end)
        return 1 - arrives


VIRTUAL_ONLY = ("pause", "ecn_max_bytes", "ecn_probability")  # of a link's properties


class LinkProperties(LinkModel):
    """As a topology gives them. seed: of what a live switch draws for the link; virtual time has one for all links."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


PLAIN = LinkProperties()
