"""BMv2's services over Thrift: what clients write and read, what packets see of it, and the errors."""

from __future__ import annotations

import hashlib
import json
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TMultiplexedProtocol import TMultiplexedProtocol
from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from fanin.p4switch.bmv2_runtime import interface as bm
from fanin.p4switch.bmv2_runtime.server import ThriftServer, serve_thrift
from fanin.p4switch.bmv2_runtime.types import Client, Service, ThriftError
from fanin.p4switch.entries import Replica
from fanin.p4switch.p4runtime.device import Device

Code = bm.TableOperationErrorCode
KEY = bm.BmMatchParamType


@pytest.fixture
def device(config: Callable[[str], bytes]) -> Iterator[Device]:
    switch = Device({}, None, 511)
    switch.boot(config("bmv2_runtime"))
    yield switch
    switch.stop()


@pytest.fixture
def server(device: Device, tmp_path: Path) -> Iterator[ThriftServer]:
    started = serve_thrift(device, 3, 0, f"ipc://{tmp_path}/notifications")
    yield started
    started.stop()


@pytest.fixture
def bmv2(server: ThriftServer) -> Iterator[Any]:
    """Clients of the three services, over one connection."""
    transport = TBufferedTransport(TSocket("127.0.0.1", server.port))
    transport.open()
    protocol = TBinaryProtocol(transport)

    def client(service: Service) -> Any:
        return type("Client", (Client,), {"service": service})(TMultiplexedProtocol(protocol, service.name))

    yield SimpleNamespace(
        standard=client(bm.STANDARD), mc=client(bm.SIMPLE_PRE_LAG), switch=client(bm.SIMPLE_SWITCH)
    )
    transport.close()


def exact(*value: int) -> bm.BmMatchParam:
    return bm.BmMatchParam(KEY.EXACT, exact=bm.BmMatchParamExact(bytes(value)))


def lpm(value: bytes, length: int) -> bm.BmMatchParam:
    return bm.BmMatchParam(KEY.LPM, lpm=bm.BmMatchParamLPM(value, length))


def ternary(value: bytes, mask: bytes) -> bm.BmMatchParam:
    return bm.BmMatchParam(KEY.TERNARY, ternary=bm.BmMatchParamTernary(value, mask))


def spread(low: bytes, high: bytes) -> bm.BmMatchParam:
    return bm.BmMatchParam(KEY.RANGE, range=bm.BmMatchParamRange(low, high))


def add(bmv2: Any, table: str, key: list[Any], port: int, priority: int | None = None) -> int:
    options = bm.BmAddEntryOptions(priority)
    return int(bmv2.standard.bm_mt_add_entry(0, table, key, "I.send", [port.to_bytes(2, "big")], options))


def refused(code: int, error: type[ThriftError], call: Callable[[], Any]) -> None:
    with pytest.raises(error) as raised:
        call()
    assert raised.value.code == code


def table_error(code: Code, call: Callable[[], Any]) -> None:
    refused(code, bm.InvalidTableOperation, call)


def ports(device: Device, f: int = 0, g: int = 0, a: int = 0) -> list[int]:
    """The ports that a packet with these fields leaves through."""
    assert device.engine is not None
    packet = bytes([f]) + g.to_bytes(2, "big") + a.to_bytes(4, "big")
    return [port for port, _ in device.engine.process(9, packet)]


# Tables. The program's last table sends to port 1, unless an action before it is the last to set the port.


def test_entries_have_handles_from_zero_and_read_back(bmv2):
    assert [add(bmv2, "I.ex", [exact(n)], n) for n in (1, 2)] == [0, 1]
    first, second = bmv2.standard.bm_mt_get_entries(0, "I.ex")
    assert (first.entry_handle, second.entry_handle) == (0, 1)
    assert first.match_key == [exact(1)]
    assert first.options.priority == -1
    assert first.action_entry.action_name == "I.send"
    assert first.action_entry.action_data == [b"\0\1"]
    assert bmv2.standard.bm_mt_get_entry_from_key(0, "I.ex", [exact(2)], bm.BmAddEntryOptions()) == second


