"""The JSON Schema of scenario files, with which an editor completes keys and marks mistakes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from fanin.experiments.scenario.file import Frame
from fanin.experiments.scenario.settings import KEYS, Settings, table_in

JsonSchema = dict[str, Any]


class _File(Frame, Settings):
    """A scenario of fanin."""


def scenario_schema() -> JsonSchema:
    """Return the JSON Schema (2020-12) of the files that `load_scenario` reads."""
    schema = _File.model_json_schema()
    definitions = schema["$defs"]
    _describe_keys(definitions)
    for name in ("Step", "Parallelism"):  # a workload fills in what these need
        del definitions[name]["required"]
    definitions["LinkProperties"] = _inlined(
        definitions["LinkProperties"], definitions
    )  # properties of single links cannot be lists
    _allow_lists(schema["properties"], set(Settings.model_fields))
    for path in KEYS.values():
        *above, name = path
        if above:
            _allow_lists(definitions[_table_at(above).__name__]["properties"], {name})
    hosts = schema["properties"]["hosts"]
    several = {"type": "array", "items": {"type": "array", "items": hosts.pop("items")}, "minItems": 1}
    one = {"type": hosts.pop("type"), "items": {"type": "string"}}
    schema["properties"]["hosts"] = hosts | {"anyOf": [one, several]}
    file = {"type": "string", "description": "a TOML file with a topology"}
    network = schema["properties"]["topology"]
    description = network.pop("description")
    choices = [network, file, {"type": "array", "items": file}]
    schema["properties"]["topology"] = {"description": description, "anyOf": choices}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _describe_keys(definitions: JsonSchema) -> None:
    """Give keys the descriptions that the docstrings of their tables have under `Attributes:`."""
    for definition in definitions.values():
        text, _, attributes = inspect.cleandoc(definition.get("description", "")).partition(
            "\n\nAttributes:\n"
        )
        definition["description"] = text
        for name, meaning in re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", attributes, re.M):
            definition["properties"][name].setdefault("description", re.sub(r"\s+", " ", meaning))
    links = definitions["LinkModel"]["properties"]
    for table in ("LinkProperties", "Override"):  # their keys are those of LinkModel
        for name, value in definitions[table]["properties"].items():
            if name in links:
                value.setdefault("description", links[name]["description"])


def _table_at(path: Sequence[str]) -> type[BaseModel]:
    """Return the table of a scenario at this path."""
    table: type[BaseModel] = Settings
    for name in path:
        inner = table_in(table.model_fields[name].annotation)
        assert inner is not None
        table = inner
    return table


def _inlined(part: Any, definitions: JsonSchema) -> Any:
    """Return a part of the schema with all references replaced by what they refer to."""
    if isinstance(part, list):
        return [_inlined(one, definitions) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(definitions[part["$ref"].rpartition("/")[2]], definitions)
    return {key: _inlined(value, definitions) for key, value in part.items()}


def _allow_lists(properties: JsonSchema, names: set[str]) -> None:
    for name in names:
        single = _without_null(properties[name])
        if single.get("type") != "array" and "$ref" not in str(single):
            notes = {key: single.pop(key) for key in ("title", "description", "default") if key in single}
            single = notes | {"anyOf": [single, {"type": "array", "items": single, "minItems": 1}]}
        properties[name] = single


def _without_null(schema: JsonSchema) -> JsonSchema:
    """Remove null, which TOML does not have; optional keys are left out instead."""
    rest = {key: value for key, value in schema.items() if value is not None}
    if "anyOf" in rest:
        choices = [choice for choice in rest.pop("anyOf") if choice != {"type": "null"}]
        rest |= choices[0] if len(choices) == 1 else {"anyOf": choices}
    return rest
