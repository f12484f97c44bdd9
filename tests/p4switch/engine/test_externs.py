"""Registers, counters, hashes and the rest of what an action can call."""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable
from functools import reduce
from operator import xor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import (
    ActionCall,
    CounterValue,
    Entry,
    EntryKey,
    Exact,
    TableError,
)
from tests.p4switch.documents import assign, document, field, number
from tests.p4switch.engine.hashing import RSS_KEY, hashed, hashing
from tests.sizes import sized

READ, WRITE, ADD, NARROW, COUNT, CRC16, CRC32, MODULO, CSUM16, XOR16, IDENTITY, RANDOM, TRUNCATE = range(
    1, 14
)
EXIT, TIMES, COPY, INVALID_COPY = 0x0F, 0x10, 0x81, 0x82


@pytest.fixture
def switch(engine: Callable[[str], Engine]) -> Engine:
    return engine("externs")


def run(
    switch: Engine, what: int, index: int = 0, value: int = 0, result: int = 0, signed: int = 0
) -> tuple[int, int]:
    """Results of a command: unsigned and signed."""
    command = struct.pack(">BBHIi", what, index, value, result, signed)
    [(_, out)] = switch.process(3, command)
    _, _, _, unsigned, back = struct.unpack(">BBHIi", out)
    return unsigned, back


def test_registers(switch: Engine) -> None:
    run(switch, WRITE, 4, result=0xDEADBEEF)
    assert run(switch, READ, 4)[0] == 0xDEADBEEF
    assert switch.register("ingress.cells").read() == [0, 0, 0, 0, 0xDEADBEEF, 0, 0, 0, 0, 0]
    switch.register("ingress.cells").write(9, 5)
    assert run(switch, READ, 9)[0] == 5
    assert switch.register("ingress.cells").read(8, 2) == [0, 5]


def test_registers_out_of_range(switch: Engine) -> None:
    """A read leaves its target alone, a write is lost."""
    run(switch, WRITE, 10, result=7)
    assert run(switch, READ, 10, result=77)[0] == 77
    assert switch.register("ingress.cells").read() == [0] * 10
    with pytest.raises(TableError, match=r"index 10 is not in 0\.\.9"):
        switch.register("ingress.cells").write(10, 0)
    with pytest.raises(TableError, match=r"8\.\.11 of 10 cells"):
        switch.register("ingress.cells").read(8, 3)
    with pytest.raises(TableError, match="register nothing does not exist"):
        switch.register("nothing").read()


def test_registers_are_as_wide_as_they_say(switch: Engine) -> None:
    run(switch, NARROW, 1, value=0xFFFF)
    assert switch.register("ingress.narrow").read(1, 1) == [0x7F]
    with pytest.raises(TableError, match="128 does not fit into 7 bits"):
        switch.register("ingress.narrow").write(1, 128)


@settings(max_examples=sized(16, 50))
@given(terms=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8))
def test_saturating_sums(adder: Engine, terms: list[int]) -> None:
    adder.register("ingress.signed_cells").write(0, 0)
    total = 0
    for term in terms:
        total = max(-(2**31), min(2**31 - 1, total + term))
        assert run(adder, ADD, 0, signed=term)[1] == total
    assert adder.register("ingress.signed_cells").read(0, 1) == [total & 0xFFFFFFFF]


@pytest.fixture(scope="module")
def adder(config: Callable[[str], bytes]) -> Engine:
    return Engine.load(config("externs"))


def test_counters(switch: Engine) -> None:
    for index in (0, 3, 3, 4, 255):
        run(switch, COUNT, index)
    assert switch.counter("ingress.counted").read_all() == [
        CounterValue(1, 12),
        CounterValue(0, 0),
        CounterValue(0, 0),
        CounterValue(2, 24),
    ]
    with pytest.raises(TableError, match=r"counter ingress\.cells does not exist"):
        switch.counter("ingress.cells").read(0)


