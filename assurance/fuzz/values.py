"""Random headers and metadata, and random expressions over them, in BMv2 JSON."""

from __future__ import annotations

import random
from typing import Any

from fanin.p4switch.reader.values import Json

STANDARD_METADATA = [
    *(["ingress_port", 9, False], ["egress_spec", 9, False], ["egress_port", 9, False]),
    *(["instance_type", 32, False], ["packet_length", 32, False], ["enq_timestamp", 32, False]),
    *(["enq_qdepth", 19, False], ["deq_timedelta", 32, False], ["deq_qdepth", 19, False]),
    *(["ingress_global_timestamp", 48, False], ["egress_global_timestamp", 48, False]),
    *(["mcast_grp", 16, False], ["egress_rid", 16, False], ["checksum_error", 1, False]),
    *(["parser_error", 32, False], ["priority", 3, False], ["_padding", 3, False]),
]
READABLE = ("ingress_port", "egress_spec", "instance_type", "packet_length", "mcast_grp", "parser_error")
WIDTHS = (0, 1, 3, 4, 7, 8, 9, 12, 16, 24, 31, 32, 33, 48, 57, 63, 64, 65, 72, 100, 127, 128, 129, 200, 256)
MAX_LENGTHS = (8, 40, 200, 4000)


def number(value: int) -> Json:
    """Return a constant."""
    return {"type": "hexstr", "value": hex(value)}


def header(name: str) -> Json:
    """Return a header as an operand."""
    return {"type": "header", "value": name}


def of_header(name: str, field: str) -> Json:
    """Return a field as an operand."""
    return {"type": "field", "value": [name, field]}


def operation(op: str, left: Any, right: Any, **more: Any) -> Json:
    """Return an expression."""
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


