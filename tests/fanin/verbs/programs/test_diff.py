"""`fanin diff` runs one program by two compilers on two switches and finds what they do otherwise."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

import fanin.assurance.differential.compare as comparison
from fanin.assurance.differential.client import session
from fanin.assurance.differential.compare import compare
from fanin.assurance.differential.packets import PacketSource
from fanin.assurance.differential.switches import run
from fanin.controller.entry_files import Entries, NamedEntry, random_entries, read_entries
from fanin.experiments.scenario.compilers import compile_program
from fanin.experiments.scenario.tools import ToolMissingError
from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.p4runtime.server import P4RuntimeService, serve
from fanin.verbs.programs.diff import show
from tests.fanin.hub import FANIN, HOST, HUB, TABLES, hub

pytestmark = pytest.mark.slow

ELSEWHERE = {"FANIN_BMV2": "/nowhere/simple_switch_grpc", "FANIN_P4C": "/nowhere/p4c-bm2-ss"}

TO_HOST = bytes.fromhex("020000000001 020000000002 0800") + b"payload"


@pytest.fixture
def verdicts(monkeypatch):
    """Return the verdicts on two programs, which stand for the output of two compilers, on our switch alone."""
    monkeypatch.setenv("FANIN_BMV2", ELSEWHERE["FANIN_BMV2"])

    def verdicts(one, other, entries, packets):
        made = compare({"p4c": one, "embedded": other}, entries, packets)
        return {str(verdict.pair): verdict for verdict in made}

    return verdicts


@pytest.mark.bmv2
@pytest.mark.p4c
@pytest.mark.live
def test_the_four_pairs_agree_on_the_aggregation_program(fanin):
    done = fanin("diff", str(FANIN), "--random", "150", "--seed", "3")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()[1:]
    assert [line.split(":")[0] for line in lines] == [
        "p4c on BMv2",
        "ours on BMv2",
        "p4c on ours",
        "ours on ours",
    ]
    assert len({line.split(":")[1] for line in lines}) == 1
    assert "counters counted" in lines[0]


@pytest.mark.live
def test_pairs_that_cannot_run_are_listed_and_never_passed(fanin):
    done = fanin("diff", str(TABLES), "--random", "20", **ELSEWHERE)
    assert done.returncode == 2
    for pair in ("p4c on BMv2", "ours on BMv2", "p4c on ours"):
        assert f"{pair}: cannot run:" in done.stdout
    assert "ours on ours: 20 packets out" in done.stdout
    assert "nothing was compared" in done.stderr


@pytest.mark.live
def test_a_compiler_that_is_here_and_refuses_is_no_pass(fanin, tmp_path):
    program = tmp_path / "broken.p4"
    program.write_text("control c(")
    done = fanin("diff", str(program), **ELSEWHERE)
    assert done.returncode == 2
    assert f"{program}:1" in done.stderr


@pytest.mark.live
def test_packets_and_entries_come_from_files_too(fanin, tmp_path):
    hub(tmp_path)
    capture, entries = tmp_path / "one.pcap", tmp_path / "entries.json"
    wrpcap(str(capture), [Ether(TO_HOST), Ether(b"\1" * 14)])
    match, params = {"hdr.ethernet.destination": HOST.match["hdr.ethernet.destination"]}, {"port": 3}
    entry = {"table": HOST.table, "match": match, "action": HOST.action, "params": params}
    entries.write_text(json.dumps({"entries": [entry], "groups": {"1": [[1, 0], [2, 0]]}}))
    done = fanin(
        *("diff", str(tmp_path / "hub.p4"), "--packets", str(capture), "--entries", str(entries)), **ELSEWHERE
    )
    assert "1 table entry, 1 multicast group, 2 packets" in done.stdout
    assert "ours on ours: 1 packet out" in done.stdout


@pytest.mark.parametrize("option", [[], ["--packets"], ["--entries"]])
def test_files_that_are_not_there_are_named(fanin, option):
    program = [] if not option else [str(TABLES)]
    done = fanin("diff", *program, *option, "/nowhere/file")
    assert done.returncode == 2
    assert "/nowhere/file" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"entries": [{"table": "t", "match": {}}]}',
            "1: entries.0: needs one of action, member, group and one_of",
        ),
        (
            '\n{"entrees": []}',
            "2: entrees: not known; keys are entries, groups, sessions, profiles, defaults",
        ),
        (
            '{"entries": [\n{"table": "t", "match": {}, "action": "a",\n"prio": 1}]}',
            "3: entries.0.prio: not known; keys are table, match, action, params, priority, member, group, "
            "one_of, random",
        ),
        (
            '{"groups": {},\n"entries": [{"table": "t", "match": {}, "action": "a"},\n'
            '{"table": "t",\n"match": {"hdr.a": [1]}, "action": "a"}]}',
            "4: entries.1.match.hdr.a: not a match; write a value, or two in brackets",
        ),
        ("[]", "1: the document: is []; input should be a dictionary or an instance of Entries"),
        ("{", "1:2: not JSON: Expecting property name enclosed in double quotes"),
    ],
)
def test_a_document_of_entries_is_checked(tmp_path, text, said):
    document = tmp_path / "entries.json"
    document.write_text(text)
    with pytest.raises(ValueError, match=r"entries\.json") as refused:
        read_entries(document)
    assert str(refused.value) == f"{document}:{said}"


def test_pairs_that_do_the_same_agree(verdicts, tmp_path):
    program = hub(tmp_path)
    made = verdicts(program, program, Entries([HOST]), [(1, TO_HOST)])
    assert made["p4c on ours"].outcome.outputs == [[(3, TO_HOST)]]
    assert not made["ours on ours"].differences
    assert isinstance(made["p4c on BMv2"].cannot, ToolMissingError)


def test_another_output_is_found_by_its_packet(verdicts, tmp_path):
    one = hub(tmp_path)
    other = hub(tmp_path, extra="hdr.ethernet.type = hdr.ethernet.type | 1;")
    stranger = bytes(14) + b"stranger"
    verdict = verdicts(one, other, Entries([HOST]), [(1, stranger), (2, TO_HOST)])["ours on ours"]
    [found] = verdict.differences
    assert found.what.startswith("packet 2, 21 bytes on port 2")
    assert "differs from byte 13 on" in found.reference
    assert not found.undefined
    for trace in verdict.traces:
        assert f"entry 0\n      action {HOST.action}(port=3)" in trace
        assert trace.endswith(f"=> 1 packet out: port 3 ({len(TO_HOST)} bytes)")
        assert "does not have" not in trace  # no port is open
    assert ["ethernet.type = " in trace for trace in verdict.traces] == [False, True]


def test_whether_the_reference_varies_is_decided_packet_by_packet(verdicts, tmp_path, monkeypatch):
    """As where the program puts a random number into one packet and is compiled wrongly for another."""
    one, other = hub(tmp_path), hub(tmp_path, extra="hdr.ethernet.type = hdr.ethernet.type | 1;")
    runs = iter(range(100))

    def varying(engine, program, entries, packets, *, with_trace=False):
        outcome = run(engine, program, entries, packets, with_trace=with_trace)
        if program is one:
            outcome.outputs[0][:] = [(3, bytes([next(runs)]))]
        return outcome

    monkeypatch.setattr(comparison, "run", varying)
    verdict = verdicts(one, other, Entries([HOST]), [(1, TO_HOST), (2, TO_HOST), (3, bytes(14))])[
        "ours on ours"
    ]
    assert [(found.what[:8], found.undefined) for found in verdict.differences] == [
        ("packet 1", True),
        ("packet 2", False),
    ]
    assert ["on packet 2:" in trace for trace in verdict.traces] == [True, True]


def test_all_that_differs_is_counted_and_some_of_it_shown(verdicts, tmp_path, capsys):
    one = hub(tmp_path)
    other = hub(tmp_path, counted="2", extra="hdr.ethernet.type = hdr.ethernet.type | 1;")
    verdict = verdicts(one, other, Entries([HOST]), [(1, TO_HOST)] * 30)["ours on ours"]
    show(verdict, most=4)
    said = capsys.readouterr().out
    assert said.startswith("ours on ours: DIFFERS (packets: 30, counters: 2)\n")
    assert [number for number in range(1, 31) if f"\n  packet {number}, 21 bytes" in said] == [1, 2, 3, 4]
    assert "  and 28 more; --show 32 prints all\n" in said
    assert "varies between runs" not in said


@pytest.mark.bmv2
@pytest.mark.live
def test_random_numbers_on_bmv2_do_not_excuse_its_checksums_of_truncated_packets(fanin, tmp_path):
    """Packets from below port 4 get random numbers. The checksum of the others covers a payload that is cut."""
    program = tmp_path / "hub.p4"
    checksum = """
