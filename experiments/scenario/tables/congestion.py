"""The table `congestion` of a scenario: how senders between hosts react to congestion marks."""

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

_PARAMETERS: Mapping[str, Sequence[str]] = {
    "dctcp": [field.name for field in fields(DctcpParameters)],
    "dcqcn": [field.name for field in fields(DcqcnParameters)],
}

# The parameters of HPCC (Li et al., SIGCOMM 2019; alibaba-edu/High-Precision-Congestion-Control, run.py).
_HPCC: Mapping[str, Mapping[str, Any]] = {
    "dcqcn": {"alpha_interval": 1e-6, "decrease_interval": 4e-6, "increase_interval": 300e-6},
    "dcqcn-paper": {"alpha_interval": 50e-6, "decrease_interval": 50e-6, "increase_interval": 55e-6},
}

# The code of DCQCN's authors with their settings (bobzhuyb/ns3-rdma, mix/config.txt), for 40 Gb/s. Theirs raises a rate
# by hyper_rate only after five times 300 MB, which is not modelled here.
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
    """Return the preset parameters of a sender whose link has `rate` (bits/s); None if it does not use DCQCN."""
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
    """Congestion control of all senders between hosts, including those of other traffic."""

    control: Annotated[
        Control,
        Field(description="dctcp: controls a window (RFC 8257); dcqcn…: a rate, with these parameters"),
    ] = "dctcp"
    gain: Annotated[
        float | None,
        Field(gt=0, le=1, description="weight of a new sample in alpha, the congestion estimate"),
    ] = None
    initial_alpha: Annotated[float | None, Field(ge=0, le=1, description="first value of alpha")] = None
    alpha_interval: Annotated[
        Seconds | None, Field(gt=0, description="DCQCN: time after which alpha is updated")
    ] = None
    decrease_interval: Annotated[
        Seconds | None, Field(gt=0, description="DCQCN: time between two decreases of the rate")
    ] = None
    increase_interval: Annotated[
        Seconds | None, Field(gt=0, description="DCQCN: time between two increases of the rate")
    ] = None
    fast_recovery: Annotated[
        int | None,
        Field(
            ge=0, description="DCQCN: number of increases that go half of the way back to the earlier rate"
        ),
    ] = None
    additive_rate: Annotated[
        Rate | None,
        Field(description="DCQCN: rate that the first increase after those adds to the earlier rate"),
    ] = None
    hyper_rate: Annotated[Rate | None, Field(description="DCQCN: step in all later increases")] = None
    min_rate: Annotated[Rate | None, Field(description="DCQCN: lowest rate")] = None
    min_window: Annotated[int | None, Field(ge=1, description="DCTCP: smallest window in packets")] = None
    initial_window: Annotated[
        int | None, Field(ge=1, description="DCTCP: first window in packets, at most `window`")
    ] = None
    ssthresh: Annotated[
        int | None,
        Field(ge=1, description="DCTCP: window in packets where slow start ends, if no mark ends it"),
    ] = None
    increase: Annotated[
        Literal["unmarked", "always"] | None,
        Field(description="DCTCP: the rounds after which the window grows by a packet"),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """Return the parameters that replace those of a preset."""
        return self.model_dump(exclude_none=True, exclude={"control"})

    def in_effect(self, rate: float | None) -> dict[str, Any]:
        """Return the parameters of a sender whose link has `rate` (bits/s), by their keys."""
        parameters = self.dctcp if self.control == "dctcp" else rate and self.dcqcn(rate)
        keys = type(self).model_fields
        return {key: value for key, value in asdict(parameters).items() if key in keys} if parameters else {}

    @property
    def dctcp(self) -> DctcpParameters:
        """Return the parameters of a sender that uses DCTCP."""
        return DctcpParameters(**self.given)

    def dcqcn(self, rate: float) -> DcqcnParameters | None:
        """Return the parameters of a sender whose link has `rate` (bits/s); None if it does not use DCQCN."""
        preset = _preset(self.control, rate)
        return None if preset is None else replace(preset, **self.given)

    def control_of(self, topology: Topology, host: str, payload: int = PAYLOAD) -> MakeControl:
        """Return a function that makes the congestion control of a sender on `host`; DCQCN needs a link with a rate."""
        if self.control == "dctcp":
            return partial(Dctcp, parameters=self.dctcp)
        if self.control == "none":
            return NoControl
        rate = topology.links_of(host)[0].rate_bits_per_second
        assert rate is not None
        parameters = self.dcqcn(rate)
        assert parameters is not None
        return partial(
            Dcqcn, parameters=parameters, rate=rate, packet_bits=8 * (HEADERS + HEADER_BYTES + payload)
        )

    def _problems(self) -> Iterator[str]:
        own = next((names for control, names in _PARAMETERS.items() if self.control.startswith(control)), ())
        for name in self.given:
            if name not in own:
                owner = next(control for control, names in _PARAMETERS.items() if name in names)
                yield f"{name}: is a parameter of {owner.upper()}; leave it out, or set control = '{owner}'"
