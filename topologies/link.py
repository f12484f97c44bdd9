"""What a link does to packets besides its rate: one vocabulary for live switches and for virtual time."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Probability = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=3600)]
Bytes = Annotated[int, Field(ge=0)]


class Bursts(BaseModel):
    """Loss in bursts after Gilbert and Elliott: a chain of two states, a step a packet; `loss` in the bad one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    begin: Probability
    end: Probability
    loss: Probability = 1.0


def check_together(
    reordering: float, displacement: float, queue_bytes: int | None, ecn_bytes: int | None
) -> None:
    """Raises ValueError if one property undoes another."""
    if reordering and not displacement:
        raise ValueError("reordering needs a displacement: how many seconds later such a packet may come")
    if queue_bytes is not None and ecn_bytes is not None and ecn_bytes >= queue_bytes:
        raise ValueError(
            "ecn_bytes has to be less than queue_bytes, at which packets are dropped, not marked"
        )


class LinkProperties(BaseModel):
    """What either direction of a link does, drawn for each packet by itself.

    delay: seconds from the last bit sent to the far end's having it.
    jitter: up to this many seconds more for each packet, which does not overtake the one before.
    queue_bytes: a packet that finds no room at a switch is dropped (None: there always is; hosts always wait).
    ecn_bytes: a packet that finds more waiting at a switch is marked, if it is ECN-capable (RFC 3168).
    overhead: bytes that a frame takes on the wire besides its own: 24 with Ethernet, of which Linux's htb counts none.
    loss, corruption, duplication, reordering: probabilities. In a corrupted frame one bit is flipped, anywhere from the
    Ethernet header on, as where the frame check sequence does not see it; checksums above are the receiver's affair.
    displacement: seconds that a reordered packet, and the copy of a duplicated one, may come later.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    delay: Seconds = 0.0
    jitter: Seconds = 0.0
    queue_bytes: Bytes | None = None
    ecn_bytes: Bytes | None = None
    overhead: Bytes = 0
    loss: Probability = 0.0
    corruption: Probability = 0.0
    duplication: Probability = 0.0
    reordering: Probability = 0.0
    displacement: Seconds = 0.0
    burst: Bursts | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        check_together(self.reordering, self.displacement, self.queue_bytes, self.ecn_bytes)
        return self


PLAIN = LinkProperties()
