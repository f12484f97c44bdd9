"""Packets for a comparison: from a capture, or drawn at random along the paths of the program's parser."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scapy.error import Scapy_Exception
from scapy.utils import RawPcapReader

from fanin.controller.entry_files import Entries, Match, draw

Packet = tuple[int, bytes]  # the port where it arrives, and its bytes
Field = tuple[str, str]  # header and field

_PORTS = range(10)
_STATES = 32  # longest path through a parser
_INGRESS_PORT = ("standard_metadata", "ingress_port")


def read_packets(path: Path, port: int) -> list[Packet]:
    """Return the packets of a capture, all of which arrive at `port`.

    Raises:
        ValueError: The file is not a capture.
    """
    try:
        with path.open("rb") as file, RawPcapReader(file) as reader:  # type: ignore[arg-type]
            return [(port, data) for data, _ in reader]
    except (OSError, Scapy_Exception, EOFError) as error:
        raise ValueError(f"{path} is not a capture: {error}") from None


class PacketSource:
    """Random packets for a program in BMv2 JSON whose tables hold `entries`.

    Each follows a random path of the parser. Its fields hold what the tables' entries match and what the program
    compares them with, more often than by chance. Checksums are correct in most packets. Some packets are cut off.
    """

    def __init__(self, config: Mapping[str, Any], entries: Entries, rng: random.Random) -> None:
        self._rng = rng
        types = {kind["name"]: kind["fields"] for kind in config["header_types"]}
        self._headers = {header["name"]: types[header["header_type"]] for header in config["headers"]}
        parser = config["parsers"][0]
        self._start = parser["init_state"]
        self._states = {state["name"]: state for state in parser["parse_states"]}
        self._compared = _comparisons(config)
        self._wanted = _matched(config, entries)
        self._checksums = [
            (tuple(checksum["target"]), calculation["input"])
            for checksum in config["checksums"]
            for calculation in config["calculations"]
            if checksum.get("verify") and checksum["calculation"] == calculation["name"]
            if calculation["algo"] == "csum16"
        ]

    def packet(self) -> Packet:
        """Draw the next packet."""
        rng = self._rng
        chosen: dict[Field, int] = {}
        for keys in self._wanted.values():
            if rng.random() < 0.7:
                chosen |= rng.choice(keys)
        values: dict[Field, int] = {}
        order = self._walk(chosen, values)
        if rng.random() < 0.95:
            self._correct_checksums(values)
        data = b"".join(self._pack(header, values) for header in order)
        data += rng.randbytes(rng.choice([0, 0, rng.randrange(100)]))
        data = data or rng.randbytes(14)
        if rng.random() < 0.03:
            data = data[: rng.randrange(1, len(data) + 1)]
        return chosen.get(_INGRESS_PORT, rng.choice(_PORTS)) % 512, data

    def _walk(self, chosen: Mapping[Field, int], values: dict[Field, int]) -> list[str]:
        """Return the headers on a path through the parser, in order, and put their fields into `values`."""
        order: list[str] = []
        state = self._states.get(self._start)
        while state is not None and len(order) < _STATES:
            extracted = [
                operand["value"] if operand["type"] == "regular" else f"{operand['value']}[0]"
                for operation in state["parser_ops"]
                if operation["op"] == "extract"
                for operand in operation["parameters"][:1]
            ]
            order += [header for header in extracted if header in self._headers]
            for header in extracted:
                for name, width, *_ in self._headers.get(header, ()):
                    values[header, name] = self._value((header, name), width, chosen)
            state = self._states.get(self._leave(state, values))
        return order

    def _leave(self, state: Mapping[str, Any], values: dict[Field, int]) -> str | None:
        """Return the next state. States that need a certain value are preferred, since they lead further."""
        transitions = state["transitions"]
        selected = [transition for transition in transitions if transition["type"] == "hexstr"]
        if selected and self._rng.random() < 0.85:
            taken = self._rng.choice(selected)
            self._select(state["transition_key"], taken, values)
            return str(taken["next_state"])
        return transitions[-1]["next_state"] if transitions else None

    def _value(self, field: Field, width: int | str, chosen: Mapping[Field, int]) -> int:
        bits = width if isinstance(width, int) else 0  # "*": a varbit, here empty
        if field in chosen:
            value = chosen[field]
        elif field in self._compared and self._rng.random() < 0.7:
            value = self._rng.choice(self._compared[field])
        else:
            value = draw(self._rng, bits)
        return value & ((1 << bits) - 1)

    def _select(
        self, key: Sequence[Mapping[str, Any]], taken: Mapping[str, Any], values: dict[Field, int]
    ) -> None:
        """Set the fields of a transition's key to values for which it is taken."""
        value = int(taken["value"], 16)
        mask = int(taken["mask"], 16) if taken["mask"] else -1
        for part in reversed(key):
            if part["type"] != "field":
                return
            header, name = part["value"]
            width = next((f[1] for f in self._headers.get(header, ()) if f[0] == name), None)
            if not isinstance(width, int):
                return
            # In the JSON each part of a compound key fills whole bytes.
            bits = -(-width // 8) * 8 if len(key) > 1 else width
            if (header, name) in values:
                present, ones = values[header, name], (1 << width) - 1
                values[header, name] = (value & mask | present & ~mask) & ones
            value >>= bits
            mask >>= bits

    def _correct_checksums(self, values: dict[Field, int]) -> None:
        for target, inputs in self._checksums:
            parts = [tuple(part["value"]) for part in inputs if part["type"] == "field"]
            if target in values and len(parts) == len(inputs) and all(part in values for part in parts):
                total = _sum16(b"".join([self._bits(parts, values)]))
                values[target] = ~total & 0xFFFF

    def _bits(self, fields: Sequence[Any], values: Mapping[Field, int]) -> bytes:
        number = length = 0
        for header, name in fields:
            width = next(f[1] for f in self._headers[header] if f[0] == name)
            number, length = number << width | values[header, name], length + width
        padding = -length % 16
        return (number << padding).to_bytes((length + padding) // 8, "big")

    def _pack(self, header: str, values: Mapping[Field, int]) -> bytes:
        number = length = 0
        for name, width, *_ in self._headers[header]:
            bits = width if isinstance(width, int) else 0
            number, length = number << bits | values[header, name], length + bits
        return number.to_bytes(length // 8, "big")


def _sum16(data: bytes) -> int:
    """Return the ones' complement sum of RFC 1071."""
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def _comparisons(node: object) -> dict[Field, list[int]]:
    """Return the constants with which the program compares each field, anywhere."""
    found: dict[Field, list[int]] = {}
    for left, right in _compared_pairs(node):
        if left.get("type") == "field" and right.get("type") == "hexstr":
            found.setdefault(tuple(left["value"]), []).append(int(right["value"], 16))
    return found


def _compared_pairs(node: object) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    if isinstance(node, dict):
        left, right = node.get("left"), node.get("right")
        if node.get("op") in {"==", "!=", "<", "<=", ">", ">="} and left and right:
            yield left, right
            yield right, left
        for child in node.values():
            yield from _compared_pairs(child)
    elif isinstance(node, list):
        for child in node:
            yield from _compared_pairs(child)


def _matched(config: Mapping[str, Any], entries: Entries) -> dict[str, list[dict[Field, int]]]:
    """Return, for each table, what each entry matches in the fields that are its key."""
    tables = {table["name"]: table for pipeline in config["pipelines"] for table in pipeline["tables"]}
    wanted: dict[str, list[dict[Field, int]]] = {}
    for entry in entries.entries:
        key = {part["name"]: tuple(part["target"]) for part in tables.get(entry.table, {"key": ()})["key"]}
        fields = {key[name]: _first(match) for name, match in entry.match.items() if name in key}
        numbers = {where: value for where, value in fields.items() if isinstance(value, int)}
        wanted.setdefault(entry.table, []).append(numbers)
    return wanted


def _first(match: Match) -> int | str:
    return match[0] if isinstance(match, tuple) else match
