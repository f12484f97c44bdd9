"""The table `recovery` of a scenario: timers of retransmission."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.topologies.units import Seconds


class Recovery(Table):
    """Retransmission; timers left out, those that suit the links in virtual time, and live the switch."""

    initial_rto: Seconds | None = None
    min_rto: Seconds | None = None
    granularity: Annotated[Seconds | None, Field(description="of the clock")] = None
    packet_threshold: Annotated[
        int | None,
        Field(
            ge=1,
            description="with selective-repeat, how far a packet is overtaken before it is sent again; left out, 3",
        ),
    ] = None

    @property
    def timers(self) -> dict[str, float]:
        """Those that are set."""
        return self.model_dump(exclude_none=True, exclude={"packet_threshold"})
