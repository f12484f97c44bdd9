"""A cache of prepared calls, for arrays that are passed repeatedly, such as those of a training step."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from fanin.workers.arguments import Array, Operation
from fanin.workers.engines.buffers import address

_T = TypeVar("_T")

MAX_REMEMBERED = 1024


def borrowed_view(array: Array) -> Array:
    """Return a view of an array without gaps that does not keep the array's memory alive."""
    memory = (ctypes.c_byte * array.nbytes).from_address(array.ctypes.data)
    return np.ndarray(array.shape, array.dtype, memoryview(memory))


class Remembered(dict[object, _T]):
    """A cache that is cleared when it is full."""

    def remember(self, key: object, prepared: _T) -> _T:
        """Store `prepared` under `key` and return it."""
        if len(self) == MAX_REMEMBERED:
            self.clear()
        self[key] = prepared
        return prepared


class PreparedCalls(Generic[_T]):
    """A cache of the results of `prepare` for arrays `x` and `out` and an operation.

    `prepare` gets borrowed views of the arrays. Entries are found by everything that they depend on, so that other
    arrays at the same address can use them.
    """

    def __init__(self, prepare: Callable[[Array, Operation, Array], _T]) -> None:
        self._prepare = prepare
        self._prepared: Remembered[_T] = Remembered()

    def find(self, x: object, op: Operation, out: object) -> _T | None:
        """Return the prepared call; None unless `x` and `out` are arrays without gaps.

        Args:
            x: The input of the call.
            op: Its operation.
            out: Its output; may be `x`.

        Raises:
            TypeError: If prepare() raises it.
            ValueError: If prepare() raises it.
        """
        if type(x) is not np.ndarray or type(out) is not np.ndarray:
            return None
        try:
            key: tuple[object, ...] = (op, address(x), x.dtype, x.shape)
            if out is not x:
                key += (address(out), out.dtype, out.shape)
            return self._prepared[key]
        except (TypeError, ValueError):
            return None
        except KeyError:
            mine = borrowed_view(x)
        return self._prepared.remember(key, self._prepare(mine, op, mine if out is x else borrowed_view(out)))
