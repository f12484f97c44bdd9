"""The state machine of docs/reference/protocol.md, rule by rule, through the compiled program."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether

from tests.p4src.switch_under_test import (
    BASE,
    PARENT_IP,
    PARENT_MAC,
    PARENT_PORT,
    RESULT,
    SIZES,
    SLOTS,
    SWITCH_IP,
    SWITCH_MAC,
    UDP_PORT,
    Child,
    Message,
    SwitchUnderTest,
    block,
    decode,
    ipv4,
    mac,
    parent_frame,
    saturating_sum,
)
from tests.sizes import sized

LEASES = itertools.count(1)


class TestRoot:
    @pytest.mark.parametrize("count", SIZES)
    def test_the_last_update_is_answered_with_the_sum_to_every_child(
        self, switch: SwitchUnderTest, count: int
    ) -> None:
        one, two, three = switch.join(3)
        values = [block(n, -n, 1000 * n, count=count) for n in (1, 2, 3)]
        assert switch.send(one, Message(values[0])) == []
        assert switch.send(two, Message(values[1])) == []
        results = switch.send(three, Message(values[2]))
        expected = Message(block(6, -6, 6000, count=count), type=RESULT, size=SIZES[count])
        assert sorted(results, key=lambda item: item[0]) == [
            (child.port, expected) for child in (one, two, three)
        ]
        assert switch.events() == {"NEW_CHUNK": 1, "ADDED": 2, "COMPLETED": 1}
        assert switch.drops() == {}

    def test_every_value_has_a_sum_of_its_own(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(tuple(range(256))))
        results = switch.send(two, Message(tuple(1000 * i for i in range(256))))
        assert results[0][1].values == tuple(1001 * i for i in range(256))

    def test_every_value_of_16_bits_has_a_sum_of_its_own(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(tuple(-i for i in range(512))))
        results = switch.send(two, Message(tuple(30 * i for i in range(512))))
        assert results[0][1].values == tuple(29 * i for i in range(512))
        assert results[0][1].saturated == 0

    def test_results_come_from_the_switch_and_go_to_each_childs_own_address(
        self, switch: SwitchUnderTest
    ) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(1)))
        for port, frame in switch.engine.process(two.port, two.frame(Message(block(1)))):
            packet = Ether(frame)
            child = Child(port)
            assert (packet.src, packet.dst) == (SWITCH_MAC, child.mac)
            assert (packet[IP].src, packet[IP].dst) == (SWITCH_IP, child.ip)
            assert (packet[UDP].sport, packet[UDP].dport) == (UDP_PORT, UDP_PORT)
            assert decode(frame).values == block(2)

    @pytest.mark.parametrize(("first", "second"), [(-3, -120), (-120, -3), (-3, -3)])
    def test_the_larger_exponent_wins_and_exponents_are_signed(
        self, switch: SwitchUnderTest, first: int, second: int
    ) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(0), exponents=(first, 0)))
        results = switch.send(two, Message(block(0), exponents=(second, 0)))
        assert {message.exponents for _, message in results} == {(-3, 0)}

    @pytest.mark.parametrize(("first", "second"), [(0x80, 0), (0, 0x80), (0x80, 0x80)])
    def test_what_one_cannot_quantize_the_sum_cannot_have(
        self, switch: SwitchUnderTest, first: int, second: int
    ) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(0), exponents=(0, first)))
        result = Message(block(0), RESULT, size=1, exponents=(0, 0x80))
        assert {m for _, m in switch.send(two, Message(block(0), exponents=(0, second)))} == {result}
        assert switch.send(one, Message(block(0), exponents=(0, first))) == [(one.port, result)]

    def test_one_child_is_answered_at_once(self, switch: SwitchUnderTest) -> None:
        (only,) = switch.join(1)
        assert switch.send(only, Message(block(5))) == [(only.port, Message(block(5), type=RESULT, size=1))]

    def test_thirty_two_children_fit_one_switch(self, switch: SwitchUnderTest) -> None:
        children = switch.join(32)
        for child in children[:-1]:
            assert switch.send(child, Message(block(child.number))) == []
        results = switch.send(children[-1], Message(block(32)))
        assert len(results) == 32
        assert {message.values for _, message in results} == {block(sum(range(33)))}

    def test_versions_and_slots_are_apart(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        cells = [(version, slot) for version in (0, 1) for slot in (BASE, BASE + SLOTS - 1)]
        for number, (version, slot) in enumerate(cells):
            switch.send(one, Message(block(number), version=version, slot=slot))
        for number, (version, slot) in enumerate(cells):
            results = switch.send(two, Message(block(100), version=version, slot=slot))
            assert results[0][1] == Message(block(100 + number), RESULT, size=1, version=version, slot=slot)


class TestSaturation:
    @pytest.mark.parametrize("limit", [2**31 - 1, -(2**31)])
    def test_sums_stop_at_the_limits_and_say_so(self, switch: SwitchUnderTest, limit: int) -> None:
        one, two = switch.join(2)
        sign = 1 if limit > 0 else -1
        switch.send(one, Message(block(limit, 5)))
        results = switch.send(two, Message(block(sign, 6)))
        assert results[0][1].values == block(limit, 11)
        assert results[0][1].saturated == 1
        assert switch.events()["SATURATED"] == 1

    def test_a_sum_that_just_fits_is_not_saturated(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(2**31 - 2, -(2**31) + 1)))
        results = switch.send(two, Message(block(1, -1)))
        assert results[0][1] == Message(block(2**31 - 1, -(2**31)), RESULT, size=1)

    @pytest.mark.parametrize("limit", [2**15 - 1, -(2**15)])
    def test_sums_of_16_bits_stop_at_their_own_limits(self, switch: SwitchUnderTest, limit: int) -> None:
        one, two = switch.join(2)
        sign = 1 if limit > 0 else -1
        for place, values in enumerate(((limit, 5, -1, 0), (5, limit, 0, -1))):
            switch.send(one, Message(block(*values, count=128), slot=BASE + place))
            other = tuple(sign if value == limit else 6 for value in values)
            [(_, first), _] = switch.send(two, Message(block(*other, count=128), slot=BASE + place))
            sums = [limit if value == limit else value + 6 for value in values]
            assert first.values == block(*sums, count=128)
            assert first.saturated == 1
        assert switch.events()["SATURATED"] == 2

    def test_sums_of_16_bits_that_just_fit_are_not_saturated(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(2**15 - 2, -(2**15) + 1, -1, 1, count=512)))
        results = switch.send(two, Message(block(1, -1, 1, -1, count=512)))
        assert results[0][1] == Message(block(2**15 - 1, -(2**15), 0, 0, count=512), RESULT, size=7)

    def test_integers_of_other_bits_are_not_added(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(1)))
        assert switch.send(two, Message(block(1, count=128))) == []
        assert switch.drops() == {"BAD_SIZE": 1}

    @pytest.mark.parametrize("place", [0, 63, 64, 255])
    def test_one_value_in_any_block_is_enough(self, switch: SwitchUnderTest, place: int) -> None:
        one, two = switch.join(2)
        values = [0] * 256
        values[place] = 2**31 - 1
        switch.send(one, Message(tuple(values)))
        assert switch.send(two, Message(tuple(values)))[0][1].saturated == 1

    def test_it_is_remembered_for_those_who_ask_again(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(2**31 - 1)))
        switch.send(two, Message(block(2**31 - 1)))
        assert switch.send(one, Message(block(2**31 - 1)))[0][1].saturated == 1

    def test_it_is_taken_over_from_a_partial_sum(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(1), saturated=1))
        assert switch.send(two, Message(block(1)))[0][1].saturated == 1

    def test_a_new_chunk_starts_without_it(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        for child in (one, two):
            switch.send(child, Message(block(2**31 - 1)))
        switch.send(one, Message(block(1), chunk=2))
        assert switch.send(two, Message(block(1), chunk=2))[0][1].saturated == 0


class TestRetransmission:
    def test_before_the_chunk_is_complete_it_is_dropped(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(1)))
        assert switch.send(one, Message(block(1))) == []
        assert switch.drops() == {"DUPLICATE": 1}
        assert switch.send(two, Message(block(2)))[0][1].values == block(3)

    def test_afterwards_the_stored_result_goes_to_that_child_alone(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(1, count=256), exponents=(3, 0)))
        switch.send(two, Message(block(2, count=256), exponents=(5, 0)))
        result = Message(block(3, count=256), RESULT, size=3, exponents=(5, 0))
        for _ in range(2):
            assert switch.send(one, Message(block(1, count=256), exponents=(3, 0))) == [(one.port, result)]
        assert switch.send(two, Message(block(2, count=256), exponents=(5, 0))) == [(two.port, result)]
        assert switch.events()["SERVED_AGAIN"] == 3

    def test_a_late_duplicate_of_an_old_chunk_touches_nothing(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        for child in (one, two):
            switch.send(child, Message(block(1), chunk=1))
        switch.send(one, Message(block(10), chunk=17))
        assert switch.send(two, Message(block(1), chunk=1)) == []
        assert switch.drops() == {"OLD_CHUNK": 1}
        assert switch.send(two, Message(block(20), chunk=17))[0][1].values == block(30)


class TestNewChunk:
    def test_it_overwrites_without_a_reset(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        for chunk in range(1, 6):
            switch.send(one, Message(block(chunk), chunk=chunk, exponents=(10 - chunk, 0)))
            results = switch.send(two, Message(block(chunk), chunk=chunk, exponents=(-9, 0)))
            assert results[0][1].values == block(2 * chunk)
            assert results[0][1].exponents == (10 - chunk, 0)

    def test_it_overwrites_an_incomplete_one(self, switch: SwitchUnderTest) -> None:
        """As a late duplicate makes one in registers that were lost; dropped, the new chunk would wait for ever."""
        one, two = switch.join(2)
        switch.send(one, Message(block(1), chunk=1))
        assert switch.send(one, Message(block(9), chunk=2)) == []
        assert switch.send(two, Message(block(2), chunk=1)) == []
        assert switch.send(two, Message(block(8), chunk=2))[0][1].values == block(17)
        assert switch.drops() == {"OLD_CHUNK": 1}

    def test_a_new_lease_makes_old_state_stale(self, switch: SwitchUnderTest) -> None:
        one, _ = switch.join(2, lease=1)
        switch.send(one, Message(block(1), lease=1, chunk=500))
        switch.leave(1)
        one, two = switch.join(2, lease=2)
        assert switch.send(one, Message(block(7), lease=1, chunk=500)) == []
        assert switch.drops() == {"NOT_ADMITTED": 1}
        switch.send(one, Message(block(7), lease=2, chunk=0))
        assert switch.send(two, Message(block(8), lease=2, chunk=0))[0][1].values == block(15)

    def test_chunk_numbers_are_unsigned(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        for chunk in (2**31 - 1, 2**31, 2**32 - 1):
            switch.send(one, Message(block(1), chunk=chunk))
            assert len(switch.send(two, Message(block(1), chunk=chunk))) == 2


class TestReuse:
    """A lease's id is granted again, with other chunk numbers."""

    def regrant(self, switch: SwitchUnderTest, chunks: range) -> list[Child]:
        switch.leave(1)
        return switch.join(2, chunks=chunks)

    @pytest.mark.parametrize("done", [False, True])
    @pytest.mark.parametrize(
        ("before", "after"), [((0, 100), (100, 200)), ((100, 200), (0, 100))], ids=["later", "earlier"]
    )
    def test_nothing_of_the_first_job_is_in_the_sum_of_the_second(
        self, switch: SwitchUnderTest, before: tuple[int, int], after: tuple[int, int], done: bool
    ) -> None:
        one, two = switch.join(2, chunks=range(*before))
        switch.send(one, Message(block(1), chunk=before[0] + 5))
        if done:
            switch.send(two, Message(block(2), chunk=before[0] + 5))
        one, two = self.regrant(switch, range(*after))
        assert switch.send(one, Message(block(100), chunk=after[0])) == []
        assert switch.send(two, Message(block(200), chunk=after[0]))[0][1].values == block(300)
        assert switch.drops() == {}

    def test_packets_of_the_first_job_are_refused(self, switch: SwitchUnderTest) -> None:
        switch.join(2, chunks=range(100))
        one, two = self.regrant(switch, range(100, 200))
        for chunk in (0, 99, 200, 2**32 - 1):
            assert switch.send(one, Message(block(1), chunk=chunk)) == []
        assert switch.drops() == {"BAD_CHUNK": 4}
        for chunk in (100, 199):
            switch.send(one, Message(block(1), chunk=chunk))
            assert len(switch.send(two, Message(block(1), chunk=chunk))) == 2

    @pytest.mark.slow
    @pytest.mark.parametrize("root", [True, False])
    def test_packets_of_a_revoked_lease_touch_nothing_of_the_job_that_has_its_slots(
        self, switch: SwitchUnderTest, root: bool
    ) -> None:
        one, two = switch.join(2, root=root, lease=1, chunks=range(100))
        old = [Message(block(1), lease=1, chunk=chunk) for chunk in range(100)]
        switch.send(one, old[0])
        switch.leave(1)
        switch.join(2, root=root, lease=2, chunks=range(100))
        switch.send(one, Message(block(10), lease=2))
        for message in old:
            assert switch.send(one, message) == switch.send(two, message) == []
            assert switch.send_from_parent(replace(message, type=RESULT)) == []
        assert switch.drops() == {"NOT_ADMITTED": 300}
        [(_, total), *_] = switch.send(two, Message(block(20), lease=2))
        assert total.values == block(30)

    def test_the_parents_results_for_the_first_job_too(self, switch: SwitchUnderTest) -> None:
        switch.join(2, root=False, chunks=range(100))
        switch.leave(1)
        switch.join(2, root=False, chunks=range(100, 200))
        assert switch.send_from_parent(Message(block(9), RESULT, chunk=5)) == []
        assert switch.drops() == {"BAD_CHUNK": 1}


