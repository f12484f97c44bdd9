"""The names of columns of results, and how their values are written."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis.strategies import data, floats, integers, sampled_from
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from fanin.experiments.results.axes import number, scale, value_label, value_text
from fanin.experiments.scenario.settings import KEYS, Settings, table_in


def _field(name: str) -> FieldInfo:
    table: Any = Settings
    for part in KEYS[name]:
        field: FieldInfo = table.model_fields[part]
        table = table_in(field.annotation)
    return field


def _adapter(name: str) -> TypeAdapter[Any]:
    field = _field(name)
    return TypeAdapter(Annotated[field.annotation, field])


ADAPTERS = {name: _adapter(name) for name in KEYS}
# Their schema has a pattern, of a number and a unit.
QUANTITIES = [name for name, adapter in ADAPTERS.items() if '"pattern"' in json.dumps(adapter.json_schema())]

COUNTS = {"workload_global_batch", "decoding_context"}  # which may be written as 4M, and have no unit


def _takes(name: str, value: float) -> bool:
    try:
        return ADAPTERS[name].validate_python(value) == value
    except ValidationError:
        return False


def test_settings_with_units_are_many() -> None:
    assert {"rate", "delay", "loss", "burst_begin", "xoff_bytes", "size", "min_rto"} <= {*QUANTITIES}


@given(data(), sampled_from(QUANTITIES))
def test_a_scenario_takes_what_is_printed_of_a_setting(data: Any, name: str) -> None:
    fraction = floats(0, 1) if _takes(name, 0.5) else integers(1, 10**13).map(lambda n: 4 * n)
    value = data.draw(fraction.filter(lambda value: _takes(name, value)))
    text = value_text(name, value)
    assert ADAPTERS[name].validate_python(text) == value
    assert not text[-1].isdecimal() or name in COUNTS
    assert number(name, text) == value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("rate", 100_000_000, "100 Mb/s"),
        ("size", 1_000_000, "1 MB"),
        ("delay", 0.005, "5 ms"),
        ("delay", 5e-6, "5 us"),
        ("delay", 0.0, "0 s"),
        ("loss", 0.01, "1%"),
        ("loss", 0.0005, "0.05%"),
        ("loss", 0.0, "0%"),
        ("rate", None, ""),
        ("oversubscription", 2.0, "2"),
        ("workers", 1024, "1024"),
        ("checksums", True, "True"),
        ("algorithm", "ring", "ring"),
        ("median_seconds", float("nan"), "nan"),
    ],
)
def test_a_setting_is_printed_as_scenarios_have_it(name: str, value: object, text: str) -> None:
    assert value_text(name, value) == text


def test_numbers_need_no_unit_to_be_read() -> None:
    assert [number("loss", "0.01"), number("loss", "1 %"), number("workers", "4")] == [0.01, 0.01, 4]


@pytest.mark.parametrize("text", ["1 ms", "much"])
def test_other_units_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write a number and its unit"):
        number("loss", text)


def test_figures_have_the_same_units() -> None:
    assert value_label("delay", 5e-6) == "delay 5 µs"
    assert value_label("loss", 0.001) == "packets lost on each link 0.1%"
    assert scale("delay", [1e-6, 5e-6]) == (1e-6, "delay (µs)")
    assert scale("rate", [10**9, 4 * 10**11]) == (1e9, "rate (Gb/s)")
    assert scale("loss", [0.0, 0.001]) == (0.01, "packets lost on each link (%)")
