"""The names that frameworks give to collectives and to the types of their values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fanin.native.text import printable
from fanin.workers.collective import Operation

# Looked for in this order, in names without anything but letters.
_NAMES: Sequence[tuple[str, Operation]] = (
    ("barrier", "all-reduce"),
    ("allreduce", "all-reduce"),
    ("reducescatter", "reduce-scatter"),
    ("allgather", "all-gather"),
    ("alltoall", "all-to-all"),
    ("broadcast", "broadcast"),
)

_TYPE_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char", "uint8", "int8"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "float16", "int16"), 2),
    **dict.fromkeys(("float", "int", "float32", "int32"), 4),
    **dict.fromkeys(("double", "long", "long int", "float64", "int64"), 8),
}


def operation_named(name: str) -> Operation:
    """Return the operation that a framework means.

    Args:
        name: A name such as "c10d::allreduce_", "_reduce_scatter_base", "AllGather" or "all_to_allv".

    Raises:
        ValueError: If fanin cannot replay it.
    """
    letters = re.sub("[^a-z]", "", name.rpartition(":")[2].lower())
    for part, operation in _NAMES:
        if part in letters:
            return operation
    there = ", ".join(dict.fromkeys(operation for _, operation in _NAMES))
    raise ValueError(f"unknown collective {printable(name)!r}; fanin replays {there}, send and barrier")


def type_bytes(name: str) -> int:
    """Return the bytes of a value of this type.

    Raises:
        ValueError: If the type is unknown.
    """
    plain = name.lower().removeprefix("c10::")
    if plain.startswith("float8"):
        return 1
    if plain not in _TYPE_BYTES:
        raise ValueError(f"unknown type {printable(name)!r}; known are {', '.join(_TYPE_BYTES)}")
    return _TYPE_BYTES[plain]
