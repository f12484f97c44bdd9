"""Arrays of counters, registers and meters over P4Runtime (specification, "CounterEntry" and so on)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import grpc

from p4switch.engine.engine import Engine
from p4switch.engine.entries import CounterValue, MeterConfig, MeterCounters
from p4switch.p4runtime.codec.data import data_type
from p4switch.p4runtime.codec.translation import Translations
from p4switch.p4runtime.errors import P4RuntimeError, invalid
from p4switch.p4runtime.proto import p4i, p4r, p4t

_COLOR_COUNTERS = {
    "table_entry": "meter_counter_data",
    "direct_meter_entry": "counter_data",
    "meter_entry": "counter_data",
}
_METER_TYPES = {f"@{name.lower()}": number for name, number in p4i.MeterSpec.Type.items()}


class CounterArray:
    """One indirect counter: its cells read and written by index, or all at once."""

    def __init__(self, counter: p4i.Counter, engine: Engine) -> None:
        self.id = counter.preamble.id
        self.name = counter.preamble.name
        self.size = engine.program.counters[self.name].size
        self._engine = engine

    def modify(self, message: p4r.CounterEntry) -> None:
        """Set one cell, or every cell where no index is given; without data nothing changes."""
        indices = _indices(message, self.size, self.name)
        if message.HasField("data"):
            value = decode_counter(message.data)
            for index in indices:
                self._engine.counter(self.name).write(index, value)

    def read(self, query: p4r.CounterEntry) -> Iterator[p4r.CounterEntry]:
        """One cell, or every cell where no index is given."""
        indices = _indices(query, self.size, self.name)
        if query.HasField("index"):
            values = [self._engine.counter(self.name).read(indices.start)]
        else:
            values = self._engine.counter(self.name).read_all()
        for index, value in zip(indices, values, strict=True):
            yield p4r.CounterEntry(
                counter_id=self.id,
                index=p4r.Index(index=index),
                data=encode_counter(value),
            )


class RegisterArray:
    """One register: its cells read and written by index, or all at once. (BMv2's server cannot do it.)"""

    def __init__(
        self, register: p4i.Register, engine: Engine, types: p4t.P4TypeInfo, translations: Translations
    ) -> None:
        self.id = register.preamble.id
        self.name = register.preamble.name
        array = engine.program.registers[self.name]
        self.size = array.size
        self._width = array.width
        self._engine = engine
        self._type = data_type(register.type_spec, types, translations, f"register {self.name}")

    def modify(self, message: p4r.RegisterEntry) -> None:
        """Set one cell, or every cell where no index is given."""
        indices = _indices(message, self.size, self.name)
        value = self._type.decode(message.data, self._width)
        for index in indices:
            self._engine.register(self.name).write(index, value)

    def read(self, query: p4r.RegisterEntry) -> Iterator[p4r.RegisterEntry]:
        """One cell, or every cell where no index is given."""
        indices = _indices(query, self.size, self.name)
        values = self._engine.register(self.name).read(indices.start, len(indices))
        for index, value in zip(indices, values, strict=True):
            yield p4r.RegisterEntry(
                register_id=self.id, index=p4r.Index(index=index), data=self._type.encode(iter([value]))
            )


class MeterArray:
    """One indirect meter: its cells configured by index, or all at once (specification, "MeterEntry")."""

    def __init__(self, meter: p4i.Meter, engine: Engine) -> None:
        self.id = meter.preamble.id
        self.name = meter.preamble.name
        self.size = engine.program.meters[self.name].size
        self._engine = engine
        self._type = meter_type(meter)

    def modify(self, message: p4r.MeterEntry) -> None:
        """Configure one cell, or every cell where no index is given; without a config it is reset."""
        config = decode_meter(message.config, self._type) if message.HasField("config") else None
        for index in _indices(message, self.size, self.name):
            self._engine.meter(self.name).configure(index, config)
            if message.HasField("counter_data"):
                counters = decode_meter_counters(message.counter_data)
                self._engine.meter(self.name).set_counters(index, counters)

    def read(self, query: p4r.MeterEntry) -> Iterator[p4r.MeterEntry]:
        """One cell, or every cell where no index is given; with what it has counted, if the query has that."""
        for index in _indices(query, self.size, self.name):
            message = p4r.MeterEntry(meter_id=self.id, index=p4r.Index(index=index))
            config = self._engine.meter(self.name).config(index)
            if config is not None:
                message.config.CopyFrom(encode_meter(config))
            if query.HasField("counter_data"):
                counters = self._engine.meter(self.name).counters(index)
                message.counter_data.CopyFrom(encode_meter_counters(counters))
            yield message

    def export(self) -> Iterator[p4r.Update]:
        """The updates that bring a new array to these rates."""
        for message in self.read(p4r.MeterEntry(meter_id=self.id)):
            if message.HasField("config"):
                yield p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(meter_entry=message))


