"""Structs and numbers that Python and C have different ideas of are found when the library is loaded."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_uint16, c_uint32, c_uint64

import numpy as np
import pytest

from fanin.native.shared import SharedError, check_numbers, check_structs, enumerated
from fanin.native.toolchain import compile_folder

SAMPLE = """
#include <stdint.h>
#include "shared.h"
struct sample { uint64_t packets; uint32_t port, queue; double rate; };
enum { RED, DARK_BLUE, COLOURS, LIMIT = -7 };
#define SHARE 0.125
SHARE_STRUCT(sample, FIELD(packets) FIELD(port) FIELD(queue) FIELD(rate))
SHARE_NUMBER(RED);
SHARE_NUMBER(DARK_BLUE);
SHARE_NUMBER(COLOURS);
SHARE_NUMBER(LIMIT);
SHARE_NUMBER(SHARE);
"""
FIELDS = (("packets", c_uint64), ("port", c_uint32), ("queue", c_uint32), ("rate", c_double))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("sample")
    (folder / "sample.c").write_text(SAMPLE)
    return ctypes.CDLL(str(compile_folder(folder)))


def structure(*fields: tuple[str, type]) -> type[ctypes.Structure]:
    return type("Sample", (ctypes.Structure,), {"_fields_": fields})


def test_the_same_on_both_sides(library: ctypes.CDLL) -> None:
    check_structs(library, {"sample": structure(*FIELDS)})
    check_structs(
        library, {"sample": np.dtype([("packets", "u8"), ("port", "u4"), ("queue", "u4"), ("rate", "f8")])}
    )
    check_numbers(library, {"LIMIT": -7, "SHARE": 0.125, **enumerated("red", "dark blue", "colours")})


def test_a_field_that_is_private_in_python(library: ctypes.CDLL) -> None:
    check_structs(library, {"sample": structure(("_packets", c_uint64), *FIELDS[1:])})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            (FIELDS[0], FIELDS[2], FIELDS[1], FIELDS[3]),
            "sample.port: 4 bytes at 8 in C, 4 bytes at 12 in Python",
        ),
        ((*FIELDS, ("more", c_uint64)), "sample: 24 bytes at 0 in C, 32 bytes at 0 in Python"),
        (
            (FIELDS[0], ("port", c_uint16), ("queue", c_uint32), FIELDS[3]),
            "sample.port: 4 bytes at 8 in C, 2 bytes at 8 in Python",
        ),
        (
            (FIELDS[0], ("gate", c_uint32), *FIELDS[2:]),
            "sample.port: 4 bytes at 8 in C, missing in Python",
        ),
    ],
    ids=["order", "size of the struct", "size of a field", "name"],
)
def test_a_struct_that_differs(library: ctypes.CDLL, fields: tuple[tuple[str, type], ...], said: str) -> None:
    with pytest.raises(SharedError, match=f"^struct {said}$"):
        check_structs(library, {"sample": structure(*fields)})


def test_a_field_that_c_does_not_have(library: ctypes.CDLL) -> None:
    record = np.dtype(
        {
            "names": ["packets", "port", "queue", "rate", "loss"],
            "formats": ["u8", "u4", "u4", "f8", "f8"],
            "offsets": [0, 8, 12, 16, 16],
            "itemsize": 24,
        }
    )
    with pytest.raises(SharedError, match=r"^struct sample.loss: missing in C, 8 bytes at 16 in Python$"):
        check_structs(library, {"sample": record})


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"RED": 0, "LIMIT": 8}, "LIMIT: -7 in C, 8 in Python"),
        ({"SHARE": 0.25}, "SHARE: 0.125 in C, 0.25 in Python"),
        (enumerated("dark blue", "red"), "DARK_BLUE: 1 in C, 0 in Python"),
    ],
)
def test_a_number_that_differs(library: ctypes.CDLL, numbers: dict[str, float], said: str) -> None:
    with pytest.raises(SharedError, match=f"^{said}$"):
        check_numbers(library, numbers)
