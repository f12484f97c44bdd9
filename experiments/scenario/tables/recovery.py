"""The table `recovery` of a scenario: timers of retransmission."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.topologies.units import TIMES, Seconds, exact_text


class Recovery(Table):
    """Retransmission. Timers that are left out suit the links in virtual time, and the switch in a live network."""

    initial_rto: Annotated[
        Seconds | None, Field(description="retransmission timeout before the first round-trip time is known")
    ] = None
    min_rto: Annotated[Seconds | None, Field(description="shortest retransmission timeout")] = None
    granularity: Annotated[Seconds | None, Field(description="granularity of the clock")] = None
    packet_threshold: Annotated[
        int | None,
        Field(
            ge=1,
            description="selective-repeat: packets that overtake one before it is retransmitted; default: 3",
        ),
    ] = None

    def _problems(self) -> Iterator[str]:
        if self.min_rto and self.initial_rto and self.min_rto > self.initial_rto:
            shortest, first = (exact_text(each, TIMES) for each in (self.min_rto, self.initial_rto))
            yield f"min_rto: is {shortest}, longer than initial_rto, {first}; reduce it, or leave out one of them"
