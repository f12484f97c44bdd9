"""The STF runner, and the programs and tests beside this file; BMv2 passes them too unless they say otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.p4compiler import compile_once
from fanin.p4switch.stf.run import run_stf
from fanin.p4switch.stf.syntax import ActionText, StfError, parse_stf
from fanin.p4switch.trace.events import Lookup

HERE = Path(__file__).parent
TESTS = sorted(HERE.glob("*.stf"))


@pytest.fixture(scope="module")
def forwarder() -> bytes:
    return compile_once(HERE.parent / "programs/tables.p4").device_config()


@pytest.mark.slow
@pytest.mark.parametrize("test", TESTS, ids=lambda path: path.stem)
def test_programs(test: Path) -> None:
    config = compile_once(test.with_suffix(".p4")).device_config()
    assert run_stf(config, test.read_text()).differences == []


def differences(config: bytes, test: str) -> str:
    return "\n".join(run_stf(config, test).differences)


@pytest.fixture(scope="module")
def meters() -> bytes:
    return compile_once(HERE / "meters.p4").device_config()


@pytest.fixture(scope="module")
def entities() -> bytes:
    return compile_once(HERE.parent / "programs/entities.p4").device_config()


def test_what_differs_is_shown(meters: bytes) -> None:
    packet = "packet 0 01ffff aa\n"
    assert differences(meters, packet + "expect 1 0100") == ""
    assert differences(meters, packet + "expect 1 01****aa$") == ""
    assert "01000a$\n    sent     010000aa\n                  ^^^" in differences(
        meters, packet + "expect 1 01 00 0a$"
    )
    assert "^" in differences(meters, packet + "expect 1 010000$")
    assert "missing" in differences(meters, packet + "expect 1 010000aa\nexpect 1 010000aa")
    assert "port 2, packet 1: missing\n    line 2" in differences(meters, packet + "expect 2 010000aa")
    assert "not expected" in differences(meters, packet + "packet 1 02ffff")
    assert differences(meters, packet + "expect 1") == ""
    assert "no packet" in differences(meters, packet + "expect 2")


def test_the_packet_with_which_a_difference_began_is_named(meters: bytes) -> None:
    two = "packet 0 01ffffaa\npacket 0 01ffffbb\n"
    for rest, wrong in (
        ("expect 1 010000aa\nexpect 1 010000cc", [2]),
        ("expect 1 010000aa", [2]),  # not expected
        ("expect 1 010000aa\nexpect 1 010000bb\nexpect 1 010000cc", [2]),  # missing
        ("expect 2\nexpect 1 01\nexpect 1 02", [2]),
        ("expect 1 00\nexpect 1 00", [1, 2]),
    ):
        assert run_stf(meters, two + rest).wrong == wrong, rest
    assert run_stf(meters, "expect 2 00\npacket 0 01ffffaa").wrong == [2]
    assert run_stf(meters, "expect 2 00").wrong == []


@pytest.mark.slow
def test_the_path_of_what_went_wrong_is_shown_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "test.stf").write_text("packet 0 01ffffaa\nexpect 2 010000aa\n")
    arguments = ["stf", str(HERE / "meters.p4"), str(tmp_path / "test.stf")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert done.stdout.endswith(": 1 difference; --trace shows the path of the packet of line 1\n"), (
        done.stdout
    )
    done = CliRunner().invoke(app, [*arguments, "--trace"])
    assert "The packet of line 1 in the program:\n  packet on port 0, 4 bytes" in done.stdout
    assert "[meters.p4:" in done.stdout
    assert done.stdout.endswith(": 1 difference\n")


@pytest.mark.slow
def test_the_path_has_the_priorities_that_the_test_gives(forwarder: bytes) -> None:
    entries = [
        "add ternary_table 10 hdr.probe.a:0x0* hdr.probe.e:7 answer_ternary(n:1)",
        "add optional_table hdr.probe.c:0x0405 answer_optional(n:2)",
    ]
    packet = f"packet 0 01 0203 0405 67 {'aa' * 16}"
    (trace,) = run_stf(forwarder, "\n".join([*entries, packet]), trace=True).traces[3]
    found = {e.table: e.entry.priority for e in trace.events if isinstance(e, Lookup) and e.entry is not None}
    assert found == {"ingress.ternary_table": 10, "ingress.optional_table": None}


def test_ports_that_a_test_does_not_name_do_not_exist(meters: bytes) -> None:
    assert differences(meters, "packet 0 01ffff") == ""
    assert "not expected" in differences(meters, "packet 0 01ffff\nno_packet")


def test_counters_are_checked(meters: bytes) -> None:
    test = "packet 0 01ffff\ncheck_counter seen(1) packets {}\n"
    assert differences(meters, test.format("== 1")) == ""
    assert "1 packets, not > 1" in differences(meters, test.format("> 1"))
    assert run_stf(meters, "check_counter seen(1)").notes == ["seen(1): 0 packets, 0 bytes"]


def test_a_failed_assertion_fails_the_test(meters: bytes) -> None:
    assert "1 packet was dropped by a failed assertion" in differences(meters, "packet 0 ffffff")


def test_tables_that_the_compiler_made_are_not_listed(meters: bytes) -> None:
    with pytest.raises(StfError) as refused:
        run_stf(meters, "add nothing a(b:1)")
    assert "tbl_" not in str(refused.value)
    assert "line 1: table nothing does not exist; there are " in str(refused.value)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("teleport 1", "line 1: unknown command 'teleport'"),
        ("packet 0 0g", "not the bytes of a packet"),
        pytest.param(
            f"packet 0 {'00' * 200_000}",
            "line 1: this packet has 200000 bytes, at most 65600 are possible",
            id="too long",
        ),
        ("packet 0 012", "not the bytes of a packet"),
        ("expect x 01", "needs a port"),
        ("add t a:1", "add TABLE"),
        ("add t a b(c:1)", "keys are NAME:VALUE"),
        (
            "add t a:10.1.0.0/16 b(c:1)",
            "'10.1.0.0/16' is not a number: STF has no addresses; write 0x0a010000/16",
        ),
        (
            "add t a:1 b(c:08:00:00:00:01:11)",
            "line 1: '08:00:00:00:01:11' is not a number: STF has no addresses; ",
        ),
        ("register_write r 1", "takes 3 to 3 words"),
        ("check_counter seen", "check_counter NAME"),
        ("check_counter nothing(1)", "counter nothing does not exist; there are Receive.seen"),
        ("check_counter seen(sshh)", "no entry was added as sshh; IDs are none"),
        ("add nothing a:1 b()", "table nothing does not exist"),
        ("meter_set_rates packets 1 x", "'x' is not RATE:BURST"),
        ("meter_set_rates packets 9 1:1 1:1", "line 1: Receive.packets: index 9 is not in 0..3"),
        ("mc_node_associate 1 0", "group 1 or node 0 does not exist"),
    ],
)
def test_a_wrong_line_is_an_error(meters: bytes, line: str, why: str) -> None:
    with pytest.raises(StfError) as caught:
        run_stf(meters, line)
    assert why in str(caught.value)


def test_comments_case_and_quotes() -> None:
    commands = list(parse_stf('# nothing\n\nPACKET 0 01 02 # two bytes\nadd "a.t" 7 "k":0x1 "x"(y:2) = e1'))
    assert [(c.line, c.verb, c.words) for c in commands] == [
        (3, "packet", ("0", "0102")),
        (4, "add", ("a.t",)),
    ]
    assert (commands[1].priority, commands[1].keys, commands[1].id) == (7, (("k", "0x1"),), "e1")


def test_a_quoted_name_may_have_any_characters() -> None:
    line = 'add "a#b|c (d)" 1 "x & 0x10":0x1 "y[3:0]":2 "do, it"("to: port":3, n:4) = e # and a comment'
    (command,) = parse_stf(line)
    assert command.words == ("a#b|c (d)",)
    assert command.keys == (("x & 0x10", "0x1"), ("y[3:0]", "2"))
    assert command.action == ActionText("do, it", {"to: port": 3, "n": 4})
    assert (command.priority, command.id) == (1, "e")
    (counter,) = parse_stf('check_counter "a b"(3) packets == 1')
    assert counter.words == ("a b", "3", "packets", "==", "1")


def test_entries_name_members_and_groups_of_an_action_profile(entities: bytes) -> None:
    """The selector hashes the source with the identity, modulo the two members: 1 takes member 1, and 2 member 0."""
    writes = """
        act_prof_create_member path_choice forward(port:4)
        act_prof_create_member path_choice "Receive.forward"("port":5)
        act_prof_create_group path_choice
        act_prof_add_member_to_group path_choice 0 0
        act_prof_add_member_to_group path_choice 1 0
        table_indirect_add_with_group paths hdr.flow.destination:7 => 0
        table_indirect_add paths flow.destination:8 => 1
        act_prof_create_member mark_choice mark(label:9)
        table_indirect_add marks hdr.flow.destination:8 => 0
    """
    for packet, expected in (
        ("000001070000", "5 000001070000"),
        ("000002070000", "4 000002070000"),
        ("000002080000", "5 000002080900"),
    ):
        assert differences(entities, f"{writes}\npacket 1 {packet}\nexpect {expected}$") == ""


def test_members_of_a_group_have_weights(entities: bytes) -> None:
    """The source modulo the weights, in the order of the members."""
    writes = """
        act_prof_create_member path_choice forward(port:4)
        act_prof_create_member path_choice forward(port:5)
        act_prof_create_group path_choice
        act_prof_add_member_to_group path_choice 0 0 3
        act_prof_add_member_to_group path_choice 1 0
        table_indirect_add_with_group paths hdr.flow.destination:7 => 0
    """
    ports = {source: 5 if source % 4 == 3 else 4 for source in range(8)}
    packets = [
        f"packet 1 00000{source}070000\nexpect {port} 00000{source}07" for source, port in ports.items()
    ]
    assert differences(entities, "\n".join([writes, *packets])) == ""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("act_prof_create_member path_choice forward", "line 1: act_prof_create_member PROFILE ACTION(NAME:"),
        (
            "act_prof_create_member path_choice x forward(port:1)",
            "act_prof_create_member PROFILE ACTION(NAME:",
        ),
        (
            "act_prof_create_member paths forward(port:1)",
            "there are Receive.path_choice, Receive.mark_choice",
        ),
        (
            "act_prof_create_member path_choice mark(label:1)",
            "action mark does not exist; there are Receive.f",
        ),
        ("act_prof_create_group mark_choice", "it has no selector, so it takes no groups"),
        ("act_prof_add_member_to_group path_choice 0 0", "group 0 does not exist"),
        ("table_indirect_add paths hdr.flow.destination:7 3", "TABLE [PRIORITY] KEY:VALUE ... => NUMBER"),
        ("table_indirect_add paths hdr.flow.destination:7 => x", "line 1: 'x' is not a number"),
        ("table_indirect_add paths hdr.flow.destination:7 => 3", "member 3 does not exist"),
        ("table_indirect_add_with_group paths hdr.flow.destination:7 => 3", "group 3 does not exist"),
        ("table_indirect_add rates hdr.flow.source:7 => 3", "it has no action profile"),
    ],
)
def test_a_wrong_line_about_an_action_profile_is_an_error(entities: bytes, line: str, why: str) -> None:
    with pytest.raises(StfError) as caught:
        run_stf(entities, line)
    assert why in str(caught.value)


def test_entries_of_every_kind(forwarder: bytes) -> None:
    """Table by suffix, wildcards, prefixes, priorities (the larger wins), an entry's own name."""
    probe = "packet 3 01 0203 0405 67 000000000000000000000000000000aa" + "ff" * 28 + "\n"
    key, answers = "010203040567000000000000000000000000000000aa", ["00000000"] * 7
    entries = [
        "add exact_table probe.a:1 hdr.probe.c:0x0405 e:7 answer_exact(n:1) = first",
        "add lpm_table hdr.probe.d:6 hdr.probe.b:0x02** ingress.answer_lpm(n:2)",
        "add lpm_table hdr.probe.d:6 hdr.probe.b:0x0200/7 answer_lpm(n:9)",
        "add ternary_table 3 hdr.probe.a:0x0* hdr.probe.e:7 answer_ternary(n:9)",
        "add ternary_table 4 hdr.probe.b:0x0003&&&0x00ff hdr.probe.e:7 answer_ternary(n:3)",
        "add range_table 1 hdr.probe.b:0x200->0x2ff hdr.probe.d:6 answer_range(n:4)",
        "add optional_table 1 hdr.probe.c:0x0405 answer_optional(n:5)",
        "setdefault wide_table answer_wide(n:6)",
        f"add span_table 1 hdr.probe.f:0xaa->0x{'f' * 32} hdr.probe.b:0->0x203 answer_span(n:7)",
    ]
    numbers = [f"{n:08x}" for n in range(1, 8)]
    test = "\n".join(
        [*entries, probe, f"expect 3 {key}{''.join(numbers)}$", "check_counter hits($first) packets == 1"]
    )
    assert run_stf(forwarder, test).differences == []
    removed = [*answers[:5], numbers[5], answers[6]]
    assert (
        run_stf(forwarder, f"{test}\nremove all\n{probe}expect 3 {key}{''.join(removed)}$").differences == []
    )


def test_exit_status(tmp_path: Path) -> None:
    program, test = HERE / "meters.p4", tmp_path / "t.stf"
    for text, status in (("packet 0 01ffff", 0), ("packet 0 01ffff\nexpect 1 77", 1), ("teleport", 2)):
        test.write_text(text)
        assert CliRunner().invoke(app, ["stf", str(program), str(test)]).exit_code == status
    assert CliRunner().invoke(app, ["stf", str(HERE / "test_stf.py"), str(test)]).exit_code == 2


def test_files_in_the_other_order_are_named(tmp_path: Path) -> None:
    (tmp_path / "router.stf").write_text("")
    (tmp_path / "router.p4").write_text("")
    done = CliRunner().invoke(app, ["stf", str(tmp_path / "router.stf"), str(tmp_path / "router.p4")])
    assert done.exit_code == 2
    assert f"is a program; write fanin stf {tmp_path / 'router.p4'} {tmp_path / 'router.stf'}" in done.output
