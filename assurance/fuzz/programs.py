"""Random BMv2 JSON: valid programs with every kind of element; a few have something too large or mismatched.

The structure is BMv2's (docs/JSON_format.md); the programs compute nothing meaningful.
"""

from __future__ import annotations

import random
from typing import Any

from fanin.assurance.fuzz.values import RandomValues, header, number, of_header
from fanin.p4switch.reader.values import Json

ALGORITHMS = (
    *("csum16", "crc16", "crc32", "crcCCITT", "crc8_custom", "crc64_custom", "xxh64", "hash_ex"),
    *("identity", "xor16", "xor32", "toeplitz", "round_robin", "round_robin_consistent"),
)
REMEMBERS = {"toeplitz", "round_robin", "round_robin_consistent"}
MATCH_KINDS = ("exact", "lpm", "ternary", "range", "optional")
AGAIN = ("resubmit", "recirculate", "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress")
NUMERIC = ("add", "subtract", "bit_and", "bit_or", "bit_xor")
ERRORS = (
    *("NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "HeaderTooShort", "ParserTimeout"),
    "ParserInvalidArgument",
)
PORTS = 4


def random_program(r: random.Random) -> Json:
    """Draw a program as a JSON document. `r` makes all random choices."""
    return _RandomProgram(r).document()


def goes_again(document: Json) -> bool:
    """Return whether one packet may go through many passes, or many rounds of a loop."""
    blocks = [action["primitives"] for action in document["actions"]]
    blocks += [deparser.get("primitives", []) for deparser in document["deparsers"]]
    return any(
        call["op"] in AGAIN
        or (call["op"].startswith("_jump") and int(call["parameters"][-1]["value"], 16) <= place)
        for block in blocks
        for place, call in enumerate(block)
    )


class _RandomProgram:
    def __init__(self, r: random.Random) -> None:
        self.r = r
        # Restricts what a program may do. If each did everything, few packets would get far.
        self.remembers = r.random() < 0.5
        self.again = [op for op in AGAIN if r.random() < 0.2]
        self.loops = r.random() < 0.1
        self.wrong = r.random() < 0.1
        self.unlike = r.random() < 0.07  # assigns headers of different types
        self.values = RandomValues(r, widest=not (self.again or self.loops))
        self.registers = [self._array(f"r{n}", bitwidth=self.values.width()) for n in range(2)]
        self.counters = [self._array(f"c{n}", is_direct=False) for n in range(2)]
        self.meters = [
            self._array(f"m{n}", is_direct=False, rate_count=2, type=r.choice(["bytes", "packets"]))
            for n in range(2)
        ]
        self.calculations = [self._calculation(n) for n in range(3)]

    def document(self) -> Json:
        r, v = self.r, self.values
        actions = [self._action(n) for n in range(r.randint(3, 8))]
        order = [h["name"] for h in v.packet_headers]
        r.shuffle(order)
        if r.random() < 0.1:
            order += r.choices(order, k=3)
        deparser: Json = {"name": "deparser", "id": 0, "order": order}
        if r.random() < 0.1:
            deparser["primitives"] = self._primitives(2, 0, [])
        return {
            "__meta__": {"version": [2, 23]},
            "program": "random",
            **v.declarations(),
            "errors": [[name, number_] for number_, name in enumerate(ERRORS)],
            "parsers": [self._parser()],
            "deparsers": [deparser],
            "actions": actions,
            "pipelines": [self._pipeline(name, actions) for name in ("ingress", "egress")],
            "register_arrays": self.registers,
            "counter_arrays": self.counters,
            "meter_arrays": self.meters,
            "calculations": self.calculations,
            "checksums": [self._checksum(n) for n in range(r.choice([0, 0, 1, 2]))],
            "field_lists": [
                {"id": n, "name": f"list{n}", "elements": [v.metadata_field() for _ in range(r.randrange(4))]}
                for n in (1, 2)
            ],
            "learn_lists": [
                {"id": n, "name": f"digest{n}", "elements": [v.field() for _ in range(self._some(6, 2000))]}
                for n in (1, 2)
            ],
        }

    def _some(self, few: int, many: int) -> int:
        """Draw a number of things; in a wrong program, sometimes far too many."""
        return many if self.wrong and self.r.random() < 0.1 else self.r.randrange(few)

    def _array(self, name: str, **more: Any) -> Json:
        size = (1 << 32) - 1 if self.wrong and self.r.random() < 0.03 else self.r.choice([0, 1, 3, 256])
        return {"name": name, "id": 0, "size": size, **more}

    def _calculation(self, number_: int) -> Json:
        r, v = self.r, self.values
        algorithms = [a for a in ALGORITHMS if self.remembers or a not in REMEMBERS]
        inputs = [v.hash_input() for _ in range(1 + self._some(6, 5000))]
        if r.random() < 0.3:
            inputs.append({"type": "payload"})
        return {"name": f"calc{number_}", "id": number_, "algo": r.choice(algorithms), "input": inputs}

    def _checksum(self, number_: int) -> Json:
        r, v = self.r, self.values
        kinds = {"update": r.random() < 0.6, "verify": r.random() < 0.6}
        calculation = r.choice(self.calculations)["name"]
        item = {"name": f"sum{number_}", "id": number_, "target": v.checksum_field(), "type": "generic"}
        return {
            **item,
            **kinds,
            "calculation": calculation,
            "if_cond": v.truth(1) if r.random() < 0.5 else None,
        }

    # Parser

    def _parser(self) -> Json:
        names = [f"state{n}" for n in range(self.r.randint(1, 6))]
        states = [self._state(n, names) for n in range(len(names))]
        return {"name": "parser", "id": 0, "init_state": names[0], "parse_states": states}

    def _state(self, number_: int, names: list[str]) -> Json:
        r, v = self.r, self.values
        key = [v.parser_key() for _ in range(r.choice([0, 0, 1, 1, 2]))]
        widths = [(v.key_width(k) + 7) // 8 * 8 for k in key]
        later = names[number_ + 1 :] if r.random() < 0.7 else names
        transitions: list[Json] = []
        for _ in range(r.randrange(4) if key else 0):
            value = self._joined(widths)
            mask = hex(self._joined(widths)) if r.random() < 0.5 else None
            next_state = r.choice([*later, None])
            transitions.append(
                {"type": "hexstr", "value": hex(value), "mask": mask, "next_state": next_state}
            )
        last = r.choice([*later, None]) if later else None
        transitions.append({"type": "default", "value": None, "mask": None, "next_state": last})
        operations = [self._operation() for _ in range(r.randint(1, 4))]
        return {
            "name": names[number_],
            "id": number_,
            "parser_ops": operations,
            "transition_key": key,
            "transitions": transitions,
        }

    def _joined(self, widths: list[int]) -> int:
        value = 0
        for width in widths:
            value = value << width | self.r.choice(
                [0, 1, (1 << width) - 1, self.r.getrandbits(width + 1) >> 1]
            )
        return value

    def _operation(self) -> Json:
        r, v = self.r, self.values
        v.in_parser = True
        try:
            match r.choice(
                ["extract"] * 5 + ["stack", "stack", "advance", "set", "set", "verify", "primitive"]
            ):
                case "stack" if v.stacks or v.union_stacks:
                    return v.extract_next()
                case "advance":
                    amount = r.choice([number(8 * r.randrange(40)), v.number(1), v.lookahead()])
                    return {"op": "advance", "parameters": [amount]}
                case "set":
                    target = v.field()
                    return {"op": "set", "parameters": [target, {"type": "expression", "value": v.number(2)}]}
                case "verify":
                    condition = {"type": "expression", "value": v.truth(2)}
                    return {"op": "verify", "parameters": [condition, number(r.randrange(7))]}
                case "primitive":
                    primitive = self._assignment([])
                    return {"op": "primitive", "parameters": [primitive]}
            return v.extract()
        finally:
            v.in_parser = False

    # Actions

    def _action(self, number_: int) -> Json:
        r = self.r
        widths = [] if number_ < 3 else [self.values.width() or 1 for _ in range(r.randrange(3))]
        data = [{"name": f"p{n}", "bitwidth": width} for n, width in enumerate(widths)]
        primitives = self._primitives(r.randint(1, 12), len(widths), AGAIN)
        return {"name": f"action{number_}", "id": number_, "runtime_data": data, "primitives": primitives}

    def _primitives(self, count: int, parameters: int, allowed: Any) -> list[Json]:
        self.values.parameters = parameters
        primitives = [self._primitive(count, place, allowed) for place in range(count)]
        self.values.parameters = 0
        return primitives

    def _primitive(self, count: int, place: int, allowed: Any) -> Json:
        r, v = self.r, self.values
        kinds = (
            ["assign"] * 5 + ["header"] * 4 + ["stack", "register", "count", "hash", "fate", "jump", "other"]
        )
        kind = r.choice(kinds + ["again"] * 3 * bool(self.again and allowed))
        match kind:
            case "header":
                return self._header_call()
            case "stack" if v.stacks:
                op = r.choice(["push", "pop"])
                return _call(op, {"type": "header_stack", "value": r.choice(v.stacks)["name"]}, v.small())
            case "register" if self.remembers:
                return self._register_call()
            case "count":
                return _call("count", _named("counter_array", r.choice(self.counters)), v.index())
            case "hash":
                calculation = _named("calculation", r.choice(self.calculations))
                op = "modify_field_with_hash_based_offset"
                return _call(op, v.field(), v.number(1), calculation, v.number(1))
            case "again":
                op = r.choice(self.again)
                fields = number(r.choice([1, 2]))
                return _call(op, *([number(r.randrange(1, 4))] if "clone" in op else []), fields)
            case "fate":
                return self._fate()
            case "jump":
                back = self.loops and r.random() < 0.5
                to = r.randint(0, place) if back else r.randint(place + 1, count)
                if self.wrong and r.random() < 0.1:
                    to = r.choice([-1, count + 1])
                return r.choice([_call("_jump", number(to)), _call("_jump_if_zero", v.truth(1), number(to))])
        return self._assignment(["drop"])

    def _assignment(self, _allowed: list[str]) -> Json:
        r, v = self.r, self.values
        if r.random() < 0.2:
            return _call(r.choice(NUMERIC), v.field(), v.number(1), v.number(1))
        if r.random() < 0.1 and (varbits := v.varbits()):
            return _call("assign_VL", r.choice(varbits), r.choice(varbits))
        target = v.element_field() if v.stacks and r.random() < 0.2 else v.field()
        return _call("assign", target, {"type": "expression", "value": v.number(3)})

    def _header_call(self) -> Json:
        r, v = self.r, self.values
        target = v.any_header()
        match r.randrange(8):
            case 0 | 1 | 2:
                return _call("add_header", target)
            case 3 | 4:
                return _call("remove_header", target)
            case 5 if len(v.stacks) > 1:
                to, origin = r.choices(v.stacks, k=2)
                if self.unlike or v.type_of_stack(to) == v.type_of_stack(origin):
                    named = [{"type": "header_stack", "value": s["name"]} for s in (to, origin)]
                    return _call("assign_header_stack", *named)
        first, second = (header(h["name"]) for h in r.choices(v.packet_headers, k=2))
        if self.unlike or v.alike(first, second):
            return _call("assign_header", first, second)
        return _call("add_header", target)

    def _register_call(self) -> Json:
        r, v = self.r, self.values
        register = _named("register_array", r.choice(self.registers))
        if r.random() < 0.2:
            meter = _named("meter_array", r.choice(self.meters))
            return _call("execute_meter", meter, v.index(), v.field())
        if r.random() < 0.5:
            return _call("register_read", v.field(), register, v.index())
        return _call("register_write", register, v.index(), v.number(2))

    def _fate(self) -> Json:
        r, v = self.r, self.values
        standard = [of_header("standard_metadata", n) for n in ("egress_spec", "mcast_grp", "egress_spec")]
        match r.randrange(8):
            case 0:
                return _call("mark_to_drop", header("standard_metadata"))
            case 1:
                return _call("truncate", v.index())
            case 2:
                return _call("exit")
            case 3:
                return _call("generate_digest", number(1), number(r.choice([1, 2])))
            case 4:
                return _call("assert", {"type": "expression", "value": v.truth(1)})
            case 5 if self.remembers:
                return _call("modify_field_rng_uniform", v.field(), v.number(1), v.number(1))
        return _call("assign", r.choice(standard), number(r.randrange(PORTS)))

    # Pipelines

    def _pipeline(self, name: str, actions: list[Json]) -> Json:
        r = self.r
        bare = [a for a in actions if not a["runtime_data"]]
        names = [f"{name}.n{n}" for n in range(r.randint(1, 6))]
        pipeline: Json = {"name": name, "id": 0, "init_table": names[0]}
        pipeline |= {"tables": [], "conditionals": [], "action_calls": []}
        for n, node in enumerate(names):
            later = [*names[n + 1 : n + 3], None]
            match r.randrange(4):
                case 0:
                    item = {"name": node, "id": n, "expression": self.values.truth(3)}
                    ways = {"true_next": r.choice(later), "false_next": r.choice(later)}
                    pipeline["conditionals"].append({**item, **ways})
                case 1:
                    item = {"name": node, "id": n, "action_id": r.choice(bare)["id"]}
                    pipeline["action_calls"].append({**item, "next_node": r.choice(later)})
                case _:
                    pipeline["tables"].append(self._table(node, n, actions, bare, later))
        return pipeline

    def _table(self, name: str, id_: int, actions: list[Json], bare: list[Json], later: list[Any]) -> Json:
        r, v = self.r, self.values
        kinds = MATCH_KINDS if r.random() < 0.5 else ("exact",)
        keys = [v.table_key(r.choice(kinds)) for _ in range(r.randrange(4))]
        chosen = list({a["id"]: a for a in [r.choice(bare), *r.choices(actions, k=2)]}.values())
        used = {k["match_type"] for k in keys}
        overall = next((k for k in ("range", "ternary", "optional", "lpm") if k in used), "exact")
        following = r.choice([{"__HIT__": r.choice(later), "__MISS__": r.choice(later)}, {}])
        following = following or {a["name"]: r.choice(later) for a in chosen}
        default = {"action_id": chosen[0]["id"], "action_const": False, "action_data": []}
        return {
            "name": name,
            "id": id_,
            "key": keys,
            "match_type": "ternary" if overall == "optional" else overall,
            "type": "simple",
            "max_size": 64,
            "with_counters": r.random() < 0.3,
            "support_timeout": r.random() < 0.2,
            "action_ids": [a["id"] for a in chosen],
            "actions": [a["name"] for a in chosen],
            "base_default_next": r.choice(later),
            "next_tables": following,
            "default_entry": {**default, "action_entry_const": False} if r.random() < 0.8 else None,
        }


def _call(op: str, *parameters: Json) -> Json:
    return {"op": op, "parameters": list(parameters)}


def _named(kind: str, item: Json) -> Json:
    return {"type": kind, "value": item["name"]}