def test_all_kinds_of_matches_read_back(bmv2):
    key = [ternary(b"\x10", b"\xf0"), lpm(b"\x0a\0\0\0", 8), exact(0, 5)]
    handle = add(bmv2, "I.te", key, 4, priority=7)
    entry = bmv2.standard.bm_mt_get_entry(0, "I.te", handle)
    assert entry.match_key == key
    assert entry.options.priority == 7
    handle = add(bmv2, "I.ra", [spread(b"\0\1", b"\0\5"), exact(1)], 4, priority=0)
    assert bmv2.standard.bm_mt_get_entry(0, "I.ra", handle).match_key == [spread(b"\0\1", b"\0\5"), exact(1)]


def test_the_smallest_priority_wins(bmv2, device):
    for port, priority in ((5, 10), (6, 2), (7, 30)):
        key = [ternary(bytes([0, 0])[:1], b"\0"), lpm(b"\0\0\0\0", priority % 8), exact(0, 0)]
        add(bmv2, "I.te", key, port, priority)
    assert device.engine is not None
    entry = bmv2.standard.bm_mt_get_entries(0, "I.te")
    assert [e.options.priority for e in entry] == [10, 2, 30]
    kept = device.engine.table("I.te").entries()
    assert max(kept, key=lambda e: e.key.priority).action.args == (6,)  # type: ignore[union-attr]


def test_a_handle_of_a_removed_entry_never_means_another_one(bmv2):
    first = add(bmv2, "I.ex", [exact(1)], 1)
    bmv2.standard.bm_mt_delete_entry(0, "I.ex", first)
    second = add(bmv2, "I.ex", [exact(2)], 2)
    assert second != first
    table_error(Code.EXPIRED_HANDLE, lambda: bmv2.standard.bm_mt_delete_entry(0, "I.ex", first))
    table_error(Code.INVALID_HANDLE, lambda: bmv2.standard.bm_mt_delete_entry(0, "I.ex", 55))
    assert bmv2.standard.bm_mt_get_num_entries(0, "I.ex") == 1


@pytest.mark.parametrize(
    ("code", "table", "key", "action", "data"),
    [
        (Code.INVALID_TABLE_NAME, "I.nowhere", [exact(1)], "I.send", [b"\0\1"]),
        (Code.INVALID_ACTION_NAME, "I.ex", [exact(1)], "I.nothing", []),
        (Code.BAD_ACTION_DATA, "I.ex", [exact(1)], "I.send", []),
        (Code.BAD_ACTION_DATA, "I.ex", [exact(1)], "I.send", [b"\xff\xff"]),
        (Code.BAD_MATCH_KEY, "I.ex", [], "I.send", [b"\0\1"]),
        (Code.BAD_MATCH_KEY, "I.ex", [exact(0, 1)], "I.send", [b"\0\1"]),
        (Code.BAD_MATCH_KEY, "I.ex", [lpm(b"\1", 8)], "I.send", [b"\0\1"]),
        (Code.WRONG_TABLE_TYPE, "I.as", [exact(1)], "I.send", [b"\0\1"]),
        (Code.IMMUTABLE_TABLE_ENTRIES, "I.co", [exact(3)], "I.send", [b"\0\1"]),
        (Code.NO_TABLE_KEY, "I.kless", [], "I.send", [b"\0\1"]),
    ],
)
def test_an_entry_that_does_not_fit_is_refused_with_bmv2_s_code(bmv2, code, table, key, action, data):
    options = bm.BmAddEntryOptions()
    table_error(code, lambda: bmv2.standard.bm_mt_add_entry(0, table, key, action, data, options))


def test_duplicate_entries_and_full_tables_are_refused(bmv2):
    for n in range(3):
        add(bmv2, "I.ex", [exact(n)], 1)
    table_error(Code.DUPLICATE_ENTRY, lambda: add(bmv2, "I.ex", [exact(0)], 1))
    table_error(Code.TABLE_FULL, lambda: add(bmv2, "I.ex", [exact(9)], 1))


def test_default_actions(bmv2):
    bmv2.standard.bm_mt_set_default_action(0, "I.ex", "I.send", [b"\0\7"])
    assert bmv2.standard.bm_mt_get_default_entry(0, "I.ex").action_data == [b"\0\7"]
    bmv2.standard.bm_mt_reset_default_entry(0, "I.ex")
    assert bmv2.standard.bm_mt_get_default_entry(0, "I.ex").action_name == "NoAction"
    call = lambda: bmv2.standard.bm_mt_set_default_action(0, "I.kless", "I.send", [b"\0\7"])  # noqa: E731
    table_error(Code.DEFAULT_ENTRY_IS_CONST, call)


