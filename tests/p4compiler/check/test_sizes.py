"""Sizes that are known when compiling: `minSizeInBits()` and its relatives, of values and of types."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fanin.p4compiler import Compiled
from fanin.p4switch.engine.engine import Engine
from tests.p4compiler.conftest import HEADERS

DECLARED = (
    HEADERS.replace("struct headers { h_t h; }", "header v_t { bit<4> n; bit<4> m; varbit<32> v; }")
    + "header_union u_t { h_t h; v_t v; } struct headers { h_t h; v_t v; u_t u; h_t[3] s; }\n"
    + "enum bit<16> e_t { one = 1 } type bit<9> port_t;"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("hdr.h.minSizeInBits()", 64),
        ("hdr.h.maxSizeInBytes()", 8),
        ("hdr.v.minSizeInBytes()", 1),
        ("hdr.v.maxSizeInBytes()", 5),
        ("hdr.u.maxSizeInBits()", 64),
        ("hdr.s.minSizeInBytes()", 24),
        ("hdr.minSizeInBytes()", 8 + 1 + 8 + 24),
        ("headers.maxSizeInBytes()", 8 + 5 + 8 + 24),
        ("h_t.minSizeInBytes()", 8),
        ("hdr.h.b.minSizeInBits()", 16),
        ("e_t.minSizeInBits()", 16),
        ("port_t.maxSizeInBytes()", 2),
    ],
)
def test_sizes(build: Callable[..., Compiled], expression: str, value: int) -> None:
    apply = f"hdr.h.b = {expression}; const bit<8> known = {expression}; standard_metadata.egress_spec = 1;"
    engine = Engine.load(build(declarations=DECLARED, apply=apply).device_config())
    [(_, packet)] = engine.process(0, bytes(8))
    assert int.from_bytes(packet[1:3], "big") == value


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        ("meta.x = standard_metadata.parser_error.minSizeInBits();", "a value of type error has no size"),
        ("meta.x = hdr.h.minSizeInBits(1);", "minSizeInBits() takes no arguments"),
        ("meta.x = hdr.h.minSize();", "a value of type h_t has no method 'minSize'"),
    ],
)
def test_sizes_that_do_not_exist(complain: Callable[..., str], apply: str, message: str) -> None:
    assert message in complain(declarations=DECLARED, apply=apply)


def test_a_size_without_use_of_its_value_compiles(build: Callable[..., Compiled]) -> None:
    assert build(apply="hdr.h.minSizeInBits();").json
