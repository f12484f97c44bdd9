"""Entries, groups, and packets in their order, with which a program is tried. STF is their form as a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fanin.p4switch.bmv2json.notation import number_text, parameter_field, parse_number
from fanin.p4switch.bmv2json.program import LONGEST_PACKET, Program, Table, TableKey
from fanin.p4switch.stf.syntax import ActionText, Command, StfError, parse_stf

MOST_PACKETS = 200
MOST_ENTRIES = 500
MOST_WEIGHT = 1000  # of a member in a group
_Named = TypeVar("_Named")
_STRICT = ConfigDict(extra="forbid")
_OVERLAPPING = ("ternary", "range", "optional")


class ScenarioError(ValueError):
    """A scenario that the program cannot run. The message names the part that is wrong."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet that arrives: its port, its bytes in hexadecimal, and what it is, for people."""

    __pydantic_config__ = _STRICT

    port: int
    hex: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """An entry, or with `default` the default action of a table. Values are text: `10.1.0.0/16`, `5 &&& 7`, `1..9`.

    In a table with an action profile, `member` or `group` is the number of what it refers to, and `action` is empty.
    """

    __pydantic_config__ = _STRICT

    table: str
    action: str = ""
    match: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    default: bool = False
    member: int | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an action profile: an action, and its arguments as text."""

    __pydantic_config__ = _STRICT

    action: str
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProfileContent:
    """The members of an action profile and the groups of its selector, in the order of their numbers.

    A group has the numbers of its members: a pair of number and weight, or the number of one with weight 1.
    """

    __pydantic_config__ = _STRICT

    members: Sequence[Member] = ()
    groups: Sequence[Sequence[int | tuple[int, int]]] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Entries, multicast groups, clone sessions, action profiles by name, and packets.

    Replicas are pairs of port and replication id.
    """

    __pydantic_config__ = _STRICT

    entries: Sequence[TableEntry] = ()
    groups: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    sessions: Mapping[int, int] = field(default_factory=dict)
    packets: Sequence[Packet] = ()
    profiles: Mapping[str, ProfileContent] = field(default_factory=dict)


_Content = tuple[list[Member], list[list[int | tuple[int, int]]]]  # of an action profile
_ADAPTER = TypeAdapter(Scenario)


def read_scenario(document: object) -> Scenario:
    """Check a scenario that came as JSON.

    Raises:
        ScenarioError: It is not one.
    """
    try:
        scenario = _ADAPTER.validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        raise ScenarioError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if len(scenario.packets) > MOST_PACKETS or len(scenario.entries) > MOST_ENTRIES:
        raise ScenarioError(f"at most {MOST_PACKETS} packets and {MOST_ENTRIES} entries are possible")
    contents = scenario.profiles.values()
    if (
        sum(len(each.members) + sum(1 + len(group) for group in each.groups) for each in contents)
        > MOST_ENTRIES
    ):
        raise ScenarioError(f"at most {MOST_ENTRIES} members of action profiles and groups are possible")
    return scenario


def as_document(scenario: Scenario) -> object:
    """Return a scenario for JSON."""
    return _ADAPTER.dump_python(scenario, mode="json")


# To STF


def stf_text(
    scenario: Scenario, program: Program, outputs: Sequence[Sequence[tuple[int, str]]] | None = None
) -> str:
    """Return a scenario as an STF test.

    Args:
        scenario: The scenario.
        program: The program that it is for.
        outputs: For each packet what leaves, as port and bytes in hexadecimal; the test expects it, and nothing else.

    Raises:
        ScenarioError: An entry or a packet does not fit the program.
    """
    lines = [
        line for name, content in scenario.profiles.items() for line in _profile_lines(name, content, program)
    ]
    lines += [_entry_line(entry, program) for entry in scenario.entries]
    nodes = 0
    for group, replicas in scenario.groups.items():
        lines.append(f"mc_mgrp_create {group}")
        for port, instance in replicas:
            lines += [f"mc_node_create {instance} {port}", f"mc_node_associate {group} {nodes}"]
            nodes += 1
    lines += [f"mirroring_add {session} {port}" for session, port in scenario.sessions.items()]
    for number, packet in enumerate(scenario.packets):
        lines += ["", *([f"# {_one_line(packet.name)}"] if packet.name else [])]
        lines.append(f"packet {_port(packet, number)} {_digits(packet, number)}")
        if outputs is not None:
            lines += [f"expect {port} {data}$" for port, data in outputs[number]]
    if outputs is not None:
        lines += ["", "no_packet"]
    return "\n".join(lines).strip() + "\n"


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _port(packet: Packet, number: int) -> int:
    if not 0 <= packet.port <= 511:
        raise ScenarioError(f"packet {number + 1}: port {packet.port} is not between 0 and 511")
    return packet.port


