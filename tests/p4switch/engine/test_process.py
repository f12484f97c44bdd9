"""A packet's way through a compiled program, as simple_switch would take it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import ActionCall, CounterValue, Entry, EntryKey, Lpm, Replica
from tests.p4switch.conftest import CPU_PORT
from tests.sizes import sized

ROUTER_MAC, NEXT_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
FROM_TEST_NET = 0xC0000200


@pytest.fixture
def router(engine: Callable[[str], Engine]) -> Engine:
    switch = engine("router")
    mac = int(NEXT_MAC.replace(":", ""), 16)
    for prefix, action, args in (
        (0x0A000100, "forward", (mac, 7)),
        (0x0A000200, "replicate", (5,)),
        (0x0A000300, "encapsulate", (0xABCD, 8)),
        (0x0A000400, "decapsulate", (9,)),
        (0x0A000500, "translate", (FROM_TEST_NET, 4444, 3)),
        (0x0A000600, "forward", (mac, CPU_PORT)),
        (0x0A000700, "forward", (mac, 511)),
    ):
        key = EntryKey((Lpm(prefix, 24),))
        switch.table("ingress.routes").insert(Entry(key, ActionCall(f"ingress.{action}", args)))
    return switch


def datagram(destination: str, payload: bytes = b"payload", **fields: Any) -> Packet:
    ip = IP(src="10.0.0.1", dst=destination, ttl=fields.pop("ttl", 64), **fields)
    return Ether(dst=ROUTER_MAC, src="02:00:00:00:00:03") / ip / UDP(sport=1111, dport=2222) / Raw(payload)


def sent(switch: Engine, packet: Packet | bytes, port: int = 1) -> list[tuple[int, Packet]]:
    return [(to, Ether(data)) for to, data in switch.process(port, bytes(packet))]


def assert_checksums(packet: Packet) -> None:
    """IP and UDP checksums are what scapy computes."""
    again = Ether(bytes(packet))
    for layer, name in ((IP, "chksum"), (UDP, "chksum")):
        if again.haslayer(layer):
            delattr(again[layer], name)
    assert bytes(again) == bytes(packet)


def test_forwarding(router: Engine) -> None:
    [(port, packet)] = sent(router, datagram("10.0.1.9"))
    assert port == 7
    assert (packet.dst, packet.src, packet[IP].ttl) == (NEXT_MAC, ROUTER_MAC, 63)
    assert bytes(packet[Raw]) == b"payload"
    assert_checksums(packet)


@settings(max_examples=sized(20, 60))
@given(payload=st.binary(max_size=1500), source=st.integers(0, 2**32 - 1), tos=st.integers(0, 255))
def test_udp_checksums_with_payload(translator: Engine, payload: bytes, source: int, tos: int) -> None:
    """Verified on arrival and computed anew, for payloads of any length, odd ones too."""
    packet = datagram("10.0.5.1", payload, tos=tos)
    packet[IP].src = ".".join(str(b) for b in source.to_bytes(4, "big"))
    [(port, out)] = sent(translator, packet)
    assert port == 3
    assert (out[IP].src, out[UDP].sport) == ("192.0.2.0", 4444)
    assert_checksums(out)


@pytest.fixture(scope="module")
def translator(config: Callable[[str], bytes]) -> Engine:
    switch = Engine.load(config("router"))
    call = ActionCall("ingress.translate", (FROM_TEST_NET, 4444, 3))
    switch.table("ingress.routes").insert(Entry(EntryKey((Lpm(0, 0),)), call))
    return switch


def test_a_wrong_checksum_is_found(router: Engine) -> None:
    good = bytes(datagram("10.0.1.9", bytes(range(100))))
    for at in (24, 40, 60, 141):  # IP checksum, UDP checksum, payload, its last byte
        damaged = bytearray(good)
        damaged[at] ^= 0x10
        assert router.process(1, bytes(damaged)) == []
    assert router.counter("ingress.errors").read(2) == CounterValue(4, 4 * len(good))
    assert router.process(1, good) != []


def test_multicast(router: Engine) -> None:
    """Each copy has its own egress: own replication id, own drop; the original is used up."""
    copies = (Replica(1, 11), Replica(2, 12), Replica(2, 99), Replica(1, 14))
    router.multicast.insert(5, copies)
    packets = sent(router, datagram("10.0.2.1"))
    assert [(port, p[IP].tos) for port, p in packets] == [(1, 11), (2, 12), (1, 14)]
    for _, packet in packets:
        assert packet[IP].ttl == 63
        assert_checksums(packet)
    router.multicast.modify(5, (Replica(4, 1),))
    assert [port for port, _ in sent(router, datagram("10.0.2.1"))] == [4]
    assert router.multicast.all() == {5: (Replica(4, 1),)}
    router.multicast.delete(5)
    assert sent(router, datagram("10.0.2.1")) == []


@settings(max_examples=sized(13, 40))
@given(payload=st.binary(max_size=400), replicas=st.lists(st.integers(0, 255), min_size=1, max_size=5))
def test_a_replica_does_not_show_in_the_next(
    replicating: Engine, payload: bytes, replicas: list[int]
) -> None:
    """A group sends what groups of one replica each send one after the other."""
    packet = bytes(datagram("10.0.2.1", payload))
    group = tuple(Replica(port, instance) for port, instance in enumerate(replicas))
    alone = []
    for replica in group:
        replicating.multicast.modify(5, (replica,))
        alone += replicating.process(1, packet)
    replicating.multicast.modify(5, group)
    assert replicating.process(1, packet) == alone


@pytest.fixture(scope="module")
def replicating(config: Callable[[str], bytes]) -> Engine:
    switch = Engine.load(config("router"))
    switch.table("ingress.routes").insert(
        Entry(EntryKey((Lpm(0, 0),)), ActionCall("ingress.replicate", (5,)))
    )
    switch.multicast.insert(5, ())
    return switch


def test_a_header_is_added_and_removed(router: Engine) -> None:
    original = datagram("10.0.3.1")
    [(port, data)] = router.process(1, bytes(original))
    assert port == 8
    assert data[12:18] == bytes.fromhex("1212abcd0800")
    assert data[:12] + data[16:] == bytes(original)
    inner = datagram("10.0.4.1")
    tunnelled = bytes(inner)[:12] + bytes.fromhex("121200010800") + bytes(inner)[14:]
    assert router.process(1, tunnelled) == [(9, bytes(inner))]


def test_parser_errors(router: Engine) -> None:
    """The parser stops where it was, and the packet goes on, with the error to be seen."""
    whole = bytes(datagram("10.0.1.9"))
    for length in (0, 13, 14 + 19, 14 + 20 + 7):
        assert router.process(1, whole[:length]) == []
    assert router.counter("ingress.errors").read(0).packets == 4
    wrong = bytearray(whole)
    wrong[14] = 0x65
    assert router.process(1, bytes(wrong)) == []
    assert router.counter("ingress.errors").read_all() == [
        CounterValue(4, 13 + 33 + 41),
        CounterValue(1, len(whole)),
        CounterValue(0, 0),
        CounterValue(0, 0),
    ]


def test_what_the_parser_does_not_know_is_payload(router: Engine) -> None:
    request = bytes(
        Ether(dst=ROUTER_MAC, src=NEXT_MAC) / ARP(hwsrc=NEXT_MAC, psrc="10.0.0.2", pdst="10.0.0.1")
    )
    assert router.process(6, request) == [(6, request)]


def test_drops(router: Engine) -> None:
    """mark_to_drop, a miss whose default drops, and an egress_spec equal to the drop port."""
    assert router.process(1, bytes(datagram("10.0.1.9", ttl=1))) == []
    assert router.process(1, bytes(datagram("11.0.0.1"))) == []
    assert router.process(1, bytes(datagram("10.0.7.1"))) == []
    assert router.counter("ingress.errors").read(3).packets == 1


def test_counters_can_be_set(router: Engine) -> None:
    router.counter("ingress.errors").write(3, CounterValue(5, 6))
    assert router.counter("ingress.errors").read(3) == CounterValue(5, 6)


def test_packets_of_every_length(router: Engine) -> None:
    """Up to the longest that IP allows."""
    for size in (0, 1, 1458, 9000, 65507):
        [(port, packet)] = sent(router, datagram("10.0.1.9", bytes(size), flags="DF"))
        assert (port, len(packet)) == (7, 42 + size)
    with pytest.raises(ValueError, match="65600 bytes, not 65601"):
        router.process(1, bytes(65601))


def test_two_switches_share_nothing(config: Callable[[str], bytes]) -> None:
    """The same compiled library, loaded twice."""
    one, other = Engine.load(config("router")), Engine.load(config("router"))
    one.table("ingress.routes").set_default(ActionCall("ingress.forward", (0, 2)))
    assert len(one.process(1, bytes(datagram("10.9.9.9")))) == 1
    assert other.process(1, bytes(datagram("10.9.9.9"))) == []
