"""The primitives that the switch supports, and the arguments that each takes.

Source: BMv2's docs/JSON_format.md (core primitives) and simple_switch's primitives.
"""

from __future__ import annotations

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
from fanin.p4switch.bmv2json.program import Argument, ExpressionList, Named, ProgramError

_TWO_OPERANDS = ("target", "value", "value")
PRIMITIVES: dict[str, tuple[str, ...]] = {
    "assign": ("target", "value"),
    "modify_field": ("target", "value"),
    "add_to_field": ("target", "value"),
    "subtract_from_field": ("target", "value"),
    "add": _TWO_OPERANDS,
    "subtract": _TWO_OPERANDS,
    "bit_and": _TWO_OPERANDS,
    "bit_or": _TWO_OPERANDS,
    "bit_xor": _TWO_OPERANDS,
    "shift_left": _TWO_OPERANDS,
    "shift_right": _TWO_OPERANDS,
    "assign_VL": ("target", "value"),
    "add_header": ("element",),
    "add_header_fast": ("element",),
    "remove_header": ("element",),
    "assign_header": ("element", "any header"),
    "copy_header": ("element", "any header"),
    "assign_union": ("union", "union"),
    "assign_header_stack": ("stack", "stack"),
    "assign_union_stack": ("stack", "stack"),
    "push": ("stack", "value"),
    "pop": ("stack", "value"),
    "mark_to_drop": ("header",),
    "drop": (),
    "truncate": ("value",),
    "exit": (),
    "no_op": (),
    "register_read": ("target", "register_array", "value"),
    "register_write": ("register_array", "value", "value"),
    "count": ("counter_array", "value"),
    "execute_meter": ("meter_array", "value", "target"),
    "generate_digest": ("value", "constant"),
    "clone_ingress_pkt_to_egress": ("value", "constant"),
    "clone_egress_pkt_to_egress": ("value", "constant"),
    "resubmit": ("constant",),
    "recirculate": ("constant",),
    "log_msg": ("string", "values"),
    "assert": ("value",),
    "assume": ("value",),
    "modify_field_rng_uniform": _TWO_OPERANDS,
    "modify_field_with_hash_based_offset": ("target", "value", "calculation", "value"),
    "_jump": ("constant",),
    "_jump_if_zero": ("value", "constant"),
}


def check_call(op: str, arguments: tuple[Argument, ...], where: str) -> None:
    """Check a primitive's name and arguments.

    Raises:
        ProgramError: If the primitive is not supported, or does not take these arguments.
    """
    if op not in PRIMITIVES:
        raise ProgramError(f"{where}: primitive {op} is not supported")
    needed = PRIMITIVES[op]
    if len(arguments) != len(needed) or not all(map(_fits, arguments, needed)):
        raise ProgramError(f"{where}: primitive {op} needs ({', '.join(needed)}), not {arguments}")


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
