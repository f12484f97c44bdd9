"""Values travel as P4Runtime's bytestrings (specification, "Bytestrings", with its tables of examples)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.p4switch.p4runtime.codec.values import decode_signed, decode_value, encode_signed, encode_value
from fanin.p4switch.p4runtime.errors import P4RuntimeError

widths = st.integers(1, 300)


@given(st.data(), widths)
def test_an_unsigned_value_is_read_as_it_was_written(data, width):
    value = data.draw(st.integers(0, 2**width - 1))
    assert decode_value(encode_value(value), width, "x") == value


@given(st.data(), widths)
def test_a_signed_value_is_read_as_it_was_written(data, width):
    value = data.draw(st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1))
    assert decode_signed(encode_signed(value), width, "x") == value


@given(st.integers(0, 2**200))
def test_the_encoding_is_the_shortest(value):
    octets = encode_value(value)
    assert len(octets) == 1 or octets[0] != 0


@given(st.integers(-(2**200), 2**200))
def test_the_signed_encoding_is_the_shortest(value):
    octets = encode_signed(value)
    assert len(octets) == 1 or int.from_bytes(octets[1:], "big", signed=True) != value


@given(st.binary(min_size=1, max_size=20), st.integers(0, 5))
def test_leading_zeros_do_not_matter(octets, zeros):
    assert decode_value(bytes(zeros) + octets, 160, "x") == decode_value(octets, 160, "x")


@pytest.mark.parametrize(
    ("width", "value", "octets"),
    [(8, 99, b"\x63"), (16, 99, b"\x63"), (16, 12388, b"\x30\x64"), (12, 99, b"\x63"), (16, 0, b"\x00")],
)
def test_the_specification_s_unsigned_examples(width, value, octets):
    assert encode_value(value) == octets
    assert decode_value(octets, width, "x") == value


@pytest.mark.parametrize(
    ("width", "value", "octets"),
    [(8, 99, b"\x63"), (8, -99, b"\x9d"), (12, -739, b"\xfd\x1d"), (16, 0, b"\x00"), (16, -99, b"\x9d")],
)
def test_the_specification_s_signed_examples(width, value, octets):
    assert encode_signed(value) == octets
    assert decode_signed(octets, width, "x") == value


@pytest.mark.parametrize(
    ("width", "octets"),
    [
        (8, b"\x01\x63"),
        (8, b""),
        (16, b"\x01\x00\x63"),
        (12, b"\x10\x63"),
        (12, b"\x01\x00\x63"),
        (12, b"\x00\x40\x63"),
    ],
)
def test_the_specification_s_invalid_unsigned_examples(width, octets):
    with pytest.raises(P4RuntimeError, match=r"^the key"):
        decode_value(octets, width, "the key")


@pytest.mark.parametrize(("width", "octets"), [(8, b"\x00\x9d"), (12, b"\x8d\x1d"), (16, b"")])
def test_the_specification_s_invalid_signed_examples(width, octets):
    with pytest.raises(P4RuntimeError, match=r"^the register"):
        decode_signed(octets, width, "the register")
