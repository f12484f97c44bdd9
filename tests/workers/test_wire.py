"""The packet format, compared with the plain decoder of the model switch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.workers import wire
from tests.workers.model_switch import Packet

INT32 = st.integers(-(2**31), 2**31 - 1)
INT8 = st.integers(-128, 127)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    size = draw(st.sampled_from([1, 3]))
    count = {1: 64, 3: 256}[size]
    few = draw(st.lists(INT32, min_size=4, max_size=4))
    return Packet(
        msg_type=draw(st.sampled_from([wire.UPDATE, wire.RESULT])),
        saturated=draw(st.booleans()),
        size=size,
        lease=draw(st.integers(0, 255)),
        chunk=draw(st.integers(0, 2**32 - 1)),
        version=draw(st.integers(0, 1)),
        slot=draw(st.integers(0, 2**15 - 1)),
        e0=draw(INT8),
        e1=draw(st.integers(0, 255)),
        call=draw(st.integers(0, 2**32 - 1)),
        values=tuple(few * (count // 4)),
    )


@given(packets())
def test_every_field_is_where_the_format_has_it(packet: Packet) -> None:
    (parsed,) = wire.as_packets(np.frombuffer(packet.encode(), np.uint8).reshape(1, -1))
    assert (
        parsed["kind"] == wire.kind(packet.msg_type, len(packet.values)) | packet.saturated * wire.SATURATED
    )
    assert parsed["lease"] == packet.lease
    assert parsed["tsi"] == packet.chunk
    assert parsed["pool_index"] == packet.version << 15 | packet.slot
    assert (parsed["e0"], parsed["e1"], parsed["call"]) == (packet.e0, packet.e1, packet.call)
    assert tuple(parsed["values"]) == packet.values


@pytest.mark.parametrize(("values", "size"), [(64, 270), (256, 1038)])
def test_a_datagram_has_8_bytes_of_header_2_of_exponents_4_of_the_call_and_the_values(
    values: int, size: int
) -> None:
    assert wire.packet_dtype(values).itemsize == size
    assert wire.VALUES[size] == values


@given(st.integers(0, 2**32 - 1), st.integers(1, 512), st.integers(0, 512))
def test_chunk_k_has_slot_base_plus_k_mod_w_and_version_k_div_w_mod_2(k: int, window: int, base: int) -> None:
    (index,) = wire.pool_index(np.array([k]), base, window)
    assert index & 0x7FFF == base + k % window
    assert index >> 15 == k // window % 2


def test_packets_and_datagrams_are_views_of_the_same_memory() -> None:
    packets = np.zeros(3, wire.packet_dtype(64))
    datagrams = wire.as_datagrams(packets)
    packets["tsi"] = [1, 2, 0x01020304]
    assert bytes(datagrams[2, 2:6]) == b"\1\2\3\4"
    wire.as_packets(datagrams)["lease"] = 9
    assert (packets["lease"] == 9).all()


def test_datagrams_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="a datagram of 100 bytes is not a packet"):
        wire.as_packets(np.zeros((2, 100), np.uint8))


def test_packets_of_another_number_of_values_are_refused() -> None:
    with pytest.raises(ValueError, match="64 or 256 integers of 32 bits, or 128 or 512 of 16 bits, not 65"):
        wire.packet_dtype(65)
