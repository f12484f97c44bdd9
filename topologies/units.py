"""Quantities as people write them, `100 Gb/s`, `64 KiB`, `10 us`, and as the program uses them: bits/s, bytes, seconds.

`b` is a bit, `B` a byte; k, M, G, T and P are powers of 1000, Ki, Mi and Gi powers of 1024. In a count, `B` is a
billion, as in the names of models. The module also has a Pydantic type for each quantity, which accepts bare numbers,
too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12}
RATES = {f"{prefix}b/s": Decimal(10) ** power for prefix, power in _DECIMAL.items()}
BYTES = {f"{prefix}B": Decimal(10) ** power for prefix, power in _DECIMAL.items()}
BYTES |= {"KiB": Decimal(2**10), "MiB": Decimal(2**20), "GiB": Decimal(2**30)}
TIMES = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "µs": Decimal("1e-6")}
TIMES |= {"ns": Decimal("1e-9")}
# Of what takes days; times are printed in seconds all the same.
LONG_TIMES = TIMES | {"min": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
COUNTS = {prefix: Decimal(10) ** power for prefix, power in _DECIMAL.items()} | {"B": Decimal(10) ** 9}
SHARES = {"%": Decimal("0.01")}
MEMORY_RATES = {f"{prefix}B/s": Decimal(10) ** power for prefix, power in _DECIMAL.items()}
FLOPS = {f"{prefix}FLOP/s": Decimal(10) ** power for prefix, power in (_DECIMAL | {"P": 15}).items()}

_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*(\S*)")


def quantity(text: str, units: Mapping[str, Decimal], example: str) -> Decimal:
    """Return the number that `text` stands for, in the unit of the program.

    Args:
        text: A number and its unit.
        units: The factor of each unit.
        example: A correct text for the error message.

    Raises:
        ValueError: If the text is not a number with one of the units, or the number is too large.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        there = ", ".join(filter(None, units))
        raise ValueError(f"write a number and its unit, such as {example!r}; units are {there}")
    try:
        number = Decimal(match[1]) * units[match[2]]
        number % 1  # raises an error if the decimal is too large
    except ArithmeticError:
        raise ValueError("is too large") from None
    return number


def quantity_text(number: float, units: Mapping[str, Decimal]) -> str:
    """Format a number >= 0 with four digits, in its `fitting_unit`, so that `quantity` can read it."""
    unit = fitting_unit(number, units)
    return f"{number / float(units[unit]):.4g} {unit}"


def exact_text(number: float, units: Mapping[str, Decimal]) -> str:
    """Format a number with all its digits, in its `fitting_unit`, so that `quantity` returns the same number."""
    unit = fitting_unit(number, units)
    return f"{digits(Decimal(str(number)) / units[unit])}{'' if unit == '%' else ' '}{unit}"


def digits(number: Decimal) -> str:
    """Format a number with all its digits, without an exponent and without trailing zeros."""
    return f"{number.normalize():f}"


def fitting_unit(number: float, units: Mapping[str, Decimal]) -> str:
    """Return the largest decimal unit that is not larger than the number.

    It is the smallest unit if all are larger, and the unit of the program if the number is 0.
    """
    scales = {unit: float(one) for unit, one in units.items() if not unit.startswith(("Ki", "Mi", "Gi", "µ"))}
    fitting = [unit for unit, one in scales.items() if abs(number) >= one or (not number and one == 1)]
    return max(fitting, key=scales.__getitem__) if fitting else min(scales, key=scales.__getitem__)


def percent_text(probability: float) -> str:
    """Format a probability as a percentage with four digits, so that `Probability` can read it."""
    return f"{100 * probability:.4g}%"


def text_schema(units: Mapping[str, Decimal]) -> dict[str, str]:
    """Return the JSON Schema of the texts that `quantity` accepts."""
    names = "|".join(re.escape(unit) for unit in units)
    return {"type": "string", "pattern": rf"^{_NUMBER}\s*({names})$"}


def _whole(units: Mapping[str, Decimal], example: str) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        number = quantity(value, units, example)
        if number != int(number):
            raise ValueError(f"must be a whole number of {next(iter(units))}".removesuffix(" of "))
        return int(number)

    return parse


def _seconds(value: Any) -> Any:
    return float(quantity(value, TIMES, "10 us")) if isinstance(value, str) else value


def _duration(value: Any) -> Any:
    return float(quantity(value, LONG_TIMES, "3 h")) if isinstance(value, str) else value


def _probability(value: Any) -> Any:
    if isinstance(value, str):
        number, percent, rest = value.strip().partition("%")
        if rest or not re.fullmatch(_NUMBER, number.strip()):
            raise ValueError("write a number from 0 to 1, or a percentage such as '1%'")
        value = float(Decimal(number.strip()) / 100 if percent else Decimal(number.strip()))
        if percent:
            return value
    if isinstance(value, int | float) and 1 < value <= 100:
        raise ValueError(f"must be at most 1; for {value:g} percent, write '{value:g}%' or {value / 100:g}")
    return value


def _schema(kind: str, units: Mapping[str, Decimal]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": kind, "minimum": 0}, text_schema(units)]})


Rate = Annotated[int, BeforeValidator(_whole(RATES, "100 Gb/s")), _schema("integer", RATES)]
Count = Annotated[int, BeforeValidator(_whole(COUNTS, "7G")), Field(ge=0), _schema("integer", COUNTS)]
Flops = Annotated[int, BeforeValidator(_whole(FLOPS, "989 TFLOP/s")), _schema("integer", FLOPS)]
MemoryRate = Annotated[
    int, BeforeValidator(_whole(MEMORY_RATES, "3.35 TB/s")), _schema("integer", MEMORY_RATES)
]
Bytes = Annotated[int, BeforeValidator(_whole(BYTES, "64 kB")), Field(ge=0), _schema("integer", BYTES)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, le=3600), _schema("number", TIMES)]
Duration = Annotated[float, BeforeValidator(_duration), Field(ge=0, le=10**9), _schema("number", LONG_TIMES)]
Probability = Annotated[
    float,
    BeforeValidator(_probability),
    Field(ge=0, le=1),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "string", "pattern": rf"^{_NUMBER}\s*%$"},
            ]
        }
    ),
]
