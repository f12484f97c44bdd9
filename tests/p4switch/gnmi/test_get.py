"""The answers to Get and Capabilities."""

import json

import finsy as fy
import pytest
from finsy.proto import gnmi

from tests.p4switch.gnmi.conftest import Refused, path


def values(updates):
    """Scalars by path."""
    return {str(fy.GNMIPath(u.path)): getattr(u.val, u.val.WhichOneof("value")) for u in updates}


def test_capabilities(client):
    answer = client.call(client.stub.Capabilities, gnmi.CapabilityRequest())
    assert {model.name for model in answer.supported_models} == {
        "openconfig-interfaces",
        "openconfig-if-ethernet",
        "openconfig-p4rt",
    }
    assert set(answer.supported_encodings) == {gnmi.JSON, gnmi.JSON_IETF, gnmi.PROTO}
    assert answer.gNMI_version == "0.10.0"


def test_a_leaf_of_every_port(client):
    assert values(client.get("interfaces/interface[name=*]/state/ifindex")) == {
        "interfaces/interface[name=s1-eth1]/state/ifindex": 1,
        "interfaces/interface[name=s1-eth2]/state/ifindex": 2,
    }


def test_the_leaves_of_a_port(client):
    found = values(client.get("interfaces/interface[name=s1-eth2]"))
    below = {at.removeprefix("interfaces/interface[name=s1-eth2]/"): value for at, value in found.items()}
    counters = {at.removeprefix("state/counters/"): below.pop(at) for at in list(below) if "counters" in at}
    assert below == {
        "name": "s1-eth2",
        **{
            f"{place}/{leaf}": value
            for place in ("config", "state")
            for leaf, value in {
                "name": "s1-eth2",
                "type": "ethernetCsmacd",
                "enabled": True,
                "id": 2,
            }.items()
        },
        "state/ifindex": 2,
        "state/admin-status": "UP",
        "state/oper-status": "UP",
        "state/last-change": 7,
        "ethernet/state/port-speed": "SPEED_10GB",
        "ethernet/state/mac-address": "02:00:00:00:00:01",
    }
    assert {name: value for name, value in counters.items() if value} == {
        "in-octets": 200,
        "in-pkts": 2,
        "in-unicast-pkts": 1,
        "in-broadcast-pkts": 1,
        "carrier-transitions": 1,
    }


def test_an_interface_that_is_gone_has_what_needs_no_interface(client, ports):
    ports.change("s1-eth1", interface=None)
    found = values(client.get("interfaces/interface[name=s1-eth1]/state/oper-status", ".../mac-address"))
    assert found == {
        "interfaces/interface[name=s1-eth1]/state/oper-status": "NOT_PRESENT",
        "interfaces/interface[name=s1-eth2]/ethernet/state/mac-address": "02:00:00:00:00:01",
    }


def one(updates):
    """The path and the JSON value of the only update."""
    (update,) = updates
    value = getattr(update.val, update.val.WhichOneof("value"))
    return str(fy.GNMIPath(update.path)), json.loads(value)


@pytest.mark.parametrize(
    ("where", "at", "value"),
    [
        (".../port-speed", "interfaces/interface[name=s1-eth1]/ethernet/state/port-speed", "SPEED_10GB"),
        (
            "interfaces/interface[name=s1-eth1]/ethernet",
            "interfaces/interface[name=s1-eth1]/ethernet",
            {"state": {"port-speed": "SPEED_10GB", "mac-address": "02:00:00:00:00:01"}},
        ),
    ],
)
def test_json_of_a_node(client, ports, where, at, value):
    del ports.states["s1-eth2"]
    assert one(client.get(where, encoding="JSON")) == (at, value)