class TestLostRegisters:
    """A switch forgets its cells and keeps its tables."""

    def test_a_child_whose_part_is_forgotten_is_served_the_parents_result(
        self, switch: SwitchUnderTest
    ) -> None:
        one, two = switch.join(2, root=False)
        for child, value in ((one, 10), (two, 20)):
            switch.send(child, Message(block(value)))
        switch.lose_registers()
        switch.send(one, Message(block(10)))  # a retransmission
        result = Message(block(1030), RESULT, size=1)
        assert len(switch.send_from_parent(result)) == 2
        assert switch.send(two, Message(block(20))) == [(two.port, result)]

    def test_an_old_duplicate_that_came_first_does_not_stop_the_next_chunk(
        self, switch: SwitchUnderTest
    ) -> None:
        one, two = switch.join(2)
        for chunk in (1, 3):
            for child in (one, two):
                switch.send(child, Message(block(chunk), chunk=chunk))
        switch.lose_registers()
        switch.send(one, Message(block(1), chunk=1))  # was under way for long
        switch.send(one, Message(block(5), chunk=5))
        assert switch.send(two, Message(block(5), chunk=5))[0][1].values == block(10)


class TestMismatch:
    """The workers make different calls: what their packets say of the call differs, and nothing is added up."""

    def test_what_is_of_another_call_is_never_added(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(1), call=1))
        assert switch.send(two, Message(block(2), call=2)) == []
        assert switch.drops() == {"MISMATCH": 1}
        assert switch.send(two, Message(block(2), call=1))[0][1].values == block(3)

    @pytest.mark.parametrize("bit", range(32))
    def test_every_bit_of_the_call_counts(self, switch: SwitchUnderTest, bit: int) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(1), call=0x12345678))
        assert switch.send(two, Message(block(2), call=0x12345678 ^ 1 << bit)) == []
        assert switch.drops() == {"MISMATCH": 1}

    def test_nor_does_it_get_another_ones_result(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        for child in (one, two):
            switch.send(child, Message(block(1), call=1))
        assert switch.send(two, Message(block(1), call=2)) == []
        assert switch.drops() == {"MISMATCH": 1}

    def test_a_result_of_another_call_is_not_passed_down(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2, root=False)
        for child in (one, two):
            switch.send(child, Message(block(1), call=1))
        assert switch.send_from_parent(Message(block(2), RESULT, call=2)) == []
        assert switch.drops() == {"MISMATCH": 1}


class TestOrdinaryTraffic:
    """UDP between hosts may use the same ports: Linux takes ephemeral ones from that range."""

    NEXT = "02:00:00:00:01:63"

    @pytest.mark.parametrize("port", [0xBEE0, 0xBEE7, 0xBEEF])
    @pytest.mark.parametrize("length", [0, 8, 100, 270, 1038, 1400])
    def test_it_passes_unchanged(self, switch: SwitchUnderTest, length: int, port: int) -> None:
        one, _ = switch.join(2)
        switch.route("10.0.0.99", 32, "forward", mac(self.NEXT), 5)
        payload = bytes(range(256)) * 6
        addresses = IP(src=one.ip, dst="10.0.0.99", ttl=64)
        sent = Ether(src=one.mac, dst=SWITCH_MAC) / addresses / UDP(sport=UDP_PORT, dport=port)
        ((out, frame),) = switch.engine.process(one.port, bytes(sent / payload[:length]))
        expected = sent / payload[:length]
        expected[Ether].src, expected[Ether].dst, expected[IP].ttl = SWITCH_MAC, self.NEXT, 63
        assert (out, frame) == (5, bytes(expected))
        assert switch.events() == {}

    def test_an_update_to_another_switch_is_not_added_up_here(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.route("10.0.1.254", 32, "forward", mac(self.NEXT), 5)
        packet = Ether(one.frame(Message(block(1))))
        packet[IP].dst = "10.0.1.254"
        del packet[IP].chksum, packet[UDP].chksum
        assert [port for port, _ in switch.engine.process(one.port, bytes(packet))] == [5]
        switch.send(one, Message(block(1)))
        assert switch.send(two, Message(block(1)))[0][1].values == block(2)


class TestStrangers:
    """A host that is not a member of the job cannot change its sums (SECURITY.md)."""

    def test_a_result_in_the_name_of_a_switch_reaches_nobody(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.route(two.ip, 32, "forward", mac(two.mac), two.port)
        switch.insert("ingress.forwarding.switches", (ipv4(SWITCH_IP),), "forged")
        addresses = IP(src=SWITCH_IP, dst=two.ip) / UDP(sport=UDP_PORT, dport=UDP_PORT)
        forged = Ether(src=one.mac, dst=SWITCH_MAC) / addresses / Message(block(9), RESULT).encode()
        assert switch.engine.process(one.port, bytes(forged)) == []
        assert switch.drops() == {"FORGED": 1}

    def test_what_a_switch_itself_sends_under_an_old_lease_is_not_called_forged(
        self, switch: SwitchUnderTest
    ) -> None:
        switch.join(2, root=False)
        switch.insert("ingress.forwarding.switches", (ipv4(PARENT_IP),), "forged")
        assert switch.send_from_parent(Message(block(9), RESULT, lease=2)) == []
        assert switch.drops() == {"NOT_ADMITTED": 1}

    def test_updates_in_a_members_name_come_in_by_the_wrong_port(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        stranger = 7
        switch.send(one, Message(block(1)))
        for member in (one, two):
            assert switch.engine.process(stranger, member.frame(Message(block(666)))) == []
        assert switch.send(two, Message(block(2)))[0][1].values == block(3)

    @pytest.mark.parametrize("root", [True, False])
    def test_what_was_recorded_changes_nothing_when_it_is_replayed(
        self, switch: SwitchUnderTest, root: bool
    ) -> None:
        one, two = switch.join(2, root=root)
        recorded = [(c, Message(block(9), chunk=chunk)) for chunk in (1, 2) for c in (one, two)]
        for child, message in recorded:
            switch.send(child, message)
            if not root and child == two:
                switch.send_from_parent(replace(message, type=RESULT))
        switch.send(one, Message(block(1), chunk=3))
        for child, message in recorded * 3:
            assert switch.send(child, message) == []
        (_, result), *_ = switch.send(two, Message(block(2), chunk=3))
        assert result.values == block(3)

    @given(noise=st.lists(st.tuples(st.integers(1, 9), st.binary(max_size=1200)), max_size=60))
    @settings(
        max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    )
    def test_a_flood_of_anything_changes_no_sum(
        self, switch: SwitchUnderTest, noise: list[tuple[int, bytes]]
    ) -> None:
        """Bytes of any kind, alone and in place of an update's payload, from members and others."""
        lease = next(LEASES)
        one, two = switch.join(2, lease=lease)
        switch.send(one, Message(block(1), lease=lease))
        for port, data in noise:
            for frame in (data, Child(port).frame(data)):
                switch.engine.process(port, frame)
        results = switch.send(two, Message(block(2), lease=lease))
        switch.leave(lease)
        assert {message.values for _, message in results} == {block(3)}


class TestAdmission:
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"lease": 2}, "NOT_ADMITTED"),
            ({"type": RESULT}, "BAD_TYPE"),
            ({"type": 9}, "BAD_TYPE"),
            ({"slot": BASE - 1}, "BAD_SLOT"),
            ({"slot": BASE + SLOTS}, "BAD_SLOT"),
            ({"slot": 0x7FFF}, "BAD_SLOT"),
            ({"size": 0}, "BAD_SIZE"),
            ({"size": 2}, "BAD_SIZE"),
            ({"size": 3}, "BAD_SIZE"),
            ({"chunk": 4}, "BAD_CHUNK"),
            ({"chunk": 2**31}, "BAD_CHUNK"),
        ],
    )
    def test_each_refusal_has_its_reason(
        self, switch: SwitchUnderTest, change: dict[str, int], reason: str
    ) -> None:
        one, _ = switch.join(2, chunks=range(4))
        assert switch.send(one, replace(Message(block(1)), **change)) == []
        assert switch.drops() == {reason: 1}
        assert switch.events() == {}

    def test_who_sends_is_read_from_the_table_not_from_the_packet(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        frame = one.frame(Message(block(1)))
        assert switch.engine.process(two.port, frame) == []  # another's address on this port
        packet = Ether(frame)
        packet[UDP].sport = UDP_PORT + 1
        del packet[UDP].chksum
        assert switch.engine.process(one.port, bytes(packet)) == []
        assert switch.drops() == {"NOT_ADMITTED": 2}

    def test_more_data_than_the_size_says_is_refused(self, switch: SwitchUnderTest) -> None:
        one, _ = switch.join(2)
        assert switch.send(one, replace(Message(block(1, count=256)), size=1)) == []
        assert switch.drops() == {"BAD_SIZE": 1}

    @pytest.mark.parametrize("length", [0, 5, 10, 100, 265, 267, 1033, 1035, 1400])
    def test_another_length_is_refused(self, switch: SwitchUnderTest, length: int) -> None:
        one, _ = switch.join(2)
        assert switch.send(one, (Message(block(1, count=256)).encode() + bytes(400))[:length]) == []
        assert switch.drops() == {"BAD_SIZE": 1}
        assert switch.events() == {}

    def test_what_else_is_sent_to_the_switch_itself_is_not_admitted(self, switch: SwitchUnderTest) -> None:
        one, _ = switch.join(2)
        for sent in (UDP(sport=9, dport=9) / b"x", ICMP(), TCP(dport=22)):
            frame = Ether(src=one.mac, dst=SWITCH_MAC) / IP(src=one.ip, dst=SWITCH_IP) / sent
            assert switch.engine.process(one.port, bytes(frame)) == []
        assert switch.drops() == {"NOT_ADMITTED": 3}

    def test_all_updates_of_a_chunk_have_one_size(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, Message(block(1, count=64)))
        assert switch.send(two, Message(block(1, count=256))) == []
        assert switch.drops() == {"BAD_SIZE": 1}

    def test_a_truncated_update_is_dropped_wherever_it_ends(self, switch: SwitchUnderTest) -> None:
        one, _ = switch.join(2)
        frame = one.frame(Message(block(1, count=256)))
        lengths = [*range(14, 100), *range(100, len(frame), 7), len(frame) - 1]
        for length in lengths:
            assert switch.engine.process(one.port, frame[:length]) == []
        assert switch.drops() == {"TRUNCATED": len(lengths)}
        assert switch.events() == {}

    def test_so_is_a_truncated_result_of_the_parent(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2, root=False)
        for child in (one, two):
            switch.send(child, Message(block(1)))
        frame = parent_frame(Message(block(2), RESULT, size=1))
        for length in range(14, len(frame)):
            assert switch.engine.process(PARENT_PORT, frame[:length]) == []
        assert switch.drops() == {"TRUNCATED": len(frame) - 14}
        assert len(switch.engine.process(PARENT_PORT, frame)) == 2


class TestBelowTheRoot:
    def test_the_partial_sum_goes_up_as_an_update_of_the_switch(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2, root=False)
        switch.send(one, Message(block(1)))
        ((port, frame),) = switch.engine.process(two.port, two.frame(Message(block(2), exponents=(4, 0))))
        packet = Ether(frame)
        assert port == PARENT_PORT
        assert (packet.src, packet.dst) == (SWITCH_MAC, PARENT_MAC)
        assert (packet[IP].src, packet[IP].dst) == (SWITCH_IP, PARENT_IP)
        assert Message.decode(bytes(packet[UDP].payload)) == Message(block(3), size=1, exponents=(4, 0))

    def test_the_parents_result_replaces_it_and_goes_to_the_children(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2, root=False)
        switch.send(one, Message(block(1)))
        switch.send(two, Message(block(2)))
        result = Message(block(50), RESULT, size=1, exponents=(9, 0), saturated=1)
        assert sorted(switch.send_from_parent(result), key=lambda item: item[0]) == [
            (one.port, result),
            (two.port, result),
        ]
        assert switch.send(one, Message(block(1))) == [(one.port, result)]

    def test_a_repeated_or_foreign_result_is_stale(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2, root=False)
        result = Message(block(50), RESULT)
        assert switch.send_from_parent(result) == []  # nothing is awaited
        switch.send(one, Message(block(1)))
        switch.send(two, Message(block(2)))
        assert switch.send_from_parent(replace(result, chunk=2)) == []
        assert len(switch.send_from_parent(result)) == 2
        assert switch.send_from_parent(result) == []
        assert switch.drops() == {"STALE_RESULT": 3}

    def test_the_parent_may_not_send_updates(self, switch: SwitchUnderTest) -> None:
        switch.join(2, root=False)
        assert switch.send_from_parent(Message(block(1))) == []
        assert switch.drops() == {"BAD_TYPE": 1}

    def test_a_child_that_asks_again_has_the_partial_sum_sent_again(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2, root=False)
        switch.send(one, Message(block(1)))
        assert switch.send(one, Message(block(1))) == []  # the other is still missing
        partial = switch.send(two, Message(block(2)))
        assert switch.send(one, Message(block(1))) == partial
        assert switch.send(two, Message(block(2))) == partial
        assert switch.events()["SENT_UP_AGAIN"] == 2

    def test_the_next_chunk_has_nothing_of_the_one_before(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2, root=False)
        for child in (one, two):
            switch.send(child, Message(block(1), chunk=1))
        switch.send_from_parent(Message(block(9), RESULT, chunk=1))
        switch.send(one, Message(block(1), chunk=2))
        ((port, partial),) = switch.send(two, Message(block(1), chunk=2))
        assert (port, partial.values) == (PARENT_PORT, block(2))
        assert switch.send_from_parent(Message(block(9), RESULT, chunk=1)) == []  # late
        assert switch.drops() == {"STALE_RESULT": 1}


@pytest.mark.slow
@given(
    vectors=st.lists(
        st.lists(st.integers(-(2**27), 2**27 - 1), min_size=64, max_size=64).map(tuple),
        min_size=1,
        max_size=6,
    ),
    data=st.data(),
)
@settings(
    max_examples=sized(33, 100),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_order_with_any_duplicates_gives_the_exact_sum(
    switch: SwitchUnderTest, vectors: list[tuple[int, ...]], data: st.DataObject
) -> None:
    lease = next(LEASES)  # makes whatever the examples before have left in the registers stale
    children = switch.join(len(vectors), lease=lease)
    duplicates = data.draw(st.lists(st.sampled_from(range(len(vectors))), max_size=6))
    order = data.draw(st.permutations([*range(len(vectors)), *duplicates]))
    results = [result for i in order for result in switch.send(children[i], Message(vectors[i], lease=lease))]
    switch.leave(lease)
    assert {message.values for _, message in results} == {saturating_sum(vectors)}
    # Each child has the result, and has it again for each duplicate that came after the sum was complete.
    complete = max(order.index(i) for i in range(len(vectors)))
    assert len(results) == len(vectors) + len(order) - complete - 1
