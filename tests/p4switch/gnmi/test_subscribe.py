"""The messages of subscriptions, and when they are sent."""

import asyncio
import queue

import finsy as fy
import grpc
import pytest
from finsy.proto import gnmi
from hypothesis import given
from hypothesis import strategies as st

from fanin.p4switch.gnmi.paths import select
from fanin.p4switch.gnmi.subscriptions import COUNTERS_EVERY, SHORTEST_INTERVAL, watches
from tests.p4switch.gnmi.conftest import MAX, TIMEOUT, UP, Refused, moved, path

STATUS = "interfaces/interface[name=*]/state/oper-status"
OCTETS = "interfaces/interface[name=s1-eth1]/state/counters/in-octets"
SYNC = gnmi.SubscribeResponse(sync_response=True)


def told(response):
    """Scalars of a notification by the port's name, None: deleted."""
    found = {
        fy.GNMIPath(u.path)["name"]: getattr(u.val, u.val.WhichOneof("value")) for u in response.update.update
    }
    return found | {fy.GNMIPath(deleted)["name"]: None for deleted in response.update.delete}


# On a server


def test_once(client):
    first, second = client.subscribe(STATUS, mode="ONCE")
    assert told(first) == {"s1-eth1": "UP", "s1-eth2": "UP"}
    assert second == SYNC


def test_once_in_json_of_rfc_7951(client):
    first, _ = client.subscribe(OCTETS, mode="ONCE", encoding="JSON_IETF", prefix={"target": "s1"})
    (update,) = first.update.update
    assert update.val.json_ietf_val == b'"100"'
    assert first.update.prefix.target == "s1"


def test_an_interface_that_is_not_there_sends_nothing(client):
    assert list(client.subscribe("interfaces/interface[name=s9]/state", mode="ONCE")) == [SYNC]


def test_poll(client, ports):
    requests = queue.SimpleQueue()
    wanted = gnmi.SubscriptionList(subscription=[gnmi.Subscription(path=path(OCTETS))], mode="POLL")
    requests.put(gnmi.SubscribeRequest(subscribe=wanted))
    answers = client.stub.Subscribe(iter(requests.get, None), timeout=TIMEOUT)
    assert told(next(answers)) == {"s1-eth1": 100}
    assert next(answers) == SYNC
    ports.change("s1-eth1", counters=moved(5))
    requests.put(gnmi.SubscribeRequest(poll={}))
    assert told(next(answers)) == {"s1-eth1": 500}
    assert next(answers) == SYNC
    requests.put(gnmi.SubscribeRequest(subscribe=wanted))
    with pytest.raises(grpc.RpcError) as refused:
        next(answers)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    requests.put(None)


def test_changes_are_told_until_the_caller_leaves(client, ports):
    stream = client.subscribe(STATUS)
    assert told(next(stream)) == {"s1-eth1": "UP", "s1-eth2": "UP"}
    assert next(stream) == SYNC
    ports.set_up("s1-eth2", False)
    assert told(next(stream)) == {"s1-eth2": "DOWN"}
    ports.change("s1-eth1", interface=None)
    assert told(next(stream)) == {"s1-eth1": "NOT_PRESENT"}
    stream.cancel()
    assert ports.nobody_listens.wait(TIMEOUT)
    assert ports.listeners == []


def test_a_leaf_that_goes_is_deleted(client, ports):
    stream = client.subscribe(".../mac-address", updates_only=True)
    assert next(stream) == SYNC
    ports.change("s1-eth1", interface=None)
    assert told(next(stream)) == {"s1-eth1": None}
    ports.change("s1-eth1", interface=UP)
    assert told(next(stream)) == {"s1-eth1": UP.address}
    stream.cancel()


def test_samples(client, ports):
    part = gnmi.Subscription(path=path(OCTETS), mode="SAMPLE", sample_interval=1)
    stream = client.open(gnmi.SubscribeRequest(subscribe={"subscription": [part]}))
    assert [told(next(stream)), next(stream)] == [{"s1-eth1": 100}, SYNC]
    assert told(next(stream)) == {"s1-eth1": 100}
    ports.change("s1-eth1", counters=moved(3))
    assert {"s1-eth1": 300} in (told(next(stream)), told(next(stream)))
    stream.cancel()


def test_an_interval_longer_than_any_wait(client):
    part = gnmi.Subscription(path=path(OCTETS), mode="SAMPLE", sample_interval=2**64 - 1)
    stream = client.open(gnmi.SubscribeRequest(subscribe={"subscription": [part], "updates_only": True}))
    assert next(stream) == SYNC
    stream.cancel()


