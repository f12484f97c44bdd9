"""`...` and `{#}`: mistakes in them, and what warnings make of them; tests/p4switch/stf/defaults.stf runs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fanin.p4compiler import Compiled
from tests.p4compiler.conftest import HEADERS

Build = Callable[..., Compiled]
Complain = Callable[..., str]
UNION = HEADERS.replace(
    "struct headers { h_t h;", "header_union u_t { h_t one; h_t other; }\nstruct headers { h_t h; u_t u;"
)


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        ("meta.y = {#};", "a value of type {#} stands where bit<8> is needed"),
        ("meta = {#};", "a value of type {#} stands where metadata is needed"),
        ("meta = { ..., 1 };", "expected '}', found ','"),
        ("meta = { z = 1, ... };", "there is no field of metadata 'z'"),
        ("meta = { x = 1, x = 2, ... };", "a field is given twice"),
        ("meta = { x = 1 };", "fields of metadata are missing: y, flag"),
        ("meta = { 1, 2, true, 4, ... };", "metadata takes 3 values, not 4"),
        ("digest(1, { meta.x, ... });", "this does not say of which type it is"),
        ("digest(1, {#});", "this does not say of which type it is"),
        ("headers h = { ... };", "a default value of type u_t is not supported"),
    ],
)
def test_what_is_wrong_with_default_values(complain: Complain, apply: str, message: str) -> None:
    found = complain(declarations=UNION, apply=apply)
    assert found.split("\n")[0].partition(": error: ")[2] == message


@pytest.mark.parametrize(
    ("apply", "options"),
    [
        ("hdr.h = {#}; meta.y = hdr.h.a;", ["invalid-header"]),
        ("hdr.h = { ... }; meta.y = hdr.h.a;", []),
        ("metadata m = { ... }; meta = m;", []),
        ("h_t[2] s = { ... }; s[1] = { 1, ... }; hdr.h = s[1];", []),
        ("if (hdr.h == {#}) { meta.y = 1; }", []),
        ("if (hdr.h != (h_t){ 1, ... }) { meta.y = 1; }", []),
    ],
)
def test_warnings_know_default_values(build: Build, apply: str, options: list[str]) -> None:
    assert [w.option for w in build(apply=apply).warnings] == options
