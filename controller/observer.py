"""The contents of a switch, in its program's names, for inspection: reads need no primary controller.

    python -m fanin.controller.observer HOST:PORT DEVICE_ID tables|counters|program

prints what the method of `Observer` yields as lines of JSON, for processes outside the switch's network namespace.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Self

import grpc
from finsy.proto import p4i, p4r, p4r_grpc

from fanin.controller.errors import ControllerError

_SECONDS = 30.0  # for one answer
_LONGEST_ANSWER = 1 << 28  # bytes: BMv2 answers a read with a single message

_NO_PROGRAM = (
    "the switch has no pipeline yet, which a controller sets over P4Runtime; what a program that was given on its "
    "command line has in its tables, simple_switch_CLI shows"
)

_Get = p4r.GetForwardingPipelineConfigRequest


class Observer:
    """Reads a switch at `address` (host:port). A context manager.

    Values are in the form that people write: numbers, and addresses as text. Every method raises ControllerError if the
    switch does not answer, or refuses.

    Args:
        address: Host and port of the P4Runtime server.
        device_id: The switch's device id.
    """

    def __init__(self, address: str, device_id: int) -> None:
        self._address = address
        self._device_id = device_id
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", _LONGEST_ANSWER)]
        self._channel = grpc.insecure_channel(address, options=options)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def program(self) -> Iterator[dict[str, Any]]:
        """Yield the compiled program, BMv2 JSON."""
        config: dict[str, Any] = json.loads(self._config(_Get.ALL).p4_device_config)
        yield config

    def tables(self) -> Iterator[dict[str, Any]]:
        """Yield table entries, then the members and groups of action profiles, then multicast groups.

        An entry has table, match, priority, the action with its params, kind (entry, const, default), and the values of
        direct counters (packets, bytes). An entry of an action profile has a member or a group instead of an action. A
        match is a value (exact, optional), "value/length" (lpm), {"value", "mask"} or {"low", "high"}; fields that
        match anything are left out. A member has action_profile, member, and its action with its params. A group has
        action_profile, group, and members: [[member, weight], …]. A multicast group has multicast_group and replicas,
        [[port, instance], …]; a clone session has clone_session and replicas.
        """
        info = self._p4info()
        names = _Names(info)
        counted = {counter.direct_table_id for counter in info.direct_counters}
        wanted = []
        for table in info.tables:
            data = p4r.CounterData() if table.preamble.id in counted else None
            # P4Runtime has no default entries in tables with an action profile.
            default = not table.implementation_id
            for is_default in (False, True)[: 1 + default]:
                entry = p4r.TableEntry(
                    table_id=table.preamble.id, is_default_action=is_default, counter_data=data
                )
                wanted.append(p4r.Entity(table_entry=entry))
        for entity in self._read(wanted):
            yield names.entry(entity.table_entry)
        wanted = []
        for profile in info.action_profiles:
            number = profile.preamble.id
            wanted.append(p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=number)))
            if profile.with_selector:
                wanted.append(
                    p4r.Entity(action_profile_group=p4r.ActionProfileGroup(action_profile_id=number))
                )
        for entity in self._read(wanted):
            yield names.of_profile(entity)
        for kind, number, empty in (
            ("multicast_group", "multicast_group_id", {"multicast_group_entry": p4r.MulticastGroupEntry()}),
            ("clone_session", "session_id", {"clone_session_entry": p4r.CloneSessionEntry()}),
        ):
            wildcard = p4r.PacketReplicationEngineEntry(**empty)
            for entity in self._read([p4r.Entity(packet_replication_engine_entry=wildcard)]):
                found = getattr(entity.packet_replication_engine_entry, f"{kind}_entry")
                replicas = [[r.egress_port or int.from_bytes(r.port), r.instance] for r in found.replicas]
                yield {kind: getattr(found, number), "replicas": replicas}

    def counters(self) -> Iterator[dict[str, Any]]:
        """Yield the cells of counters that are not 0: counter, size (number of cells), index, packets, bytes."""
        counters = {counter.preamble.id: counter for counter in self._p4info().counters}
        wanted = [p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=number)) for number in counters]
        for entity in self._read(wanted):
            cell = entity.counter_entry
            if cell.data.packet_count or cell.data.byte_count:
                counter = counters[cell.counter_id]
                place = {"counter": counter.preamble.name, "size": counter.size, "index": cell.index.index}
                yield place | {"packets": cell.data.packet_count, "bytes": cell.data.byte_count}

    def _p4info(self) -> p4i.P4Info:
        return self._config(_Get.P4INFO_AND_COOKIE).p4info

    def _config(self, part: _Get.ResponseType.ValueType) -> p4r.ForwardingPipelineConfig:
        request = _Get(device_id=self._device_id, response_type=part)
        try:
            answer = self._stub.GetForwardingPipelineConfig(request, timeout=_SECONDS)
        except grpc.RpcError as error:
            raise self._refused(error) from None
        if not answer.HasField("config"):
            raise ControllerError(_NO_PROGRAM)
        return answer.config

    def _read(self, entities: Sequence[p4r.Entity]) -> Iterator[p4r.Entity]:
        if not entities:  # BMv2 refuses an empty request
            return
        request = p4r.ReadRequest(device_id=self._device_id, entities=entities)
        try:
            for response in self._stub.Read(request, timeout=_SECONDS):
                yield from response.entities
        except grpc.RpcError as error:
            raise self._refused(error) from None

    def _refused(self, error: Any) -> ControllerError:
        match error.code():
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
                return ControllerError(f"no switch answers at {self._address}")
            case grpc.StatusCode.FAILED_PRECONDITION:  # BMv2
                return ControllerError(_NO_PROGRAM)
            case grpc.StatusCode.UNIMPLEMENTED:
                return ControllerError(
                    f"the switch at {self._address} cannot be asked for this (BMv2 has less of P4Runtime than the "
                    f"embedded switch): {error.details()}"
                )
            case code:
                return ControllerError(
                    f"the switch at {self._address} refuses: {code.name} {error.details()}"
                )


class _Names:
    """The names of the numbers in a P4Runtime entity."""

    def __init__(self, info: p4i.P4Info) -> None:
        self._tables: Mapping[int, p4i.Table] = {table.preamble.id: table for table in info.tables}
        self._actions: Mapping[int, p4i.Action] = {action.preamble.id: action for action in info.actions}
        self._profiles = {profile.preamble.id: profile.preamble.name for profile in info.action_profiles}

    def entry(self, entry: p4r.TableEntry) -> dict[str, Any]:
        table = self._tables[entry.table_id]
        fields = {field.id: field for field in table.match_fields}
        match = {fields[found.field_id].name: _match(fields[found.field_id], found) for found in entry.match}
        kind = "default" if entry.is_default_action else "const" if entry.is_const else "entry"
        told = {"table": table.preamble.name, "kind": kind, "match": match, "priority": entry.priority}
        told |= self._action(entry.action)
        if entry.HasField("counter_data"):
            data = entry.counter_data
            told |= {"packets": data.packet_count, "bytes": data.byte_count}
        return told

    def of_profile(self, entity: p4r.Entity) -> dict[str, Any]:
        """Return a member or a group of an action profile."""
        if entity.WhichOneof("entity") == "action_profile_member":
            member = entity.action_profile_member
            told = {"action_profile": self._profiles[member.action_profile_id], "member": member.member_id}
            return told | self._action(p4r.TableAction(action=member.action))
        group = entity.action_profile_group
        members = [[each.member_id, each.weight] for each in group.members]
        profile = self._profiles[group.action_profile_id]
        return {"action_profile": profile, "group": group.group_id, "members": members}

    def _action(self, action: p4r.TableAction) -> dict[str, Any]:
        match action.WhichOneof("type"):
            case "action":
                described = self._actions[action.action.action_id]
                params = {param.id: param for param in described.params}
                given = {
                    params[found.param_id].name: _value(
                        params[found.param_id].name, params[found.param_id].bitwidth, found.value
                    )
                    for found in action.action.params
                }
                return {"action": described.preamble.name, "params": given}
            case "action_profile_member_id":
                return {"member": action.action_profile_member_id}
            case "action_profile_group_id":
                return {"group": action.action_profile_group_id}
            case "action_profile_action_set":
                actions = action.action_profile_action_set.action_profile_actions
                chosen = (self._action(p4r.TableAction(action=one.action)) for one in actions)
                one_of = [one | {"weight": a.weight} for one, a in zip(chosen, actions, strict=True)]
                mode = action.action_profile_action_set.action_selection_mode
                return {"one_of": one_of, "random": mode == p4r.ActionProfileActionSet.RANDOM}
            case _:  # no default action is set, and the program has none
                return {}


def _match(field: p4i.MatchField, match: p4r.FieldMatch) -> int | str | dict[str, int | str]:
    def value(data: bytes) -> int | str:
        return _value(field.name, field.bitwidth, data)

    match match.WhichOneof("field_match_type"):
        case "lpm":
            return f"{value(match.lpm.value)}/{match.lpm.prefix_len}"
        case "ternary":
            return {"value": value(match.ternary.value), "mask": value(match.ternary.mask)}
        case "range":
            return {"low": value(match.range.low), "high": value(match.range.high)}
        case "optional":
            return value(match.optional.value)
        case _:
            return value(match.exact.value)


def _value(name: str, width: int, data: bytes) -> int | str:
    """Return a value as a number or as the text of an address.

    P4Info does not mark addresses: MAC and IPv6 addresses are recognized by their width, IPv4 ones by the header, too.
    """
    if not width:  # a string: sdn_string in @p4runtime_translation
        return data.decode(errors="replace")
    number = int.from_bytes(data)
    header = name.split(".")[-2] if "." in name else ""
    if width == 48:
        return number.to_bytes(6).hex(":")
    if width == 128:
        return str(IPv6Address(number))
    if width == 32 and header.startswith(("ip", "arp")):
        return str(IPv4Address(number))
    return number


def main(address: str, device_id: str, what: str) -> int:
    """Print what was asked for, and return the exit status."""
    try:
        with Observer(address, int(device_id)) as observer:
            asked = {
                "tables": observer.tables,
                "counters": observer.counters,
                "program": observer.program,
            }
            for found in asked[what]():
                print(json.dumps(found))
    except ControllerError as error:
        print(f"fanin.controller.observer: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
