"""Reader for header types, header instances and stacks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.bmv2json.program import (
    FieldType,
    Header,
    HeaderStack,
    HeaderType,
    HeaderUnion,
    ProgramError,
)
from fanin.p4switch.reader.values import MAX_WIDTH, Json, checked_name, count, text


class Headers:
    """Headers, stacks and unions that expressions refer to by name.

    Malformed or missing items are raised as ProgramError.
    """

    def __init__(
        self,
        types: list[Json],
        headers: list[Json],
        stacks: list[Json],
        unions: list[Json],
        union_stacks: list[Json],
    ) -> None:
        self.header_types: dict[str, HeaderType] = {}
        self.headers: dict[str, Header] = {}
        self.stacks: dict[str, HeaderStack] = {}
        self.unions: dict[str, HeaderUnion] = {}
        self._fields: dict[tuple[str, str], Field] = {}
        for item in types:
            self.header_types[text(item, "name")] = _header_type(item)
        by_id: dict[int, str] = {}
        for item in headers:
            name = text(item, "name")
            kind = self.header_types.get(item["header_type"])
            if kind is None:
                raise ProgramError(f"header {item['name']}: type {item['header_type']} does not exist")
            metadata, in_bytes = bool(item.get("metadata")), kind.varbit is not None
            self.headers[name] = Header(
                name, count(item, "id"), kind, metadata and not in_bytes, metadata and in_bytes
            )
            by_id[item["id"]] = name
        for item in stacks:
            names = tuple(by_id[i] for i in item["header_ids"])
            self.stacks[text(item, "name")] = HeaderStack(item["name"], names)
        union_ids: dict[int, HeaderUnion] = {}
        for item in unions:
            union = HeaderUnion(text(item, "name"), tuple(by_id[i] for i in item["header_ids"]))
            if not union.headers:
                raise ProgramError(f"header union {union.name} has no members")
            self.unions[union.name] = union_ids[item["id"]] = union
        for item in union_stacks:
            elements = [union_ids[i] for i in item["header_union_ids"]]
            if len({len(union.headers) for union in elements}) > 1:
                raise ProgramError(f"header union stack {item['name']}: its elements have different members")
            names = tuple(name for union in elements for name in union.headers)
            self.stacks[text(item, "name")] = HeaderStack(item["name"], names, len(elements[0].headers))
        for stack in self.stacks.values():
            self._check_stack(stack)

    def _check_stack(self, stack: HeaderStack) -> None:
        if not stack.headers:
            raise ProgramError(f"header stack {stack.name} has no elements")
        for number, name in enumerate(stack.headers):
            first = stack.headers[number % stack.unit]
            if self.headers[first].type.shape != self.headers[name].type.shape:
                raise ProgramError(
                    f"header stack {stack.name}: its elements {first} and {name} differ in their fields"
                )

    def header(self, name: str) -> str:
        """Return the name if it is a header's."""
        if name not in self.headers:
            raise ProgramError(f"header {name} does not exist")
        return name

    def union(self, name: str) -> str:
        """Return the name if it is a header union's."""
        if name not in self.unions:
            raise ProgramError(f"header union {name} does not exist")
        return name

    def member(self, stack: str, name: str | int) -> int:
        """Return the number of a member, given by name or number, in the unions of a stack."""
        whole = self.stacks[self.stack(stack)]
        names = [header.rpartition(".")[2] for header in whole.headers[: whole.unit]]
        if type(name) is int and 0 <= name < whole.unit:
            return name
        if name not in names:
            raise ProgramError(f"header stack {stack}: member {name} does not exist")
        return names.index(str(name))

    def stack(self, name: str) -> str:
        """Return the name if it is a header stack's."""
        if name not in self.stacks:
            raise ProgramError(f"header stack {name} does not exist")
        return name

    def field(self, value: Any) -> Field:
        """Return the field for a pair of names. Every header has a field `$valid$`."""
        header, name = value
        if (known := self._fields.get((header, name))) is not None:
            return known
        self.header(header)
        if name != "$valid$" and self.headers[header].type.field(name) is None:
            raise ProgramError(f"field {header}.{name} does not exist")
        self._fields[header, name] = field = Field(header, name)
        return field


def _header_type(item: Json) -> HeaderType:
    fields: list[FieldType] = []
    offset, longest = 0, None
    for entry in item["fields"]:
        name, width = checked_name(entry[0], f"a field of {item['name']}"), entry[1]
        if width == "*":
            rest = sum(e[1] for e in item["fields"] if e[1] != "*")
            if longest is not None or rest % 8:
                raise ProgramError(
                    f"field {item['name']}.{name}: a header has one varbit, and other fields of whole bytes together"
                )
            longest = 8 * count(item, "max_length") - rest
            if not 0 <= longest < 1 << 19:
                raise ProgramError(
                    f"header type {item['name']}: max_length {item['max_length']} does not fit"
                )
            fields.append(FieldType(name, longest, False, offset, varying=True))
            continue
        if type(width) is not int or not 0 <= width <= MAX_WIDTH:
            raise ProgramError(
                f"field {item['name']}.{name}: {width!r} is not a width of up to {MAX_WIDTH} bits"
            )
        signed = len(entry) > 2 and bool(entry[2])
        fields.append(FieldType(name, width, signed, offset, behind_varbit=longest is not None))
        offset += width
    for field, times in Counter(field.name for field in fields).items():
        if times > 1:
            raise ProgramError(f"field {item['name']}.{field}: {times} fields have this name")
    return HeaderType(text(item, "name"), tuple(fields), offset + (longest or 0))
