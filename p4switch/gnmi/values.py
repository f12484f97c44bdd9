"""Leaf values on the wire: protobuf scalars, JSON, and JSON according to RFC 7951 (gNMI specification 2.2.3, 2.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fanin.p4switch.gnmi.paths import LIST
from fanin.p4switch.gnmi.proto import gnmi
from fanin.p4switch.gnmi.schema import INTERFACES, Leaf, LeafKind, LeafValue
from fanin.p4switch.p4runtime.errors import invalid, unimplemented

ENCODINGS = (gnmi.JSON, gnmi.JSON_IETF, gnmi.PROTO)


def check_encoding(encoding: int) -> None:
    """Check that an encoding is supported.

    Raises:
        P4RuntimeError: UNIMPLEMENTED if it is not.
    """
    if encoding not in ENCODINGS:
        known = ", ".join(map(gnmi.Encoding.Name, ENCODINGS))
        name = gnmi.Encoding.Name(encoding) if encoding in gnmi.Encoding.values() else encoding
        raise unimplemented(f"encoding {name} is not supported; there are {known}")


def encode(leaf: Leaf, value: LeafValue, encoding: int) -> gnmi.TypedValue:
    """Encode the value of a single leaf."""
    if encoding != gnmi.PROTO:
        return encode_json(_plain(leaf, value, encoding == gnmi.JSON_IETF), encoding)
    match value:
        case bool():
            return gnmi.TypedValue(bool_val=value)
        case int():
            return gnmi.TypedValue(uint_val=value)
        case _:
            return gnmi.TypedValue(string_val=value)


def encode_json(value: Any, encoding: int) -> gnmi.TypedValue:
    """Encode a JSON value, of a leaf or of an inner node."""
    written = json.dumps(value).encode()
    if encoding == gnmi.JSON_IETF:
        return gnmi.TypedValue(json_ietf_val=written)
    return gnmi.TypedValue(json_val=written)


def node(ports: Mapping[str, Sequence[tuple[Leaf, LeafValue]]], depth: int, encoding: int) -> Any:
    """Return the leaves below a node as a JSON value.

    With JSON_IETF (RFC 7951), members are written with their module where it differs from that of the node above.

    Args:
        ports: The leaves of each port.
        depth: The node's distance from the root.
        encoding: JSON or JSON_IETF.
    """
    ietf = encoding == gnmi.JSON_IETF

    def member(name: str, module: str, above: str) -> str:
        return f"{module}:{name}" if ietf and module != above else name

    def entry(leaves: Sequence[tuple[Leaf, LeafValue]], skip: int, above: str) -> Any:
        whole: Any = {}
        for leaf, value in leaves:
            if skip == len(leaf.path):
                return _plain(leaf, value, ietf)
            inner, outer = whole, above
            for name, module in list(zip(leaf.path, leaf.modules, strict=True))[skip:-1]:
                inner, outer = inner.setdefault(member(name, module, outer), {}), module
            inner[member(leaf.path[-1], leaf.modules[-1], outer)] = _plain(leaf, value, ietf)
        return whole

    if depth >= len(LIST):
        (leaves,) = ports.values()
        return entry(leaves, depth - len(LIST), "")
    entries = [entry(leaves, 0, INTERFACES) for leaves in ports.values()]
    if depth == 1:
        return {member(LIST[1], INTERFACES, ""): entries}
    return {member(LIST[0], INTERFACES, ""): {LIST[1]: entries}}


def decode(value: gnmi.TypedValue, where: str) -> Any:
    """Decode a value that a client writes, to the form it has in JSON.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if it is not valid, UNIMPLEMENTED for other encodings.
    """
    kind = value.WhichOneof("value")
    match kind:
        case "bool_val" | "string_val" | "uint_val" | "int_val":
            return getattr(value, kind)
        case "json_val" | "json_ietf_val":
            try:
                return json.loads(getattr(value, kind))
            except (ValueError, RecursionError) as error:
                raise invalid(f"{where}: the value is not JSON: {error}") from None
        case None:
            raise invalid(f"{where}: the update has no value")
        case _:
            raise unimplemented(
                f"{where}: a value as {kind} is not supported; write JSON or a protobuf scalar"
            )


def _plain(leaf: Leaf, value: LeafValue, ietf: bool) -> LeafValue:
    if ietf and leaf.kind is LeafKind.NUMBER64:
        return str(value)
    if ietf and leaf.kind is LeafKind.IDENTITY:
        return f"{leaf.module}:{value}"
    return value