def test_idle_timeouts_only_where_the_program_asks_for_them(bmv2):
    handle = add(bmv2, "I.ra", [spread(b"\0\1", b"\0\5"), exact(1)], 4, priority=1)
    bmv2.standard.bm_mt_set_entry_ttl(0, "I.ra", handle, 500)
    assert bmv2.standard.bm_mt_get_entry(0, "I.ra", handle).life.timeout_ms == 500
    handle = add(bmv2, "I.ex", [exact(1)], 1)
    table_error(Code.AGEING_DISABLED, lambda: bmv2.standard.bm_mt_set_entry_ttl(0, "I.ex", handle, 500))


def test_members_and_groups(bmv2):
    s = bmv2.standard
    members = [s.bm_mt_act_prof_add_member(0, "I.sel", "I.send", [bytes([0, n])]) for n in (3, 4)]
    group = s.bm_mt_act_prof_create_group(0, "I.sel")
    add_group = lambda: s.bm_mt_indirect_ws_add_entry(0, "I.as", [exact(7)], group, bm.BmAddEntryOptions())  # noqa: E731
    table_error(Code.EMPTY_GRP, add_group)
    for member in members:
        s.bm_mt_act_prof_add_member_to_group(0, "I.sel", member, group)
    again = lambda: s.bm_mt_act_prof_add_member_to_group(0, "I.sel", members[0], group)  # noqa: E731
    table_error(Code.MBR_ALREADY_IN_GRP, again)
    handle = add_group()
    assert s.bm_mt_get_entry(0, "I.as", handle).action_entry.grp_handle == group
    table_error(Code.GRP_STILL_USED, lambda: s.bm_mt_act_prof_delete_group(0, "I.sel", group))
    table_error(Code.MBR_STILL_USED, lambda: s.bm_mt_act_prof_delete_member(0, "I.sel", members[0]))
    assert s.bm_mt_act_prof_get_group(0, "I.sel", group).mbr_handles == members
    assert [m.action_data for m in s.bm_mt_act_prof_get_members(0, "I.sel")] == [[b"\0\3"], [b"\0\4"]]
    table_error(Code.INVALID_ACTION_PROFILE_NAME, lambda: s.bm_mt_act_prof_create_group(0, "I.other"))


# Counters, meters, registers, value sets


def test_counters_count_packets_and_can_be_set(bmv2, device):
    handle = add(bmv2, "I.ex", [exact(1)], 1)
    for _ in range(3):
        ports(device, f=1)
    assert bmv2.standard.bm_mt_read_counter(0, "I.ex", handle).packets == 3
    assert bmv2.standard.bm_counter_read(0, "I.c", 1).packets == 3
    bmv2.standard.bm_counter_write(0, "I.c", 1, bm.BmCounterValue(bytes=60, packets=5))
    assert bmv2.standard.bm_counter_read(0, "I.c", 1) == bm.BmCounterValue(bytes=60, packets=5)
    bmv2.standard.bm_counter_reset_all(0, "I.c")
    assert bmv2.standard.bm_counter_read(0, "I.c", 1).packets == 0
    codes, error = bm.CounterOperationErrorCode, bm.InvalidCounterOperation
    refused(codes.INVALID_COUNTER_NAME, error, lambda: bmv2.standard.bm_counter_read(0, "I.no", 1))
    refused(codes.INVALID_INDEX, error, lambda: bmv2.standard.bm_counter_read(0, "I.c", 4))
    table_error(Code.COUNTERS_DISABLED, lambda: bmv2.standard.bm_mt_read_counter(0, "I.te", 0))


def test_meters(bmv2):
    rates = [bm.BmMeterRateConfig(0.1, 100), bm.BmMeterRateConfig(0.2, 200)]
    bmv2.standard.bm_meter_array_set_rates(0, "I.me", rates)
    assert bmv2.standard.bm_meter_get_rates(0, "I.me", 3) == rates
    codes, error = bm.MeterOperationErrorCode, bm.InvalidMeterOperation
    wrong = lambda given: lambda: bmv2.standard.bm_meter_set_rates(0, "I.me", 0, given)  # noqa: E731
    refused(codes.BAD_RATES_LIST, error, wrong([]))
    refused(codes.INVALID_INFO_RATE_VALUE, error, wrong(rates[::-1]))
    refused(codes.INVALID_INDEX, error, lambda: bmv2.standard.bm_meter_get_rates(0, "I.me", 4))


