"""Quantities as they are printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import floats, sampled_from
from pydantic import TypeAdapter, ValidationError

from fanin.topologies.units import BYTES, RATES, TIMES, Probability, percent_text, quantity, quantity_text


@pytest.mark.parametrize(
    ("number", "units", "text"),
    [
        (100e6, RATES, "100 Mb/s"),
        (1.5e9, RATES, "1.5 Gb/s"),
        (0, RATES, "0 b/s"),
        (64_000, BYTES, "64 kB"),
        (999, BYTES, "999 B"),
        (0.005, TIMES, "5 ms"),
        (1e-6, TIMES, "1 us"),
        (12.3456, TIMES, "12.35 s"),
        (5e-10, TIMES, "0.5 ns"),
    ],
)
def test_a_quantity_is_printed_in_the_unit_that_fits(number: float, units: dict, text: str) -> None:
    assert quantity_text(number, units) == text


@given(floats(min_value=0, max_value=1e15, allow_subnormal=False), sampled_from([BYTES, RATES, TIMES]))
def test_what_is_printed_can_be_read(number: float, units: dict) -> None:
    assert float(quantity(quantity_text(number, units), units, "")) == pytest.approx(
        number, rel=1e-3, abs=1e-300
    )


@pytest.mark.parametrize(
    ("given", "value"), [("1%", 0.01), ("0.5 %", 0.005), ("0.25", 0.25), (0.25, 0.25), ("100%", 1)]
)
def test_a_probability_is_a_number_or_a_percentage(given: object, value: float) -> None:
    assert TypeAdapter(Probability).validate_python(given) == value


@pytest.mark.parametrize("given", ["1%%", "%", "101%", "-1%", "one", 2])
def test_other_probabilities_are_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Probability).validate_python(given)


@given(floats(min_value=0, max_value=1))
def test_a_printed_probability_can_be_read(number: float) -> None:
    assert TypeAdapter(Probability).validate_python(percent_text(number)) == pytest.approx(number, rel=1e-3)