class RandomValues:
    """The headers of one program, and random expressions over them.

    Args:
        r: Makes all random choices.
        widest: Whether there may be numbers of thousands of bits, which make a program slow.

    Attributes:
        parameters: Number of parameters of the current action.
    """

    def __init__(self, r: random.Random, *, widest: bool) -> None:
        self.r = r
        self.parameters = 0
        self.in_parser = False
        self.types = [self._type(f"t{n}") for n in range(r.randint(2, 5))]
        if r.random() < 0.3:
            bits, part = 8 * r.choice([100, 500, 1000]), 200
            parts: list[list[Any]] = [[f"f{n}", part, False] for n in range(bits // part)]
            self.types.append({"name": "bulk", "fields": [["all", bits, False]] if widest else parts})
        self.packet_headers: list[Json] = []
        self.stacks: list[Json] = []
        self.unions: list[Json] = []
        self.union_stacks: list[Json] = []
        for n in range(r.randint(2, 6)):
            self._instance(f"h{n}", r.choice(self.types))
        for n in range(r.randrange(3)):
            kind = r.choice([t for t in self.types if not _varies(t)] or self.types)
            ids = [self._instance(f"s{n}[{i}]", kind) for i in range(r.randint(1, 5))]
            self.stacks.append({"name": f"s{n}", "id": n, "size": len(ids), "header_ids": ids})
        if r.random() < 0.3:
            members = [r.choice(self.types) for _ in range(r.randint(1, 3))]
            for u in range(depth := r.randint(1, 3)):
                ids = [self._instance(f"u{u}.m{i}", kind) for i, kind in enumerate(members)]
                self.unions.append({"name": f"u{u}", "id": u, "header_ids": ids})
            if r.random() < 0.7:
                self.union_stacks = [{"name": "us", "id": 0, "header_union_ids": list(range(depth))}]
        self.metadata: list[list[Any]] = [
            [f"m{n}", self.width(), r.random() < 0.2] for n in range(r.randint(2, 8))
        ]
        for field in self.metadata:
            field[2] = field[2] and field[1] > 1

    def declarations(self) -> Json:
        """Return the document's sections for headers."""
        types = [
            {"name": "standard_metadata", "id": 0, "fields": STANDARD_METADATA},
            {"name": "meta_t", "id": 1, "fields": self.metadata},
            *({"id": n + 2, **kind} for n, kind in enumerate(self.types)),
        ]
        instances = [
            {"name": "standard_metadata", "id": 0, "header_type": "standard_metadata", "metadata": True},
            {"name": "meta", "id": 1, "header_type": "meta_t", "metadata": True},
            *self.packet_headers,
        ]
        return {
            "header_types": types,
            "headers": instances,
            "header_stacks": self.stacks,
            "header_unions": self.unions,
            "header_union_stacks": self.union_stacks,
        }

    def _type(self, name: str) -> Json:
        r = self.r
        widths = [self.width() for _ in range(r.randint(1, 6))]
        widths.append(-sum(widths) % 8)
        fields: list[list[Any]] = [[f"f{n}", w, w > 1 and r.random() < 0.1] for n, w in enumerate(widths)]
        kind: Json = {"name": name, "fields": fields}
        if r.random() < 0.2:
            kind["max_length"] = sum(widths) // 8 + r.choice(MAX_LENGTHS)
            fields.insert(r.randrange(len(fields) + 1), ["v", "*"])
        return kind

    def _instance(self, name: str, kind: Json) -> int:
        item = {
            "name": name,
            "id": len(self.packet_headers) + 2,
            "header_type": kind["name"],
            "metadata": False,
        }
        self.packet_headers.append(item)
        return int(item["id"])

    def _fields(self, item: Json) -> list[list[Any]]:
        kind = next(t for t in self.types if t["name"] == item["header_type"])
        return [f for f in kind["fields"] if f[1] != "*"]

    def _by_id(self, id_: int) -> Json:
        return self.packet_headers[id_ - 2]

    # Leaves

    def width(self) -> int:
        """Draw the width of a field, a parameter or a register."""
        return self.r.choice(WIDTHS)

    def small(self) -> Json:
        """Draw a small constant, rarely an expression."""
        return number(self.r.randrange(7)) if self.r.random() < 0.8 else self.number(1)

    def index(self) -> Json:
        """Draw an index into an array, mostly near its ends."""
        r = self.r
        return (
            number(r.choice([0, 1, 2, 3, 255, 256, (1 << 32) - 1, 1 << 64]))
            if r.random() < 0.5
            else self.number(1)
        )

    def metadata_field(self) -> Json:
        """Draw a field of the program's own metadata."""
        return of_header("meta", self.r.choice(self.metadata)[0])

    def header_field(self) -> tuple[Json, int]:
        """Draw a field of a header, and return it with its width."""
        item = self.r.choice(self.packet_headers)
        name, width, _ = self.r.choice(self._fields(item))
        return of_header(item["name"], name), width

    def field(self) -> Json:
        """Draw a field that can be assigned to."""
        return self.header_field()[0] if self.r.random() < 0.6 else self.metadata_field()

    def checksum_field(self) -> Any:
        """Draw a field that can hold a checksum, as a pair of names."""
        narrow = [m[0] for m in self.metadata if 0 < m[1] <= 64]
        field, width = self.header_field()
        return (
            field["value"] if 0 < width <= 64 else ["meta", self.r.choice(narrow)] if narrow else ["h0", "f0"]
        )

    def varbits(self) -> list[Json]:
        """Return all varbits."""
        return [
            of_header(h["name"], "v")
            for h in self.packet_headers
            if any(_varies(t) for t in self.types if t["name"] == h["header_type"])
        ]

    def lookahead(self) -> Json:
        """Draw a lookahead from the parser's position."""
        widths = (8, 1, 16, 64, 100, 256, 2000)
        return {"type": "lookahead", "value": [self.r.choice([0, 0, 8, 500]), self.r.choice(widths)]}

    def element(self) -> tuple[Json, Json]:
        """Draw a stack's element at a computed index, and return it with its stack."""
        stack = self.r.choice(self.stacks)
        whole = {"type": "header_stack", "value": stack["name"]}
        return operation("dereference_header_stack", whole, self.small()), stack

    def element_field(self) -> Json:
        """Draw a field of such an element."""
        element, stack = self.element()
        count = len(self._fields(self._by_id(stack["header_ids"][0])))
        return operation("access_field", element, self.r.randrange(count))

    def any_header(self) -> Json:
        """Draw a header, or a stack's element."""
        if self.stacks and self.r.random() < 0.3:
            return self.element()[0]
        return header(self.r.choice(self.packet_headers)["name"])

    def alike(self, a: Json, b: Json) -> bool:
        """Return whether two headers are of one type."""
        kinds = {h["header_type"] for h in self.packet_headers if h["name"] in (a["value"], b["value"])}
        return len(kinds) == 1

    def type_of_stack(self, stack: Json) -> Any:
        """Return what must be equal in stacks that are assigned: the type, and the number of elements."""
        return self._by_id(stack["header_ids"][0])["header_type"], len(stack["header_ids"])

    # Numbers and conditions

    def number(self, depth: int) -> Json:
        """Draw a number. Exact operations are reduced to a width, as compilers do."""
        r = self.r
        if depth == 0 or r.random() < 0.2:
            return self._leaf()
        width = r.choice([8, 16, 32, 64, 128])
        match r.randrange(8):
            case 0 | 1 | 2:
                made = operation(r.choice("+-*"), self.number(depth - 1), self.number(depth - 1))
                return operation("&", made, number((1 << width) - 1))
            case 3:
                return operation(r.choice("&|^"), self.number(depth - 1), self.number(depth - 1))
            case 4:
                distance = operation("&", self.number(depth - 1), number(0x7F))
                return operation(">>", self.number(depth - 1), distance)
            case 5:
                distance = operation("&", self.number(depth - 1), number(0x7F))
                return operation(
                    "&", operation("<<", self.number(depth - 1), distance), number((1 << width) - 1)
                )
            case 6:
                truth = self.truth(depth - 1)
                return operation("?", self.number(depth - 1), self.number(depth - 1), cond=truth)
        return operation("sat_cast", self.number(depth - 1), number(width))

    def _leaf(self) -> Json:
        r = self.r
        match r.randrange(10):
            case 0 | 1:
                return number(r.choice([0, 1, 255, r.getrandbits(32), (1 << 64) - 1]))
            case 2:
                return of_header("standard_metadata", r.choice(READABLE))
            case 3 if self.parameters:
                return {"type": "runtime_data", "value": r.randrange(self.parameters)}
            case 4 if self.stacks:
                return self.element_field()
            case 5 if self.stacks:
                return self._last_field()
            case 6 if self.in_parser:
                return self.lookahead()
        return self.field()

    def _last_field(self) -> Json:
        stack = self.r.choice(self.stacks)
        name = self.r.choice(self._fields(self._by_id(stack["header_ids"][0])))[0]
        return {"type": "stack_field", "value": [stack["name"], name]}

    def truth(self, depth: int) -> Json:
        """Draw a condition."""
        r = self.r
        match r.randrange(5):
            case 0:
                return operation("d2b", None, of_header(r.choice(self.packet_headers)["name"], "$valid$"))
            case 1 if depth > 0:
                return operation(r.choice(["and", "or"]), self.truth(depth - 1), self.truth(depth - 1))
            case 2 if depth > 0:
                return operation("not", None, self.truth(depth - 1))
            case 3:
                first, second = (header(h["name"]) for h in r.choices(self.packet_headers, k=2))
                if self.alike(first, second) and not _unaligned(self.types):
                    return operation(r.choice(["==", "!="]), first, second)
        compared = r.choice(["==", "!=", "<", "<=", ">", ">="])
        return operation(compared, self.number(max(0, depth - 1)), self.number(0))

    # Extraction

    def extract(self) -> Json:
        """Draw the extraction of a header."""
        item = self.r.choice(self.packet_headers)
        return self._extract({"type": "regular", "value": item["name"]}, item)

    def extract_next(self) -> Json:
        """Draw the extraction of the next element of a stack."""
        if self.union_stacks and (not self.stacks or self.r.random() < 0.3):
            member = self.r.randrange(len(self.unions[0]["header_ids"]))
            item = self._by_id(self.unions[0]["header_ids"][member])
            return self._extract({"type": "union_stack", "value": ["us", member]}, item)
        stack = self.r.choice(self.stacks)
        return self._extract({"type": "stack", "value": stack["name"]}, self._by_id(stack["header_ids"][0]))

    def _extract(self, target: Json, item: Json) -> Json:
        kind = next(t for t in self.types if t["name"] == item["header_type"])
        if not _varies(kind):
            return {"op": "extract", "parameters": [target]}
        amounts = [
            number(8 * self.r.randrange(50)),
            operation("&", self.number(1), number(0xFF8)),
            self.lookahead(),
        ]
        length = {"type": "expression", "value": self.r.choice(amounts)}
        return {"op": "extract_VL", "parameters": [target, length]}

    # Keys and inputs

    def parser_key(self) -> Json:
        """Draw a field, the field of a stack's last element, or a lookahead."""
        r = self.r
        if self.stacks and r.random() < 0.3:
            return self._last_field()
        return self.lookahead() if r.random() < 0.4 else self.field()

    def key_width(self, key: Json) -> int:
        """Return the bits of a parser's key."""
        match key["type"], key["value"]:
            case "lookahead", (_, width):
                return int(width)
            case "stack_field", (stack, name):
                whole = next(s for s in self.stacks if s["name"] == stack)
                fields = self._fields(self._by_id(whole["header_ids"][0]))
            case _, ("meta", name):
                fields = self.metadata
            case _, (instance, name):
                fields = self._fields(next(h for h in self.packet_headers if h["name"] == instance))
        return int(next(f[1] for f in fields if f[0] == name))

    def table_key(self, kind: str) -> Json:
        """Draw one key of a table."""
        field = self.field()
        if kind == "range" and not 0 < self.key_width(field) <= 256:
            kind = "exact"
        return {"match_type": kind, "target": field["value"], "mask": None, "name": None}

    def hash_input(self) -> Json:
        """Draw a piece of a calculation's input."""
        r = self.r
        match r.randrange(6):
            case 0:
                return header(r.choice(self.packet_headers)["name"])
            case 1:
                width = r.choice([1, 8, 16, 32, 64, 65, 200])
                return {"type": "hexstr", "value": hex(r.getrandbits(width)), "bitwidth": width}
            case 2 if (varbits := self.varbits()) and not _unaligned(self.types):
                return r.choice(varbits)
        return self.field()


def _varies(kind: Json) -> bool:
    return "max_length" in kind


def _unaligned(kinds: list[Json]) -> bool:
    """Return whether a varbit does not begin at a byte: such headers can only be parsed and sent."""
    for kind in kinds:
        at = 0
        for field in kind["fields"]:
            if field[1] == "*":
                if at % 8:
                    return True
                break
            at += field[1]
    return False