def _digits(packet: Packet, number: int) -> str:
    try:
        data = bytes.fromhex(packet.hex)
    except ValueError:
        raise ScenarioError(f"packet {number + 1}: write two hexadecimal digits for each byte") from None
    if len(data) > LONGEST_PACKET:
        raise ScenarioError(f"packet {number + 1}: it has {len(data)} bytes, and may have {LONGEST_PACKET}")
    return data.hex()


def _entry_line(entry: TableEntry, program: Program) -> str:
    table = program.tables.get(entry.table)
    if table is None:
        raise ScenarioError(f"table {entry.table}: the program has no such table")
    where = f"table {table.name}"
    verb, what = "add", ""
    match entry.member, entry.group:
        case None, None:
            what = _call_text(table, entry.action, entry.arguments, where)
        case int(number), None:
            verb, what = "table_indirect_add", f"=> {number}"
        case None, int(number):
            verb, what = "table_indirect_add_with_group", f"=> {number}"
        case _:
            raise ScenarioError(f"{where}: an entry has a member or a group, not both")
    if entry.default:
        if verb != "add":
            raise ScenarioError(f"{where}: its default is an action, not a member or a group")
        return f'setdefault "{table.name}" {what}'
    if unknown := entry.match.keys() - {key.name for key in table.keys}:
        raise ScenarioError(f"{where}: it has no key {', '.join(sorted(unknown))}")
    keys = [_key_text(key, entry.match.get(key.name, "").strip(), where) for key in table.keys]
    overlapping = any(key.kind in _OVERLAPPING for key in table.keys)
    priority = f"{entry.priority} " if overlapping else ""
    if priority and entry.priority < 0:
        raise ScenarioError(f"{where}: priority {entry.priority} is negative")
    return " ".join(f'{verb} "{table.name}" {priority}{" ".join(filter(None, keys))} {what}'.split())


def _call_text(table: Table, name: str, given: Mapping[str, str], where: str) -> str:
    try:
        action = table.action_for(name, given, where)
    except ValueError as error:
        raise ScenarioError(str(error)) from None
    arguments = ", ".join(
        f'"{parameter.name}":{_number(given[parameter.name], parameter.width, f"{where}: {parameter.name}")}'
        for parameter in action.parameters
    )
    return f'"{action.name}"({arguments})'


def _profile_lines(name: str, content: ProfileContent, program: Program) -> Iterator[str]:
    users = [table for table in program.tables.values() if table.profile == name]
    if not users:
        raise ScenarioError(f"action profile {name}: no table of the program uses it")
    for number, member in enumerate(content.members):
        where = f"action profile {name}: member {number}"
        yield f'act_prof_create_member "{name}" {_call_text(users[0], member.action, member.arguments, where)}'
    for number, members in enumerate(content.groups):
        yield f'act_prof_create_group "{name}"'
        for each in members:
            member_number, weight = (each, 1) if isinstance(each, int) else each
            if not 1 <= weight <= MOST_WEIGHT:
                where = f"action profile {name}: group {number}: member {member_number}"
                raise ScenarioError(f"{where}: weight {weight} is not between 1 and {MOST_WEIGHT}")
            weighted = f" {weight}" if weight != 1 else ""
            yield f'act_prof_add_member_to_group "{name}" {member_number} {number}{weighted}'


def _key_text(key: TableKey, text: str, where: str) -> str:
    where = f"{where}: {key.name}"
    if text in ("", "*"):
        if key.kind in ("exact", "valid"):
            raise ScenarioError(f"{where}: an exact key needs a value")
        return ""
    number = text
    match key.kind:
        case "lpm":
            value, _, length = text.partition("/")
            if not length.strip().isdigit() or int(length) > key.width:
                raise ScenarioError(f"{where}: write VALUE/LENGTH, with a length up to {key.width}")
            number = f"{_number(value, key.width, where)}/{int(length)}"
        case "ternary" if "&" in text:
            value, _, mask = re.sub("&+", "&", text).partition("&")
            number = f"{_number(value, key.width, where)}&&&{_number(mask, key.width, where)}"
        case "range" if ".." in text or "->" in text:
            low, _, high = text.replace("->", "..").partition("..")
            number = f"{_number(low, key.width, where)}->{_number(high, key.width, where)}"
        case _:
            number = _number(text, key.width, where)
    return f'"{key.name}":{number}'


def _number(text: str, width: int, where: str) -> str:
    words = {"true": 1, "false": 0}
    try:
        value = words[text.strip()] if text.strip() in words else parse_number(text.strip())
    except ValueError:
        raise ScenarioError(f"{where}: {text!r} is neither a number nor an address") from None
    if not 0 <= value < 1 << width:
        raise ScenarioError(f"{where}: {text.strip()} does not fit {width} bits")
    return hex(value)


# From STF


