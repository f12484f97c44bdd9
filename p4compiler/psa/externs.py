"""PSA's extern methods in terms of v1model's: those that return a value become functions around a call."""

from __future__ import annotations

from fanin.p4compiler import fold, ir, types
from fanin.p4compiler.source import Span, error

_SUM = types.Bits(16)
_CARRYING = types.Bits(17)
_ONES_COMPLEMENT16 = "ONES_COMPLEMENT16"
# Methods that return a value, as CallChecker names them. Those of a checksum read the variable that holds its state.
_VALUES = (
    "register.read", "meter.execute", "direct_meter.execute", "Hash.get_hash", "Random.read",
    "InternetChecksum.get", "InternetChecksum.get_state",
)  # fmt: skip
STATE = "InternetChecksum"


def value(call: ir.CallExtern, result: types.Type, states: dict[ir.Instance, ir.Variable]) -> ir.Expr | None:
    """Return the value of a call of a PSA method; None if it is none of PSA's.

    Args:
        call: The call as written.
        result: The type that the method returns.
        states: The variables that hold the states of checksums.
    """
    if call.name not in _VALUES or not isinstance(call.instance, ir.Instance):
        return None
    if call.name.startswith(STATE):
        state = ir.Ref(_SUM, call.span, states[call.instance])
        return fold.unary(call.span, "~", state) if call.name.endswith(".get") else state
    parameters = tuple(
        ir.Variable(f"argument{number}", argument.type, argument.span, "in", parameter=True)
        for number, argument in enumerate(call.arguments)
    )
    inner = tuple(ir.Ref(p.type, p.span, p) for p in parameters)
    returned = ir.Variable("result", result, call.span)
    target = ir.Ref(result, call.span, returned)
    body = (
        ir.Declare(call.span, returned, None),
        _with_result(call, inner, target),
        ir.Return(call.span, target),
    )
    function = ir.Function(call.name, parameters, result, body, call.span)
    return ir.Call(result, call.span, function, call.arguments)


def effect(
    call: ir.CallExtern, states: dict[ir.Instance, ir.Variable], hashes: types.Type
) -> list[ir.Stmt] | None:
    """Return the statements for a call of a PSA method without using its value; None if it is none of PSA's.

    Args:
        call: The call as written.
        states: The variables that hold the states of checksums.
        hashes: The type PSA_HashAlgorithm_t.
    """
    if not isinstance(call.instance, ir.Instance):
        return None
    if call.name in ("meter.execute", "direct_meter.execute"):
        unused = ir.Variable("color", types.Bits(32), call.span)
        return [
            ir.Declare(call.span, unused, None),
            _with_result(call, call.arguments, ir.Ref(unused.type, call.span, unused)),
        ]
    if call.name in _VALUES:
        return []
    if not call.name.startswith(f"{STATE}."):
        return None
    state = ir.Ref(_SUM, call.span, states[call.instance])
    match call.name.removeprefix(f"{STATE}."):
        case "clear":
            return [ir.Assign(call.span, state, ir.Constant(_SUM, call.span, 0))]
        case "set_state":
            return [ir.Assign(call.span, state, call.arguments[0])]
        case method:
            return _add(call, state, hashes, subtract=method == "subtract")


def _with_result(call: ir.CallExtern, arguments: tuple[ir.Expr, ...], target: ir.Ref) -> ir.CallExtern:
    """Return v1model's call that writes the result of a PSA method to `target`."""
    span, instance = call.span, call.instance
    assert isinstance(instance, ir.Instance)
    match call.name:
        case "register.read":
            return ir.CallExtern(span, call.name, instance, (target, *arguments), ("out", "in"))
        case "meter.execute":
            _refuse_colors(span, arguments, 1)
            name = "meter.execute_meter"
            return ir.CallExtern(span, name, instance, (*arguments, target), ("in", "out"))
        case "direct_meter.execute":
            _refuse_colors(span, arguments, 0)
            return ir.CallExtern(span, "direct_meter.read", instance, (target,), ("out",))
        case "Random.read":
            return ir.CallExtern(span, "random", None, (target, *instance.arguments), ("out", "in", "in"))
    algorithm = instance.arguments[0]
    if len(arguments) == 3:
        base, data, limit = arguments
    else:
        bits = types.width(target.type) or 0
        base = ir.Constant(types.Bits(bits), span, 0)
        data, limit = arguments[0], ir.Constant(types.Bits(bits + 1), span, 1 << bits, 16)
    return ir.CallExtern(
        span, "hash", None, (target, algorithm, base, data, limit), ("out", "in", "in", "in", "in")
    )


def _refuse_colors(span: Span, arguments: tuple[ir.Expr, ...], count: int) -> None:
    if len(arguments) > count:
        raise error(span, "a meter that starts from a color is not supported", "leave the color out")


def _add(call: ir.CallExtern, state: ir.Ref, hashes: types.Type, *, subtract: bool) -> list[ir.Stmt]:
    """Add data to the one's complement sum, or subtract it: that adds its complement."""
    span = call.span
    assert isinstance(hashes, types.Enum)
    checksum = ir.Variable("checksum", _SUM, span)
    total = ir.Variable("sum", _CARRYING, span)
    of_data, sum_ = ir.Ref(_SUM, span, checksum), ir.Ref(_CARRYING, span, total)
    algorithm = ir.Constant(hashes, span, hashes.members[_ONES_COMPLEMENT16])
    zero, limit = ir.Constant(_SUM, span, 0), ir.Constant(_CARRYING, span, 1 << 16, 16)
    arguments = (of_data, algorithm, zero, call.arguments[0], limit)
    # The target's checksum is the complement of the sum.
    term = of_data if subtract else fold.unary(span, "~", of_data)
    wide = fold.binary(
        span, _CARRYING, "+", fold.cast(span, _CARRYING, state), fold.cast(span, _CARRYING, term)
    )
    carry = fold.binary(span, _CARRYING, ">>", sum_, ir.Constant(types.Int(), span, 16))
    folded = fold.cast(span, _SUM, fold.binary(span, _CARRYING, "+", sum_, carry))
    return [
        ir.Declare(span, checksum, None),
        ir.CallExtern(span, "hash", None, arguments, ("out", "in", "in", "in", "in")),
        ir.Declare(span, total, wide),
        ir.Assign(span, state, folded),
    ]
