"""The registry of primitives: every one that the switch supports is written, and others can be added."""

from __future__ import annotations

from typing import Any

import pytest

from fanin.p4switch.bmv2json.expressions import Unary
from fanin.p4switch.bmv2json.primitives import PRIMITIVES
from fanin.p4switch.codegen import actions
from fanin.p4switch.codegen.actions import FROM_OPERANDS, IN_PLACE, WRITERS, writes
from fanin.p4switch.engine.engine import Engine
from tests.p4switch.documents import document, field


def test_each_primitive_is_written_in_one_way() -> None:
    written = [set(WRITERS), set(FROM_OPERANDS), set(IN_PLACE)]
    assert set.union(*written) == {name.lstrip("_") for name in PRIMITIVES}
    assert sum(map(len, written)) == len(PRIMITIVES)


def test_a_primitive_is_added_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "WRITERS", dict(WRITERS))
    monkeypatch.setitem(PRIMITIVES, "invert", ("target",))

    @writes("invert")
    def write_invert(writer: Any, out: Any, target: Any) -> None:
        writer.assign(out, target, Unary("~", target))

    invert = {"op": "invert", "parameters": [field("h", "a")]}
    switch = Engine.load(document({"h": [["a", 8, False]]}, [invert]))
    assert switch.process(3, b"\x0f") == [(3, b"\xf0")]
