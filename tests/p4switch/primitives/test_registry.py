"""The registries of externs and primitives: what is declared is consistent, and others can be added from outside."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fanin.p4compiler import CompileError, compile_file, externs
from fanin.p4compiler.externs import registry as extern_registry
from fanin.p4switch import primitives
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.codegen.translate import translate
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.primitives import registry
from fanin.p4switch.reader import read_program
from fanin.p4switch.trace.events import Access
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import traced
from tests.p4switch.primitives import rotate

# Not *.p4: other tests compile all of those, and do not know this extern.
PROGRAM = Path(__file__).parent / "rotate.txt"


@pytest.fixture
def rotating() -> Iterator[None]:
    """The extern of rotate.py, in the compiler and in the switch."""
    extern_registry.register(rotate.EXTERN)
    registry.register(rotate.KIND)
    yield
    del extern_registry.EXTERNS["rotate"], registry.KINDS["rotate"]
    externs.OUTSIDE.clear()
    primitives.OUTSIDE.clear()


@pytest.mark.slow
@pytest.mark.usefixtures("rotating")
def test_an_extern_is_added_from_outside() -> None:
    """One file adds it to the compiler, the translation to C, the switch and the trace."""
    config = compile_file(PROGRAM).device_config()
    program = read_program(config)
    ops = [p.op for action in program.actions.values() for p in action.primitives]
    assert "rotate" in ops
    code = translate(program)
    assert code.count("static uint64_t primitive_rotate(uint32_t x, uint32_t n)") == 1

    switch = Engine.load(config)
    with traced(switch, "") as tracer:
        assert switch.process(3, struct.pack(">II", 0x80000001, 4)) == [(3, struct.pack(">II", 0x18, 4))]
        [trace] = tracer.packets()
    [access] = [event for event in trace.events if isinstance(event, Access)]
    assert access.operation == "rotate"
    assert access.value is not None
    assert access.value.number == 4
    assert access.source is not None
    assert access.source.fragment.startswith("rotate(hdr.word.x")
    assert "rotate" in as_text(trace)


@pytest.mark.usefixtures("rotating")
def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="there is an extern rotate already"):
        extern_registry.register(rotate.EXTERN)
    with pytest.raises(ValueError, match="there is a primitive rotate already"):
        registry.register(rotate.KIND)


@pytest.mark.usefixtures("rotating")
def test_what_is_compiled_depends_on_the_file_of_an_extern_from_outside() -> None:
    assert externs.OUTSIDE == primitives.OUTSIDE == {Path(rotate.__file__)}


def test_an_extern_that_nobody_added_is_refused() -> None:
    with pytest.raises(CompileError, match=r"rotate\(\) is not supported here"):
        compile_file(PROGRAM)


@pytest.mark.usefixtures("rotating")
def test_the_arguments_of_an_added_primitive_are_checked() -> None:
    config = compile_file(PROGRAM).device_config()
    broken = config.replace(b'"op":"rotate"', b'"op":"truncate"')
    assert broken != config
    with pytest.raises(ProgramError, match=r"primitive truncate needs \(value\), not "):
        read_program(broken)


@pytest.mark.parametrize("kind", registry.KINDS.values(), ids=lambda kind: kind.name)
def test_a_kind_is_consistent(kind: registry.PrimitiveKind) -> None:
    """Check the flags of a kind against its parameters, and against each other."""
    assert not kind.overwrites or kind.parameters[0] in ("target", "element")
    assert not kind.sets_local or kind.overwrites
    assert not kind.sets_fields or kind.parameters[0] == "header"
    assert not kind.makes_valid or kind.parameters[0] in ("element", "stack", "union")
    assert not kind.jumps or kind.parameters[-1] == "constant"
    assert not kind.may_fail or kind.may_end
    assert not (kind.repeatable and (kind.request or kind.may_fail or kind.makes_valid))
