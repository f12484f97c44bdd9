"""The JSON Schema of scenario files, by which an editor completes keys and marks mistakes."""

from __future__ import annotations

from typing import Any

from experiments.scenario.file import Frame
from experiments.scenario.other_job import OtherJob
from experiments.scenario.settings import FatTree, LeafSpine, Recovery, Servers, Settings, Training
from experiments.scenario.step import Step
from experiments.scenario.traffic import Traffic
from topologies.link import Burst, LinkModel, Pause, Watchdog

JsonSchema = dict[str, Any]

_OF_POINTS = (
    LeafSpine,
    FatTree,
    Servers,
    LinkModel,
    Burst,
    Pause,
    OtherJob,
    Recovery,
    Step,
    Traffic,
    Training,
    Watchdog,
)  # tables whose values may be lists


class _File(Frame, Settings):
    """A scenario of fanin."""


def scenario_schema() -> JsonSchema:
    """JSON Schema (2020-12) of the files that `load_scenario` takes."""
    schema = _File.model_json_schema()
    definitions = schema["$defs"]
    definitions["LinkProperties"] = _inlined(
        definitions["LinkProperties"], definitions
    )  # of one link: no lists
    _allow_lists(schema["properties"], set(Settings.model_fields))
    for table in _OF_POINTS:
        _allow_lists(definitions[table.__name__]["properties"], set(table.model_fields))
    hosts = schema["properties"]["hosts"]
    several = {"type": "array", "items": {"type": "array", "items": hosts.pop("items")}, "minItems": 1}
    one = {"type": hosts.pop("type"), "items": {"type": "string"}}
    schema["properties"]["hosts"] = hosts | {"anyOf": [one, several]}
    file = {"type": "string", "description": "a TOML file with a topology"}
    network = schema["properties"]["topology"]
    schema["properties"]["topology"] = {"anyOf": [network, file, {"type": "array", "items": file}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _inlined(part: Any, definitions: JsonSchema) -> Any:
    """With what it refers to in it."""
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
    """TOML has no null: what may be None is left out."""
    rest = {key: value for key, value in schema.items() if value is not None}
    if "anyOf" in rest:
        choices = [choice for choice in rest.pop("anyOf") if choice != {"type": "null"}]
        rest |= choices[0] if len(choices) == 1 else {"anyOf": choices}
    return rest