def test_the_rates_of_a_direct_meter_are_set_for_all_entries(bmv2, device, config):
    device.boot(config("entities"))
    assert device.engine is not None
    (table,) = (name for name, one in device.engine.tables.items() if one.table.direct_meter)
    options = bm.BmAddEntryOptions(None)
    handles = [
        bmv2.standard.bm_mt_add_entry(0, table, [exact(n)], "Receive.metered", [], options) for n in (1, 2)
    ]
    rates = [bm.BmMeterRateConfig(0.1, 100), bm.BmMeterRateConfig(0.2, 200)]
    bmv2.standard.bm_meter_array_set_rates(0, device.engine.tables[table].table.direct_meter, rates)
    assert [bmv2.standard.bm_mt_get_meter_rates(0, table, handle) for handle in handles] == [rates, rates]


def test_registers_hold_signed_words(bmv2, device):
    bmv2.standard.bm_register_write(0, "I.r", 2, -1)
    assert bmv2.standard.bm_register_read(0, "I.r", 2) == 0xFFFFFFFF
    bmv2.standard.bm_register_write_range(0, "I.r", 3, 5, 9)
    assert bmv2.standard.bm_register_read_all(0, "I.r") == [0, 0, 0xFFFFFFFF, 9, 9, 0, 0, 0]
    ports(device, a=0xDEADBEEF)
    assert bmv2.standard.bm_register_read(0, "I.r", 0) == 0xDEADBEEF
    bmv2.standard.bm_register_reset(0, "I.r")
    assert bmv2.standard.bm_register_read_all(0, "I.r") == [0] * 8
    bmv2.standard.bm_register_write(0, "I.wide", 1, -1)
    assert bmv2.standard.bm_register_read(0, "I.wide", 1) == -1  # the lowest 64 bits of 80
    codes, error = bm.RegisterOperationErrorCode, bm.InvalidRegisterOperation
    refused(codes.INVALID_REGISTER_NAME, error, lambda: bmv2.standard.bm_register_read(0, "I.no", 0))
    refused(codes.INVALID_INDEX, error, lambda: bmv2.standard.bm_register_read(0, "I.r", -1))


def test_value_sets(bmv2, device):
    (name,) = device.engine.program.value_sets
    bmv2.standard.bm_parse_vset_add(0, name, b"\x08\x00")
    bmv2.standard.bm_parse_vset_add(0, name, b"\x08\x06")
    bmv2.standard.bm_parse_vset_remove(0, name, b"\x08\x00")
    assert bmv2.standard.bm_parse_vset_get(0, name) == [b"\x08\x06"]
    bmv2.standard.bm_parse_vset_clear(0, name)
    assert bmv2.standard.bm_parse_vset_get(0, name) == []


def test_a_custom_crc_has_the_parameters_that_were_set(bmv2, device):
    (name,) = (n for n, c in device.engine.program.calculations.items() if c.algorithm == "crc32_custom")
    config = bm.BmCrc32Config(0x04C11DB7, -1, 0, True, True)  # CRC-32 without its last step
    bmv2.standard.bm_set_crc32_custom_parameters(0, name, config)
    codes, error = bm.CrcErrorCode, bm.InvalidCrcOperation
    wrong = lambda calculation: lambda: bmv2.standard.bm_set_crc16_custom_parameters(0, calculation, config)  # noqa: E731
    refused(codes.WRONG_TYPE_CALCULATION, error, wrong(name))
    refused(codes.INVALID_CALCULATION_NAME, error, wrong("none"))
    for number in (0, 0x31323334):
        ports(device, a=number)
        crc = bmv2.standard.bm_register_read(0, "I.wide", 1)
        assert crc == zlib.crc32(number.to_bytes(4, "big")) ^ 0xFFFFFFFF


