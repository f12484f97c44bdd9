"""The table `congestion` of a scenario: what senders between hosts do about congestion marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.topologies.model import Topology
from fanin.topologies.units import Rate, Seconds
from fanin.workers.host_based.congestion_control import (
    Dcqcn,
    DcqcnParameters,
    Dctcp,
    DctcpParameters,
    MakeControl,
    NoControl,
)
from fanin.workers.host_based.transport import HEADER_BYTES, PAYLOAD
from fanin.workers.wire import HEADERS

Control = Literal["dctcp", "none", "dcqcn", "dcqcn-paper", "dcqcn-ns3"]

_PACKET_BITS = 8 * (HEADERS + HEADER_BYTES + PAYLOAD)

_PARAMETERS: Mapping[str, Sequence[str]] = {
    "dctcp": [field.name for field in fields(DctcpParameters)],
    "dcqcn": [field.name for field in fields(DcqcnParameters)],
}

# HPCC's (Li et al., SIGCOMM 2019; alibaba-edu/High-Precision-Congestion-Control, run.py).
_HPCC: Mapping[str, Mapping[str, Any]] = {
    "dcqcn": {"alpha_interval": 1e-6, "decrease_interval": 4e-6, "increase_interval": 300e-6},
    "dcqcn-paper": {"alpha_interval": 50e-6, "decrease_interval": 50e-6, "increase_interval": 55e-6},
}

# The code of DCQCN's authors with their settings (bobzhuyb/ns3-rdma, mix/config.txt), for 40 Gb/s. It raises a rate by
# its hyper_rate only after five times 300 MB, which is not modelled.
_NS3 = DcqcnParameters(
    alpha_interval=55e-6,
    decrease_interval=50e-6,
    increase_interval=60e-6,
    fast_recovery=4,
    additive_rate=40e6,
    hyper_rate=40e6,
    min_rate=100e6,
    initial_alpha=0.5,
    by_timer=False,
    keep_target=False,
)


def _preset(control: Control, rate: float) -> DcqcnParameters | None:
    """Of a sender whose link has `rate` (bits/s); None: it is not DCQCN."""
    if control in _HPCC:
        return DcqcnParameters(
            **_HPCC[control],
            fast_recovery=1,
            additive_rate=5e6 * rate / 25e9,
            hyper_rate=50e6 * rate / 25e9,
            min_rate=1e9,
        )
    return _NS3 if control == "dcqcn-ns3" else None


class Congestion(Table):
    """Congestion control of all senders between hosts, those of traffic beside the job, too."""

    control: Annotated[
        Control, Field(description="dctcp: a window (RFC 8257); dcqcn…: a rate, by whose parameters")
    ] = "dctcp"
    gain: Annotated[float | None, Field(gt=0, le=1, description="of alpha, the estimate of congestion")] = (
        None
    )
    initial_alpha: Annotated[float | None, Field(ge=0, le=1, description="with which alpha begins")] = None
    alpha_interval: Annotated[Seconds | None, Field(gt=0, description="after which alpha is set anew")] = None
    decrease_interval: Annotated[Seconds | None, Field(gt=0, description="between two decreases")] = None
    increase_interval: Annotated[Seconds | None, Field(gt=0, description="between two increases")] = None
    fast_recovery: Annotated[
        int | None, Field(ge=0, description="increases half of the way back to the rate before")
    ] = None
    additive_rate: Annotated[Rate | None, Field(description="by which the next increase goes beyond")] = None
    hyper_rate: Annotated[Rate | None, Field(description="by which all others do")] = None
    min_rate: Annotated[Rate | None, Field(description="which no decrease goes below")] = None
    min_window: Annotated[
        int | None, Field(ge=1, description="packets: DCTCP's, which no decrease goes below")
    ] = None
    initial_window: Annotated[
        int | None, Field(ge=1, description="packets: with which DCTCP begins, at most window")
    ] = None
    ssthresh: Annotated[
        int | None, Field(ge=1, description="packets: up to which DCTCP grows by slow start, until a mark")
    ] = None
    increase: Annotated[
        Literal["unmarked", "always"] | None,
        Field(description="after which rounds DCTCP's window grows by a packet"),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """What takes the place of a preset's parameter."""
        return self.model_dump(exclude_none=True, exclude={"control"})

    def in_effect(self, rate: float | None) -> dict[str, Any]:
        """Parameters of a sender whose link has `rate` (bits/s), by their keys."""
        parameters = self.dctcp if self.control == "dctcp" else rate and self.dcqcn(rate)
        keys = type(self).model_fields
        return {key: value for key, value in asdict(parameters).items() if key in keys} if parameters else {}

    @property
    def dctcp(self) -> DctcpParameters:
        """Of a sender with DCTCP."""
        return DctcpParameters(**self.given)

    def dcqcn(self, rate: float) -> DcqcnParameters | None:
        """Of a sender whose link has `rate` (bits/s); None: it is not DCQCN."""
        preset = _preset(self.control, rate)
        return None if preset is None else replace(preset, **self.given)

    def control_of(self, topology: Topology, host: str) -> MakeControl:
        """Return what makes the congestion control of a sender on `host`; DCQCN needs a link with a rate."""
        if self.control == "dctcp":
            return partial(Dctcp, parameters=self.dctcp)
        if self.control == "none":
            return NoControl
        rate = topology.links_of(host)[0].rate_bits_per_second
        assert rate is not None
        parameters = self.dcqcn(rate)
        assert parameters is not None
        return partial(Dcqcn, parameters=parameters, rate=rate, packet_bits=_PACKET_BITS)

    def _problems(self) -> Iterator[str]:
        own = next((names for control, names in _PARAMETERS.items() if self.control.startswith(control)), ())
        for name in self.given:
            if name not in own:
                owner = next(control for control, names in _PARAMETERS.items() if name in names)
                yield f"{name}: is {owner.upper()}'s; leave it out, or set control = '{owner}'"
