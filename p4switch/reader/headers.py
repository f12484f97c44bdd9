"""Header types, header instances and stacks."""

from __future__ import annotations

from typing import Any

from p4switch.program import Field, FieldType, Header, HeaderStack, HeaderType, ProgramError
from p4switch.reader.values import Json, count, text


class Headers:
    """What expressions refer to by name."""

    def __init__(self, types: list[Json], headers: list[Json], stacks: list[Json]) -> None:
        self.header_types: dict[str, HeaderType] = {}
        self.headers: dict[str, Header] = {}
        self.stacks: dict[str, HeaderStack] = {}
        for item in types:
            self.header_types[item["name"]] = _header_type(item)
        by_id: dict[int, str] = {}
        for item in headers:
            kind = self.header_types.get(item["header_type"])
            if kind is None:
                raise ProgramError(f"header {item['name']}: type {item['header_type']} does not exist")
            name = text(item, "name")
            self.headers[name] = Header(name, count(item, "id"), kind, bool(item.get("metadata")))
            by_id[item["id"]] = name
        for item in stacks:
            names = tuple(by_id[i] for i in item["header_ids"])
            self.stacks[text(item, "name")] = HeaderStack(item["name"], names)

    def header(self, name: str) -> str:
        """The name, if a header has it."""
        if name not in self.headers:
            raise ProgramError(f"header {name} does not exist")
        return name

    def stack(self, name: str) -> str:
        """The name, if a header stack has it."""
        if name not in self.stacks:
            raise ProgramError(f"header stack {name} does not exist")
        return name

    def field(self, value: Any) -> Field:
        """The field that a pair of names stands for, if it exists; every header has `$valid$`."""
        header, name = value
        self.header(header)
        if name != "$valid$" and self.headers[header].type.field(name) is None:
            raise ProgramError(f"field {header}.{name} does not exist")
        return Field(header, name)


def _header_type(item: Json) -> HeaderType:
    fields: list[FieldType] = []
    offset = 0
    for entry in item["fields"]:
        name, width = str(entry[0]), entry[1]
        if type(width) is not int or not 0 <= width < 1 << 20:
            raise ProgramError(f"field {item['name']}.{name}: variable-length fields are not supported")
        fields.append(FieldType(name, width, len(entry) > 2 and bool(entry[2]), offset))
        offset += width
    return HeaderType(text(item, "name"), tuple(fields), offset)
