"""Slices `[low +: width]`, whose lowest bit may be computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fanin.p4compiler import Compiled
from fanin.p4switch.engine.engine import Engine

Build = Callable[..., Compiled]
Complain = Callable[..., str]

DECLARATIONS = """header h_t { bit<8> n; bit<8> v; int<16> s; bit<32> d; }
    struct headers { h_t h; }
    bit<8> next(inout bit<8> n) { n = n + 8; return n; }"""


@pytest.mark.parametrize(
    ("apply", "n", "sent"),
    [
        ("hdr.h.v = hdr.h.d[16 +: 8];", 0, "0022800111223344"),
        ("hdr.h.v = hdr.h.d[hdr.h.n +: 8];", 8, "0833800111223344"),
        ("hdr.h.v = hdr.h.d[hdr.h.n +: 8];", 4, "0434800111223344"),
        ("hdr.h.v = hdr.h.d[hdr.h.n +: 8];", 28, "1c01800111223344"),  # bits above the highest are zero
        ("hdr.h.v = hdr.h.d[hdr.h.n +: 8];", 200, "c800800111223344"),
        ("hdr.h.v = hdr.h.s[hdr.h.n +: 8];", 12, "0c08800111223344"),  # no copies of the sign
        ("hdr.h.v = hdr.h.d[31:8][hdr.h.n +: 8];", 8, "0822800111223344"),
        ("hdr.h.d[8 +: 8] = hdr.h.v;", 0, "00aa80011122aa44"),
        ("hdr.h.d[hdr.h.n +: 8] = hdr.h.v;", 16, "10aa800111aa3344"),
        ("hdr.h.d[hdr.h.n +: 8] = hdr.h.v;", 28, "1caa8001a1223344"),
        ("hdr.h.d[hdr.h.n +: 8] = 12w0xfff[7:0];", 40, "28aa800111223344"),
        ("hdr.h.s[hdr.h.n +: 4] = 4w5;", 12, "0caa500111223344"),
        ("hdr.h.d[31:16][hdr.h.n +: 8] = hdr.h.v;", 0, "00aa800111aa3344"),
        ("hdr.h.d[hdr.h.n +: 8] += 1;", 24, "18aa800112223344"),
        ("hdr.h.d[hdr.h.n +: 8] = next(hdr.h.n);", 8, "10aa800111221044"),  # the place is found first
        ("hdr.h.d[next(hdr.h.n) +: 8] = hdr.h.n;", 8, "10aa800111103344"),
    ],
)
def test_slices_by_their_lowest_bit(build: Build, apply: str, n: int, sent: str) -> None:
    compiled = build(declarations=DECLARATIONS, apply=f"{apply} standard_metadata.egress_spec = 1;")
    engine = Engine.load(compiled.device_config())
    assert engine.process(0, bytes([n]) + bytes.fromhex("aa800111223344")) == [(1, bytes.fromhex(sent))]


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        ("hdr.h.v = hdr.h.d[25 +: 8];", "[25 +: 8] is not a slice of bit<32>"),
        ("hdr.h.d[25 +: 8] = hdr.h.v;", "[25 +: 8] is not a slice of bit<32>"),
        ("hdr.h.v = hdr.h.d[-1 +: 8];", "[-1 +: 8] is not a slice of bit<32>"),
        ("hdr.h.v = hdr.h.d[hdr.h.n +: 0];", "a slice of bit<32> has 1 to 32 bits, not 0"),
        ("hdr.h.v = hdr.h.d[0 +: 33];", "a slice of bit<32> has 1 to 32 bits, not 33"),
        ("hdr.h.v = hdr.h.d[0 +: hdr.h.n];", "the width of a slice must be a number known when compiling"),
        ("hdr.h.v = hdr.h.d[hdr.h.s +: 8];", "the lowest bit of a slice is unsigned, not int<16>"),
        ("hdr.h.v = hdr.h[0 +: 8];", "a slice of h_t"),
        ("hdr.h.v = hdr.h.d[8 +: 4];", "a value of type bit<4> stands where bit<8> is needed"),
        ("hdr.h.d[hdr.h.n +: 4] = hdr.h.v;", "a value of type bit<8> stands where bit<4> is needed"),
        ("8w1[hdr.h.n +: 4] = 0;", "this cannot be written"),
        ("hdr.h.v = hdr.h.d[8 + : 4];", "expected an expression, found ':'"),
    ],
)
def test_what_is_wrong_with_such_slices(complain: Complain, apply: str, message: str) -> None:
    assert message in complain(declarations=DECLARATIONS, apply=apply)
