"""PSA's extern methods in terms of v1model's: those that return a value become functions around a call."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4compiler import fold, ir, types
from fanin.p4compiler.rewrite import has_effects
from fanin.p4compiler.source import Span, error

_STATE = types.Bits(16)
_SUM = types.Bits(32)
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
    # v1model's register.read has the same name, and returns nothing
    if (
        call.name not in _VALUES
        or isinstance(result, types.Void)
        or not isinstance(call.instance, ir.Instance)
    ):
        return None
    if call.name.startswith(STATE):
        state = ir.Ref(_STATE, call.span, states[call.instance])
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
    call: ir.CallExtern, result: types.Type, states: dict[ir.Instance, ir.Variable]
) -> list[ir.Stmt] | None:
    """Return the statements for a call of a PSA method without using its value; None if it is none of PSA's.

    Args:
        call: The call as written.
        result: The type that the method returns.
        states: The variables that hold the states of checksums.
    """
    if not isinstance(call.instance, ir.Instance):
        return None
    if call.name in ("meter.execute", "direct_meter.execute"):
        unused = ir.Variable("color", types.Bits(32), call.span)
        return [
            ir.Declare(call.span, unused, None),
            _with_result(call, call.arguments, ir.Ref(unused.type, call.span, unused)),
        ]
    if call.name in _VALUES and not isinstance(result, types.Void):
        return []
    if call.name == "Digest.pack":
        receiver = ir.Constant(types.Bits(32), call.span, 1)
        of = call.arguments[0].type
        return [
            ir.CallExtern(
                call.span, "digest", call.instance, (receiver, call.arguments[0]), ("in", "in"), (of,)
            )
        ]
    if not call.name.startswith(f"{STATE}."):
        return None
    state = ir.Ref(_STATE, call.span, states[call.instance])
    match call.name.removeprefix(f"{STATE}."):
        case "clear":
            return [ir.Assign(call.span, state, ir.Constant(_STATE, call.span, 0))]
        case "set_state":
            return [ir.Assign(call.span, state, call.arguments[0])]
        case method:
            return _add(call, state, subtract=method == "subtract")


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
    arguments = (target, algorithm, base, _in_bytes(span, data), limit)
    return ir.CallExtern(span, "hash", None, arguments, ("out", "in", "in", "in", "in"))


def _in_bytes(span: Span, data: ir.Expr) -> ir.Aggregate:
    """Return the numbers in a value, with zeros before them to whole bytes, as psa_switch hashes them."""
    parts = list(_scalars(data))
    rest = -sum(types.width(part.type) or 0 for part in parts) % 8
    if rest:
        parts.insert(0, ir.Constant(types.Bits(rest), span, 0))
    return ir.Aggregate(types.Tuple(tuple(part.type for part in parts)), span, tuple(parts))


def _refuse_colors(span: Span, arguments: tuple[ir.Expr, ...], count: int) -> None:
    if len(arguments) > count:
        raise error(span, "a meter that starts from a color is not supported", "leave the color out")


def _add(call: ir.CallExtern, state: ir.Ref, *, subtract: bool) -> list[ir.Stmt]:
    """Add data to the one's complement sum of 16-bit words, or subtract it: that adds the complements of its words."""
    span = call.span
    data, before = call.arguments[0], list[ir.Stmt]()
    if has_effects(data):
        kept = ir.Variable("data", data.type, span)
        before.append(ir.Declare(span, kept, data))
        data = ir.Ref(data.type, span, kept)
    total = fold.cast(span, _SUM, state)
    for word in _words(span, data):
        term = fold.unary(span, "~", word) if subtract else word
        total = fold.binary(span, _SUM, "+", total, fold.cast(span, _SUM, term))
    for name in ("sum", "carried"):  # the second sum may have a carry, too
        variable = ir.Variable(name, _SUM, span)
        before.append(ir.Declare(span, variable, total))
        part = ir.Ref(_SUM, span, variable)
        low = fold.binary(span, _SUM, "&", part, ir.Constant(_SUM, span, 0xFFFF, 16))
        high = fold.binary(span, _SUM, ">>", part, ir.Constant(types.Int(), span, 16))
        total = fold.binary(span, _SUM, "+", low, high)
    return [*before, ir.Assign(span, state, fold.cast(span, _STATE, total))]


def _words(span: Span, data: ir.Expr) -> list[ir.Expr]:
    """Cut data into words of 16 bits, the last one filled up with zeros."""
    parts: list[tuple[ir.Expr, int]] = []
    for leaf in _scalars(data):
        bits = types.scalar(leaf.type)
        width = types.width(leaf.type)
        if width is None or not isinstance(bits, types.Bits | types.Bool):
            raise error(leaf.span, f"a checksum of {leaf.type} is not supported", "add fields with a width")
        parts.append((fold.cast(span, types.Bits(width), leaf), width))
    rest = -sum(width for _, width in parts) % 16
    if rest:
        parts.append((ir.Constant(types.Bits(rest), span, 0), rest))
    words: list[ir.Expr] = []
    word: ir.Expr | None = None
    missing = 16
    for value, width in parts:
        left = width
        while left:
            taken = min(left, missing)
            piece = value if taken == width else fold.slice_(span, value, left - 1, left - taken)
            joined = types.Bits(16 - missing + taken)
            word = piece if word is None else fold.binary(span, joined, "++", word, piece)
            left, missing = left - taken, missing - taken
            if not missing:
                words.append(word)
                word, missing = None, 16
    return words


def _scalars(data: ir.Expr) -> Iterator[ir.Expr]:
    """Yield the numbers in a value, in order."""
    if isinstance(data, ir.Aggregate):
        for element in data.elements:
            yield from _scalars(element)
    elif isinstance(data.type, types.Header | types.Struct | types.Tuple):
        for f in data.type.fields:
            yield from _scalars(ir.Field(f.type, data.span, data, f.name))
    elif types.width(data.type) != 0:
        yield data
