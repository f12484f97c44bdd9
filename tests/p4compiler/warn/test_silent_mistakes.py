"""Warnings about what a program does silently: packets to port 0, values that match nothing, headers that get lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fanin.p4compiler import Compiled, compile_file
from tests.p4compiler.conftest import HEADERS

ROUTER = (Path(__file__).parents[1] / "mistakes" / "router.p4").read_text()
BALANCER = Path(__file__).parents[3] / "browser" / "playground" / "programs" / "balancer" / "balancer.p4"
Warned = Callable[..., list[tuple[str | None, str]]]


@pytest.fixture
def warned(tmp_path: Path) -> Warned:
    """The warnings of the router with changes (old, new), as (name, the source that they are about)."""

    def compile_changed(*changes: tuple[str, str]) -> list[tuple[str | None, str]]:
        text = ROUTER
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        program = tmp_path / "router.p4"
        program.write_text(text)
        return [(w.option, w.span.fragment()) for w in compile_file(program).warnings]

    return compile_changed


SETS = "        standard_metadata.egress_spec = port;\n"
DROPS = "        mark_to_drop(standard_metadata);\n"
DEFAULT = "        size = 1024;\n        default_action = drop();\n"
CHECKSUM_BEGIN = "control MyComputeChecksum(inout headers hdr, inout metadata meta) {\n    apply {\n"


# Headers


def test_a_read_of_a_header_that_other_packets_do_not_have(warned: Warned) -> None:
    outside = (
        "        meta.flow = 7;\n",
        "        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;\n        meta.flow = 7;\n",
    )
    assert warned(outside) == [("invalid-header", "hdr.ipv4.ttl")]
    condition = ("        meta.flow = 7;\n", "        if (hdr.ipv4.protocol == 6) { meta.flow = 7; }\n")
    assert warned(condition) == [("invalid-header", "hdr.ipv4.protocol")]


# Ports


def test_a_program_that_never_chooses_a_port(warned: Warned) -> None:
    nothing = [(SETS, ""), (SETS, ""), (DROPS, "")]
    assert warned(*nothing) == [("egress-spec", "MyIngress")]
    assert warned(*nothing[:2]) == []  # it drops all packets
    assert warned(*nothing, ("meta.flow = 7;", "standard_metadata.mcast_grp = 7;")) == []
    recirculated = (
        "apply { }\n}\n\ncontrol MyCompute",
        "apply { recirculate_preserving_field_list(0); }\n}\n\ncontrol MyCompute",
    )
    assert warned(*nothing, recirculated) == []
    assert warned(*nothing, ("meta.flow = 7;", "resubmit_preserving_field_list(0);")) == []


@pytest.mark.parametrize(
    ("control", "field", "expected"),
    [
        ("standard_metadata.egress_spec = port;", "standard_metadata.egress_port = port;", "egress_port"),
        (
            "control MyEgress(inout headers hdr,\n                 inout metadata meta,\n"
            "                 inout standard_metadata_t standard_metadata) {\n    apply {",
            " standard_metadata.egress_spec = 3;",
            "egress_spec",
        ),
    ],
    ids=["egress_port", "in egress"],
)
def test_a_port_that_is_set_where_it_has_no_effect(
    warned: Warned, control: str, field: str, expected: str
) -> None:
    new = field if expected == "egress_port" else control + field
    assert warned((control, new)) == [("egress-port", f"standard_metadata.{expected}")]
    if expected == "egress_spec":
        assert warned((control, new.replace("= 3", "= 511"))) == []  # dropped


def test_a_swap_that_loses_a_value(warned: Warned) -> None:
    old = "        hdr.ethernet.dstAddr = dstAddr;\n"
    swap = "        hdr.ethernet.dstAddr = hdr.ethernet.srcAddr;\n"
    assert warned((old, swap)) == [("lost-swap", swap.strip(" \n;"))]
    assert warned((old, "        meta.flow = 1;\n" + swap)) == []  # not directly: what is between may matter


def test_headers_that_are_emitted_in_another_order_than_extracted(warned: Warned) -> None:
    ethernet, tunnel = "        packet.emit(hdr.ethernet);\n", "        packet.emit(hdr.tunnel);\n"
    assert warned((ethernet + tunnel, tunnel + ethernet)) == [("emit-order", "hdr.tunnel")]
    made = ("meta.flow = 7;", "hdr.tunnel.setValid();")
    assert warned((ethernet + tunnel, tunnel + ethernet), made) == []  # its place is the program's choice


@pytest.mark.parametrize("again", ["hdr.ipv4", "hdr"])
def test_a_header_that_is_emitted_twice(warned: Warned, again: str) -> None:
    old = "        packet.emit(hdr.ipv4);\n"
    assert warned((old, f"{old}        packet.emit({again});\n")) == [("emitted-twice", again)]


def test_a_table_that_chooses_a_port_and_does_nothing_on_a_miss(warned: Warned) -> None:
    assert warned((DEFAULT, "")) == [("no-default-action", "ipv4_lpm")]


def test_the_hint_for_a_table_with_an_action_profile_has_an_effect(tmp_path: Path) -> None:
    """The default action of such a table has none, as another warning says."""
    program = tmp_path / "balancer.p4"
    program.write_text(
        BALANCER.read_text().replace(
            "} else if (!services.apply().hit) {", "} else if (services.apply().hit) {"
        )
    )
    # Inverted, the miss chooses no port, and the hit is dropped.
    hints = [w.hint for w in compile_file(program).warnings if w.option == "no-default-action"]
    assert hints == ["write if (!services.apply().hit) { ... }"]
    assert not compile_file(BALANCER).warnings


@pytest.mark.parametrize(
    "change",
    [
        (DEFAULT, "        default_action = ipv4_forward(1, 2);\n"),
        ("            drop;\n        }\n" + DEFAULT, "            NoAction;\n        }\n"),
        (DEFAULT, "        const entries = { 0x0A000000 &&& 0xFF000000: drop(); }\n"),
    ],
)
def test_a_table_whose_miss_is_meant(warned: Warned, change: tuple[str, str]) -> None:
    assert warned(change) == []


@pytest.mark.parametrize(
    "apply",
    [
        "standard_metadata.egress_spec = 3; ipv4_lpm.apply();",
        "ipv4_lpm.apply(); standard_metadata.egress_spec = 3;",
        "if (ipv4_lpm.apply().miss) { drop(); }",
        "switch (ipv4_lpm.apply().action_run) { NoAction: { drop(); } }",
    ],
)
def test_a_miss_for_which_the_program_chooses_a_port_elsewhere(warned: Warned, apply: str) -> None:
    assert warned((DEFAULT, ""), ("ipv4_lpm.apply();", apply)) == []


# Keys


def test_a_table_that_is_applied_to_packets_without_its_header(warned: Warned) -> None:
    test = "} else if (hdr.ipv4.isValid()) {\n            ipv4_lpm.apply();\n        } else {\n            drop();\n"
    always = "} else {\n            ipv4_lpm.apply();\n"
    assert warned((test, always)) == [("invalid-header", "hdr.ipv4.dstAddr")]


def test_a_select_without_a_default(warned: Warned) -> None:
    default = "            TYPE_IPV4: parse_ipv4;\n            default: accept;\n"
    only = "            TYPE_IPV4: parse_ipv4;\n"
    assert warned((default, only)) == [("select-default", "TYPE_IPV4: parse_ipv4;")]


@pytest.mark.parametrize(
    ("select", "complete"),
    [
        ("hdr.ipv4.flags[0:0]) { 0: accept; 1: reject; }", True),
        ("hdr.ipv4.flags[0:0]) { 0: accept; }", False),
        ("hdr.ipv4.flags) { 0 .. 5: accept; 6 &&& 6: accept; }", True),
        ("hdr.ipv4.isValid()) { true: accept; false: accept; }", True),
        ("hdr.ipv4.ttl) { 0 &&& 1: accept; 1 &&& 1: accept; }", True),
        ("hdr.ipv4.ttl, hdr.ipv4.ihl) { (_, _): accept; }", True),
        ("hdr.ipv4.ttl, hdr.ipv4.ihl) { (1, _): accept; }", False),
        ("hdr.ipv4.dstAddr, hdr.ipv4.flags[0:0]) { (_, 0): accept; (_, 1): reject; }", True),
        ("hdr.ipv4.flags[0:0], hdr.ipv4.flags[1:1]) { (0, _): accept; (1, 0): reject; }", False),
        ("hdr.ipv4.flags[0:0], hdr.ipv4.flags[1:1]) { (0, _): accept; (1, _): reject; }", True),
    ],
)
def test_a_select_that_meets_every_value(warned: Warned, select: str, complete: bool) -> None:
    found = warned(("transition accept;", f"transition select({select}"))
    assert [name for name, _ in found if name != "unsupported"] == ([] if complete else ["select-default"])


def test_a_select_of_a_value_set_of_structs_does_not_meet_every_value(build: Callable[..., Compiled]) -> None:
    parser = (
        "value_set<pair_t>(4) pairs; "
        "state start { packet.extract(hdr.h); transition select(hdr.h.a, hdr.h.b) { pairs: accept; (1, 2): reject; } }"
    )
    pair = "struct pair_t { bit<8> first; bit<16> second; } "
    found = build(declarations=pair + HEADERS, parser=parser).warnings
    assert [warning.option for warning in found if warning.option != "unsupported"] == ["select-default"]


def test_cases_that_never_match(warned: Warned) -> None:
    default = "            TYPE_IPV4: parse_ipv4;\n            default: accept;\n"
    twice = default.replace("default", "0x800: accept;\n            default")
    assert warned((default, twice)) == [("duplicate-keys", "0x800: accept;")]
    last = "            default: accept;\n            TYPE_IPV4: parse_ipv4;\n"
    assert warned((default, last)) == [("unreachable", "TYPE_IPV4: parse_ipv4;")]


def test_entries_with_the_same_key(warned: Warned) -> None:
    entries = "        const entries = { 5: drop(); 6: drop(); 0x5: tunnel_forward(1); }\n"
    place = "            tunnel_forward;\n            drop;\n        }\n"
    assert warned((place, place + entries)) == [("duplicate-keys", "0x5: tunnel_forward(1);")]


# Headers


def test_a_header_that_is_never_emitted(warned: Warned) -> None:
    emit = "        packet.emit(hdr.tunnel);\n"
    assert warned((emit, "")) == [("never-emitted", "hdr.tunnel")]
    assert warned((emit, ""), ("meta.flow = 7;", "hdr.tunnel.setInvalid();")) == []
    assert (
        warned((emit, ""), ("        packet.emit(hdr.ethernet);\n", ""), ("emit(hdr.ipv4);", "emit(hdr);"))
        == []
    )


def test_a_header_that_is_made_valid_and_never_emitted(warned: Warned) -> None:
    added = ("    ipv4_t ipv4;\n", "    ipv4_t ipv4;\n    tunnel_t inner;\n")
    valid = ("meta.flow = 7;", "hdr.inner.setValid(); hdr.inner = { 1, 2 };")
    assert warned(added, ("meta.flow = 7;", "hdr.inner.setValid(); hdr.inner.dst_id = 1;")) == [
        ("never-emitted", "hdr.inner")
    ]
    assert warned(added, valid, ("packet.emit(hdr.tunnel);", "packet.emit(hdr.inner);"))[0][1] == "hdr.tunnel"


def test_a_header_for_the_controller_is_not_emitted(warned: Warned) -> None:
    controller = ("header tunnel_t", '@controller_header("packet_out") header tunnel_t')
    assert warned(controller, ("        packet.emit(hdr.tunnel);\n", "")) == []


def test_fields_that_are_written_before_the_header_is_valid(warned: Warned) -> None:
    wrong = ("meta.flow = 7;", "hdr.tunnel.dst_id = 7; hdr.tunnel.setValid();")
    right = ("meta.flow = 7;", "hdr.tunnel.setValid(); hdr.tunnel.dst_id = 7;")
    assert warned(wrong) == [("invalid-header", "hdr.tunnel.dst_id")]
    assert warned(right) == []


# Checksums and indices


def test_a_checksum_that_is_not_updated(warned: Warned) -> None:
    begin = ROUTER.index(CHECKSUM_BEGIN) + len(CHECKSUM_BEGIN)
    update = ROUTER[begin : ROUTER.index("    }\n}", begin)]
    assert warned((update, "")) == [("stale-checksum", "hdr.ipv4.ttl")]
    assert warned((update, ""), ("ttl - 1;\n", "ttl - 1;\n        hdr.ipv4.hdrChecksum = 0;\n")) == []
    assert warned((update, ""), ("        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;\n", "")) == []


@pytest.mark.parametrize(
    ("access", "where"),
    [
        ("flows.read(meta.packets, 1024);", "1024"),
        ("flows.write(2000, 1);", "2000"),
        ("tunnels.count(512);", "512"),
        ("flows.read(meta.packets, 1023);", None),
        ("flows.read(meta.packets, meta.flow);", None),
    ],
)
def test_a_constant_index_beyond_the_end(warned: Warned, access: str, where: str | None) -> None:
    found = warned(("meta.flow = 7;", f"meta.flow = 7; {access}"))
    assert found == ([("index-out-of-range", where)] if where else [])


# Switching warnings off


def test_a_declaration_in_which_a_warning_is_not_wanted(warned: Warned) -> None:
    mark = '@noWarn("no-default-action") '
    assert warned((DEFAULT, ""), ("table ipv4_lpm", f"{mark}table ipv4_lpm")) == []
    assert warned((DEFAULT, ""), ("control MyIngress", f"{mark}control MyIngress")) == []
    assert warned((DEFAULT, ""), ("control MyEgress", f"{mark}control MyEgress")) != []
    assert warned((DEFAULT, ""), ("table ipv4_lpm", '@noWarn("unused") table ipv4_lpm')) != []


def test_a_state_in_which_a_warning_is_not_wanted(build: Callable[..., Compiled]) -> None:
    select = "state start { packet.extract(hdr.h); transition select(hdr.h.a) { 1: accept; } }"
    assert [w.option for w in build(declarations=HEADERS, parser=select).warnings] == ["select-default"]
    assert build(declarations=HEADERS, parser=f'@noWarn("select-default") {select}').warnings == ()


def test_a_direct_counter_of_no_table(warned: Warned) -> None:
    old = "    action drop() {\n"
    counter = "    direct_counter(CounterType.packets) hits;\n"
    assert warned((old, counter + old)) == [("unused", "hits")]
    property_ = "        size = 1024;\n"
    assert warned((old, counter + old), (property_, property_ + "        counters = hits;\n")) == []
    assert warned((old, '    @noWarn("unused")\n' + counter + old)) == []
