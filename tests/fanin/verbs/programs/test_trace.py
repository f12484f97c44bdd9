"""`fanin trace` tells what happens to packets: in a program, and in a running switch."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from finsy.proto import p4i, p4r
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap
from typer.testing import CliRunner, Result

from fanin.assurance.differential.packets import PacketSource
from fanin.cli import app
from fanin.controller.entry_files import Entries, NamedEntry, random_entries, read_entries
from fanin.experiments.scenario.compilers import CompiledProgram, compile_program
from fanin.experiments.tracing import fill, trace
from fanin.p4compiler import compile_file
from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import ActionCall, Exact, Lpm, Range, Ternary
from fanin.p4switch.reader import read_program
from fanin.p4switch.trace.constants import constant_names
from fanin.p4switch.trace.events import Access, Drop
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import traced
from fanin.testbed.patience import setting
from tests.fanin.hub import FANIN, HOST, HUB, TABLES, hub
from tests.fanin.network import SEND, Up
from tests.p4switch.trace.schema import trace_schema

PACKET = bytes(Ether(dst="02:00:00:00:00:01") / IP(src="10.1.0.1", dst="10.2.0.1") / UDP() / b"hello")
ROUTE = {
    "table": "ingress.forwarding.ipv4_lpm",
    "match": {"hdr.ipv4.destination": "10.2.0.0/16"},
    "action": "ingress.forwarding.forward",
    "params": {"mac": "02:00:00:00:00:02", "port": 3},
}


@pytest.fixture(scope="module")
def compiled() -> CompiledProgram:
    """The aggregation program."""
    return compile_program(FANIN, "embedded")


@pytest.fixture(scope="module")
def program(compiled: CompiledProgram, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("program") / "fanin.json"
    path.write_bytes(compiled.device_config)
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["trace", *arguments])


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("entries") / "routes.json"
    path.write_text(json.dumps({"entries": [ROUTE]}))
    return path


# A program


@pytest.mark.slow
def test_a_packet_in_text(routes):
    done = run(str(FANIN), "--packet", PACKET.hex(), "--entries", str(routes))
    assert done.exit_code == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0] == f"packet on port 1, {len(PACKET)} bytes, at 0.000000 s"
    assert "select ethernet.ethertype=0x0800: 0x0800 -> ipv4" in lines
    assert "entry 0: hdr.ipv4.destination=10.2.0.0/16" in lines
    assert "action ingress.forwarding.forward(mac=02:00:00:00:00:02, port=3)" in lines
    assert lines[-1] == f"=> 1 packet out: port 3 ({len(PACKET)} bytes)"
    assert "select udp.destination_port=53, udp.length=13: default -> accept" in lines
    [ttl] = [line for line in lines if line.startswith("if hdr.ipv4.ttl <= 1")]
    place = next(
        n
        for n, text in enumerate((FANIN.parent / "forwarding.p4").read_text().splitlines(), 1)
        if "ttl <= 1" in text
    )
    assert ttl == f"if hdr.ipv4.ttl <= 1: false (ipv4.ttl=64)  [forwarding.p4:{place}]"


@pytest.mark.slow
def test_numbers_are_told_with_the_constants_of_the_source():
    done = run(str(FANIN), "--packet", "0x" + PACKET.hex(), "--verbose")
    lines = [line.strip().partition("  [")[0] for line in done.stdout.splitlines()]
    assert "meta.reason = 6 REASON_NO_ROUTE" in lines
    assert "if meta.reason != REASON_NONE: true (meta.reason=6 REASON_NO_ROUTE)" in lines
    assert "count ingress.drops[6 REASON_NO_ROUTE]" in lines
    assert (
        "if standard_metadata.parser_error != error.NoError: false (standard_metadata.parser_error=0 error.NoError)"
        in lines
    )


def test_a_number_with_two_names_in_a_place_is_told_without(tmp_path):
    source = tmp_path / "names.p4"
    compared = "".join(
        f"if (hdr.ethernet.type == {name}) {{ arrivals.count(2); }} " for name in ("ONE", "UNO", "TWO")
    )
    constants = "const bit<16> ONE = 1; const bit<16> UNO = 1; const bit<16> TWO = 2;\n"
    text = HUB.replace("COUNTED", "1").replace("EXTRA", compared)
    source.write_text(text.replace("header ethernet_t", constants + "header ethernet_t"))
    program = read_program(compile_program(source, "embedded").device_config)
    assert constant_names(program) == {Field("ethernet", "type"): {2: "TWO"}}


@pytest.mark.slow
def test_macros_of_the_command_line(tmp_path):
    source = tmp_path / "hub.p4"
    source.write_text(HUB.replace("EXTRA", ""))
    done = run(str(source), "-D", "COUNTED=3", "--packet", PACKET.hex())
    assert "count ingress.arrivals[3 COUNTED]" in done.stdout, done.stderr


def test_state_is_kept_from_packet_to_packet(program):
    done = run(program, "--packet", PACKET.hex(), "--packet", PACKET.hex(), "--json", "--port", "7")
    traces = [json.loads(line) for line in done.stdout.splitlines()]
    assert [trace["port"] for trace in traces] == [7, 7]
    assert [trace["time"] for trace in traces] == [0, 1]
    drops = [event for trace in traces for event in trace["events"] if event["event"] == "Drop"]
    assert [drop["source"]["fragment"] for drop in drops] == ["mark_to_drop(standard_metadata)"] * 2


@pytest.mark.slow
def test_a_capture_a_filter_and_a_count(program, tmp_path):
    capture = tmp_path / "packets.pcap"
    others = [Ether(PACKET) for _ in range(2)]
    wrpcap(str(capture), [Ether(bytes(60)), *others, Ether(bytes(60))])
    arguments = (program, "--read", str(capture), "--json")
    assert len(run(*arguments).stdout.splitlines()) == 4
    assert len(run(*arguments, "--filter", "ipv4.source=10.1.0.1").stdout.splitlines()) == 2
    assert len(run(*arguments, "--count", "1").stdout.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "arguments", "complaint"),
    [
        (2, [], "give either a program or --on"),
        (2, [str(FANIN), "--on", "leaf1"], "give either a program or --on"),
        (2, [str(FANIN)], "give packets"),
        (2, [str(FANIN), "--packet", "0g"], "hexadecimal"),
        (2, ["PROGRAM", "--packet", "00", "--filter", "ipv4.x=1"], "ipv4 has version"),
        (2, [str(FANIN), "--packet", "00", "--read", str(FANIN)], "not a capture"),
        (2, ["--on", "leaf1", "--packet", "00", "--entries", str(FANIN)], "leave --entries out"),
        (1, ["--on", "leaf1", "--packet", "00"], "fanin up"),
        (
            2,
            [str(FANIN), "--packet", "0x012"],
            "0x012 is not a packet: write two hexadecimal digits per byte",
        ),
        (1, ["--on", "leaf1"], "fanin up"),
        (1, [__file__, "--packet", "00"], "not a JSON document"),
    ],
)
def test_what_cannot_be_done_is_said(program, tmp_path, monkeypatch, status, arguments, complaint):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # networks that are up are found there
    done = run(*(program if argument == "PROGRAM" else argument for argument in arguments))
    assert done.exit_code == status
    assert complaint in done.stderr


# Entries by name


def test_matches_and_arguments_in_any_notation():
    switch = Engine.load(compile_program(TABLES, "embedded").device_config)
    half = 1 << (switch.program.tables["ingress.lpm_table"].keys[1].width - 1)
    entries = [
        NamedEntry(
            "ingress.lpm_table",
            {"hdr.probe.d": "0x3", "hdr.probe.b": f"{half}/1"},
            "ingress.answer_lpm",
            {"n": "0.0.0.17"},
        ),
        NamedEntry(
            "ingress.ternary_table",
            {"hdr.probe.a": (1, 1), "hdr.probe.e": 5},
            "ingress.answer_ternary",
            {"n": 1},
            4,
        ),
    ]
    fill(switch, Entries(entries, {9: [(1, 2)]}))
    [lpm] = switch.table("ingress.lpm_table").entries()
    assert lpm.key.match == (Exact(3), Lpm(half, 1))
    assert lpm.action == ActionCall("ingress.answer_lpm", (17,))
    [ternary] = switch.table("ingress.ternary_table").entries()
    assert (ternary.key.match, ternary.key.priority) == ((Ternary(1, 1), Ternary(0, 0), Exact(5)), 4)
    assert switch.multicast.all()[9][0].instance == 2
    ranged = NamedEntry(
        "ingress.range_table", {"hdr.probe.b": (1, 2), "hdr.probe.d": 0}, "ingress.answer_range", {"n": 1}, 1
    )
    fill(switch, Entries([ranged]))
    assert switch.table("ingress.range_table").entries()[0].key.match[0] == Range(1, 2)


def test_an_entry_of_a_file_that_does_not_fit_is_named_with_its_line(tmp_path):
    made, file = hub(tmp_path), tmp_path / "entries.json"
    file.write_text('{"entries": [\n\n{"table": "nothing", "match": {},\n"action": "x"}]}')
    entries = read_entries(file)
    with pytest.raises(ValueError, match=r"entries\.json:3: table nothing does not exist"):
        fill(Engine.load(made.device_config), entries)
    with pytest.raises(ValueError, match=r"entries\.json:3: table nothing: no P4Table"):
        entries.encode(made.p4info)


@pytest.mark.slow
def test_a_filter_that_no_packet_meets_is_reported(program, tmp_path):
    done = run(program, "--packet", "00" * 60, "--filter", "port=5")
    assert done.exit_code == 1
    assert "no packet meets --filter port=5" in done.stderr
    empty = tmp_path / "empty.pcap"
    wrpcap(str(empty), [])
    done = run(program, "--read", str(empty))
    assert done.exit_code == 1
    assert "empty.pcap has no packets" in done.stderr


def test_an_lpm_match_needs_a_prefix_length_here_and_over_p4runtime():
    compiled = compile_program(TABLES, "embedded")
    match = {"hdr.probe.d": 3, "hdr.probe.b": "10.0.0.1"}
    entries = Entries([NamedEntry("ingress.lpm_table", match, "ingress.answer_lpm", {"n": 1})])
    complaint = (
        r"table ingress.lpm_table: hdr.probe.b: 10.0.0.1 has no prefix length; write \[VALUE, LENGTH\]"
    )
    with pytest.raises(ValueError, match=complaint):
        fill(Engine.load(compiled.device_config), entries)
    with pytest.raises(ValueError, match=complaint):
        entries.encode(compiled.p4info)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"table": "nothing"}, "table nothing does not exist; there are ingress.hosts"),
        ({"match": {"hdr.x": 1}}, "has no key hdr.x, only "),
        ({"match": {}}, "needs a match of kind exact, not None"),
        ({"action": "fly"}, "it has no action fly; there are "),
        ({"params": {}}, r"takes \(port\), not \(\)"),
        ({"params": {"port": "x"}}, "port: x is neither a number"),
        ({"params": {"port": 512}}, "512 does not fit into 9 bits"),
    ],
)
def test_entries_without_a_place_are_named(tmp_path, changes, complaint):
    switch = Engine.load(hub(tmp_path).device_config)
    given = {"table": HOST.table, "match": HOST.match, "action": HOST.action, "params": HOST.params}
    with pytest.raises(ValueError, match=complaint):
        fill(switch, Entries([NamedEntry(**{**given, **changes})]))


# The aggregation program


@pytest.mark.slow
def test_tracing_changes_nothing_of_the_aggregation_program(compiled):
    rng = random.Random(5)
    entries = random_entries(compiled.p4info, rng)
    source = PacketSource(json.loads(compiled.device_config), entries, rng)
    plain = Engine.load(compiled.device_config)
    watched = plain.new_instance()
    for switch in (plain, watched):
        fill(switch, entries)
    with traced(watched) as tracer:
        for now in range(300):
            port, packet = source.packet()
            assert watched.process(port, packet, now) == plain.process(port, packet, now)
            [found] = tracer.packets()
            assert as_text(found, verbose=True).splitlines()[-1].startswith("  => ")
    for name in plain.program.registers:
        assert watched.register(name).read() == plain.register(name).read()
    for counter in plain.program.counters.values():
        assert watched.counter(counter.name).read_all() == plain.counter(counter.name).read_all()


def test_256_values_are_told_in_four_lines(compiled):
    admit = NamedEntry(
        "ingress.aggregation.admission",
        {
            "standard_metadata.ingress_port": 1,
            "hdr.ipv4.source": "10.1.0.1",
            "hdr.ipv4.destination": "10.1.0.254",
            "hdr.udp.source_port": 48864,
            "hdr.switchml.lease": 3,
        },
        "ingress.aggregation.admit_child",
        {
            "member": 1,
            "member_bit": 1,
            "full": 3,
            "base": 0,
            "slots": 16,
            "first_chunk": 0,
            "last_chunk": 99,
            "checksums": 0,
            "root": 1,
            "group": 5,
            "uplink": 0,
        },
    )
    header = bytes([3, 3]) + (7).to_bytes(4, "big") + bytes(2) + bytes([1, 2]) + bytes(4)
    values = b"".join(value.to_bytes(4, "big") for value in range(256))
    addresses = IP(src="10.1.0.1", dst="10.1.0.254") / UDP(sport=48864, dport=48864, chksum=0)
    update = bytes(Ether(dst="02:00:00:00:00:01") / addresses / (header + values))
    [found] = trace(compiled.device_config, Entries([admit]), [(1, update)])
    stores = [event for event in found.events if isinstance(event, Access) and ".r_" in event.name]
    assert [event.value.number for event in stores] == list(range(256))
    lines = [line for line in as_text(found).splitlines() if ".r_0..r_63[0]" in line]
    assert [line.strip().split(" = ")[1].split("  ")[0] for line in lines] == [
        f"[{n}, {n + 1}, {n + 2}, {n + 3}, … {n + 63}]" for n in range(0, 256, 64)
    ]
    [drop] = [event for event in found.events if isinstance(event, Drop)]
    assert drop.source.file.endswith("aggregation.p4")


# A running switch


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with Up(tmp_path) as network:
        yield network


def watch(up: Up, *arguments: str) -> subprocess.Popen[str]:
    return up.fanin("trace", "--on", "leaf1", *arguments)


@pytest.mark.live
def test_packets_of_a_running_switch(up, fanin):
    def first_after_ready(watching: subprocess.Popen[str]) -> str:
        """The first line that it prints, of a packet that is sent once it says that it looks."""
        assert watching.stderr.readline() == "fanin trace: tracing leaf1; press Ctrl-C to stop\n"
        assert fanin("exec", "h1", sys.executable, "-c", SEND, **up.environment).returncode == 0
        return watching.stdout.readline()

    wanted = "ipv4.source=10.1.0.1,udp.destination_port=5005"
    with watch(up, "--filter", wanted, "--json", "--count", "1") as first:
        told = json.loads(first_after_ready(first))
        assert first.wait(30 * setting()) == 0
    assert bytes.fromhex(told["packet"]).endswith(b"fanin was here")
    [out] = [event for event in told["events"] if event["event"] == "Output"]
    assert (told["port"], out["port"], out["attached"]) == (1, 2, True)
    # Ctrl-C, and somebody else may look.
    second = watch(up)
    assert first_after_ready(second).startswith("packet on port")
    second.send_signal(signal.SIGINT)
    _, errors = second.communicate(timeout=30 * setting())
    assert (second.returncode, "Traceback" in errors) == (130, False)
    # What it would do with a packet of ours.
    ours = bytes(Ether() / IP(src="10.1.0.1", dst="10.1.0.2") / UDP() / b"hello").hex()
    would = fanin("trace", "--on", "leaf1", "--packet", ours, **up.environment)
    assert "entry 1: hdr.ipv4.destination=10.1.0.2/32" in would.stdout, would.stderr
    assert would.stdout.endswith(f"=> 1 packet out: port 2 ({len(ours) // 2} bytes)\n")
    refused = fanin("trace", "--on", "leaf1", "--filter", "ipv4.x=1", **up.environment)
    assert refused.returncode == 2
    assert "ipv4 has version" in refused.stderr
    assert "h1 is a host" in fanin("trace", "--on", "h1", **up.environment).stderr
    assert "nothing is left behind" in up.end()


@pytest.mark.slow
def test_an_entry_file_has_groups_and_clone_sessions(tmp_path: Path) -> None:
    """In passes.p4, 6 means a clone to session 6 and the packet to group 7; the copies form a tree."""
    entries = tmp_path / "entries.json"
    entries.write_text(json.dumps({"groups": {"7": [[1, 3], [4, 3]]}, "sessions": {"6": [[5, 2]]}}))
    source = str(Path(__file__).parents[3] / "p4switch" / "stf" / "passes.p4")
    result = run(source, "--packet", "060000", "--entries", str(entries), "--json")
    told = json.loads(result.output)
    jsonschema.validate(told, trace_schema())
    causes = [(copy["parent"], copy["cause"], copy["replica"]) for copy in told["copies"]]
    assert causes == [
        (None, "arrival", None),
        (0, "ingress clone", None),
        (1, "replication", 2),
        (0, "replication", 3),
        (0, "replication", 3),
    ]
    outputs = [(event["copy"], event["port"]) for event in told["events"] if event["event"] == "Output"]
    assert outputs == [(2, 5), (3, 1), (4, 4)]


BALANCER = Path(__file__).parents[4] / "browser" / "playground" / "programs" / "balancer" / "balancer.p4"
SERVERS = {
    "members": {
        str(number): {
            "action": "ingress.to_server",
            "params": {"address": f"10.0.1.{number}", "port": number},
        }
        for number in (1, 2)
    },
    "groups": {"7": {"1": 1, "2": 3}},
}
TO_SERVICE = {"table": "ingress.services", "match": {"hdr.ipv4.destination": "10.0.9.9"}}
ASKING = bytes(Ether() / IP(src="10.0.0.1", dst="10.0.9.9") / UDP(sport=1000, chksum=0)).hex()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "chosen"),
    [
        ({"member": 2}, "member 2"),
        ({"group": 7}, "group 7: member "),
    ],
)
def test_an_entry_file_has_members_and_groups(tmp_path: Path, reference: dict[str, int], chosen: str) -> None:
    entries = tmp_path / "entries.json"
    document = {"entries": [TO_SERVICE | reference], "profiles": {"ingress.servers": SERVERS}}
    entries.write_text(json.dumps(document))
    result = run(str(BALANCER), "--packet", ASKING, "--entries", str(entries))
    assert chosen in result.output
    assert "1 packet out: port" in result.output
    # The same for a switch with P4Runtime: members before the groups that have them, and before entries.
    sent = read_entries(entries).encode(compile_file(BALANCER).p4info)
    kinds = [entity.WhichOneof("entity") for entity in sent]
    assert kinds == [*["action_profile_member"] * 2, "action_profile_group", "table_entry"]
    assert [each.weight for each in sent[2].action_profile_group.members] == [1, 3]
    assert sent[3].table_entry.action.WhichOneof("type") == f"action_profile_{next(iter(reference))}_id"


@pytest.mark.slow
def test_an_entry_file_has_entries_with_actions_of_their_own(tmp_path: Path) -> None:
    entries = tmp_path / "entries.json"
    one_of = [SERVERS["members"]["1"] | {"weight": 3}, {"action": "ingress.drop"}]
    entries.write_text(json.dumps({"entries": [TO_SERVICE | {"one_of": one_of, "random": True}]}))
    result = run(str(BALANCER), "--packet", ASKING, "--entries", str(entries))
    assert "action set: " in result.output
    [sent] = read_entries(entries).encode(compile_file(BALANCER).p4info)
    found = sent.table_entry.action.action_profile_action_set
    assert [each.weight for each in found.action_profile_actions] == [3, 1]
    assert found.action_selection_mode == p4r.ActionProfileActionSet.RANDOM


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"entries": [TO_SERVICE]}, "entries.0: needs one of action, member, group and one_of"),
        (
            {"entries": [TO_SERVICE | {"member": 1, "group": 7}]},
            "needs one of action, member, group and one_of",
        ),
        ({"entries": [TO_SERVICE | {"member": 1, "random": True}]}, "has random, but no one_of"),
        (
            {"entries": [TO_SERVICE | {"one_of": [{"action": "x", "wait": 3}]}]},
            "wait: not known; keys are action, params, weight",
        ),
        (
            {"defaults": {"absent": {"action": "x"}}},
            "table absent does not exist; there are ingress.services",
        ),
        (
            {"defaults": {"ingress.services": {"action": "x"}}},
            "table ingress.services: default action: it has no action x",
        ),
        ({"entries": [TO_SERVICE | {"member": 1, "params": {"port": 1}}]}, "has params, but no action"),
        ({"entries": [TO_SERVICE | {"member": 1}]}, "member 1 does not exist"),
        ({"profiles": {"servers": {}}}, "no table has an action profile servers; there are ingress.servers"),
        (
            {"profiles": {"ingress.servers": {"members": {"1": {"acton": "x"}}}}},
            "acton: not known; keys are action, params",
        ),
        ({"profiles": {"ingress.servers": {"group": {}}}}, "group: not known; keys are members, groups"),
        (
            {"profiles": {"ingress.servers": {"members": {"1": {"action": "x"}}}}},
            "action profile ingress.servers: member 1: it has no action x; there are ingress.to_server, ingress.drop",
        ),
        ({"profiles": {"ingress.servers": {"groups": {"7": {"1": 1}}}}}, "member 1 does not exist"),
    ],
)
def test_what_is_wrong_with_an_action_profile_in_an_entry_file_is_named(
    tmp_path: Path, document: dict[str, Any], said: str
) -> None:
    entries = tmp_path / "entries.json"
    entries.write_text(json.dumps(document))
    result = run(str(BALANCER), "--packet", ASKING, "--entries", str(entries))
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_an_entry_file_is_written_as_p4runtime_messages() -> None:
    entities = Entries(groups={7: [(1, 3)]}, sessions={6: [(5, 2)]}).encode(p4i.P4Info())
    kinds = [entity.packet_replication_engine_entry.WhichOneof("type") for entity in entities]
    assert kinds == ["multicast_group_entry", "clone_session_entry"]