def from_stf(text: str, program: Program) -> Scenario:
    """Return the entries and packets of an STF test, without what it expects.

    Raises:
        ScenarioError: A line is not STF, or names something that the program does not have.
    """
    comments = list(_comments(text))
    entries: list[TableEntry] = []
    groups: dict[int, list[tuple[int, int]]] = {}
    nodes: list[tuple[int, list[int]]] = []
    sessions: dict[int, int] = {}
    packets: list[Packet] = []
    profiles: dict[str, _Content] = {}
    try:
        for command in parse_stf(text):
            words = command.words
            match command.verb:
                case "packet":
                    packets.append(Packet(int(words[0]), words[1], comments[command.line - 1]))
                case "add" | "setdefault" | "table_indirect_add" | "table_indirect_add_with_group":
                    entries.append(_entry(command, program))
                case "act_prof_create_member" | "act_prof_create_group" | "act_prof_add_member_to_group":
                    _fill(profiles, command, program)
                case "mc_mgrp_create":
                    groups[int(words[0], 0)] = []
                case "mc_node_create":
                    nodes.append((int(words[0], 0), [int(word, 0) for word in words[1:]]))
                case "mc_node_associate":
                    instance, ports = nodes[int(words[1], 0)]
                    groups[int(words[0], 0)] += [(port, instance) for port in ports]
                case "mirroring_add":
                    sessions[int(words[0], 0)] = int(words[1], 0)
    except StfError as error:
        raise ScenarioError(str(error)) from None
    except (ValueError, LookupError):
        raise ScenarioError(f"line {command.line}: {command.verb} needs numbers that exist") from None
    contents = {name: ProfileContent(*content) for name, content in profiles.items()}
    return Scenario(entries, groups, sessions, packets, contents)


def _fill(profiles: dict[str, _Content], command: Command, program: Program) -> None:
    """Add what a command writes to an action profile."""
    profile = _named(program.profiles, command.words[0])
    members, groups = profiles.setdefault(profile.name, ([], []))
    if command.verb == "act_prof_create_group":
        groups.append([])
    elif command.verb == "act_prof_add_member_to_group":
        member, group, *weight = (int(word, 0) for word in command.words[1:])
        groups[group].append((member, weight[0]) if weight and weight[0] != 1 else member)
    else:
        table = next(each for each in program.tables.values() if each.profile == profile.name)
        assert command.action is not None
        members.append(Member(*_call(command.action, table, program)))


def _comments(text: str) -> Iterator[str]:
    """Yield for each line the comment above it. A comment belongs to the one packet that follows."""
    comment = ""
    for line in text.splitlines():
        yield comment
        if line.lstrip().startswith("#"):
            comment = line.lstrip(" #").rstrip(". ")
        elif line.strip():
            comment = ""


def _entry(command: Command, program: Program) -> TableEntry:
    table = _named(
        {name: each for name, each in program.tables.items() if not each.is_call}, command.words[0]
    )
    action, arguments = _call(command.action, table, program) if command.action else ("", {})
    number = int(command.words[1], 0) if command.action is None else None
    keys = {key.name: key for key in table.keys}
    match = {_key_name(table, name): value for name, value in command.keys}
    return TableEntry(
        table.name,
        action,
        {name: _match_text(program, keys[name], value) for name, value in match.items()},
        arguments,
        command.priority or 0,
        command.verb == "setdefault",
        number if command.verb == "table_indirect_add" else None,
        number if command.verb == "table_indirect_add_with_group" else None,
    )


def _call(call: ActionText, table: Table, program: Program) -> tuple[str, dict[str, str]]:
    """Return the full name of an action, and its arguments as text."""
    action = _named({each.name: each for each in table.actions}, call.name)
    known = {
        parameter.name: (parameter_field(action, index), parameter.width)
        for index, parameter in enumerate(action.parameters)
    }
    arguments = {
        name: number_text(program, *known.get(name, (None, 0)), value)
        for name, value in call.arguments.items()
    }
    return action.name, arguments


def _match_text(program: Program, key: TableKey, text: str) -> str:
    """Return a match as people write it: addresses instead of numbers."""
    numbers = re.split(r"(/|&&&|->)", text)
    if key.kind != "ternary" and numbers[0].isalnum():
        with suppress(ValueError):
            numbers[0] = number_text(program, key.target, key.width, int(numbers[0], 0))
    if key.kind == "lpm" and len(numbers) == 1:
        numbers += ["/", str(key.width)]
    return "".join(numbers).replace("&&&", " &&& ").replace("->", "..")


def _named(known: Mapping[str, _Named], name: str) -> _Named:
    found = [each for each in known if each == name or each.endswith(f".{name}")]
    if not found:
        raise StfError(f"the program has no {name}; there are {', '.join(known)}")
    return known[found[0]]


def _key_name(table: Table, name: str) -> str:
    names = [key.name for key in table.keys]
    found = [each for each in names if each == name or each.endswith(f".{name}") or name.endswith(f".{each}")]
    if not found:
        raise StfError(f"table {table.name} has no key {name}; there are {', '.join(names)}")
    return found[0]
