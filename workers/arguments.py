"""The arguments of a communicator's operations: checked, described in words, and flattened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Operation = Literal["sum", "mean", "max", "min"]
Array = NDArray[Any]
_Type = tuple[np.dtype[Any], tuple[int, ...]]  # an array's type and shape

_OPERATIONS = get_args(Operation)
_KINDS = {"sum": "fiu", "mean": "f", "max": "fiub", "min": "fiub"}


def listed(x: Array | list[Array]) -> list[Array]:
    """Return `x` if it is a list, otherwise a list that contains it; numbers of numpy become arrays.

    Raises:
        TypeError: If it contains something that is not an array.
    """
    xs: list[Any] = [
        np.asarray(each) if isinstance(each, np.generic) else each
        for each in (x if isinstance(x, list) else [x])
    ]
    for each in xs:
        if not isinstance(each, np.ndarray):
            raise TypeError(f"arrays are numpy's, not {type(each).__name__}; numpy.asarray() makes one")
    return xs


def reduction(
    operation: str, op: Operation, x: Array | list[Array], out: Array | list[Array] | None
) -> tuple[list[Array], Sequence[Array | None], str]:
    """Check the arguments of a reduction.

    Args:
        operation: The call, in words.
        op: The reduction operation.
        x: An array, or a list of arrays.
        out: Where the results go, of the same form as `x`. None allocates new arrays.

    Returns:
        The arrays of `x` as a list; for each array where its result goes, None for a new array; and the text of
            described().

    Raises:
        TypeError: See listed() and described(); or if `op` is not defined for these numbers.
        ValueError: If there is no such `op`, or `out` does not fit.
    """
    xs = listed(x)
    what = _reduction(operation, op, _types(xs))
    return xs, [None] * len(xs) if out is None else _outputs(x, xs, out), what


def _outputs(x: Array | list[Array], xs: list[Array], out: Array | list[Array]) -> list[Array]:
    outs = xs if out is x else _fitting(x, xs, out)
    for each in outs:
        flags = each.flags
        if not flags.writeable or not flags.c_contiguous:
            raise ValueError("out is written to: it must be writable and C-contiguous")
    return outs


def _fitting(x: Array | list[Array], xs: list[Array], out: Array | list[Array]) -> list[Array]:
    outs = listed(out)
    if isinstance(x, list) is not isinstance(out, list) or len(outs) != len(xs):
        raise ValueError("out must be an array where x is one, and else a list as long as x")
    for each, of in zip(outs, xs, strict=True):
        if each.dtype != of.dtype or each.shape != of.shape:
            raise ValueError(
                f"out must be of {of.dtype} and shape {of.shape}, not of {each.dtype} and shape {each.shape}"
            )
    return outs


def described(operation: str, xs: Sequence[Array]) -> str:
    """Describe a call in words that must be the same at all workers.

    Args:
        operation: The name of the call.
        xs: Its arrays.

    Raises:
        TypeError: If an array has a byte order that is not this machine's.
    """
    return _described(operation, _types(xs))


def _types(xs: Sequence[Array]) -> tuple[_Type, ...]:
    if len(xs) == 1:  # the most frequent case, which takes half as long this way
        return ((xs[0].dtype, xs[0].shape),)
    return tuple([(each.dtype, each.shape) for each in xs])


# A training step has the same arrays each time, and numpy takes microseconds for a type's name.
@lru_cache(1024)
def _reduction(operation: str, op: Operation, types: tuple[_Type, ...]) -> str:
    if op not in _OPERATIONS:
        raise ValueError(f"op must be one of {', '.join(_OPERATIONS)}, not {op!r}")
    for dtype, _ in types:
        if dtype.kind not in _KINDS[op]:
            raise TypeError(f"there is no {op} of {dtype}; convert the array with astype()")
    return _described(operation, types)


@lru_cache(1024)
def _described(operation: str, types: tuple[_Type, ...]) -> str:
    for dtype, _ in types:
        if not dtype.isnative:
            raise TypeError(f"arrays have this machine's byte order, not {dtype}; astype() converts one")
    return f"{operation} of {', '.join([_array(dtype, shape) for dtype, shape in types])}"


def _array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"{shape[0]:,} {dtype}" if len(shape) == 1 else f"{dtype} {shape}"


def as_given(x: Array | list[Array]) -> Callable[[list[Array]], Array | list[Array]]:
    """Return a function that turns a list of results into what the call returns: a list if `x` is a list."""
    return list if isinstance(x, list) else _only


_only = itemgetter(0)


def flattened(x: Array) -> Array:
    """Return `x` in one dimension: its own memory, unless that has gaps."""
    return np.ascontiguousarray(x).reshape(-1)


def bytes_of(x: Array) -> NDArray[np.uint8]:
    """Return the bytes of flattened(x)."""
    return flattened(x).view(np.uint8)


def split(flat: Array, sizes: Sequence[int]) -> list[Array]:
    """Split a flat array into consecutive parts of these sizes."""
    return np.split(flat, np.cumsum(sizes)[:-1]) if sizes else []