@settings(max_examples=sized(16, 50))
@given(value=st.integers(0, 0xFFFF), index=st.integers(0, 255))
def test_hashes(adder: Engine, value: int, index: int) -> None:
    data = struct.pack(">HB", value, index)

    def reflected(crc: int, polynomial: int) -> int:
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
        return crc

    words = value + (index << 8)
    assert run(adder, CRC16, index, value)[0] == reflected(0, 0xA001)
    assert run(adder, CRC32, index, value)[0] == binascii.crc32(data)
    assert run(adder, MODULO, index, value)[0] == 1000 + binascii.crc32(data[:2]) % 7
    assert run(adder, CSUM16, index, value)[0] == ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF
    assert run(adder, XOR16, index, value)[0] == value ^ index << 8
    assert run(adder, IDENTITY, index, value)[0] == int.from_bytes(data, "big")


def fnv_mixed(data: bytes) -> int:
    value = 2166136261
    for byte in data:
        value = (value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF
    for left, turn in ((True, 13), (False, 7), (True, 3), (False, 17), (True, 5)):
        value = value + (value << turn) & 0xFFFFFFFF if left else value ^ value >> turn
    return value


@pytest.mark.slow
@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("algorithm", "result"),
    [  # of the digits 1 to 9: published check values, where there are some
        ("crc8_custom", 0xF4),
        ("crcCCITT", 0x29B1),
        ("crc64_custom", 0x46A5A9388A5BEFFE),
        ("xxh64", 0x8CB841DB40E6AE83),
        ("bmv2_hash", 0x8CB841DB40E6AE83),
        ("hash_ex", fnv_mixed(b"123456789")),
    ],
)
def test_hashes_that_only_bmv2_names(algorithm: str, result: int) -> None:
    assert hashed(hashing(algorithm, 9), b"123456789") == result


def test_round_robin_counts_packets() -> None:
    switch = hashing("round_robin", 2)
    assert [hashed(switch, text) for text in (b"aa", b"bb", b"aa", b"aa")] == [0, 1, 2, 3]
    assert hashed(switch.new_instance(), b"aa") == 0


def test_round_robin_that_is_consistent_counts_what_it_sees() -> None:
    switch = hashing("round_robin_consistent", 2)
    assert [hashed(switch, text) for text in (b"aa", b"bb", b"aa", b"cc", b"bb")] == [0, 1, 0, 2, 1]
    many = [number.to_bytes(2, "big") for number in range(1000)]
    assert [hashed(switch, text) for text in many + many] == 2 * [*range(3, 1003)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "result"),
    [  # Microsoft's "Verifying the RSS Hash Calculation": IPv4 addresses, and with TCP's ports
        ("420995bb a18e6450", 0x323E8FC2),
        ("420995bb a18e6450 0aea 06e6", 0x51CCC178),
        ("c75c6f02 41458c53 3796 1283", 0xC626B0EA),
    ],
)
def test_toeplitz(text: str, result: int) -> None:
    data = bytes.fromhex(text)
    switch = hashing("toeplitz", len(data))
    assert hashed(switch, data) == 0  # without a key
    switch.set_hash_key("c", RSS_KEY)
    assert hashed(switch, data) == result
    assert hashed(switch.new_instance(), data) == 0


def test_a_key_for_toeplitz_begins_anew_and_pads_its_input() -> None:
    """As BMv2 does; the model is the hash's definition, bit by bit."""
    switch = hashing("toeplitz", 11)
    key, data = RSS_KEY[:8], b"hello world"
    switch.set_hash_key("c", key)
    endless = int.from_bytes(key * 3, "big")
    bits = int.from_bytes(data + b"\0", "big")
    windows = (endless >> (len(key) * 24 - 32 - i) & 0xFFFFFFFF for i in range(96) if bits >> (95 - i) & 1)
    assert hashed(switch, data) == reduce(xor, windows)


