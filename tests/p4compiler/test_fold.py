"""Arithmetic on constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fanin.p4compiler import Compiled

Build = Callable[..., Compiled]


def constants(compiled: Compiled) -> list[int]:
    primitives: list[dict[str, Any]] = compiled.json["actions"][0]["primitives"]
    return [int(p["parameters"][1]["value"], 16) for p in primitives]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16w65535 + 1", 0),
        ("16w65535 |+| 1", 65535),
        ("16w0 - 1", 65535),
        ("16w0 |-| 1", 0),
        ("16w300 * 300", 300 * 300 % 65536),
        ("~16w0xF0", 0xFF0F),
        ("16w1 << 20", 0),
        ("(1 << 20) >> 16", 16),
        ("16w7 / 2", 3),
        ("16w7 % 4", 3),
        ("0 - 7 + 10", 3),
        ("8w1 ++ 8w2", 258),
        ("(32w0x12345678)[23:8]", 0x3456),
        ("(bit<16>)8w255", 255),
        ("(bit<16>)(int<16>)(int<8>)8w255", 65535),
        ("true ? 16w1 : 2", 1),
        ("5 > 3 && !(2 == 3) ? 16w1 : 2", 1),
    ],
)
def test_constants_are_computed_as_p4_computes(build: Build, text: str, value: int) -> None:
    assert constants(build(apply=f"meta.x = {text};")) == [value]


def test_signed_constants_saturate_and_wrap_at_their_own_limits(build: Build) -> None:
    compiled = build(apply="hdr.h.s = 8s127 |+| 1; hdr.h.s = 8s127 + 1; hdr.h.s = -8s1 >> 1;")
    assert constants(compiled) == [127, -128, -1]


def test_a_condition_that_is_known_leaves_one_branch(build: Build) -> None:
    compiled = build(apply="if (1 + 1 == 2) { meta.x = 1; } else { meta.x = 2; }")
    assert constants(compiled) == [1]
    assert compiled.json["pipelines"][0]["conditionals"] == []
