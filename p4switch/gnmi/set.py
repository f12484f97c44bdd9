"""gNMI Set: a request is checked as a whole, then carried out completely or not at all (gNMI specification 3.4)."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc

from fanin.p4switch.gnmi.paths import KEY, LIST, absolute, select, text
from fanin.p4switch.gnmi.ports import SwitchPorts
from fanin.p4switch.gnmi.proto import gnmi
from fanin.p4switch.gnmi.schema import ENABLED, LEAVES, MODULES, Leaf, PortState
from fanin.p4switch.gnmi.values import decode
from fanin.p4switch.p4runtime.errors import P4RuntimeError, invalid, not_found, unimplemented

_DEFAULT = True  # of config/enabled
_CODES = {errno.EPERM: grpc.StatusCode.PERMISSION_DENIED, errno.ENODEV: grpc.StatusCode.NOT_FOUND}
_LEAVES = {leaf.path: leaf for leaf in LEAVES}

_Element = gnmi.PathElem


def apply(request: gnmi.SetRequest, ports: SwitchPorts) -> None:
    """Carry out a Set request: deletes, then replaces, then updates.

    Raises:
        P4RuntimeError: If it cannot be carried out. Then nothing is changed.
    """
    if request.union_replace:
        raise unimplemented("union_replace is not supported; write replace or update")
    states = ports.read(ports.names)
    wanted: dict[str, bool] = {}
    for path in request.delete:
        wanted.update(_deleted(absolute(request.prefix, path), ports.names))
    for update in request.replace:
        elements = absolute(request.prefix, update.path)
        written = _written(elements, update.val, states)
        wanted.update(_reset(elements, ports.names))
        wanted.update(written)
    for update in request.update:
        wanted.update(_written(absolute(request.prefix, update.path), update.val, states))
    _bring(wanted, states, ports)


def _bring(wanted: dict[str, bool], states: dict[str, PortState], ports: SwitchPorts) -> None:
    """Bring interfaces up or down. If one fails, restore those before it."""
    done: list[str] = []
    for name, up in wanted.items():
        interface = states[name].interface
        if interface is not None and interface.up == up:
            continue
        try:
            ports.set_up(name, up)
        except OSError as error:
            for back in reversed(done):
                with suppress(OSError):
                    ports.set_up(back, not wanted[back])
            where = f"/{LIST[0]}/{LIST[1]}[{KEY}={name}]/{'/'.join(ENABLED.path)}"
            code = _CODES.get(error.errno or 0, grpc.StatusCode.INTERNAL)
            raise P4RuntimeError(code, f"{where}: {error.strerror}") from error
        done.append(name)


def _deleted(elements: Sequence[_Element], names: Iterable[str]) -> dict[str, bool]:
    """Return the interfaces that a delete changes. Deleting restores the default configuration."""
    back = _reset(elements, names)
    if not back and select(elements, names):
        raise invalid(f"{text(elements)} cannot be deleted: only /{'/'.join(ENABLED.path)} can be written")
    return back


def _reset(elements: Sequence[_Element], names: Iterable[str]) -> dict[str, bool]:
    return {found.name: _DEFAULT for found in select(elements, names) if found.leaf is ENABLED}


def _written(
    elements: Sequence[_Element], value: gnmi.TypedValue, states: dict[str, PortState]
) -> dict[str, bool]:
    """Return the interfaces that an update or replace enables or disables. It must not change other leaves."""
    where = text(elements)
    select(elements, ())  # raises an error unless the path exists
    enabled = {}
    for name, leaf, given in _leaves(_whole(elements, decode(value, where)), where):
        if name not in states:
            raise not_found(f"{where}: there is no interface {name}; there are {', '.join(states) or 'none'}")
        if leaf is ENABLED:
            if not isinstance(given, bool):
                raise invalid(f"{where}: enabled is true or false, not {given!r}")
            enabled[name] = given
        elif not (leaf.is_config and _as_it_is(leaf, given, states[name])):
            raise invalid(f"{where}: {'/'.join(leaf.path)} of {name} cannot be written")
    return enabled


def _as_it_is(leaf: Leaf, given: Any, port: PortState) -> bool:
    value = leaf.value(port)
    return given in (value, f"{leaf.module}:{value}")


def _whole(elements: Sequence[_Element], value: Any) -> Any:
    """Return the value of a node as a value of the whole tree."""
    if any(element.name in ("*", "...") for element in elements):
        raise invalid(f"{text(elements)}: a path to write has no wildcards")
    for at in reversed(range(len(elements))):
        element = elements[at]
        if at + 1 == len(LIST):
            key = element.key.get(KEY, "*")
            if key == "*":
                raise invalid(f"{text(elements)}: name the interface, as in {LIST[1]}[{KEY}=s1-eth1]")
            if not isinstance(value, dict):
                raise invalid(f"{text(elements)}: the value is an object")
            if value.get(KEY, key) != key:
                raise invalid(f"{text(elements)}: the value's {KEY} is {value[KEY]!r}")
            value = [{**value, KEY: key}]
        value = {element.name: value}
    return value


def _leaves(tree: Any, where: str) -> Iterator[tuple[str, Leaf, Any]]:
    """Yield the leaves in a value of the whole tree, each with the name of its interface."""
    for interfaces in _only(LIST[0], tree, where):
        for entries in _only(LIST[1], interfaces, where):
            if not isinstance(entries, list):
                raise invalid(f"{where}: {LIST[1]} is a list")
            for entry in entries:
                members = dict(_members(entry, where))
                if not isinstance(members.get(KEY), str):
                    raise invalid(f"{where}: an {LIST[1]} has no {KEY}")
                for leaf, value in _below((), members, where):
                    yield members[KEY], leaf, value


def _only(name: str, node: Any, where: str) -> Iterator[Any]:
    """Yield the member of that name, if present, and reject all others."""
    for member, value in _members(node, where):
        if member != name:
            raise not_found(f"{where}: there is no {member} next to {name}")
        yield value


def _below(path: tuple[str, ...], node: Any, where: str) -> Iterator[tuple[Leaf, Any]]:
    for name, value in _members(node, where):
        here = (*path, name)
        if here in _LEAVES:
            yield _LEAVES[here], value
        elif any(known[: len(here)] == here for known in _LEAVES):
            yield from _below(here, value, where)
        else:
            raise not_found(f"{where}: there is no {'/'.join(here)} of an interface")


def _members(node: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the members of an object, without the names of their modules."""
    if not isinstance(node, dict):
        raise invalid(f"{where}: {node!r} is not an object")
    for name, value in node.items():
        module, colon, bare = name.rpartition(":")
        if colon and module not in MODULES:
            raise invalid(f"{where}: the module {module} is unknown; there are {', '.join(MODULES)}")
        yield bare, value
