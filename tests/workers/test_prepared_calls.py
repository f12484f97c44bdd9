"""The calls that are prepared once for arrays that come again."""

import weakref
from typing import Any

import numpy as np
import pytest

from fanin.workers import prepared_calls as recurring
from fanin.workers.arguments import Array, Operation
from fanin.workers.prepared_calls import PreparedCalls


class Prepared:
    """With what it was prepared."""

    def __init__(self, x: Array, op: Operation, out: Array) -> None:
        self.x, self.op, self.out = x, op, out


@pytest.fixture
def found() -> PreparedCalls[Prepared]:
    return PreparedCalls(Prepared)


def test_the_same_arrays_find_the_same_and_it_sees_what_is_in_them(found: PreparedCalls[Prepared]) -> None:
    x, out = np.zeros((2, 3)), np.zeros((2, 3))
    first = found.find(x, "sum", out)
    assert first
    assert found.find(x, "sum", out) is first
    x[1, 2] = 7
    first.out[0, 0] = 8
    assert first.x[1, 2] == 7
    assert out[0, 0] == 8
    in_place = found.find(x, "sum", x)
    assert in_place
    assert in_place.x is in_place.out


def test_with_another_operation_type_or_shape_it_is_another(found: PreparedCalls[Prepared]) -> None:
    x = np.zeros((2, 3))
    kinds = [found.find(x, "sum", x), found.find(x, "max", x)]
    kinds += [found.find(each, "sum", each) for each in (x.reshape(3, 2), x.view(np.int64), x.ravel())]
    assert len(set(kinds)) == 5


@pytest.mark.parametrize(
    "x", [np.zeros(6)[::2], np.zeros((2, 3)).T, np.zeros(0), [1.0], None, np.ma.zeros(3)]
)
def test_what_is_no_memory_to_write_to_without_gaps_is_not_remembered(
    found: PreparedCalls[Prepared], x: Any
) -> None:
    fits = np.zeros(3)
    assert found.find(x, "sum", x) is None
    assert found.find(x, "sum", fits) is None
    assert found.find(fits, "sum", x) is None
    fits.flags.writeable = False
    assert found.find(fits, "sum", fits) is None


def test_memory_is_freed_as_if_nothing_were_remembered(found: PreparedCalls[Prepared]) -> None:
    x = np.zeros(3)
    assert found.find(x, "sum", x)
    gone = weakref.ref(x)
    del x
    assert gone() is None


def test_there_is_an_end_to_what_is_remembered(
    found: PreparedCalls[Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurring, "MAX_REMEMBERED", 2)
    x = np.zeros((4, 3))
    first = found.find(x[0], "sum", x[0])
    assert found.find(x[1], "sum", x[1])
    assert found.find(x[0], "sum", x[0]) is first
    assert found.find(x[2], "sum", x[2])
    assert found.find(x[0], "sum", x[0]) is not first