def test_a_custom_crc_is_the_usual_one_before(bmv2, device):
    ports(device, a=0x31323334)
    assert bmv2.standard.bm_register_read(0, "I.wide", 1) == zlib.crc32(b"1234")


# Multicast and mirroring


def test_groups_of_nodes_become_replicas(bmv2, device):
    group = bmv2.mc.bm_mc_mgrp_create(0, 4)
    first = bmv2.mc.bm_mc_node_create(0, 5, "110", "")
    second = bmv2.mc.bm_mc_node_create(0, 6, "1000", "1")
    bmv2.mc.bm_mc_set_lag_membership(0, 0, "10000")
    for node in (first, second):
        bmv2.mc.bm_mc_node_associate(0, group, node)
    copies = (Replica(1, 5), Replica(2, 5), Replica(3, 6), Replica(4, 6))
    assert device.engine.multicast.all() == {4: copies}
    bmv2.mc.bm_mc_node_update(0, first, "1", "")
    assert device.engine.multicast.all() == {4: (Replica(0, 5), *copies[2:])}
    entries = json.loads(bmv2.mc.bm_mc_get_entries(0))
    assert entries["mgrps"] == [{"id": 4, "l1_handles": [first, second]}]
    bmv2.mc.bm_mc_node_destroy(0, second)
    assert device.engine.multicast.all() == {4: (Replica(0, 5),)}
    bmv2.mc.bm_mc_mgrp_destroy(0, group)
    assert device.engine.multicast.all() == {}


def test_wrong_groups_and_nodes_are_refused(bmv2):
    codes, error = bm.McOperationErrorCode, bm.InvalidMcOperation
    bmv2.mc.bm_mc_mgrp_create(0, 4)
    refused(codes.INVALID_MGID, error, lambda: bmv2.mc.bm_mc_mgrp_create(0, 4))
    refused(codes.INVALID_MGID, error, lambda: bmv2.mc.bm_mc_mgrp_create(0, 70_000))
    refused(codes.INVALID_MGRP_HANDLE, error, lambda: bmv2.mc.bm_mc_mgrp_destroy(0, 5))
    refused(codes.INVALID_L1_HANDLE, error, lambda: bmv2.mc.bm_mc_node_associate(0, 4, 0))
    refused(codes.ERROR, error, lambda: bmv2.mc.bm_mc_node_create(0, 1, "12", ""))


def test_mirroring_sessions_send_to_ports_and_follow_groups(bmv2, device):
    bmv2.switch.mirroring_session_add(5, bm.MirroringSessionConfig(port=2))
    bmv2.mc.bm_mc_mgrp_create(0, 1)
    bmv2.switch.mirroring_session_add(6, bm.MirroringSessionConfig(mgid=1))
    node = bmv2.mc.bm_mc_node_create(0, 9, "1000", "")
    bmv2.mc.bm_mc_node_associate(0, 1, node)
    assert device.engine.sessions.all() == {5: (Replica(2, 0),), 6: (Replica(3, 9),)}
    assert bmv2.switch.mirroring_session_get(5) == bm.MirroringSessionConfig(port=2)
    assert bmv2.switch.mirroring_mapping_get_egress_port(5) == 2
    bmv2.switch.mirroring_session_delete(5)
    gone = lambda: bmv2.switch.mirroring_session_get(5)  # noqa: E731
    refused(bm.MirroringOperationErrorCode.SESSION_NOT_FOUND, bm.InvalidMirroringOperation, gone)


# The switch


def test_reset_state_removes_all_that_was_written_and_nothing_of_the_program(bmv2, device):
    add(bmv2, "I.ex", [exact(1)], 1)
    bmv2.standard.bm_mt_set_default_action(0, "I.ex", "I.send", [b"\0\7"])
    bmv2.standard.bm_register_write(0, "I.r", 2, 1)
    bmv2.mc.bm_mc_mgrp_create(0, 1)
    bmv2.switch.mirroring_session_add(5, bm.MirroringSessionConfig(port=2))
    bmv2.standard.bm_mt_act_prof_add_member(0, "I.sel", "I.send", [b"\0\1"])
    bmv2.standard.bm_reset_state()
    assert bmv2.standard.bm_mt_get_num_entries(0, "I.ex") == 0
    assert bmv2.standard.bm_mt_get_default_entry(0, "I.ex").action_name == "NoAction"
    assert bmv2.standard.bm_register_read_all(0, "I.r") == [0] * 8
    assert device.engine.multicast.all() == device.engine.sessions.all() == {}
    assert bmv2.standard.bm_mt_act_prof_get_members(0, "I.sel") == []
    assert bmv2.standard.bm_mt_get_num_entries(0, "I.co") == 1


