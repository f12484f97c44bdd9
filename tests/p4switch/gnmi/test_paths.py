"""Paths select what they say, and whatever a request has in it, it is done or refused with a code."""

import json

import pytest
from finsy.proto import gnmi
from hypothesis import given
from hypothesis import strategies as st

from fanin.p4switch.gnmi.paths import path_of, select, text
from fanin.p4switch.gnmi.schema import LEAVES
from fanin.p4switch.gnmi.service import GnmiService
from fanin.p4switch.p4runtime.errors import P4RuntimeError
from tests.p4switch.gnmi.conftest import Ports, path

PORTS = ("a", "b")


def found(where):
    """Return what a path selects, as text."""
    elements = path(where).elem
    return {text(path_of(s, len(s.leaf.path) + 2).elem) for s in select(elements, PORTS)}


@pytest.mark.parametrize(
    ("where", "leaves"),
    [
        (
            "interfaces/interface[name=a]/ethernet",
            ["interface[name=a]/ethernet/state/port-speed", "interface[name=a]/ethernet/state/mac-address"],
        ),
        ("interfaces/interface/name", ["interface[name=a]/name", "interface[name=b]/name"]),
        ("interfaces/*[name=b]/*/id", ["interface[name=b]/config/id", "interface[name=b]/state/id"]),
        (
            "interfaces/interface[name=*]/config/enabled",
            ["interface[name=a]/config/enabled", "interface[name=b]/config/enabled"],
        ),
        (".../oper-status", ["interface[name=a]/state/oper-status", "interface[name=b]/state/oper-status"]),
        (".../interface[name=a]/.../in-errors", ["interface[name=a]/state/counters/in-errors"]),
        ("interfaces/interface[name=c]", []),
    ],
)
def test_what_a_path_selects(where, leaves):
    assert found(where) == {f"/interfaces/{leaf}" for leaf in leaves}


@pytest.mark.parametrize("where", ["", "...", "*", "interfaces", "interfaces/interface", "interfaces/..."])
def test_everything(where):
    assert len(found(where)) == len(PORTS) * len(LEAVES)


@given(st.sampled_from(LEAVES), st.sampled_from(PORTS), st.data())
def test_a_node_selects_what_is_below_it(leaf, port, data):
    (whole,) = (s for s in select([], PORTS) if s.leaf is leaf and s.name == port)
    depth = data.draw(st.integers(0, len(leaf.path) + 2))
    node = path_of(whole, depth)
    below = select(node.elem, PORTS)
    assert {s.depth for s in below} == {depth}
    assert {(s.name, s.leaf) for s in below} == {
        (name, other)
        for name in PORTS
        for other in LEAVES
        if (name == port or depth < 2) and ("i", "i", *other.path)[:depth] == ("i", "i", *leaf.path)[:depth]
    }


NAMES = st.sampled_from(
    ["interfaces", "interface", "config", "state", "enabled", "name", "counters", "*", "...", "x"]
)
KEYS = st.dictionaries(
    st.sampled_from(["name", "id"]), st.sampled_from(["s1-eth1", "*", "", "x"]), max_size=2
)
ELEMENTS = st.lists(st.builds(gnmi.PathElem, name=NAMES, key=KEYS), max_size=5)
PATHS = st.builds(gnmi.Path, elem=ELEMENTS, origin=st.sampled_from(["", "openconfig", "x"])) | st.just(
    path("interfaces/interface[name=s1-eth1]")
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["s1-eth1", "UP"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["interfaces", "interface", "name", "config", "enabled", "a:b"]), inner
        )
    ),
    max_leaves=8,
)
VALUES = (
    st.builds(gnmi.TypedValue, bool_val=st.booleans())
    | st.builds(gnmi.TypedValue, json_val=st.binary(max_size=4) | JSON.map(lambda v: json.dumps(v).encode()))
    | st.builds(gnmi.TypedValue, string_val=st.text(max_size=3))
    | st.builds(gnmi.TypedValue, leaflist_val=st.builds(gnmi.ScalarArray))
    | st.builds(gnmi.TypedValue)
)
UPDATES = st.lists(st.builds(gnmi.Update, path=PATHS, val=VALUES), max_size=2)
NUMBERS = st.integers(0, 6)


def done(call, request):
    """The answer; None: it was refused with a code that says why."""
    try:
        return call(request)
    except P4RuntimeError as refused:
        if refused.code.name not in ("INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"):
            raise
        return None


@given(st.builds(gnmi.GetRequest, prefix=PATHS, path=st.lists(PATHS), type=NUMBERS, encoding=NUMBERS))
def test_whatever_is_got(request):
    answer = done(GnmiService(Ports()).get, request)
    assert answer is None or len(answer.notification) == len(request.path)


@pytest.mark.slow
@given(
    st.builds(
        gnmi.SetRequest, prefix=PATHS, delete=st.lists(PATHS, max_size=2), replace=UPDATES, update=UPDATES
    )
)
def test_whatever_is_set(request):
    ports = Ports()
    before = dict(ports.states)
    assert done(GnmiService(ports).set, request) is not None or ports.states == before
