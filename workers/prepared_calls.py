"""What is prepared once for arrays that come again, as those of a training step do."""

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
    """An array without gaps once more, which does not keep its memory from being freed."""
    memory = (ctypes.c_byte * array.nbytes).from_address(array.ctypes.data)
    return np.ndarray(array.shape, array.dtype, memoryview(memory))


class Remembered(dict[object, _T]):
    """So much of what has been prepared, and then all anew."""

    def remember(self, key: object, prepared: _T) -> _T:
        """It is found from now on."""
        if len(self) == MAX_REMEMBERED:
            self.clear()
        self[key] = prepared
        return prepared


class PreparedCalls(Generic[_T]):
    """What `prepare` makes of lent() arrays `x` and `out`, and of an operation, the first time that they come.

    They are found by all that it depends on, so that other arrays in the same place may have it.
    """

    def __init__(self, prepare: Callable[[Array, Operation, Array], _T]) -> None:
        self._prepare = prepare
        self._prepared: Remembered[_T] = Remembered()

    def find(self, x: object, op: Operation, out: object) -> _T | None:
        """None: they are not two arrays, or one, in memory without gaps that can be written to.

        Raises:
            TypeError, ValueError: prepare() does.
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
