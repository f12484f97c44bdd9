"""Table entries for a comparison: read from a file, or drawn at random for a P4Info."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from finsy import (
    P4ActionProfileGroup,
    P4ActionProfileMember,
    P4ActionSelectionMode,
    P4CloneSessionEntry,
    P4IndirectAction,
    P4Member,
    P4MulticastGroupEntry,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from finsy.proto import p4i, p4r
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from fanin.controller.errors import ControllerError
from fanin.controller.schema import schema_of

_ENTRIES = 12  # drawn for each table
_GROUPS = range(1, 9)
_PORTS = range(1, 9)

_STRICT = ConfigDict(extra="forbid")

_MODES = {
    False: P4ActionSelectionMode.DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR,
    True: P4ActionSelectionMode.RANDOM,
}

# A match: a value (exact, optional), or two: value and prefix length, value and mask, lowest and highest.
Match = int | str | tuple[int | str, int | str]


def require_prefix_length(match: Match, where: str) -> None:
    """Refuse the value of an lpm key that has no prefix length: which one was meant is a guess.

    Raises:
        ValueError: It has none.
    """
    if not isinstance(match, tuple) and "/" not in str(match):
        raise ValueError(
            f"{where}: {match} has no prefix length; write [VALUE, LENGTH], such as ['10.1.0.0', 16]"
        )


@dataclass(frozen=True, slots=True)
class NamedAction:
    """An action with its parameters: a member of an action profile, or the default action of a table."""

    __pydantic_config__ = _STRICT

    action: str
    params: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamedChoice(NamedAction):
    """One of the actions from which an entry chooses."""

    weight: int = 1


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """An entry in the program's names: with an action, or in a table with an action profile, with another choice.

    Attributes:
        table: The table.
        match: The match of each key; a key that is left out matches everything.
        action: The action.
        params: Its parameters.
        priority: The highest one wins, if several entries match.
        member: Instead of an action, a member of the table's action profile.
        group: Instead of an action, a group of it.
        one_of: Instead of an action, actions of its own, one of which is chosen for each packet.
        random: Choose from `one_of` at random, not by the hash.
    """

    __pydantic_config__ = _STRICT

    table: str
    match: Mapping[str, Match]
    action: str | None = None
    params: Mapping[str, int | str] = field(default_factory=dict)
    priority: int = 0
    member: int | None = None
    group: int | None = None
    one_of: Sequence[NamedChoice] | None = None
    random: bool = False
    # The file and the line that it came from, for error messages, such as `entries.json:4: `.
    place: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if [self.action, self.member, self.group, self.one_of].count(None) != 3:
            raise ValueError("needs one of action, member, group and one_of")
        if self.action is None and self.params:
            raise ValueError("has params, but no action")
        if self.one_of is None and self.random:
            raise ValueError("has random, but no one_of")

    def entity(self) -> P4TableEntry:
        """Return the entry for finsy."""
        action: P4TableAction | P4IndirectAction
        if self.action is not None:
            action = P4TableAction(self.action, **self.params)
        elif self.one_of is not None:
            choices = [(one.weight, P4TableAction(one.action, **one.params)) for one in self.one_of]
            action = P4IndirectAction(choices, selection_mode=_MODES[self.random])
        else:
            action = P4IndirectAction(member_id=self.member, group_id=self.group)
        match = P4TableMatch(self.match)
        return P4TableEntry(self.table, match=match, action=action, priority=self.priority)


@dataclass(frozen=True, slots=True)
class Profile:
    """Content of an action profile: members by number, and groups by number: the weight of each of their members."""

    __pydantic_config__ = _STRICT

    members: Mapping[int, NamedAction] = field(default_factory=dict)
    groups: Mapping[int, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entries:
    """Everything that the control plane has to write; replicas of groups and sessions are (port, replication id).

    `defaults` are default actions, by the names of their tables.
    """

    __pydantic_config__ = _STRICT

    entries: Sequence[NamedEntry] = ()
    groups: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    sessions: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    defaults: Mapping[str, NamedAction] = field(default_factory=dict)

    def encode(self, p4info: p4i.P4Info) -> list[p4r.Entity]:
        """Return the same as P4Runtime entities, with the ids of this P4Info.

        Raises:
            ValueError: If the program has no place for one of them.
        """
        prefixes = {
            (table.preamble.name, key.name)
            for table in p4info.tables
            for key in table.match_fields
            if key.match_type == p4i.MatchField.LPM
        }
        for entry in self.entries:
            for name, match in entry.match.items():
                if (entry.table, name) in prefixes:
                    require_prefix_length(match, f"{entry.place}table {entry.table}: {name}")
        try:
            schema = schema_of(p4info)
        except ControllerError as error:
            raise ValueError(str(error)) from None
        kinds = ((P4MulticastGroupEntry, self.groups), (P4CloneSessionEntry, self.sessions))
        entities = [
            kind(number, replicas=tuple(replicas)).encode(schema)
            for kind, numbered in kinds
            for number, replicas in numbered.items()
        ]
        defaults = (
            P4TableEntry(table, action=P4TableAction(one.action, **one.params), is_default_action=True)
            for table, one in self.defaults.items()
        )
        for part in (*self._profile_entities(), *self.entries, *defaults):
            try:
                entity = part.entity() if isinstance(part, NamedEntry) else part
                entities.append(entity.encode(schema))
            except (LookupError, ValueError) as error:
                if isinstance(part, NamedEntry):
                    raise ValueError(f"{part.place}table {part.table}: {error}") from None
                raise ValueError(f"the program has no place for {part}: {error}") from None
        return entities

    def _profile_entities(self) -> Iterator[P4ActionProfileMember | P4ActionProfileGroup]:
        """Yield members before the groups that have them."""
        for name, profile in self.profiles.items():
            for number, member in profile.members.items():
                action = P4TableAction(member.action, **member.params)
                yield P4ActionProfileMember(name, member_id=number, action=action)
            for number, weights in profile.groups.items():
                members = [P4Member(member, weight=weight) for member, weight in weights.items()]
                yield P4ActionProfileGroup(name, group_id=number, members=members)


_KINDS = {
    "entries": NamedEntry,
    "one_of": NamedChoice,
    "defaults": NamedAction,
    "members": NamedAction,
    "profiles": Profile,
}


def read_entries(path: Path) -> Entries:
    """Read a JSON document with the fields of `Entries`.

    Raises:
        ValueError: If the file cannot be read or is invalid; the message has a line for each problem.
    """
    try:
        text = path.read_text()
        found = TypeAdapter(Entries).validate_python(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except ValidationError as error:
        lines = dict.fromkeys(  # pydantic repeats the error for each kind of match
            f"{path}:{_line(text, one['loc'])}: {_explain(one)}" for one in error.errors()
        )
        raise ValueError("\n".join(lines)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read as JSON: {error}") from None
    for number, entry in enumerate(found.entries):
        object.__setattr__(entry, "place", f"{path}:{_line(text, ('entries', number))}: ")
    return found


def _line(text: str, place: Sequence[int | str]) -> int:
    """Return the line of a JSON document on which a value begins, or the innermost one around it that exists."""
    decode, after = json.JSONDecoder().raw_decode, re.compile(r"[\s,:]*")

    def skip(index: int) -> int:
        found = after.match(text, index)
        assert found is not None
        return found.end()

    here = skip(0)
    for step in place:
        if text[here] not in "{[":
            break
        index, key, number = skip(here + 1), None, 0
        while text[index] not in "]}":
            start, key = index, number
            if text[here] == "{":
                key, index = decode(text, index)
                index = skip(index)
            if str(key) == str(step):
                here = start if text[here] == "{" and step == place[-1] else index
                break
            _, index = decode(text, index)
            index, number = skip(index), number + 1
        else:
            break
    return text.count("\n", 0, here) + 1


def _explain(one: ErrorDetails) -> str:
    """Return the place of an error, what is wrong, and the fix."""
    *above, name = one["loc"] or ("the document",)
    place = ".".join(map(str, (*above, name)))
    match one["type"]:
        case "missing" if "match" not in above:
            return f"{place}: missing; add it"
        case "unexpected_keyword_argument":
            inner = next((part for part in ("members", "one_of") if part in above), next(iter(above), ""))
            kind = _KINDS.get(str(inner), Entries)
            return f"{place}: not known; keys are {', '.join(key.name for key in fields(kind) if key.init)}"
        case "value_error":
            return f"{place}: {one['ctx']['error']}"
        case _ if "match" in above:
            return f"{'.'.join(map(str, one['loc'][:4]))}: not a match; write a value, or two in brackets"
    return f"{place}: is {one['input']!r}; {one['msg'][0].lower()}{one['msg'][1:]}"


def observed(found: Iterable[Mapping[str, Any]]) -> Entries:
    """Return what was written to a switch.

    Args:
        found: What Observer.tables() yields (controller/observer.py).
    """
    entries, defaults = [], {}
    replicas: dict[str, dict[int, tuple[tuple[int, int], ...]]] = {"multicast_group": {}, "clone_session": {}}
    members: dict[str, dict[int, NamedAction]] = defaultdict(dict)
    groups: dict[str, dict[int, dict[int, int]]] = defaultdict(dict)
    for each in found:
        kind = next((kind for kind in replicas if kind in each), None)
        if kind is not None:
            replicas[kind][each[kind]] = tuple((port, number) for port, number in each["replicas"])
        elif "action_profile" in each:
            profile = each["action_profile"]
            if "member" in each:
                members[profile][each["member"]] = NamedAction(each["action"], each["params"])
            else:
                groups[profile][each["group"]] = dict(each["members"])
        elif each["kind"] == "default" and "action" in each:
            defaults[each["table"]] = NamedAction(each["action"], each["params"])
        elif each["kind"] == "entry":
            match = {name: _observed_match(value) for name, value in each["match"].items()}
            chosen = {
                name: each[name] for name in ("action", "params", "member", "group", "random") if name in each
            }
            if "one_of" in each:
                chosen["one_of"] = [NamedChoice(**one) for one in each["one_of"]]
            entries.append(NamedEntry(each["table"], match, priority=each["priority"], **chosen))
    profiles = {name: Profile(members[name], groups[name]) for name in (members | groups)}
    return Entries(entries, replicas["multicast_group"], replicas["clone_session"], profiles, defaults)


def _observed_match(match: Any) -> Match:
    return tuple(match.values()) if isinstance(match, dict) else match


def draw(rng: random.Random, width: int) -> int:
    """Return a random value of `width` bits; small values and the limits are drawn more often."""
    kind = rng.random()
    if kind < 0.45:
        return rng.randrange(min(1 << width, 16))
    if kind < 0.55:
        return rng.choice([0, 1, (1 << width) - 1, 1 << (width - 1)]) if width else 0
    return rng.getrandbits(width)


def random_entries(p4info: p4i.P4Info, rng: random.Random) -> Entries:
    """Return valid entries for every table that takes some, and a few multicast groups."""
    actions = {action.preamble.id: action for action in p4info.actions}
    entries: list[NamedEntry] = []
    for table in p4info.tables:
        takes = table.match_fields and _have_width(table.match_fields)
        if takes and not table.is_const_table and not table.implementation_id:
            entries += _of_table(table, actions, rng)
    groups = {
        group: tuple((port, rng.randrange(4)) for port in rng.sample(_PORTS, rng.randrange(1, 4)))
        for group in _GROUPS
    }
    return Entries(entries, groups)


def _of_table(
    table: p4i.Table, actions: Mapping[int, p4i.Action], rng: random.Random
) -> Iterator[NamedEntry]:
    allowed = [actions[ref.id] for ref in table.action_refs if ref.scope != p4i.ActionRef.DEFAULT_ONLY]
    usable = [action for action in allowed if _have_width(action.params)]
    kinds = {match.match_type for match in table.match_fields}
    ordered = kinds & {p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.OPTIONAL}
    seen = set()
    for number in range(min(_ENTRIES, table.size) if usable else 0):
        match = {key.name: _match(key, rng) for key in table.match_fields}
        if (key := json.dumps(match)) in seen:
            continue
        seen.add(key)
        action = rng.choice(usable)
        yield NamedEntry(
            table.preamble.name,
            {name: value for name, value in match.items() if value is not None},
            action.preamble.name,
            {param.name: draw(rng, param.bitwidth) for param in action.params},
            number + 1 if ordered else 0,  # with equal priorities it is undefined which entry wins
        )


def _have_width(places: Iterable[p4i.MatchField | p4i.Action.Param]) -> bool:
    """Return whether all have a width. Errors and translated strings have none, and no values over P4Runtime."""
    return all(place.bitwidth for place in places)


def _match(key: p4i.MatchField, rng: random.Random) -> Any:
    """Return a match for this field; None matches any value."""
    width, everything = key.bitwidth, (1 << key.bitwidth) - 1
    value = draw(rng, width)
    match key.match_type:
        case p4i.MatchField.LPM:
            length = rng.randrange(width + 1)
            masked = value & (everything << (width - length)) & everything
            return (masked, length) if length else None
        case p4i.MatchField.TERNARY:
            mask = rng.choice([everything, 0, rng.getrandbits(width)])
            return (value & mask, mask) if mask else None
        case p4i.MatchField.RANGE:
            low, high = sorted((value, draw(rng, width)))
            return (low, high) if (low, high) != (0, everything) else None
        case p4i.MatchField.OPTIONAL:
            return rng.choice([value, None])
        case _:
            return value
