"""The primitives that the switch supports, by name.

Source: BMv2's docs/JSON_format.md (core primitives) and simple_switch's primitives.
"""

from __future__ import annotations

from pathlib import Path

from fanin.p4switch.bmv2json.expressions import (
    Conditional,
    Constant,
    ElementField,
    Field,
    HeaderName,
    StackElement,
    StackName,
    UnionName,
)
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind
from fanin.p4switch.bmv2json.program import Argument, ExpressionList, Named, ProgramError
from fanin.p4switch.primitives import (
    OUTSIDE,
    arithmetic,
    assertions,
    assignment,
    control,
    counters,
    drop,
    hashes,
    headers,
    log_msg,
    meters,
    random_numbers,
    registers,
    requests,
    stacks,
)

_MODULES = (
    *(assignment, arithmetic, headers, stacks, drop, control, registers, counters, meters, requests),
    *(log_msg, assertions, random_numbers, hashes),
)
KINDS: dict[str, PrimitiveKind] = {kind.name: kind for module in _MODULES for kind in module.KINDS}


def register(kind: PrimitiveKind) -> None:
    """Add a primitive to those that the switch supports.

    Raises:
        ValueError: If there is one of that name.
    """
    if kind.name in KINDS:
        raise ValueError(f"there is a primitive {kind.name} already")
    KINDS[kind.name] = kind
    OUTSIDE.add(Path(kind.write.__code__.co_filename))


def find(op: str, arguments: tuple[Argument, ...], where: str) -> PrimitiveKind:
    """Return the primitive of a call, after checking its arguments.

    Raises:
        ProgramError: If the primitive is not supported, or does not take these arguments.
    """
    if op not in KINDS:
        raise ProgramError(f"{where}: primitive {op} is not supported")
    needed = KINDS[op].parameters
    if len(arguments) != len(needed) or not all(map(_fits, arguments, needed)):
        raise ProgramError(f"{where}: primitive {op} needs ({', '.join(needed)}), not {arguments}")
    return KINDS[op]


def _fits(argument: Argument, kind: str) -> bool:
    match kind:
        case "target":
            return isinstance(argument, (Field, ElementField))
        case "header":
            return isinstance(argument, HeaderName)
        case "element":
            return isinstance(argument, (HeaderName, StackElement))
        case "any header":
            return isinstance(argument, (HeaderName, StackElement, Conditional))
        case "union":
            return isinstance(argument, UnionName)
        case "values":
            return isinstance(argument, ExpressionList)
        case "stack":
            return isinstance(argument, StackName)
        case "constant":
            return isinstance(argument, Constant)
        case "value":
            return not isinstance(argument, (Named, ExpressionList, HeaderName, UnionName, StackName))
    return isinstance(argument, Named) and argument.kind == kind
