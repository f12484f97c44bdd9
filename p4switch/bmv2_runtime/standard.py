"""BMv2's service Standard, on the engine that runs now. tables.py has its part about tables and action profiles."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from thrift.Thrift import TApplicationException

from fanin.native.toolchain import ToolchainError
from fanin.p4switch.bmv2_runtime.digests import DigestLists
from fanin.p4switch.bmv2_runtime.interface import (
    BmConfig,
    BmCounterValue,
    BmCrc16Config,
    BmCrc32Config,
    BmMeterRateConfig,
    BmResourceType,
    CounterOperationErrorCode,
    CrcErrorCode,
    DevMgrErrorCode,
    DevMgrPortInfo,
    IdLookupErrorCode,
    InvalidCounterOperation,
    InvalidCrcOperation,
    InvalidDevMgrOperation,
    InvalidIdLookup,
    InvalidLearnOperation,
    InvalidMeterOperation,
    InvalidParseVSetOperation,
    InvalidRegisterOperation,
    InvalidSwapOperation,
    InvalidToeplitzHashOperation,
    LearnOperationErrorCode,
    MeterOperationErrorCode,
    ParseVSetOperationErrorCode,
    RegisterOperationErrorCode,
    SwapOperationErrorCode,
    ToeplitzHashErrorCode,
)
from fanin.p4switch.bmv2_runtime.rates import BadRatesError, meter_config, meter_rates
from fanin.p4switch.bmv2_runtime.replication import Replication
from fanin.p4switch.bmv2_runtime.tables import Tables, number, octets
from fanin.p4switch.bmv2json.program import ProgramError, TableKey
from fanin.p4switch.engine.arrays import CounterCells, MeterCells, RegisterCells
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.live_ports import PortError
from fanin.p4switch.engine.value_sets import ValueSetState
from fanin.p4switch.entries import CounterValue, EntryKey, Exact, MeterConfig, TableError, Ternary
from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.ports.interfaces import read_interface

_WORD = 1 << 64


class Standard(Tables):
    """Methods of the service. Callers hold the device's lock.

    Args:
        device: The switch.
        info: What `bm_mgmt_get_info` returns.
        replication: The packet replication engine, which `bm_reset_state` resets too.
        digests: The digests that subscribers receive.
    """

    def __init__(
        self, device: Device, info: BmConfig, replication: Replication, digests: DigestLists
    ) -> None:
        super().__init__()
        self._device = device
        self._info = info
        self._replication = replication
        self._digests = digests
        self._loaded: bytes | None = None

    @property
    def _engine(self) -> Engine:  # type: ignore[override]
        engine = self._device.engine
        if engine is None:
            raise TApplicationException(
                TApplicationException.INTERNAL_ERROR,
                "the switch has no program yet: name one when it is started, or set one over P4Runtime",
            )
        return engine

    # Counters

    def bm_counter_read(self, counter_name: str, index: int) -> BmCounterValue:
        """Return one cell of a counter."""
        value = self._counter(counter_name, index).read(index)
        return BmCounterValue(value.bytes, value.packets)

    def bm_counter_write(self, counter_name: str, index: int, value: BmCounterValue) -> None:
        """Set one cell of a counter."""
        self._counter(counter_name, index).write(index, CounterValue(value.packets or 0, value.bytes or 0))

    def bm_counter_reset_all(self, counter_name: str) -> None:
        """Set all cells of a counter to 0."""
        counter = self._counter(counter_name)
        for index in range(counter.size):
            counter.write(index, CounterValue(0, 0))

    def _counter(self, name: str, index: int = 0) -> CounterCells:
        try:
            counter = self._engine.counter(name)
        except TableError:
            raise InvalidCounterOperation(CounterOperationErrorCode.INVALID_COUNTER_NAME) from None
        if not 0 <= index < counter.size:
            raise InvalidCounterOperation(CounterOperationErrorCode.INVALID_INDEX)
        return counter

    # Meters

    def bm_meter_array_set_rates(self, meter_array_name: str, rates: Sequence[BmMeterRateConfig]) -> None:
        """Set the rates of all cells of a meter, or those of all entries of the table to which it belongs."""
        tables = self._engine.tables.values()
        table = next((one for one in tables if one.table.direct_meter == meter_array_name), None)
        if table is not None:
            config = _checked_rates(rates)
            for entry in table.entries():
                table.configure_meter(entry.key, config)
            return
        meter = self._meter(meter_array_name)
        config = _checked_rates(rates)
        for index in range(meter.size):
            meter.configure(index, config)

    def bm_meter_set_rates(
        self, meter_array_name: str, index: int, rates: Sequence[BmMeterRateConfig]
    ) -> None:
        """Set the rates of one cell of a meter."""
        self._meter(meter_array_name, index).configure(index, _checked_rates(rates))

    def bm_meter_get_rates(self, meter_array_name: str, index: int) -> list[BmMeterRateConfig]:
        """Return the rates of one cell of a meter."""
        return meter_rates(self._meter(meter_array_name, index).config(index))

    def _meter(self, name: str, index: int = 0) -> MeterCells:
        try:
            meter = self._engine.meter(name)
        except TableError:
            raise InvalidMeterOperation(MeterOperationErrorCode.INVALID_METER_NAME) from None
        if not 0 <= index < meter.size:
            raise InvalidMeterOperation(MeterOperationErrorCode.INVALID_INDEX)
        return meter

    # Registers. The interface has signed numbers of 64 bits.

    def bm_register_read(self, register_array_name: str, idx: int) -> int:
        """Return one cell of a register; the lowest 64 bits of a wider one."""
        return _signed(self._register(register_array_name, idx).read(idx, 1)[0])

    def bm_register_read_all(self, register_array_name: str) -> list[int]:
        """Return all cells of a register."""
        return [_signed(value) for value in self._register(register_array_name).read()]

    def bm_register_write(self, register_array_name: str, index: int, value: int) -> None:
        """Set one cell of a register. A number that is too large loses its highest bits."""
        register = self._register(register_array_name, index)
        register.write(index, value & (1 << register.width) - 1)

    def bm_register_write_range(
        self, register_array_name: str, start_index: int, end_index: int, value: int
    ) -> None:
        """Set the cells from `start_index` to before `end_index`."""
        register = self._register(register_array_name, start_index)
        if not start_index <= end_index <= register.size:
            raise InvalidRegisterOperation(RegisterOperationErrorCode.INVALID_INDEX)
        for index in range(start_index, end_index):
            register.write(index, value & (1 << register.width) - 1)

    def bm_register_reset(self, register_array_name: str) -> None:
        """Set all cells of a register to 0."""
        register = self._register(register_array_name)
        for index in range(register.size):
            register.write(index, 0)

    def _register(self, name: str, index: int = 0) -> RegisterCells:
        try:
            register = self._engine.register(name)
        except TableError:
            raise InvalidRegisterOperation(RegisterOperationErrorCode.INVALID_REGISTER_NAME) from None
        if not 0 <= index < register.size:
            raise InvalidRegisterOperation(RegisterOperationErrorCode.INVALID_INDEX)
        return register

    # Parser value sets

    def bm_parse_vset_add(self, parse_vset_name: str, value: bytes) -> None:
        """Add a value."""
        value_set = self._value_set(parse_vset_name)
        key = self._members_key(parse_vset_name, value)
        if key not in value_set.members:
            self._write_value_set(value_set, [*value_set.members, key])

    def bm_parse_vset_remove(self, parse_vset_name: str, value: bytes) -> None:
        """Remove a value."""
        value_set = self._value_set(parse_vset_name)
        key = self._members_key(parse_vset_name, value)
        self._write_value_set(value_set, [member for member in value_set.members if member != key])

    def bm_parse_vset_get(self, parse_vset_name: str) -> list[bytes]:
        """Return all values. Members with masks, written over P4Runtime, are not values and left out."""
        members = self._value_set(parse_vset_name).members
        keys = self._engine.program.value_sets[parse_vset_name].table.keys
        found = []
        for member in members:
            value = 0
            for match, key in zip(member.match, keys, strict=True):
                if match != _one_value(key, getattr(match, "value", 0)):
                    break
                value = value << key.width | match.value
            else:
                found.append(octets(value, sum(key.width for key in keys)))
        return found

    def bm_parse_vset_clear(self, parse_vset_name: str) -> None:
        """Remove all values."""
        self._write_value_set(self._value_set(parse_vset_name), [])

    def _value_set(self, name: str) -> ValueSetState:
        try:
            return self._engine.value_set(name)
        except TableError:
            raise InvalidParseVSetOperation(ParseVSetOperationErrorCode.INVALID_PARSE_VSET_NAME) from None

    def _members_key(self, name: str, value: bytes) -> EntryKey:
        keys = self._engine.program.value_sets[name].table.keys
        rest, match = number(value), list[Exact | Ternary]()
        for key in reversed(keys):
            match.append(_one_value(key, rest & (1 << key.width) - 1))
            rest >>= key.width
        if rest:
            raise InvalidParseVSetOperation(ParseVSetOperationErrorCode.ERROR)
        return EntryKey(tuple(reversed(match)))

    def _write_value_set(self, value_set: ValueSetState, members: list[EntryKey]) -> None:
        try:
            value_set.write(members)
        except TableError:
            raise InvalidParseVSetOperation(ParseVSetOperationErrorCode.ERROR) from None

    # Digests

    def bm_learning_ack(self, list_id: int, buffer_id: int, sample_ids: list[int]) -> None:
        """Acknowledge samples of a message: equal ones count as new from now on."""
        self._learning(self._digests.acknowledge, list_id, buffer_id, sample_ids)

    def bm_learning_ack_buffer(self, list_id: int, buffer_id: int) -> None:
        """Acknowledge all samples of a message."""
        self._learning(self._digests.acknowledge, list_id, buffer_id, None)

    def bm_learning_set_timeout(self, list_id: int, timeout_ms: int) -> None:
        """Set how long samples wait for others."""
        self._learning(self._digests.set_timeout, list_id, timeout_ms)

    def bm_learning_set_buffer_size(self, list_id: int, nb_samples: int) -> None:
        """Set how many samples a message has at most."""
        self._learning(self._digests.set_size, list_id, nb_samples)

    def _learning(self, operation: Callable[..., None], *arguments: Any) -> None:
        try:
            operation(*arguments)
        except KeyError:
            raise InvalidLearnOperation(LearnOperationErrorCode.INVALID_LIST_ID) from None

    # Hashes

    def bm_set_crc16_custom_parameters(self, calc_name: str, crc16_config: BmCrc16Config) -> None:
        """Set the parameters of a crc16_custom."""
        self._set_crc(calc_name, 16, crc16_config)

    def bm_set_crc32_custom_parameters(self, calc_name: str, crc32_config: BmCrc32Config) -> None:
        """Set the parameters of a crc32_custom."""
        self._set_crc(calc_name, 32, crc32_config)

    def _set_crc(self, name: str, width: int, config: BmCrc16Config | BmCrc32Config) -> None:
        calculation = self._engine.program.calculations.get(name)
        if calculation is None:
            raise InvalidCrcOperation(CrcErrorCode.INVALID_CALCULATION_NAME)
        if calculation.algorithm != f"crc{width}_custom":
            raise InvalidCrcOperation(CrcErrorCode.WRONG_TYPE_CALCULATION)
        mask = (1 << width) - 1
        self._engine.set_crc(
            name,
            (config.polynomial or 0) & mask,
            (config.initial_remainder or 0) & mask,
            (config.final_xor_value or 0) & mask,
            reflect_input=bool(config.data_reflected),
            reflect_output=bool(config.remainder_reflected),
        )

    def bm_set_toeplitz_hash_key(self, calc_name: str, key: bytes) -> None:
        """Set the key of a toeplitz calculation."""
        calculation = self._engine.program.calculations.get(calc_name)
        if calculation is None:
            raise InvalidToeplitzHashOperation(ToeplitzHashErrorCode.INVALID_CALCULATION_NAME)
        if calculation.algorithm != "toeplitz":
            raise InvalidToeplitzHashOperation(ToeplitzHashErrorCode.WRONG_TYPE_CALCULATION)
        try:
            self._engine.set_hash_key(calc_name, key)
        except TableError:
            raise InvalidToeplitzHashOperation(ToeplitzHashErrorCode.INVALID_KEY) from None

    # Ports

    def bm_dev_mgr_add_port(self, iface_name: str, port_num: int, pcap_path: str | None) -> None:
        """Attach an interface as a port. Captures of ports are an option of the switch (--pcap)."""
        if pcap_path:
            raise InvalidDevMgrOperation(DevMgrErrorCode.ERROR)
        self._set_ports({**self._device.interfaces, port_num: iface_name}, changed=port_num)

    def bm_dev_mgr_remove_port(self, port_num: int) -> None:
        """Detach the interface of a port."""
        ports = dict(self._device.interfaces)
        if ports.pop(port_num, None) is None:
            raise InvalidDevMgrOperation(DevMgrErrorCode.ERROR)
        self._set_ports(ports, changed=None)

    def _set_ports(self, ports: dict[int, str], changed: int | None) -> None:
        if changed is not None and changed in self._device.interfaces:
            raise InvalidDevMgrOperation(DevMgrErrorCode.ERROR)
        try:
            self._device.set_ports(ports)
        except PortError:
            raise InvalidDevMgrOperation(DevMgrErrorCode.ERROR) from None

    def bm_dev_mgr_show_ports(self) -> list[DevMgrPortInfo]:
        """Return all ports."""
        return [
            DevMgrPortInfo(port, name, _is_up(name), {})
            for port, name in sorted(self._device.interfaces.items())
        ]

    # The program

    def bm_get_config(self) -> str:
        """Return the program, as JSON."""
        return self._engine.config.decode()

    def bm_get_config_md5(self) -> bytes:
        """Return the MD5 digest of the program."""
        return hashlib.md5(self._engine.config, usedforsecurity=False).digest()

    def bm_load_new_config(self, config_str: str) -> None:
        """Load a program that replaces the present one with `bm_swap_configs`."""
        if self._loaded is not None:
            raise InvalidSwapOperation(SwapOperationErrorCode.ONGOING_SWAP)
        config = config_str.encode()
        try:
            self._device.prepare(config)
        except (ProgramError, ToolchainError, MemoryError) as error:
            raise TApplicationException(TApplicationException.INTERNAL_ERROR, str(error)) from None
        self._loaded = config

    def bm_swap_configs(self) -> None:
        """Forward with the program that was loaded, with empty tables."""
        if self._loaded is None:
            raise InvalidSwapOperation(SwapOperationErrorCode.NO_ONGOING_SWAP)
        config, self._loaded = self._loaded, None
        self._device.boot(config)
        self._timeouts.clear()
        self._replication.forget()
        self._digests.follow(self._engine)

    def bm_reset_state(self) -> None:
        """Remove all that was written since the start, and set all cells to 0."""
        engine = self._engine
        with engine.lock:
            for table in engine.tables.values():
                if not table.is_const:
                    table.clear()
                with suppress(TableError):  # the default action is constant
                    table.set_default(None)
                if table.table.with_counters:
                    self.bm_mt_reset_counters(table.table.name)
            for name in engine.program.profiles:
                profile = engine.profile(name)
                for group in list(profile.groups):
                    profile.delete_group(group)
                for member in list(profile.members):
                    profile.delete_member(member)
            for counter in engine.program.counters.values():
                if counter.table is None:
                    self.bm_counter_reset_all(counter.name)
            for meter in engine.program.meters.values():
                if meter.table is None:
                    cells = engine.meter(meter.name)
                    for index in range(cells.size):
                        cells.configure(index, None)
            for name in engine.program.registers:
                self.bm_register_reset(name)
            for name in engine.program.value_sets:
                engine.value_set(name).write([])
            self._replication.reset()
        self._timeouts.clear()
        self._digests.reset()

    def bm_serialize_state(self) -> str:
        """Raise an error: nothing could restore the state from it."""
        raise TApplicationException(
            TApplicationException.UNKNOWN_METHOD,
            "the state cannot be saved: write the entries again when the switch has started",
        )

    def bm_mgmt_get_info(self) -> BmConfig:
        """Return what the switch was started with."""
        return self._info

    def bm_get_id_from_name(self, resource_type: int, resource_name: str) -> int:
        """Return the id of an object in the JSON."""
        program = self._engine.program
        objects: dict[int, dict[str, Any]] = {
            BmResourceType.MATCH_TABLE: program.tables,
            BmResourceType.ACTION_PROFILE: program.profiles,
            BmResourceType.COUNTER: program.counters,
            BmResourceType.METER: program.meters,
            BmResourceType.REGISTER: program.registers,
            BmResourceType.LEARNING_LIST: {digest.name: digest for digest in program.digests.values()},
        }
        if resource_type not in objects:
            raise InvalidIdLookup(IdLookupErrorCode.INVALID_RESOURCE_TYPE)
        if resource_name not in objects[resource_type]:
            raise InvalidIdLookup(IdLookupErrorCode.INVALID_RESOURCE_NAME)
        return int(objects[resource_type][resource_name].id)


def _one_value(key: TableKey, value: int) -> Exact | Ternary:
    """Return the match of a member's field that only one value has."""
    return Exact(value) if key.kind == "exact" else Ternary(value, (1 << key.width) - 1)


def _signed(value: int) -> int:
    value %= _WORD
    return value - _WORD if value >> 63 else value


def _checked_rates(rates: Sequence[BmMeterRateConfig]) -> MeterConfig:
    try:
        config = meter_config(rates)
    except BadRatesError:
        raise InvalidMeterOperation(MeterOperationErrorCode.BAD_RATES_LIST) from None
    if config.cir > config.pir:
        raise InvalidMeterOperation(MeterOperationErrorCode.INVALID_INFO_RATE_VALUE)
    return config


def _is_up(interface: str) -> bool:
    state = read_interface(interface)
    return state is not None and state.running
