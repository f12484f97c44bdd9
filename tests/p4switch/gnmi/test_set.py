"""The effect of Set: an interface goes up or down; all of a request takes effect, or nothing."""

import errno
import os

import finsy as fy
import pytest
from finsy.proto import gnmi

from tests.p4switch.gnmi.conftest import Refused, path

ENABLED = "interfaces/interface[name={}]/config/enabled"


def write(where, value):
    match value:
        case bool():
            return gnmi.Update(path=path(where), val=gnmi.TypedValue(bool_val=value))
        case str():
            return gnmi.Update(path=path(where), val=gnmi.TypedValue(json_ietf_val=value.encode()))
        case _:
            return gnmi.Update(path=path(where), val=value)


def ups(ports):
    return [state.interface.up for state in ports.states.values()]


@pytest.mark.parametrize("kind", ["update", "replace"])
def test_a_leaf(client, ports, kind):
    client.set(**{kind: [write(ENABLED.format("s1-eth2"), False)]})
    assert ups(ports) == [True, False]
    client.set(**{kind: [write(ENABLED.format("s1-eth2"), "true")]})
    assert ups(ports) == [True, True]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("interfaces/interface[name=s1-eth1]/config", '{"enabled": false}'),
        (
            "interfaces/interface[name=s1-eth1]",
            '{"openconfig-interfaces:config": {"name": "s1-eth1", "enabled": false}}',
        ),
        (
            "interfaces",
            '{"interface": [{"name": "s1-eth1", "config": {"type": "iana-if-type:ethernetCsmacd", "enabled": false}}]}',
        ),
        (
            "",
            '{"openconfig-interfaces:interfaces": {"interface": [{"name": "s1-eth1", "config": {"enabled": false}}]}}',
        ),
    ],
)
def test_a_node_above(client, ports, where, value):
    client.set(update=[write(where, value)])
    assert ups(ports) == [False, True]


def test_replacing_a_node_resets_what_is_not_named(client, ports):
    for name in ports.names:
        ports.set_up(name, False)
    one = '{"interface": [{"name": "s1-eth1", "config": {"enabled": false}}]}'
    client.set(update=[write("interfaces", one)])
    assert ups(ports) == [False, False]
    client.set(replace=[write("interfaces", one)])
    assert ups(ports) == [False, True]


def test_deleting_goes_back_to_the_default(client, ports):
    for name in ports.names:
        ports.set_up(name, False)
    client.set(delete=[path(ENABLED.format("*"))])
    assert ups(ports) == [True, True]


def test_deletes_come_first_and_updates_last(client, ports):
    one = ENABLED.format("s1-eth1")
    response = client.set(delete=[path(one)], replace=[write(one, True)], update=[write(one, False)])
    assert ups(ports) == [False, True]
    assert [result.op for result in response.response] == [
        gnmi.UpdateResult.DELETE,
        gnmi.UpdateResult.REPLACE,
        gnmi.UpdateResult.UPDATE,
    ]
    assert all(fy.GNMIPath(result.path) == fy.GNMIPath(one) for result in response.response)
    assert response.timestamp > 0


def test_an_empty_request_is_none(client):
    assert client.set().response == []


def test_a_prefix(client, ports):
    prefix = path("interfaces/interface[name=s1-eth2]")
    client.set(prefix=prefix, update=[write("config/enabled", False)])
    assert ups(ports) == [True, False]


@pytest.mark.parametrize(
    ("reason", "why"),
    [(errno.EPERM, "PERMISSION_DENIED"), (errno.ENODEV, "NOT_FOUND"), (errno.EBUSY, "INTERNAL")],
)
def test_what_the_kernel_refuses_leaves_nothing_done(client, ports, reason, why):
    ports.fixed["s1-eth2"] = OSError(reason, os.strerror(reason))
    with pytest.raises(Refused, match=rf"{why}: /interfaces/interface\[name=s1-eth2\]/config/enabled"):
        client.set(update=[write(ENABLED.format(name), False) for name in ports.names])
    assert ups(ports) == [True, True]