def test_json_of_rfc_7951_has_modules_and_wide_numbers_as_text(client, ports):
    del ports.states["s1-eth2"]
    at, entry = one(client.get("interfaces/interface", encoding="JSON_IETF"))
    assert at == "interfaces/interface[name=s1-eth1]"
    assert entry["openconfig-interfaces:state"]["counters"]["in-octets"] == "100"
    assert entry["openconfig-interfaces:state"]["ifindex"] == 1
    assert entry["openconfig-interfaces:config"]["openconfig-p4rt:id"] == 1
    assert entry["openconfig-interfaces:config"]["type"] == "iana-if-type:ethernetCsmacd"
    assert (
        entry["openconfig-if-ethernet:ethernet"]["state"]["port-speed"] == "openconfig-if-ethernet:SPEED_10GB"
    )
    _, whole = one(client.get("interfaces", encoding="JSON_IETF"))
    (listed,) = whole["openconfig-interfaces:interface"]
    assert listed["state"]["counters"] == entry["openconfig-interfaces:state"]["counters"]
    _, root = one(client.get("", encoding="JSON_IETF"))
    assert root == {"openconfig-interfaces:interfaces": {"interface": [listed]}}


def test_a_notification_for_each_path(client):
    request = gnmi.GetRequest(
        prefix=gnmi.Path(target="s1", elem=path("interfaces/interface[name=s1-eth1]").elem),
        path=[path("state/id"), path("config/id")],
        encoding="PROTO",
    )
    first, second = client.call(client.stub.Get, request).notification
    assert [str(fy.GNMIPath(n.update[0].path)) for n in (first, second)] == [
        "interfaces/interface[name=s1-eth1]/state/id",
        "interfaces/interface[name=s1-eth1]/config/id",
    ]
    assert first.prefix.target == "s1"
    assert 0 < first.timestamp <= second.timestamp


@pytest.mark.parametrize(
    ("kind", "has", "has_not"),
    [
        ("CONFIG", ["config/enabled", "name"], ["state/enabled", "state/oper-status"]),
        ("STATE", ["state/enabled", "state/oper-status"], ["config/enabled", "name"]),
        ("OPERATIONAL", ["state/oper-status"], ["state/enabled", "config/enabled"]),
    ],
)
def test_types_of_data(client, kind, has, has_not):
    found = values(client.get("interfaces/interface[name=s1-eth1]", type=kind))
    leaves = {at.removeprefix("interfaces/interface[name=s1-eth1]/") for at in found}
    assert leaves.issuperset(has)
    assert leaves.isdisjoint(has_not)


def test_models_leave_out_what_they_do_not_have(client):
    where = "interfaces/interface[name=s1-eth1]/state"
    found = values(client.get(where, use_models=[gnmi.ModelData(name="openconfig-interfaces")]))
    assert f"{where}/ifindex" in found
    assert f"{where}/id" not in found


@pytest.mark.parametrize(
    ("paths", "fields", "why"),
    [
        (["system"], {}, "NOT_FOUND: there is no /system"),
        (
            ["interfaces/interface/state/colour"],
            {},
            "NOT_FOUND: there is no /interfaces/interface/state/colour",
        ),
        (
            ["interfaces/interface[name=s9]/state"],
            {},
            r"NOT_FOUND: .*s9\]/state; interfaces: s1-eth1, s1-eth2",
        ),
        (["interfaces[name=s1-eth1]/interface"], {}, "NOT_FOUND"),
        (["interfaces/interface[id=3]"], {}, r"INVALID_ARGUMENT: .*\[id=3\]: an interface has the key name"),
        ([], {}, "INVALID_ARGUMENT: the request has no path"),
        (["interfaces"], {"type": 9}, "INVALID_ARGUMENT: there is no data type 9"),
        (["interfaces"], {"encoding": "ASCII"}, "UNIMPLEMENTED: encoding ASCII"),
        (["interfaces"], {"encoding": 77}, "UNIMPLEMENTED: encoding 77"),
        (["interfaces"], {"use_models": [{"name": "acme"}]}, "INVALID_ARGUMENT: unknown models: acme"),
        (["interfaces"], {"prefix": {"origin": "cli"}}, "INVALID_ARGUMENT: .*origin 'cli'"),
        (["interfaces"], {"prefix": {"element": ["a", "b"]}}, "INVALID_ARGUMENT: /a/b: .*elem"),
    ],
)
def test_what_is_refused(client, paths, fields, why):
    with pytest.raises(Refused, match=why):
        client.get(*paths, **fields)