def decode_counter(data: p4r.CounterData) -> CounterValue:
    """A counter's value; INVALID_ARGUMENT if it is negative."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"a counter cannot be at {data.packet_count} packets and {data.byte_count} bytes")
    return CounterValue(packets=data.packet_count, bytes=data.byte_count)


def encode_counter(value: CounterValue) -> p4r.CounterData:
    """The message for a counter's value."""
    return p4r.CounterData(packet_count=value.packets, byte_count=value.bytes)


def meter_type(meter: p4i.Meter | p4i.DirectMeter) -> p4i.MeterSpec.Type.ValueType:
    """A meter's type: its own, or what an annotation such as `@single_rate_three_color` says.

    The specification ("Meter & DirectMeter") has the compiler turn annotations into types; p4c 1.2.4 hands them on.
    """
    annotated = (_METER_TYPES[a] for a in meter.preamble.annotations if a in _METER_TYPES)
    return meter.spec.type or next(annotated, p4i.MeterSpec.TWO_RATE_THREE_COLOR)


def decode_meter(message: p4r.MeterConfig, kind: p4i.MeterSpec.Type.ValueType) -> MeterConfig:
    """A meter's rates; INVALID_ARGUMENT if they are not those of its type (specification, "MeterEntry")."""
    if message.eburst and kind != p4i.MeterSpec.SINGLE_RATE_THREE_COLOR:
        raise invalid("only meters of the type SINGLE_RATE_THREE_COLOR have an eburst: leave it unset")
    if kind != p4i.MeterSpec.TWO_RATE_THREE_COLOR and (message.pir, message.pburst) != (
        message.cir,
        message.cburst,
    ):
        raise invalid("a meter of a single rate needs pir equal to cir and pburst equal to cburst")
    return MeterConfig(message.cir, message.cburst, message.pir, message.pburst, message.eburst)


def encode_meter(config: MeterConfig) -> p4r.MeterConfig:
    """The message for a meter's rates."""
    return p4r.MeterConfig(**asdict(config))


def decode_meter_counters(data: p4r.MeterCounterData) -> MeterCounters:
    """What a meter has counted by colour."""
    return decode_counter(data.green), decode_counter(data.yellow), decode_counter(data.red)


def encode_meter_counters(counters: MeterCounters) -> p4r.MeterCounterData:
    """The message for what a meter has counted by colour."""
    green, yellow, red = map(encode_counter, counters)
    return p4r.MeterCounterData(green=green, yellow=yellow, red=red)


def require_zero_counters(entity: p4r.Entity) -> None:
    """INVALID_ARGUMENT if a write sets a counter by colour to anything but zero (specification, "Direct Resources")."""
    kind = entity.WhichOneof("entity") or ""
    name = _COLOR_COUNTERS.get(kind)
    if name is None or not getattr(entity, kind).HasField(name):
        return
    counters = decode_meter_counters(getattr(getattr(entity, kind), name))
    if any(value != CounterValue(0, 0) for value in counters):
        raise invalid("counters by colour can only be set to zero: leave their fields unset")


def _indices(message: p4r.CounterEntry | p4r.RegisterEntry | p4r.MeterEntry, size: int, name: str) -> range:
    if not message.HasField("index"):
        return range(size)
    index = message.index.index
    if index < 0:
        raise invalid(f"{name}: the index {index} is negative")
    if index >= size:
        raise P4RuntimeError(grpc.StatusCode.OUT_OF_RANGE, f"{name} has {size} cells, no index {index}")
    return range(index, index + 1)
