"""Counter and register arrays over P4Runtime (specification, "CounterEntry" and "RegisterEntry")."""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from p4switch.engine import Engine
from p4switch.entries import CounterValue, MeterConfig
from p4switch.p4runtime_errors import P4RuntimeError, invalid, unimplemented
from p4switch.p4runtime_proto import p4d, p4i, p4r
from p4switch.p4runtime_values import decode_signed, decode_value, encode_signed, encode_value


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
            value = CounterValue(packets=message.data.packet_count, bytes=message.data.byte_count)
            for index in indices:
                self._engine.counter_write(self.name, index, value)

    def read(self, query: p4r.CounterEntry) -> Iterator[p4r.CounterEntry]:
        """One cell, or every cell where no index is given."""
        indices = _indices(query, self.size, self.name)
        if query.HasField("index"):
            values = [self._engine.counter_read(self.name, indices.start)]
        else:
            values = self._engine.counter_read_all(self.name)
        for index, value in zip(indices, values, strict=True):
            yield p4r.CounterEntry(
                counter_id=self.id,
                index=p4r.Index(index=index),
                data=p4r.CounterData(packet_count=value.packets, byte_count=value.bytes),
            )


class RegisterArray:
    """One register: its cells read and written by index, or all at once. (BMv2's server cannot do it.)"""

    def __init__(self, register: p4i.Register, engine: Engine) -> None:
        self.id = register.preamble.id
        self.name = register.preamble.name
        self.size = engine.program.registers[self.name].size
        self._engine = engine
        self._type = register.type_spec

    def modify(self, message: p4r.RegisterEntry) -> None:
        """Set one cell, or every cell where no index is given."""
        indices = _indices(message, self.size, self.name)
        value = self._decode(message.data)
        for index in indices:
            self._engine.register_write(self.name, index, value)

    def read(self, query: p4r.RegisterEntry) -> Iterator[p4r.RegisterEntry]:
        """One cell, or every cell where no index is given."""
        indices = _indices(query, self.size, self.name)
        values = self._engine.register_read(self.name, indices.start, len(indices))
        for index, value in zip(indices, values, strict=True):
            yield p4r.RegisterEntry(
                register_id=self.id, index=p4r.Index(index=index), data=self._encode(value)
            )

    def _decode(self, data: p4d.P4Data) -> int:
        kind = self._kind()
        if data.WhichOneof("data") != ("bool" if kind == "bool" else "bitstring"):
            raise invalid(
                f"register {self.name} holds {kind} values, the request has {data.WhichOneof('data')}"
            )
        what = f"register {self.name}"
        if kind == "bit":
            return decode_value(data.bitstring, self._type.bitstring.bit.bitwidth, what)
        if kind == "int":
            width = self._type.bitstring.int.bitwidth
            return decode_signed(data.bitstring, width, what) & (1 << width) - 1
        return int(data.bool)

    def _encode(self, value: int) -> p4d.P4Data:
        match self._kind():
            case "bit":
                return p4d.P4Data(bitstring=encode_value(value))
            case "int":
                width = self._type.bitstring.int.bitwidth
                return p4d.P4Data(
                    bitstring=encode_signed(value - (1 << width) if value >> width - 1 else value)
                )
        return p4d.P4Data(bool=bool(value))

    def _kind(self) -> str:
        kind: str | None = self._type.WhichOneof("type_spec")
        if kind == "bitstring":
            kind = self._type.bitstring.WhichOneof("type_spec")
        if kind not in ("bit", "int", "bool"):
            raise unimplemented(f"register {self.name}: values of a {kind} type cannot be read or written")
        return kind


class MeterArray:
    """One indirect meter: its cells configured by index, or all at once (specification, "MeterEntry")."""

    def __init__(self, meter: p4i.Meter, engine: Engine) -> None:
        self.id = meter.preamble.id
        self.name = meter.preamble.name
        self.size = engine.program.meters[self.name].size
        self._engine = engine
        self._spec = meter.spec

    def modify(self, message: p4r.MeterEntry) -> None:
        """Configure one cell, or every cell where no index is given; without a config it is reset."""
        refuse_color_counters(message, self.name)
        config = decode_meter(message.config, self._spec) if message.HasField("config") else None
        for index in _indices(message, self.size, self.name):
            self._engine.meter_write(self.name, index, config)

    def read(self, query: p4r.MeterEntry) -> Iterator[p4r.MeterEntry]:
        """One cell, or every cell where no index is given."""
        refuse_color_counters(query, self.name)
        for index in _indices(query, self.size, self.name):
            message = p4r.MeterEntry(meter_id=self.id, index=p4r.Index(index=index))
            config = self._engine.meter_read(self.name, index)
            if config is not None:
                message.config.CopyFrom(encode_meter(config))
            yield message


def decode_meter(message: p4r.MeterConfig, spec: p4i.MeterSpec) -> MeterConfig:
    """A meter's rates; INVALID_ARGUMENT if they are not those of its type (specification, "MeterEntry")."""
    if spec.type == p4i.MeterSpec.SINGLE_RATE_THREE_COLOR:
        if message.eburst:
            raise unimplemented(
                "meters with an excess burst (RFC 2697) are not supported: leave eburst unset"
            )
    elif message.eburst:
        raise invalid("only meters of the type SINGLE_RATE_THREE_COLOR have an eburst: leave it unset")
    single = spec.type != p4i.MeterSpec.TWO_RATE_THREE_COLOR
    if single and (message.pir, message.pburst) != (message.cir, message.cburst):
        raise invalid("a meter of a single rate needs pir equal to cir and pburst equal to cburst")
    return MeterConfig(message.cir, message.cburst, message.pir, message.pburst)


def refuse_color_counters(message: p4r.MeterEntry | p4r.DirectMeterEntry, name: str) -> None:
    """UNIMPLEMENTED if a request asks for counters by colour."""
    if message.HasField("counter_data"):
        raise unimplemented(f"{name}: meters do not count by colour: leave counter_data unset")


def encode_meter(config: MeterConfig) -> p4r.MeterConfig:
    """The message for a meter's rates."""
    return p4r.MeterConfig(cir=config.cir, cburst=config.cburst, pir=config.pir, pburst=config.pburst)


def _indices(message: p4r.CounterEntry | p4r.RegisterEntry | p4r.MeterEntry, size: int, name: str) -> range:
    if not message.HasField("index"):
        return range(size)
    index = message.index.index
    if index < 0:
        raise invalid(f"{name}: the index {index} is negative")
    if index >= size:
        raise P4RuntimeError(grpc.StatusCode.OUT_OF_RANGE, f"{name} has {size} cells, no index {index}")
    return range(index, index + 1)
