"""Meters for the control plane. runtime/meter.h declares the same structs in C."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_uint64

from fanin.p4switch.entries import (
    CounterValue,
    MeterConfig,
    MeterCounters,
    TableError,
    TableErrorCode,
)


class MeterRate(ctypes.Structure):
    """Rate of a meter, with its bucket."""

    _fields_ = (
        ("per_microsecond", c_double),
        *((name, c_uint64) for name in ("burst", "tokens", "last", "per_second")),
    )


class Counter(ctypes.Structure):
    """Counter in the switch's memory."""

    _fields_ = (("packets", c_uint64), ("bytes", c_uint64))

    def value(self) -> CounterValue:
        """Return the packets and bytes counted."""
        return CounterValue(self.packets, self.bytes)


class Meter(ctypes.Structure):
    """Meter in the switch's memory."""

    _fields_ = (("rates", c_uint64), ("excess", c_uint64), ("rate", MeterRate * 2), ("count", Counter * 3))

    def configure(self, config: MeterConfig | None, rates: int) -> None:
        """Set its rates, with full buckets. None makes everything green.

        Raises:
            TableError: INVALID_ARGUMENT for invalid rates.
        """
        if config is None:
            self.rates = self.excess = 0
            return
        pairs = [(config.cir, config.cburst), (config.pir, config.pburst)][:rates]
        if config.eburst:
            if rates < 2 or pairs[0] != pairs[1]:
                raise _wrong(config, "an excess burst needs a meter of two rates that are equal")
            pairs[1] = (config.pir, config.eburst)
        if any(rate < 0 or not 0 <= burst < 1 << 63 for rate, burst in pairs) or (
            rates == 2 and config.cir > config.pir
        ):
            raise _wrong(config, "rates are not negative, and the peak rate is not below the committed one")
        for number, (rate, burst) in enumerate(pairs):
            self.rate[number] = MeterRate(rate / 1e6, burst, burst, 0, rate)
        self.rates, self.excess = rates, config.eburst > 0

    def config(self) -> MeterConfig | None:
        """Return its rates; None if it is not configured."""
        if not self.rates:
            return None
        first, last = self.rate[0], self.rate[self.rates - 1]
        rate, burst = first.per_second, first.burst
        if self.excess:
            return MeterConfig(rate, burst, rate, burst, last.burst)
        return MeterConfig(rate, burst, last.per_second, last.burst)

    def counters(self) -> MeterCounters:
        """Return what it has marked green, yellow and red."""
        green, yellow, red = (count.value() for count in self.count)
        return green, yellow, red

    def set_counters(self, counters: MeterCounters) -> None:
        """Set its counters."""
        for count, value in zip(self.count, counters, strict=True):
            count.packets, count.bytes = value.packets, value.bytes


def _wrong(config: MeterConfig, rule: str) -> TableError:
    return TableError(TableErrorCode.INVALID_ARGUMENT, f"{config}: {rule}")
