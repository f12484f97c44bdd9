"""The playground answers with diagnostics, graphs, steps and tests, and refuses what it cannot do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fanin.browser.playground import worker
from fanin.browser.playground.presets import presets
from fanin.p4compiler import compile_file
from fanin.p4switch.stf.run import run_stf

ROOT = Path(__file__).parents[3]
FIREWALL = ROOT / "examples" / "own-program"
COPIES = ROOT / "browser" / "playground" / "programs" / "copies" / "copies.p4"
BALANCER = ROOT / "browser" / "playground" / "programs" / "balancer" / "balancer.p4"
KEY = {"hdr.ipv4.destination": "10.0.9.9"}

Json = dict[str, Any]
Ask = Callable[..., Json]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """`ask(path, do=…)` sends a request about the program in a file to a worker in this process."""
    folder = tmp_path / "program"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("P4SWITCH_CFLAGS", "-O0")
    worker._compiled.cache_clear()

    def send(program: Path | str, **request: Any) -> Json:
        text = program if isinstance(program, str) else program.read_text()
        return json.loads(
            worker.answer(json.dumps({"files": {"program.p4": text}, "main": "program.p4", **request}))
        )

    return send


def test_errors_are_those_of_the_command_line(ask: Ask) -> None:
    text = (FIREWALL / "firewall.p4").read_text().replace("OUTSIDE;", "OUTER;")
    (found,) = ask(text, do="check")["diagnostics"]
    assert (found["line"], found["severity"]) == (74, "error")
    assert found["text"].splitlines()[:2] == [
        "program.p4:74:36: error: there is no name 'OUTER'",
        "              standard.egress_spec = OUTER;",
    ]
    assert found["message"] == "there is no name 'OUTER'\nhint: did you mean 'OUTSIDE'?"


@pytest.mark.slow
def test_a_packet_is_followed_through_lines_nodes_and_values(ask: Ask) -> None:
    firewall = FIREWALL / "firewall.p4"
    scenario = ask(firewall, do="load", stf=(FIREWALL / "firewall.stf").read_text())["scenario"]
    assert [packet["name"] for packet in scenario["packets"]][:2] == [
        "From outside to UDP port 53: passes",
        "From outside to UDP port 5005: blocked",
    ]
    first, second, *_ = ask(firewall, do="run", scenario=scenario)["packets"]
    assert first["verdict"] == "1 packet out: port 1 (42 bytes)"
    lines = firewall.read_text().splitlines()
    told = [
        (step["text"][0].partition(":")[0], step.get("node"), lines[step["line"] - 1].strip())
        for step in first["steps"]
        if "line" in step
    ]
    assert told == [
        ("state start", "start", "state start {"),
        ("extract ethernet", "start", "packet.extract(hdr.ethernet);"),
        ("select ethernet.ethertype=0x0800", "start", "packet.extract(hdr.ethernet);"),
        ("state ipv4", "ipv4", "state ipv4 {"),
        ("extract ipv4", "ipv4", "packet.extract(hdr.ipv4);"),
        ("select ipv4.protocol=17", "ipv4", "packet.extract(hdr.ipv4);"),
        ("state udp", "udp", "state udp {"),
        ("extract udp", "udp", "packet.extract(hdr.udp);"),
        ("if standard.ingress_port == INSIDE", "node_2", "if (standard.ingress_port == INSIDE) {"),
        ("if hdr.udp.isValid()", "node_4", "} else if (hdr.udp.isValid()) {"),
        ("table ingress.allowed", "ingress.allowed", "table allowed {"),
        ("action ingress.allow()", "ingress.allowed", "standard.egress_spec = INSIDE;"),
        ("standard.egress_spec = 1 INSIDE", "ingress.allowed", "standard.egress_spec = INSIDE;"),
    ]
    assert {"udp.destination": "53"}.items() <= first["steps"][8]["set"].items()
    assert second["outputs"] == []
    # The program also calls this action itself, at another node.
    assert _step(second, "action ingress.block()")["node"] == "ingress.allowed"


@pytest.mark.slow
def test_every_step_is_at_a_node_of_its_graph(ask: Ask) -> None:
    program = ask(COPIES, do="check")["program"]
    nodes = {graph["name"]: {node["id"] for node in graph["nodes"]} for graph in program["graphs"]}
    for graph in program["graphs"]:
        assert {edge[end] for edge in graph["edges"] for end in ("from", "to")} <= nodes[graph["name"]]
    ran = ask(COPIES, do="run", scenario=_copies(["0102", "0202", "0302"]))
    for packet in ran["packets"]:
        for step in packet["steps"]:
            assert step.get("node", "") in ("", *nodes[step["graph"]])


def _copies(packets: list[str]) -> Json:
    return {
        "groups": {"1": [[1, 0], [2, 1]]},
        "sessions": {"5": 4},
        "packets": [{"port": 1, "hex": each} for each in packets],
    }


def test_copies_are_a_tree_and_their_headers_and_registers_change(ask: Ask) -> None:
    cloned, multicast, again = ask(COPIES, do="run", scenario=_copies(["0102", "0202", "0302"]))["packets"]
    assert [(each["parent"], each["cause"]) for each in cloned["copies"]] == [
        (None, "arrival"),
        (0, "ingress clone"),
        (1, "replication"),
    ]
    assert [port for port, _ in cloned["outputs"]] == [4, 3]
    assert [(each["parent"], each["cause"]) for each in multicast["copies"]][1:] == [(0, "replication")] * 2
    assert _step(multicast, "hdr.count.setValid()")["valid"] == {"count": True}
    assert _step(multicast, "hdr.request.setInvalid()")["valid"] == {"request": False}
    assert _step(multicast, "hdr.copy = hdr.request")["assign"] == ["copy", "request"]
    cells = [step["cell"] for step in multicast["steps"] if "cell" in step]
    assert cells == [["ingress.seen", 2, "0"], ["ingress.seen", 2, "1"]]
    assert again["copies"][1]["cause"] == "resubmitted"


def _step(packet: Json, text: str) -> Json:
    return next(step for step in packet["steps"] if step["text"][0] == text)


@pytest.mark.slow
def test_an_exported_test_passes_and_notices_a_change(ask: Ask, tmp_path: Path) -> None:
    made = ask(COPIES, do="export", scenario=_copies(["0102", "0202", "0302"]))
    assert made["differences"] == []
    assert made["stf"].count("expect ") == 5
    path = tmp_path / "copies.p4"
    path.write_text(COPIES.read_text())
    assert run_stf(compile_file(path).device_config(), made["stf"]).differences == []
    path.write_text(COPIES.read_text().replace("packets = packets + 1;", "packets = packets + 2;"))
    assert run_stf(compile_file(path).device_config(), made["stf"]).differences != []
    # What is read back runs as before.
    loaded = ask(COPIES, do="load", stf=made["stf"])["scenario"]
    assert ask(COPIES, do="export", scenario=loaded)["stf"] == made["stf"]


@pytest.mark.slow
def test_members_and_groups_of_an_action_profile_are_run_shown_and_exported(ask: Ask) -> None:
    stf = BALANCER.with_suffix(".stf").read_text()
    scenario = ask(BALANCER, do="load", stf=stf)["scenario"]
    content = scenario["profiles"]["ingress.servers"]
    assert content["members"][1] == {
        "action": "ingress.to_server",
        "arguments": {"address": "10.0.1.2", "port": "2"},
    }
    assert content["groups"] == [[0, 1]]
    assert [(each["member"], each["group"]) for each in scenario["entries"]] == [(None, 0), (2, None)]
    first, _, again, alone, wrong = ask(BALANCER, do="run", scenario=scenario)["packets"]
    (choice,) = [step["choice"] for step in first["steps"] if "choice" in step]
    assert (choice["kind"], choice["number"], [each["member"] for each in choice["of"]]) == (
        "group",
        0,
        [0, 1],
    )
    assert first["outputs"] == again["outputs"] == [[choice["chosen"] + 1, first["outputs"][0][1]]]
    assert [port for port, _ in alone["outputs"]] == [3]
    assert wrong["verdict"].startswith("dropped")
    # Checksums: the verdict, and the new value among the fields.
    assert any(step["text"][0].endswith(": correct") for step in first["steps"])
    assert any("wrong, it should be" in step["text"][0] for step in wrong["steps"])
    (updated,) = [step for step in first["steps"] if step["kind"] == "UpdateChecksum"]
    assert [*updated["set"]] == ["ipv4.checksum"]
    made = ask(BALANCER, do="export", scenario=scenario)
    assert made["differences"] == []
    assert "table_indirect_add_with_group" in made["stf"]
    assert ask(BALANCER, do="load", stf=made["stf"])["scenario"] == scenario
    # With weights, one member is chosen more often.
    content["groups"] = [[[0, 1000], 1]]
    first, *_ = ask(BALANCER, do="run", scenario=scenario)["packets"]
    step = next(step for step in first["steps"] if "choice" in step)
    assert [each["weight"] for each in step["choice"]["of"]] == [1000, 1]
    stf = ask(BALANCER, do="export", scenario=scenario)["stf"]
    assert ask(BALANCER, do="load", stf=stf)["scenario"] == scenario


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"entries": [{"table": "ingress.services", "match": KEY, "member": 0}]}, "member 0 does not exist"),
        (
            {"entries": [{"table": "ingress.services", "match": KEY, "member": 0, "group": 0}]},
            "table ingress.services: an entry has a member or a group, not both",
        ),
        (
            {"entries": [{"table": "ingress.services", "default": True, "member": 0}]},
            "its default is an action, not a member or a group",
        ),
        ({"profiles": {"x": {}}}, "action profile x: no table of the program uses it"),
        (
            {"profiles": {"ingress.servers": {"members": [{"action": "ingress.x"}]}}},
            "action profile ingress.servers: member 0: it has no action ingress.x",
        ),
        ({"profiles": {"ingress.servers": {"groups": [[5]]}}}, "member 5 does not exist"),
        ({"profiles": {"ingress.servers": {"groups": [[]] * 501}}}, "at most 500 members"),
        (
            {"profiles": {"ingress.servers": {"groups": [[[0, 1001]]]}}},
            "weight 1001 is not between 1 and 1000",
        ),
    ],
)
def test_what_is_wrong_with_an_action_profile_is_named(ask: Ask, change: Json, said: str) -> None:
    assert said in ask(BALANCER, do="run", scenario={"packets": [], **change})["error"]


def test_packets_are_built_along_paths_of_the_parser(ask: Ask) -> None:
    paths = ask(FIREWALL / "firewall.p4", do="check")["program"]["paths"]
    assert paths[-1] == {
        "headers": ["ethernet", "ipv4", "udp"],
        "values": {"ethernet.ethertype": "0x800", "ipv4.protocol": "0x11"},
    }
    made = ask("", do="packet", layers="Ether()/IP(dst='10.0.0.2')/UDP(dport=53)/'x'")["hex"]
    assert bytes.fromhex(made)[12:14] == b"\x08\x00"
    assert "write layers with fields" in ask("", do="packet", layers="__import__('os')()")["error"]


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../outside.p4", "../../etc/hostname", "/proc/self/environ", "/dev/zero"]
)
@pytest.mark.parametrize("quotes", ['""', "<>"])
def test_an_include_reads_only_the_programs_own_files(
    ask: Ask, tmp_path: Path, name: str, quotes: str
) -> None:
    (tmp_path / "outside.p4").write_text("secret_of_the_user\n")
    answer = ask(f"#include {quotes[0]}{name}{quotes[1]}\n", do="check")
    (found,) = answer["diagnostics"]
    assert found["message"].startswith(f"no such file: {name}")
    assert "secret" not in json.dumps(answer)
    assert "root" not in found["message"].partition("hint")[0]


def test_a_link_that_leads_outside_is_not_followed(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "secret.p4").write_text("secret_of_the_user\n")
    ask("", do="check")
    Path("link.p4").symlink_to(tmp_path / "secret.p4")
    worker._compiled.cache_clear()
    assert "secret_of" not in json.dumps(ask('#include "link.p4"\n', do="check"))


@pytest.mark.parametrize("name", ["../x.p4", "/tmp/x.p4", "x.py", ".p4", "a/b.p4", "x.p4\n", "-x.p4", ""])
def test_a_file_with_a_strange_name_is_refused(name: str, ask: Ask) -> None:
    assert "is no name of a file" in ask("", do="check", files={name: ""}, main=name)["error"]
    assert not Path("..", "x.p4").exists()


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"do": "eval"},
        {"do": "_files"},
        {"do": "check", "files": 5},
        {"do": "check", "main": "other.p4"},
        {"do": []},
    ],
)
def test_what_is_no_request_is_answered_with_an_error(request_: Json, ask: Ask) -> None:
    assert ask("", **{"do": None, **request_})["error"]


@pytest.mark.slow
def test_an_lpm_match_has_a_prefix_length_in_the_page_and_not_always_in_stf(ask: Ask) -> None:
    forwarding = ROOT / "labs" / "01-forwarding" / "solution" / "forwarding.p4"
    action = '"MyIngress.forward"("mac":1, "port":1)'
    stf = f"add MyIngress.ipv4_lpm hdr.ipv4.destination:0x0a000001 {action}\npacket 1 00\n"
    scenario = ask(forwarding, do="load", stf=stf)["scenario"]
    assert scenario["entries"][0]["match"] == {"hdr.ipv4.destination": "10.0.0.1/32"}
    scenario["entries"][0]["match"]["hdr.ipv4.destination"] = "10.0.0.1"
    error = ask(forwarding, do="run", scenario=scenario)["error"]
    assert error.endswith("hdr.ipv4.destination: write VALUE/LENGTH, with a length up to 32")


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ({"packets": [{"port": 600, "hex": ""}]}, "packet 1: port 600 is not between 0 and 511"),
        ({"packets": [{"port": 1, "hex": "zz"}]}, "packet 1: write two hexadecimal digits"),
        ({"packets": [{"port": 1, "hex": "00" * 70000}]}, "packet 1: it has 70000 bytes"),
        ({"packets": [{"port": 1, "hex": ""}] * 201}, "at most 200 packets"),
        ({"entries": [{"table": "nothing", "action": "x"}]}, "table nothing: the program has no such table"),
        (
            {
                "entries": [
                    {
                        "table": "ingress.allowed",
                        "action": "ingress.allow",
                        "match": {"hdr.udp.destination": "a b"},
                    }
                ]
            },
            "table ingress.allowed: hdr.udp.destination: 'a b' is neither a number nor an address",
        ),
        (
            {
                "entries": [
                    {
                        "table": "ingress.allowed",
                        "action": "ingress.allow",
                        "match": {"hdr.udp.destination": "65536"},
                    }
                ]
            },
            "65536 does not fit 16 bits",
        ),
        (
            {"entries": [{"table": "ingress.allowed", "action": "ingress.allow"}]},
            "an exact key needs a value",
        ),
        ({"packets": [{"port": 1, "hex": "", "name": "x\nadd y"}], "more": 1}, "more"),
    ],
)
def test_what_does_not_fit_the_program_is_named(scenario: Json, said: str, ask: Ask) -> None:
    assert said in ask(FIREWALL / "firewall.p4", do="run", scenario=scenario)["error"]


def test_a_name_of_a_packet_adds_no_line_to_the_test(ask: Ask) -> None:
    packet = {"port": 1, "hex": "02" * 14, "name": "harmless\nregister_write x 0 1"}
    made = ask(FIREWALL / "firewall.p4", do="export", scenario={"packets": [packet]})["stf"]
    assert "# harmless register_write x 0 1\n" in made
    assert "\nregister_write" not in made


@pytest.mark.slow
def test_programs_that_come_with_fanin_compile_and_their_packets_fit(ask: Ask) -> None:
    for preset in presets():
        files = {"files": preset.files(), "main": preset.main.name}
        checked = ask("", do="check", **files)
        assert "program" in checked, (preset.name, checked)
        if preset.scenario is None:
            continue
        loaded = ask("", do="load", stf=preset.stf(), **files)
        assert loaded["scenario"]["packets"], (preset.name, loaded)
