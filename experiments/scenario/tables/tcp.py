"""The table `tcp` of a scenario: the operating system's part of the transport tcp in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.topologies.units import Seconds


class Tcp(Table):
    """Processor time and timers of TCP; the defaults of the timers are Linux's."""

    packet_time: Annotated[
        Seconds, Field(description="time of a host's processor for each packet that it sends or receives")
    ] = 0.0
    initial_rto: Annotated[
        Seconds, Field(gt=0, description="retransmission timeout before the first measurement")
    ] = 1.0
    min_rto: Annotated[Seconds, Field(gt=0, description="smallest retransmission timeout")] = 0.2

    def _problems(self) -> Iterator[str]:
        if self.min_rto > self.initial_rto:
            yield f"min_rto: is {self.min_rto:g} s, more than initial_rto, {self.initial_rto:g} s; reduce it"