def subscribed(**fields):
    part = {"path": path(STATUS), "mode": "ON_CHANGE"}
    return gnmi.SubscribeRequest(subscribe={"subscription": [part], **fields})


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        ([gnmi.SubscribeRequest(poll={})], "INVALID_ARGUMENT: the first message"),
        ([gnmi.SubscribeRequest()], "INVALID_ARGUMENT: the first message"),
        ([gnmi.SubscribeRequest(subscribe={})], "INVALID_ARGUMENT: the subscription list is empty"),
        ([subscribed(), subscribed()], "INVALID_ARGUMENT: the stream has a subscription already"),
        ([subscribed(encoding="BYTES")], "UNIMPLEMENTED: encoding BYTES"),
        ([subscribed(mode=8)], "INVALID_ARGUMENT: there is no subscription mode 8"),
        ([subscribed(prefix={"elem": [{"name": "a"}]})], "NOT_FOUND: there is no /a/interfaces/interface"),
        (
            [gnmi.SubscribeRequest(subscribe={"subscription": [{"path": path(STATUS), "mode": 9}]})],
            r"INVALID_ARGUMENT: /interfaces/interface\[name=\*\]/state/oper-status: subscription mode 9",
        ),
    ],
)
def test_what_is_refused(client, requests, why):
    def everything():
        try:
            return list(client.open(*requests))
        except grpc.RpcError as error:
            raise Refused(error) from None

    with pytest.raises(Refused, match=why):
        everything()


def test_more_subscriptions_than_there_may_be(client):
    """Each holds a thread of the server's."""
    streams = []
    for _ in range(MAX):
        streams.append(client.subscribe(STATUS, updates_only=True))
        assert next(streams[-1]) == SYNC
    with pytest.raises(grpc.RpcError) as refused:
        next(client.subscribe(STATUS))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    for stream in streams:
        stream.cancel()


def test_finsys_client(client):
    """The values come as protobuf scalars, though finsy does not say so."""

    async def run(address):
        async with fy.GNMIClient(address) as other:
            subscription = other.subscribe()
            subscription.on_change(fy.GNMIPath(STATUS))
            assert {u.path["name"]: u.value async for u in subscription.synchronize()} == {
                "s1-eth1": "UP",
                "s1-eth2": "UP",
            }
            updates = subscription.updates()
            await other.set(
                update=[(fy.GNMIPath("interfaces/interface[name=s1-eth1]/config/enabled"), False)]
            )
            assert (await anext(updates)).value == "DOWN"
            subscription.cancel()

    asyncio.run(asyncio.wait_for(run(client.address), TIMEOUT))


# In time


def watched(where, **fields):
    selected = select(path(where).elem, ["a", "b"])
    return list(watches(gnmi.Subscription(path=path(where), **fields), selected))


def look(watch, now, **values):
    """Return what is sent when ports a and b have these values."""
    found = watch.look(now, {leaf: values[leaf.name] for leaf in watch.selected})
    return {leaf.name: value for leaf, value in found.items()}


def started(where, **fields):
    (watch,) = watched(where, **fields)
    watch.start(0, dict.fromkeys(watch.selected, 1))
    return watch


STATE, COUNTER = ".../oper-status", ".../in-pkts"


def test_what_changed_is_sent_at_any_news():
    watch = started(STATE, mode="ON_CHANGE")
    assert watch.deadline is None
    assert look(watch, 1, a=1, b=1) == {}
    assert look(watch, 2, a=1, b=2) == {"b": 2}
    assert look(watch, 3, a=None, b=2) == {"a": None}


@pytest.mark.parametrize("mode", ["ON_CHANGE", "TARGET_DEFINED"])
def test_counters_that_changed_are_sent_once_a_second(mode):
    watch = started(COUNTER, mode=mode)
    assert watch.deadline == COUNTERS_EVERY
    assert look(watch, COUNTERS_EVERY - 1, a=2, b=1) == {}
    assert look(watch, COUNTERS_EVERY, a=3, b=1) == {"a": 3}
    assert watch.deadline == 2 * COUNTERS_EVERY


def test_a_node_with_both_is_watched_in_both_ways():
    kinds = [{leaf.leaf.is_counter for leaf in watch.selected} for watch in watched("", mode="ON_CHANGE")]
    assert kinds == [{False}, {True}]


def test_a_heartbeat_sends_everything():
    watch = started(STATE, mode="ON_CHANGE", heartbeat_interval=SHORTEST_INTERVAL)
    assert watch.deadline == SHORTEST_INTERVAL
    assert look(watch, SHORTEST_INTERVAL - 1, a=2, b=1) == {"a": 2}
    assert look(watch, SHORTEST_INTERVAL, a=2, b=1) == {"a": 2, "b": 1}
    assert watch.deadline == 2 * SHORTEST_INTERVAL


@pytest.mark.slow
@given(st.integers(0, 2**64 - 1), st.booleans(), st.lists(st.booleans(), max_size=5))
def test_a_sample_every_interval(interval, suppress, changes):
    watch = started(COUNTER, mode="SAMPLE", sample_interval=interval, suppress_redundant=suppress)
    interval = max(interval, SHORTEST_INTERVAL)
    value = 1
    for number, changed in enumerate(changes, 1):
        assert watch.deadline == number * interval
        value += changed
        assert look(watch, number * interval - 1, a=value, b=1) == {}
        expected = {"a": value} if suppress else {"a": value, "b": 1}
        assert look(watch, number * interval, a=value, b=1) == (expected if changed or not suppress else {})


def test_a_heartbeat_among_samples_without_redundancy():
    watch = started(
        COUNTER,
        mode="SAMPLE",
        sample_interval=SHORTEST_INTERVAL,
        suppress_redundant=True,
        heartbeat_interval=3 * SHORTEST_INTERVAL,
    )
    sent = [look(watch, number * SHORTEST_INTERVAL, a=1, b=1) for number in range(1, 7)]
    assert [bool(values) for values in sent] == [False, False, True] * 2
