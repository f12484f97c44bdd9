"""The model of a link apart from its rate, for topologies, scenarios, live switches and virtual time."""

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
        """Return the fields whose values differ from the defaults."""
        fields = type(self).model_fields
        return {name: value for name, value in self if value != fields[name].default}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Return what pydantic prints."""
        return self.given.items()


class Burst(_Table):
    """Loss in bursts (Gilbert-Elliott model).

    Attributes:
        begin: The probability that a burst begins with a packet.
        end: The probability that a burst ends with a packet.
        loss: The probability that a packet is lost during a burst.
    """

    begin: Probability
    end: Probability
    loss: Probability = 1.0


class Watchdog(_Table):
    """A watchdog for pauses that do not end, like SONiC's pfcwd; it watches each queue of a switch separately.

    Attributes:
        detection_time: Seconds for which a queue with waiting packets may be paused. After that it is in a storm.
        restoration_time: Seconds without a pause after which the storm ends.
        action: What happens to the queue's packets during a storm: they are dropped, or forwarded in spite of the
            pause, or nothing is done ("alert"). Storms are always counted.
    """

    detection_time: Seconds
    restoration_time: Seconds
    action: Literal["drop", "forward", "alert"] = "drop"


class Pause(_Table):
    """Priority flow control (IEEE 802.1Qbb), for each priority separately; in virtual time only.

    The switch at the far end of a link pauses it when more than `xoff_bytes` (on the wire) of the packets that came
    over the link wait in its queues. It resumes the link when no more than `xon_bytes` do.

    Attributes:
        xoff_bytes: Pause the link when more bytes than this wait.
        xon_bytes: Resume the link when no more bytes than this wait; at most `xoff_bytes`.
        watchdog: What ends a pause that lasts too long. Left out: nothing does.
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
    """The behaviour of a link in either direction, drawn for each packet separately; the topology has its rate.

    Attributes:
        delay: Seconds from sending the last bit until the far end has it. If it is left out or 0, a live network adds
            no delay, and virtual time has 1 us.
        jitter: Up to this many further seconds for each packet; packets do not overtake each other.
        queue_bytes: The size of a switch's queue. A packet that does not fit is dropped. Left out: unlimited. Hosts do
            not drop packets, they wait.
        ecn_bytes: A switch marks an ECN-capable packet (RFC 3168) if more bytes than this are waiting.
        ecn_max_bytes: Mark with a probability that grows from 0 at ecn_bytes to ecn_probability at ecn_max_bytes, and
            always above that (Kmin, Kmax and Pmax of DCQCN). In virtual time only.
        ecn_probability: The probability of a mark just below ecn_max_bytes. In virtual time only.
        overhead: Bytes that a frame takes on the wire in addition to its own. Left out: none in a live network, as
            Linux's htb counts, and Ethernet's 24 in virtual time.
        loss: The probability that a packet is lost.
        corruption: The probability that one bit of a frame is flipped, anywhere from the Ethernet header on. The frame
            check sequence does not notice it; only checksums of higher layers can.
        duplication: The probability that a packet arrives twice.
        reordering: The probability that a packet is delayed by up to `displacement`.
        displacement: The most seconds by which a reordered packet, or the copy of a duplicated one, is late.
        burst: Loss in bursts.
        pause: Priority flow control. In virtual time only.
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
                "reordering: needs displacement, the most seconds by which a reordered packet is late"
            )
        if self.queue_bytes is not None and self.ecn_bytes is not None and self.ecn_bytes >= self.queue_bytes:
            raise ValueError(
                "ecn_bytes: must be less than queue_bytes, where packets are dropped instead of marked"
            )
        if self.ecn_max_bytes is None and self.ecn_probability is not None:
            raise ValueError("ecn_probability: needs ecn_max_bytes, where the probability is reached")
        if self.ecn_max_bytes is not None and (
            self.ecn_bytes is None or self.ecn_max_bytes <= self.ecn_bytes
        ):
            raise ValueError("ecn_max_bytes: must be more than ecn_bytes, where marking begins")
        return self

    @property
    def virtual_delay(self) -> float:
        """Return the delay in virtual time in seconds, which is never 0."""
        return self.delay or _VIRTUAL_DELAY

    @property
    def virtual_overhead(self) -> int:
        """Return the overhead of a frame in virtual time in bytes."""
        return ETHERNET_OVERHEAD if self.overhead is None else self.overhead

    @property
    def ecn_range(self) -> tuple[int | None, int | None, float]:
        """Return from how many waiting bytes on packets are marked.

        Returns:
            The bytes above which packets may be marked, the bytes above which all are, and the probability just below
            the latter. The first two are None if nothing is marked.
        """
        if self.ecn_max_bytes is None:
            return self.ecn_bytes, self.ecn_bytes, 1.0
        return (
            self.ecn_bytes,
            self.ecn_max_bytes,
            1.0 if self.ecn_probability is None else self.ecn_probability,
        )

    @property
    def mean_loss(self) -> float:
        """Return the long-term probability that a packet does not arrive as it was sent."""
        arrives = (1 - self.loss) * (1 - self.corruption)
        if self.burst and self.burst.begin:
            arrives *= 1 - self.burst.loss * self.burst.begin / (self.burst.begin + self.burst.end)
        return 1 - arrives


VIRTUAL_ONLY = ("pause", "ecn_max_bytes", "ecn_probability")  # of a link's properties


class LinkProperties(LinkModel):
    """The properties of a link in a topology.

    Attributes:
        seed: The seed of the random numbers that a live switch draws for the link; virtual time has one for all links.
    """

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


PLAIN = LinkProperties()