@pytest.mark.parametrize(
    ("where", "value", "why"),
    [
        (ENABLED.format("s9"), True, "NOT_FOUND: .*no interface s9; there are s1-eth1, s1-eth2"),
        (ENABLED.format("*"), True, "INVALID_ARGUMENT: .*name the interface"),
        ("interfaces/interface/config/enabled", True, "INVALID_ARGUMENT: .*name the interface"),
        (".../enabled", True, "INVALID_ARGUMENT: .*no wildcards"),
        ("interfaces/interface[name=s1-eth1]/config/colour", True, "NOT_FOUND: .*config/colour"),
        ("interfaces/interface[name=s1-eth1]/state/enabled", False, "INVALID_ARGUMENT: .*cannot be written"),
        ("interfaces/interface[name=s1-eth1]/config/id", '"7"', "INVALID_ARGUMENT: .*config/id of s1-eth1"),
        (ENABLED.format("s1-eth1"), '"yes"', "INVALID_ARGUMENT: .*true or false, not 'yes'"),
        (ENABLED.format("s1-eth1"), "tru", "INVALID_ARGUMENT: .*not JSON"),
        (
            ENABLED.format("s1-eth1"),
            b"\xff",
            "INVALID_ARGUMENT: .*not JSON",
        ),
        (ENABLED.format("s1-eth1"), "[" * 100_000, "INVALID_ARGUMENT: .*not JSON"),
        (ENABLED.format("s1-eth1"), None, "INVALID_ARGUMENT: .*has no value"),
        (ENABLED.format("s1-eth1"), gnmi.TypedValue(ascii_val="true"), "UNIMPLEMENTED: .*ascii_val"),
        ("interfaces/interface[name=s1-eth1]", '{"name": "s1-eth2"}', "INVALID_ARGUMENT: .*'s1-eth2'"),
        ("interfaces/interface[name=s1-eth1]", "7", "INVALID_ARGUMENT: .*is an object"),
        ("interfaces/interface[name=s1-eth1]/config", "[]", "INVALID_ARGUMENT: .*not an object"),
        ("interfaces/interface[name=s1-eth1]/config", '{"colour": 1}', "NOT_FOUND: .*config/colour"),
        ("interfaces/interface[name=s1-eth1]/config", '{"acme:enabled": true}', "INVALID_ARGUMENT: .*acme"),
        ("interfaces", '{"interface": {}}', "INVALID_ARGUMENT: .*interface is a list"),
        ("interfaces", '{"interface": [{"config": {"enabled": true}}]}', "INVALID_ARGUMENT: .*no name"),
        ("", '{"system": {}}', "NOT_FOUND: .*no system next to interfaces"),
    ],
)
@pytest.mark.parametrize("kind", ["update", "replace"])
def test_what_is_refused(client, ports, kind, where, value, why):
    if isinstance(value, bytes):
        value = gnmi.TypedValue(json_val=value)
    with pytest.raises(Refused, match=why):
        client.set(**{kind: [write(ENABLED.format("s1-eth2"), False), write(where, value)]})
    assert ups(ports) == [True, True]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"delete": [path("interfaces/interface[name=s1-eth1]/state")]}, "INVALID_ARGUMENT: .*be deleted"),
        ({"delete": [path("interfaces/nothing")]}, "NOT_FOUND: there is no /interfaces/nothing"),
        ({"union_replace": [write("interfaces", "{}")]}, "UNIMPLEMENTED: union_replace"),
    ],
)
def test_what_else_is_refused(client, fields, why):
    with pytest.raises(Refused, match=why):
        client.set(**fields)


def test_deleting_what_is_not_there_is_no_error(client):
    client.set(delete=[path(ENABLED.format("s9"))])
