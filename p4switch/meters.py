"""Meters as the control plane sees them; runtime/meter.h has the other side."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_uint64

from p4switch.entries import MeterConfig, TableError, TableErrorCode


class _Rate(ctypes.Structure):
    _fields_ = (("per_microsecond", c_double), ("burst", c_uint64), ("tokens", c_uint64), ("last", c_uint64))


class Meter(ctypes.Structure):
    """One meter, in the switch's memory."""

    _fields_ = (("rates", c_uint64), ("since", c_uint64), ("rate", _Rate * 2))

    def configure(self, config: MeterConfig | None, rates: int) -> None:
        """Sets its rates, with full buckets; None: everything is green. TableError: rates that are none."""
        if config is None:
            self.rates = 0
            return
        pairs = ((config.cir, config.cburst), (config.pir, config.pburst))[:rates]
        if any(rate < 0 or not 0 <= burst < 1 << 63 for rate, burst in pairs) or (
            rates == 2 and config.cir > config.pir
        ):
            raise TableError(
                TableErrorCode.INVALID_ARGUMENT,
                f"{config}: rates are not negative, and the peak rate is not below the committed one",
            )
        for number, (rate, burst) in enumerate(pairs):
            self.rate[number] = _Rate(rate / 1e6, burst, burst, 0)
        self.rates, self.since = rates, 0

    def config(self) -> MeterConfig | None:
        """Its rates; None: it has not been configured."""
        if not self.rates:
            return None
        first, last = self.rate[0], self.rate[self.rates - 1]
        return MeterConfig(
            round(first.per_microsecond * 1e6), first.burst, round(last.per_microsecond * 1e6), last.burst
        )