@pytest.mark.parametrize("key", [b"", b"abc", bytes(260)])
def test_a_key_has_whole_words(key: bytes) -> None:
    with pytest.raises(TableError, match=r"a key has 4, 8, ... 256 bytes"):
        hashing("toeplitz", 4).set_hash_key("c", key)


def test_only_toeplitz_has_a_key() -> None:
    for name in ("c", "d"):
        with pytest.raises(TableError, match=f"no toeplitz calculation {name}"):
            hashing("round_robin", 4).set_hash_key(name, RSS_KEY)


def test_random(config: Callable[[str], bytes]) -> None:
    """Within its limits, all of them; the same for the same seed."""
    one, same, other = (Engine.load(config("externs"), seed=seed) for seed in (1, 1, 2))
    draws = [[run(switch, RANDOM)[0] for _ in range(300)] for switch in (one, same, other)]
    assert set(draws[0]) == set(range(10, 20))
    assert draws[0] == draws[1] != draws[2]


def test_truncate(switch: Engine) -> None:
    command = struct.pack(">BBHIi", TRUNCATE, 0, 14, 0, 0) + b"abcdefgh"
    assert switch.process(1, command) == [(1, b"\xff" + command[1:14])]
    longer = struct.pack(">BBHIi", TRUNCATE, 0, 1000, 0, 0) + b"abcdefgh"
    assert switch.process(1, longer) == [(1, b"\xff" + longer[1:])]


def test_mark_to_drop_is_about_the_metadata_it_is_given() -> None:
    """p4c copies an action's inout standard_metadata in, marks the copy, and copies it back."""
    copy = field("meta", "egress_spec")
    mark = {"op": "mark_to_drop", "parameters": [{"type": "header", "value": "meta"}]}
    show = assign(field("h", "spec"), copy)
    fields = [["egress_spec", 9, False], ["mcast_grp", 16, False]]
    headers = {"h": [["spec", 16, False]]}
    marked = Engine.load(document(headers, [mark, show], metadata=fields))
    assert marked.process(3, b"\x12\x34") == [(3, b"\x01\xff")]
    local = Engine.load(document(headers, [assign(copy, number(4)), mark, show], metadata=fields))
    assert local.process(3, b"\x12\x34") == [(3, b"\x01\xff")]


def test_header_assignment(switch: Engine) -> None:
    """A copy has the fields and the validity of its source."""
    command = struct.pack(">BBHIi", COPY, 0, 0, 0, 0)
    [(_, out)] = switch.process(1, command + b"ABCDEFGHpayload")
    assert out[12:] == b"ABCDEFGHABCDEFGHpayload"
    command = struct.pack(">BBHIi", INVALID_COPY, 0, 0, 0, 0)
    [(_, out)] = switch.process(1, command + b"ABCDEFGHpayload")
    assert out[12:] == b"payload"


def test_exit(switch: Engine) -> None:
    """Nothing of ingress runs after it."""
    [(_, out)] = switch.process(1, struct.pack(">BBHIi", EXIT, 0, 0, 0, 0))
    assert out[:8] == struct.pack(">BBHI", EXIT, 0, 0, 1)


def test_time_is_given(switch: Engine) -> None:
    command = struct.pack(">BBHIi", TIMES, 0, 0, 0, 0)
    [(_, out)] = switch.process(1, command, now=123456)
    assert struct.unpack(">I", out[4:8]) == (123456,)


def test_const_entries(switch: Engine) -> None:
    """They are there, can be read, and cannot be changed."""
    entries = switch.table("ingress.commands").entries()
    assert len(entries) == 17
    assert all(entry.is_const for entry in entries)
    assert entries[0] == Entry(EntryKey((Exact(1),)), ActionCall("ingress.read_register"), is_const=True)
    commands = switch.table("ingress.commands")
    for change in (commands.insert, commands.modify):
        with pytest.raises(TableError, match="entries are constant"):
            change(entries[0])
    with pytest.raises(TableError, match="entries are constant"):
        switch.table("ingress.commands").delete(entries[0].key)
