"""The likely cause of a failure, read from the trace of the student's program, for typical mistakes in the labs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.classroom.check import check
from fanin.classroom.manifest import find_lab
from fanin.classroom.story import Problem
from tests.classroom.small_lab import changed

pytestmark = pytest.mark.slow


def problem(place: Path, lab: str, file: str, text: str, by: str) -> Problem:
    """Return what is first wrong with the solution of a lab with one text replaced."""
    folder = changed(find_lab(lab), place / "mine", file, text, by)
    return next(each.problem for each in check(find_lab(lab), folder) if each.problem is not None)


ROUTER, METER, PROBE, AGGREGATE = "forwarding.p4", "meter.p4", "probe.p4", "aggregate.p4"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("lab", "file", "text", "by", "cause"),
    [
        (
            1,
            ROUTER,
            "standard.egress_spec = port;",
            "",
            "nothing on the path of this packet sets egress_spec",
        ),
        (
            1,
            ROUTER,
            "packet.extract(hdr.ipv4);",
            "",
            "ipv4 is not valid: no state that the parser can reach extracts",
        ),
        (
            1,
            ROUTER,
            "hdr.ipv4.ttl = hdr.ipv4.ttl - 1;",
            "",
            "nothing on the path of this packet sets ipv4.ttl",
        ),
        (
            1,
            ROUTER,
            "update_checksum(hdr.ipv4.isValid(),",
            "update_checksum(false,",
            "the condition of update_checksum is false, so ipv4.checksum keeps the old one",
        ),
        (1, ROUTER, "packet.emit(hdr.ipv4);", "", "ipv4 is valid, but the deparser does not emit it"),
        (
            1,
            "controller.py",
            "for route in routes",
            "for route in routes[:1]",
            "table MyIngress.ipv4_lpm, hdr.ipv4.destination=10.1.0.2: no entry matches, so MyIngress.drop runs",
        ),
        (1, ROUTER, "ttl > 1", "ttl > 0", "`hdr.ipv4.isValid() && hdr.ipv4.ttl > 0` is true with ipv4.ttl=1"),
        (
            1,
            ROUTER,
            "hdr.arp.target_mac = hdr.arp.sender_mac;",
            "hdr.arp.sender_mac = ROUTER_MAC; hdr.arp.target_mac = hdr.arp.sender_mac;",
            "`hdr.arp.target_mac = hdr.arp.sender_mac` sets arp.target_mac to 02:00:0a:00:00:fe (forwarding.p4:98)",
        ),
        (
            2,
            METER,
            "packets_of.write(host, count);",
            "",
            "no statement of the program changes MyIngress.packets_of",
        ),
        (
            2,
            METER,
            "packets_of.write(host, count);",
            "packets_of.write(host + 1, count);",
            "MyIngress.packets_of is read in cell 7 (meter.p4:71) and written in cell 8 (meter.p4:73)",
        ),
        (
            2,
            METER,
            "hdr.ipv4.source[7:0]",
            "hdr.ipv4.source[15:0] + 300",
            "is out of range, so nothing happens",
        ),
        (
            2,
            METER,
            "        if (hdr.ipv4.isValid()) {\n            bit<32> host",
            "        if (true) {\n            bit<32> host",
            "uses ipv4, which is not valid: the parser ends in state start, after a select on ethernet.type=0x0806",
        ),
        (
            3,
            PROBE,
            "hdr.hops[0].setValid();",
            "",
            "sets a field of hops[0], which is not valid: call its setValid()",
        ),
        (4, AGGREGATE, "sums.write(slot, sum);", "", "the program reads register"),
        (
            6,
            AGGREGATE,
            "standard.mcast_grp = GROUP;",
            "",
            "nothing on the path of this packet sets egress_spec or mcast_grp",
        ),
        (
            6,
            "worker.py",
            "if slot not in self.sums",
            "if False",
            "the worker of h1: start() returned 8 frames in 1 call; receive() returned 0 frames in 6 calls; timeout()",
        ),
    ],
)
def test_the_cause_is_what_the_program_did(
    tmp_path: Path, lab: int, file: str, text: str, by: str, cause: str
) -> None:
    assert cause in "\n".join(problem(tmp_path, str(lab), file, text, by).causes)


def test_the_most_likely_cause_comes_first_and_there_are_few(tmp_path: Path) -> None:
    found = problem(tmp_path, "1", ROUTER, "packet.extract(hdr.ethernet);", "").causes
    assert found[0] == "the parser selects on ethernet.type before it has extracted ethernet"
    assert len(found) == 2


def test_a_frame_that_scapy_reads_as_another_kind_is_compared_in_bytes(tmp_path: Path) -> None:
    found = problem(tmp_path, "6", AGGREGATE, "packet.emit(hdr.ethernet);", "")
    assert found.rows[0].name == "Ethernet"
    assert found.causes == ("ethernet is valid, but the deparser does not emit it",)