def test_the_program_is_returned_as_it_was_given(bmv2, config):
    given = config("bmv2_runtime")
    assert bmv2.standard.bm_get_config().encode() == given
    assert bmv2.standard.bm_get_config_md5() == hashlib.md5(given).digest()
    info = bmv2.standard.bm_mgmt_get_info()
    assert (info.device_id, info.notifications_socket[:6]) == (3, "ipc://")


def test_another_program_can_replace_it(bmv2, config):
    swap = bm.SwapOperationErrorCode
    refused(swap.NO_ONGOING_SWAP, bm.InvalidSwapOperation, bmv2.standard.bm_swap_configs)
    bmv2.standard.bm_load_new_config(config("router").decode())
    assert bmv2.standard.bm_mt_get_num_entries(0, "I.ex") == 0
    bmv2.standard.bm_swap_configs()
    table_error(Code.INVALID_TABLE_NAME, lambda: bmv2.standard.bm_mt_get_num_entries(0, "I.ex"))
    with pytest.raises(TApplicationException, match="JSON"):
        bmv2.standard.bm_load_new_config("{")


def test_without_a_program_there_is_nothing_to_read(tmp_path):
    device = Device({}, None, 511)
    server = serve_thrift(device, 0, 0, f"ipc://{tmp_path}/n")
    transport = TBufferedTransport(TSocket("127.0.0.1", server.port))
    transport.open()
    protocol = TMultiplexedProtocol(TBinaryProtocol(transport), "standard")
    client: Any = type("Client", (Client,), {"service": bm.STANDARD})(protocol)
    with pytest.raises(TApplicationException, match="no program yet"):
        client.bm_get_config()
    assert client.bm_mgmt_get_info().thrift_port == server.port
    transport.close()
    server.stop()


# Digests


def test_digests_are_sent_once_until_they_are_acknowledged(bmv2, device):
    pynng = pytest.importorskip("pynng")
    address = bmv2.standard.bm_mgmt_get_info().notifications_socket
    with pynng.Sub0(dial=address, topics=b"", recv_timeout=20_000) as subscriber:
        # A subscription takes effect at some time after it was made.
        subscriber.recv_timeout = 200
        for n in range(100):
            ports(device, f=200, a=1000 + n)
            try:
                subscriber.recv()
                break
            except pynng.Timeout:
                continue
        subscriber.recv_timeout = 20_000
        ports(device, f=7, a=8)
        message = subscriber.recv()
        assert message[:4] == b"LEA|"
        assert int.from_bytes(message[4:12], "little") == 3
        list_id, buffer_id = (
            int.from_bytes(message[16:20], "little"),
            int.from_bytes(message[20:28], "little"),
        )
        assert message[28:] == b"\1\0\0\0" + b"\7" + b"\0\0\0\x08"
        ports(device, f=7, a=8)  # not sent: the next message is that of the packet after it
        ports(device, f=9, a=8)
        assert subscriber.recv()[32:] == b"\x09\0\0\0\x08"
        bmv2.standard.bm_learning_ack_buffer(0, list_id, buffer_id)
        ports(device, f=7, a=8)
        assert subscriber.recv()[32:] == b"\7\0\0\0\x08"
    unknown = lambda: bmv2.standard.bm_learning_ack_buffer(0, 99, 0)  # noqa: E731
    refused(bm.LearnOperationErrorCode.INVALID_LIST_ID, bm.InvalidLearnOperation, unknown)


def test_the_client_that_was_silent_for_longest_makes_room_for_another(
    server: ThriftServer, bmv2: Any
) -> None:
    """A client that asks for something now and then keeps its connection."""
    with ExitStack() as stack:
        silent = []
        for _ in range(64):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            silent.append(stack.enter_context(client))
            bmv2.standard.bm_mt_get_entries(0, "I.ex")
        assert silent[0].recv(1) == b""
        assert bmv2.standard.bm_mt_get_entries(0, "I.ex") == []
