"""The lines of an STF test: p4c's simple test format, as its bmv2 backend understands it.

    packet PORT HEX ...            expect PORT [HEX ...][$]      no_packet      wait
    add TABLE [PRIORITY] KEY:VALUE ... ACTION(NAME:VALUE, ...) [= ID]           remove all
    setdefault TABLE ACTION(NAME:VALUE, ...)      check_counter NAME(INDEX or ID) [packets|bytes == N]
    act_prof_create_member PROFILE ACTION(NAME:VALUE, ...)                      act_prof_create_group PROFILE
    act_prof_add_member_to_group PROFILE MEMBER GROUP [WEIGHT]
    table_indirect_add[_with_group] TABLE [PRIORITY] KEY:VALUE ... => MEMBER or GROUP
    and simple_switch_CLI's mc_..., mirroring_..., counter_..., register_... and meter_... commands

p4c's format has nothing for action profiles. Those commands have simple_switch_CLI's names and numbers, and write keys
and arguments as `add` does. Weights are fanin's own: BMv2 has none.

`*` in an expected packet or a value stands for any digit; `$` ends a packet; `#` begins a comment; names may be quoted.
Source: p4lang/p4c tools/stf and backends/bmv2/bmv2stf.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address


class StfError(Exception):
    """Line that is not STF, or that names something the program does not have. The message explains where."""


@dataclass(frozen=True, slots=True)
class ActionText:
    """Action as a line gives it: its name, and its arguments by name."""

    name: str
    arguments: dict[str, int]


@dataclass(frozen=True, slots=True)
class Command:
    """Command of one line: its verb and its words; `action` and `keys` if it concerns an entry."""

    line: int
    verb: str
    words: tuple[str, ...]
    action: ActionText | None = None
    keys: tuple[tuple[str, str], ...] = ()
    priority: int | None = None
    id: str | None = None


_LINE = re.compile(r'(?:"[^"]*"|[^"#])*')  # up to a comment
_NAME = r'(?:"[^"]*"|[\w.$\[\]]+)'
_WORD = re.compile(r'"[^"]*"|[^\s"]+')
_ARGUMENT = re.compile(rf"(?P<name>{_NAME})\s*:\s*(?P<value>[\w.:]+)")
_ACTION = re.compile(
    rf"(?P<action>{_NAME})\s*\((?P<arguments>(?:\"[^\"]*\"|[^()\"])*)\)\s*(?:=\s*(?P<id>[\w$]+))?\s*$"
)
_KEY = re.compile(rf"(?P<name>{_NAME})\s*:\s*(?P<value>[\w*/&>.:-]+)")
_REFERENCE = re.compile(r"=>\s*(?P<number>\w+)\s*$")
_CHECK = re.compile(
    rf"(?P<counter>{_NAME})\s*\(\s*(?P<index>[\w$]+)\s*\)\s*"
    r"(?:(?P<what>packets|bytes)\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<number>\d+))?\s*$",
    re.IGNORECASE,
)
WORDS = {  # the number of words that each other command takes
    "wait": (0, 0),
    "no_packet": (0, 0),
    "mirroring_add": (2, 2),
    "mirroring_add_mc": (2, 2),
    "mirroring_delete": (1, 1),
    "mirroring_get": (1, 1),
    "mc_mgrp_create": (1, 1),
    "mc_node_create": (1, 1000),
    "mc_node_update": (1, 1000),
    "mc_node_associate": (2, 2),
    "counter_read": (2, 2),
    "counter_write": (4, 4),
    "register_read": (1, 2),
    "register_write": (3, 3),
    "register_reset": (1, 1),
    "meter_get_rates": (2, 2),
    "meter_set_rates": (3, 4),
    "meter_array_set_rates": (2, 3),
    "act_prof_create_group": (1, 1),
    "act_prof_add_member_to_group": (3, 4),
}


def parse_stf(text: str) -> Iterator[Command]:
    """Yield the commands of a test, line by line.

    Raises:
        StfError: If a line is not a command.
    """
    for number, whole in enumerate(text.splitlines(), 1):
        found = _LINE.match(whole)
        line = found[0].strip() if found else ""
        if line:
            verb, _, rest = line.partition(" ")
            yield _command(number, verb.lower(), rest.strip())


def number(text: str, line: int) -> int:
    """Parse a number, in decimal or with 0x, 0b or 0o.

    Raises:
        StfError: If it is not a number.
    """
    try:
        return int(text, 10 if text.isdigit() else 0)
    except ValueError:
        raise StfError(f"line {line}: {text!r} is not a number{_without_address(text)}") from None


def _without_address(text: str) -> str:
    """Say what to write for an address or a prefix of one; empty if it is neither."""
    address, slash, length = text.partition("/")
    if re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", address):
        digits = address.replace(":", "")
    else:
        try:
            digits = ip_address(address).packed.hex()
        except ValueError:
            return ""
    return f": STF has no addresses; write 0x{digits}{slash}{length}"


def _command(line: int, verb: str, rest: str) -> Command:
    words = [_plain(word) for word in _WORD.findall(rest)]
    match verb:
        case "packet" | "expect":
            if not words or not words[0].isdigit():
                raise StfError(f"line {line}: {verb} needs a port")
            data = "".join(words[1:]).lower()
            pattern = r"[0-9a-f]*" if verb == "packet" else r"[0-9a-f*]*\$?"
            if not re.fullmatch(pattern, data) or len(data.rstrip("$")) % 2:
                raise StfError(f"line {line}: not the bytes of a packet: {data}")
            return Command(line, verb, (words[0], data))
        case "remove" if [w.lower() for w in words] == ["all"]:
            return Command(line, verb, ())
        case "add" | "setdefault":
            return _entry(line, verb, rest)
        case "table_indirect_add" | "table_indirect_add_with_group":
            return _indirect_entry(line, verb, rest)
        case "act_prof_create_member":
            profile, call = _WORD.match(rest), _ACTION.search(rest)
            if profile is None or call is None or rest[profile.end() : call.start()].strip():
                raise StfError(f"line {line}: {verb} PROFILE ACTION(NAME:VALUE, ...)")
            return Command(line, verb, (_plain(profile[0]),), _action(line, call))
        case "check_counter":
            check = _CHECK.fullmatch(rest)
            if check is None:
                raise StfError(f"line {line}: check_counter NAME(INDEX) [packets|bytes == NUMBER]")
            given = check["what"] is not None
            words = [_plain(check["counter"]), check["index"]]
            words += [check["what"].lower(), check["operator"], check["number"]] if given else []
            return Command(line, verb, tuple(words))
    if verb not in WORDS:
        raise StfError(f"line {line}: unknown command {verb!r}")
    least, most = WORDS[verb]
    if not least <= len(words) <= most:
        raise StfError(f"line {line}: {verb} takes {least} to {most} words, not {len(words)}")
    return Command(line, verb, tuple(words))


def _entry(line: int, verb: str, rest: str) -> Command:
    table, found = _WORD.match(rest), _ACTION.search(rest)
    if table is None or found is None or found.start() < table.end():
        raise StfError(f"line {line}: {verb} TABLE ... ACTION(NAME:VALUE, ...)")
    action = _action(line, found)
    middle = rest[table.end() : found.start()].strip()
    if verb == "setdefault" and middle:
        raise StfError(f"line {line}: keys are NAME:VALUE, not {middle!r}")
    priority, keys = _match(line, middle)
    return Command(line, verb, (_plain(table[0]),), action, keys, priority, found["id"])


def _indirect_entry(line: int, verb: str, rest: str) -> Command:
    table, found = _WORD.match(rest), _REFERENCE.search(rest)
    if table is None or found is None or found.start() < table.end():
        raise StfError(f"line {line}: {verb} TABLE [PRIORITY] KEY:VALUE ... => NUMBER")
    priority, keys = _match(line, rest[table.end() : found.start()].strip())
    return Command(line, verb, (_plain(table[0]), found["number"]), None, keys, priority)


def _action(line: int, found: re.Match[str]) -> ActionText:
    given = found["arguments"]
    if _ARGUMENT.sub("", given).strip(" ,"):
        raise StfError(f"line {line}: arguments are NAME:VALUE, not {given!r}")
    arguments = {_plain(a["name"]): number(a["value"], line) for a in _ARGUMENT.finditer(given)}
    return ActionText(_plain(found["action"]), arguments)


def _match(line: int, text: str) -> tuple[int | None, tuple[tuple[str, str], ...]]:
    """Return the priority of an entry, if the text begins with one, and its keys with their values."""
    first = re.match(r"(\d+)(?=\s|$)", text)
    keys = text[first.end() :] if first else text
    if _KEY.sub("", keys).strip():
        raise StfError(f"line {line}: keys are NAME:VALUE, not {text!r}")
    pairs = tuple((_plain(k["name"]), k["value"]) for k in _KEY.finditer(keys))
    for _, value in pairs:
        if advice := _without_address(value):
            raise StfError(f"line {line}: {value!r} is not a number{advice}")
    return int(first[1]) if first else None, pairs


def _plain(name: str) -> str:
    return name.strip('"')
