"""Rates of meters, as BMv2's interface gives them and as the engine has them."""

from __future__ import annotations

from collections.abc import Sequence

from fanin.p4switch.bmv2_runtime.interface import BmMeterRateConfig
from fanin.p4switch.entries import MeterConfig

_MICROSECONDS = 1_000_000


class BadRatesError(ValueError):
    """List of rates that does not belong to a meter."""


def meter_config(rates: Sequence[BmMeterRateConfig]) -> MeterConfig:
    """Return rates, the committed one first, as a meter's.

    Raises:
        BadRatesError: If there are none or more than two, or one is negative.
    """
    if not 1 <= len(rates) <= 2 or any(rate.units_per_micros < 0 or rate.burst_size < 0 for rate in rates):
        raise BadRatesError
    (cir, cburst), (pir, pburst) = (
        (round(rate.units_per_micros * _MICROSECONDS), rate.burst_size) for rate in (rates[0], rates[-1])
    )
    return MeterConfig(cir, cburst, pir, pburst)


def meter_rates(config: MeterConfig | None) -> list[BmMeterRateConfig]:
    """Return a meter's rates; none if it is not configured."""
    if config is None:
        return []
    return [
        BmMeterRateConfig(config.cir / _MICROSECONDS, config.cburst),
        BmMeterRateConfig(config.pir / _MICROSECONDS, config.pburst),
    ]