control update(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum_with_payload(
            hdr.ethernet.source == 7, { hdr.ethernet.source }, hdr.ethernet.type, HashAlgorithm.csum16);
    }
}
V1Switch("""
    extra = """
        standard.egress_spec = 1;
        if (standard.ingress_port < 4) { random(hdr.ethernet.source, 8, 0xffffffffffff); }
        else { hdr.ethernet.source = 7; truncate(20); }"""
    text = HUB.replace("COUNTED", "1").replace("EXTRA", extra)
    text = text.replace("egress(), none()", "egress(), update()").replace("V1Switch(", checksum)
    program.write_text(text)
    capture = tmp_path / "packets.pcap"
    wrpcap(str(capture), [Ether(bytes(14) + bytes(range(60)))] * 3)
    for port, said in (("1", "In 3 of these the reference varies"), ("5", "packet 3, 74 bytes on port 5")):
        done = fanin("diff", str(program), "--packets", str(capture), "--port", port, "--show", "3")
        assert done.returncode == 1
        assert "ours on ours: DIFFERS (packets: 3)" in done.stdout
        assert said in done.stdout
        assert ("varies between runs" in done.stdout) == (port == "1")


def test_another_port_is_found(verdicts, tmp_path):
    one, other = hub(tmp_path), hub(tmp_path, extra="standard.egress_spec = 5;")
    [found] = verdicts(one, other, Entries([HOST]), [(1, TO_HOST)])["ours on ours"].differences
    assert found.reference.startswith("port 3")
    assert found.other.startswith("port 5")


def test_another_count_is_found(verdicts, tmp_path):
    one, other = hub(tmp_path), hub(tmp_path, counted="2")
    first, second = verdicts(one, other, Entries([HOST]), [(1, TO_HOST)])["ours on ours"].differences
    assert first.what == "counter ingress.arrivals[1]"
    assert first.reference.startswith("1 packets")
    assert first.other.startswith("0 packets")
    assert second.what == "counter ingress.arrivals[2]"


def test_an_entry_that_only_one_takes_is_found(verdicts, tmp_path):
    one = hub(tmp_path)
    small = tmp_path / "hub.p4"
    small.write_text(
        small.read_text().replace("default_action = drop();", "default_action = drop(); size = 1;")
    )
    other = compile_program(small, "embedded")
    second = NamedEntry(HOST.table, {"hdr.ethernet.destination": 2}, HOST.action, {"port": 4})
    [found] = verdicts(one, other, Entries([HOST, second]), [(1, TO_HOST)])["ours on ours"].differences
    assert "'hdr.ethernet.destination': 2" in found.what
    assert (found.reference, found.other) == ("taken", "refused")


@pytest.mark.few(3)
@pytest.mark.parametrize("program", [FANIN, TABLES], ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", range(3))
def test_random_entries_are_valid(program, seed):
    compiled = compile_program(program, "embedded")
    entities = random_entries(compiled.p4info, random.Random(seed)).encode(compiled.p4info)
    device = Device({}, None, 511)
    server, port = serve(P4RuntimeService(device, 1), "127.0.0.1:0")
    try:

        async def insert() -> list[bool]:
            async with session(port, compiled) as switch:
                taken = [await switch.insert(entity) for entity in entities]
                return [*taken, not await switch.insert(entities[0])]  # it is there already

        assert all(asyncio.run(insert()))
    finally:
        server.stop(grace=0).wait()
        device.stop()
    assert len(entities) > 20


def test_random_packets_get_past_the_parser_and_meet_the_entries():
    compiled = compile_program(FANIN, "embedded")
    rng = random.Random(1)
    source = PacketSource(json.loads(compiled.device_config), random_entries(compiled.p4info, rng), rng)
    packets = [source.packet() for _ in range(400)]
    aggregation = [data for _, data in packets if data[12:14] == b"\x08\x00" and data[36:37] == b"\xbe"]
    assert len(aggregation) > 40
    assert len({data[:60] for data in aggregation}) == len(aggregation)


def test_the_same_seed_gives_the_same_packets():
    compiled = compile_program(FANIN, "embedded")

    def packets(seed):
        rng = random.Random(seed)
        entries = random_entries(compiled.p4info, rng)
        source = PacketSource(json.loads(compiled.device_config), entries, rng)
        return entries, [source.packet() for _ in range(50)]

    assert packets(5) == packets(5)
    assert packets(5) != packets(6)


def test_what_has_no_width_gets_no_random_values(tmp_path):
    """Errors, for which P4Info has no values, and types translated to strings."""
    source = tmp_path / "names.p4"
    tables = """
    action name(port_t port) { standard.egress_spec = (bit<9>)port; }
    table failures { key = { standard.parser_error: exact; } actions = { drop; } }
    table names { key = { hdr.ethernet.type: exact; } actions = { name; drop; } }
    apply { failures.apply(); names.apply(); """
    port = '@p4runtime_translation("ports", string) type bit<9> port_t;\nstruct headers_t'
    text = HUB.replace("    apply { arrivals", tables + "arrivals").replace("struct headers_t", port)
    source.write_text(text.replace("COUNTED", "1").replace("EXTRA", ""))
    p4info = compile_program(source, "embedded").p4info
    drawn = random_entries(p4info, random.Random(1))
    assert {entry.table for entry in drawn.entries} == {"ingress.hosts", "ingress.names"}
    assert "ingress.name" not in {entry.action for entry in drawn.entries}
    assert drawn.encode(p4info)
