"""The size of a vector as people write it, `4 MB` or `1000 elements`, and as the program uses it, in bytes."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from fanin.topologies.units import BYTES, quantity, text_schema

ELEMENT_BYTES = 4  # float32

_SIZES = BYTES | {"elements": Decimal(ELEMENT_BYTES)}


def _vector(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("needs a unit, such as '4 MB' or '1000 elements'")
    number = quantity(value, _SIZES, "4 MB")
    if number % ELEMENT_BYTES or number <= 0:
        raise ValueError(f"must be a multiple of {ELEMENT_BYTES} bytes, the size of a float32")
    return int(number)


# The size of a float32 vector. A bare number is an error, since it could mean elements or bytes.
VectorSize = Annotated[
    int,
    BeforeValidator(_vector),
    PlainSerializer(lambda size: f"{size} B", when_used="json"),
    WithJsonSchema(text_schema(_SIZES)),
]
