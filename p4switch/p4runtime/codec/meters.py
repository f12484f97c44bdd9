"""Meters' rates and counters by colour: P4Runtime's messages and the engine's (specification, "MeterEntry")."""

from __future__ import annotations

from dataclasses import asdict

from fanin.p4switch.entries import CounterValue, MeterConfig, MeterCounters
from fanin.p4switch.p4runtime.codec.counters import decode_counter, encode_counter
from fanin.p4switch.p4runtime.errors import invalid
from fanin.p4switch.p4runtime.proto import p4i, p4r

_METER_TYPES = {f"@{name.lower()}": number for name, number in p4i.MeterSpec.Type.items()}


def meter_type(meter: p4i.Meter | p4i.DirectMeter) -> p4i.MeterSpec.Type.ValueType:
    """Return a meter's type: its own, or that of an annotation such as `@single_rate_three_color`.

    According to the specification ("Meter & DirectMeter") the compiler turns annotations into types; p4c 1.2.4 passes
    them on.
    """
    annotated = (_METER_TYPES[a] for a in meter.preamble.annotations if a in _METER_TYPES)
    return meter.spec.type or next(annotated, p4i.MeterSpec.TWO_RATE_THREE_COLOR)


def decode_meter(message: p4r.MeterConfig, kind: p4i.MeterSpec.Type.ValueType) -> MeterConfig:
    """Decode a meter's rates.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if they do not suit its type.
    """
    if message.eburst and kind != p4i.MeterSpec.SINGLE_RATE_THREE_COLOR:
        raise invalid("only meters of the type SINGLE_RATE_THREE_COLOR have an eburst: leave it unset")
    if kind != p4i.MeterSpec.TWO_RATE_THREE_COLOR and (message.pir, message.pburst) != (
        message.cir,
        message.cburst,
    ):
        raise invalid("a meter of a single rate needs pir equal to cir and pburst equal to cburst")
    return MeterConfig(message.cir, message.cburst, message.pir, message.pburst, message.eburst)


def encode_meter(config: MeterConfig) -> p4r.MeterConfig:
    """Encode a meter's rates."""
    return p4r.MeterConfig(**asdict(config))


def decode_meter_counters(data: p4r.MeterCounterData) -> MeterCounters:
    """Decode a meter's counters by colour."""
    return decode_counter(data.green), decode_counter(data.yellow), decode_counter(data.red)


def encode_meter_counters(counters: MeterCounters) -> p4r.MeterCounterData:
    """Encode a meter's counters by colour."""
    green, yellow, red = map(encode_counter, counters)
    return p4r.MeterCounterData(green=green, yellow=yellow, red=red)


def require_zero(data: p4r.MeterCounterData) -> None:
    """Check that counters by colour are zero, the only value that can be written (see "Direct Resources").

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if they are not.
    """
    if any(value != CounterValue(0, 0) for value in decode_meter_counters(data)):
        raise invalid("counters by colour can only be set to zero: leave their fields unset")
