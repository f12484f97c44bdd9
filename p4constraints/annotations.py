"""The annotations of P4Info that constrain what controllers write: restrictions, references and roles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fanin.p4constraints.language import INT, Type

if TYPE_CHECKING:
    from finsy.proto import p4i  # the switch has these messages without all of finsy, to start faster

ENTRY_RESTRICTION, ACTION_RESTRICTION = "entry_restriction", "action_restriction"
MULTICAST_GROUPS = "multicast_group_table"  # what @refers_to calls the multicast groups

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_NAME = r'"?([A-Za-z_][\w.$\[\]]*)"?'
_REFERENCE = re.compile(rf"(?:builtin::)?{_NAME},{_NAME}")
_KINDS = {2: "exact", 3: "lpm", 4: "ternary", 5: "range", 6: "optional"}  # p4.config.v1.MatchField.MatchType


class AnnotationError(Exception):
    """Annotation that is malformed. The message explains what it needs."""


class Reference(NamedTuple):
    """Reference of `@refers_to(table, field)`: the value is that of a field of an entry in that table."""

    table: str
    field: str


def restriction(annotations: Iterable[str], name: str) -> str | None:
    """Return the text of a restriction, or None. Several strings, of one or more annotations, are joined.

    Raises:
        AnnotationError: If the annotation has no string.
    """
    found = list(_arguments(annotations, name))
    if not found:
        return None
    strings = [re.sub(r"\\(.)", r"\1", part) for text in found for part in _STRING.findall(text)]
    if not strings:
        raise AnnotationError(f"@{name} needs a constraint in quotes")
    return "\n".join(strings)


def references(annotations: Iterable[str]) -> Iterator[Reference]:
    """Yield the references of a key field or an action's parameter.

    Raises:
        AnnotationError: If an annotation is not of the form `@refers_to(table, field)`.
    """
    for text in _arguments(annotations, "refers_to"):
        found = _REFERENCE.fullmatch(re.sub(r"\s+", "", text))  # a compiler writes spaces between tokens
        if found is None:
            raise AnnotationError(f"@refers_to needs a table and a field of its key, not ({text})")
        yield Reference(found[1], found[2])


def role(annotations: Iterable[str]) -> str | None:
    """Return the name of the role in `@p4runtime_role("name")`, or None.

    Raises:
        AnnotationError: If the annotation has no name.
    """
    for text in _arguments(annotations, "p4runtime_role"):
        found = _STRING.fullmatch(text.strip())
        if found is None or not found[1]:
            raise AnnotationError(f"@p4runtime_role needs the name of a role in quotes, not ({text})")
        return found[1]
    return None


def entry_types(table: p4i.Table) -> Mapping[str, Type]:
    """Return the types of the names that a restriction on a table's entries may mention.

    A string of the control plane is the number that its bytes make, as in p4-constraints.
    """
    kinds = {field.name: _KINDS.get(field.match_type, "exact") for field in table.match_fields}
    keys = {
        field.name: Type(kinds[field.name], field.bitwidth)
        if field.bitwidth or kinds[field.name] == "optional"
        else INT
        for field in table.match_fields
    }
    return keys | {"::priority": INT}


def action_types(action: p4i.Action) -> Mapping[str, Type]:
    """Return the types of the names that a restriction on an action may mention."""
    return {
        parameter.name: Type("bit", parameter.bitwidth) if parameter.bitwidth else INT
        for parameter in action.params
    }


def referenced_table(p4info: p4i.P4Info, name: str) -> p4i.Table | None:
    """Return the table that `@refers_to` means: by its name, its alias, or the last part of its name."""
    table: p4i.Table
    for table in p4info.tables:
        if name in (table.preamble.name, table.preamble.alias, table.preamble.name.rpartition(".")[2]):
            return table
    return None


def _arguments(annotations: Iterable[str], name: str) -> Iterator[str]:
    """Yield what is in parentheses after `@name`."""
    for annotation in annotations:
        before, parenthesis, rest = annotation.strip().partition("(")
        if before.strip() == f"@{name}":
            yield rest.rpartition(")")[0] if parenthesis else ""
