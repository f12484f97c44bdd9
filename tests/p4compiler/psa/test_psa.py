"""PSA programs: `psa.stf` sends a packet along every path through `psa.p4`, and a table shows what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fanin.p4compiler import CompileError, compile_file
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import Digest
from fanin.p4switch.stf.run import run_stf

HERE = Path(__file__).parent
PROGRAM = HERE / "psa.p4"


def test_every_path_of_a_packet() -> None:
    compiled = compile_file(PROGRAM)
    assert not run_stf(compiled.device_config(), (HERE / "psa.stf").read_text()).differences
    assert compiled.warnings == ()


def test_the_control_plane_sees_the_program_without_the_frame() -> None:
    info = compile_file(PROGRAM).p4info
    assert info.pkg_info.arch == "psa"
    assert [t.preamble.name for t in info.tables] == ["IngressImpl.values", "IngressImpl.profiled"]
    assert [c.preamble.name for c in info.counters] == ["IngressImpl.counted"]
    assert [r.preamble.name for r in info.registers] == ["IngressImpl.seen"]
    assert [c.preamble.name for c in info.direct_counters] == ["IngressImpl.hits"]
    assert [a.preamble.name for a in info.action_profiles] == ["IngressImpl.profile"]
    assert not any("psa_frame" in t.preamble.name for t in (*info.tables, *info.actions))


PLAIN = """
#include <psa.p4>
struct e {}
parser IP(packet_in p, out e h, inout e m, in psa_ingress_parser_input_metadata_t i, in e r, in e c) {
    state start { transition accept; }
}
control IG(inout e h, inout e m, in psa_ingress_input_metadata_t i, inout psa_ingress_output_metadata_t o) {
    apply { send_to_port(o, (PortId_t)2); }
}
control ID(packet_out p, out e c, out e r, out e n, inout e h, in e m, in psa_ingress_output_metadata_t i) {
    apply {}
}
parser EP(packet_in p, out e h, inout e m, in psa_egress_parser_input_metadata_t i, in e n, in e a, in e b) {
    state start { transition accept; }
}
control EG(inout e h, inout e m, in psa_egress_input_metadata_t i, inout psa_egress_output_metadata_t o) {
    apply {}
}
control ED(packet_out p, out e c, out e r, inout e h, in e m, in psa_egress_output_metadata_t i,
    in psa_egress_deparser_input_metadata_t d) {
    apply {}
}
IngressPipeline(IP(), IG(), ID()) ip;
EgressPipeline(EP(), EG(), ED()) ep;
PSA_Switch(ip, PacketReplicationEngine(), ep, BufferingQueueingEngine()) main;
"""


def test_a_program_without_objects_has_no_types(tmp_path: Path) -> None:
    """P4Info, as p4c's, has type_info only where a type might be. The calls of the frame are not the program's."""
    path = tmp_path / "x.p4"
    path.write_text(PLAIN)
    compiled = compile_file(path)
    assert not compiled.p4info.HasField("type_info")
    assert Engine.load(compiled.device_config()).process(1, bytes(64)) == [(2, bytes(64))]


@pytest.mark.parametrize("include", ["<psa.p4>", "<bmv2/psa.p4>", '"bmv2/psa.p4"'])
def test_names_of_the_include(tmp_path: Path, include: str) -> None:
    path = tmp_path / "x.p4"
    path.write_text(PROGRAM.read_text().replace("<psa.p4>", include))
    assert compile_file(path).p4info.pkg_info.arch == "psa"


def test_the_type_of_an_extern_follows_from_its_arguments(tmp_path: Path) -> None:
    path = tmp_path / "x.p4"
    text = PROGRAM.read_text()
    path.write_text(text.replace("Random<bit<16>>(7, 7) seven;", "Random(16w7, 16w7) seven;"))
    assert not run_stf(compile_file(path).device_config(), (HERE / "psa.stf").read_text()).differences
    path.write_text(text.replace("Register<bit<16>, bit<8>>(8) seen;", "Register(8) seen;"))
    with pytest.raises(CompileError, match="takes 2 type arguments, not 0"):
        compile_file(path)


def test_an_index_of_a_type_with_a_name(tmp_path: Path) -> None:
    path = tmp_path / "x.p4"
    text = PROGRAM.read_text().replace("Counter<bit<32>, bit<8>>", "Counter<bit<32>, PortId_t>")
    path.write_text(text.replace("counted.count(1)", "counted.count((PortId_t)1)"))
    info = compile_file(path).p4info
    assert info.counters[0].index_type_name.name == "PortId_t"
    assert "PortId_t" in info.type_info.new_types


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # an argument of main, of a pipeline, of a block
        ("PSA_Switch(ip,", "PSA_Switch(ep,", "an IngressPipeline is needed here"),
        ("IngressImpl(), Ing", "EgressImpl(), Ing", "'EgressImpl' has 'in psa_egress_input_metadata_t istd'"),
        ("IngressParserImpl(), I", "none(), I", "a parser or control of the program is needed here"),
        ("EgressPipeline(EgressParserImpl(), ", "EgressPipeline(", "has 4 parameters, PSA's ep has 7"),
        (", ep, BufferingQueueingEngine()", "", "the argument 'egress' is missing"),
        # what the frame cannot carry out
        ("struct handed_t {", "struct handed_t {\n    cmd_t cmd;", "handed_t has a header"),
        (
            "limit.execute(1)",
            "limit.execute(1, PSA_MeterColor_t.RED)",
            "a meter that starts from a color is not supported",
        ),
        (
            "packet.emit(hdr.cmd);",
            "if (hdr.cmd.to == 1) { packet.emit(hdr.cmd); }",
            "emit() on a condition is not supported",
        ),
        (
            "    report_t report;\n}",
            "    report_t report;\n    bit<8> x;\n}",
            "field 'x' of type bit<8> cannot be emitted",
        ),
        ("(8) seen;", "(8, 5) seen;", "a register with an initial value is not supported"),
        ("InternetChecksum() checksum;", "Digest<handed_t>() digest; InternetChecksum() checksum;", ""),
        ("checksum.add({ hdr.cmd.what", "checksum.add({ 5", "a checksum of int is not supported"),
    ],
)
def test_what_is_refused_is_refused_at_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "x.p4"
    text = PROGRAM.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    if not message:
        assert compile_file(path).json
        return
    with pytest.raises(CompileError) as failure:
        compile_file(path)
    first = failure.value.diagnostics[0]
    assert message in first.message
    assert first.span.file.path == str(path)


@pytest.mark.parametrize(
    ("old", "new", "hints"),
    [
        ("", "", ["compute it in the deparser: clear(), add() and get() of an InternetChecksum()"]),
        # what ingress changes, egress may update
        (
            "        packet.emit(hdr.report);",
            "hdr.report.csum = checksum.get(); packet.emit(hdr.report);",
            [],
        ),
    ],
)
def test_warnings_name_the_program_and_not_the_frame(
    tmp_path: Path, old: str, new: str, hints: list[str]
) -> None:
    path = tmp_path / "x.p4"
    text = PROGRAM.read_text().replace("bit<16> instance;", "bit<16> instance;\n    bit<16> csum;")
    path.write_text(text.replace(old, new) if old else text)
    warnings = compile_file(path).warnings
    assert [warning.hint for warning in warnings] == hints
    assert not any("psa_frame" in str(warning) for warning in warnings)


def test_a_header_that_nobody_hands_over_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "x.p4"
    text = PROGRAM.read_text().replace("in handed_t clone_e2e_meta", "in cmd_t clone_e2e_meta")
    text = text.replace("out handed_t clone_e2e_meta", "out cmd_t clone_e2e_meta")
    text = text.replace("        clone_e2e_meta.value = 0x4444;\n", "")
    path.write_text(text.replace("meta.value = clone_e2e_meta.value;", "meta.value = 0x4444;"))
    assert not run_stf(compile_file(path).device_config(), (HERE / "psa.stf").read_text()).differences
    path.write_text(path.read_text().replace("recirculate_meta.value = 0;", "clone_e2e_meta = hdr.cmd;"))
    with pytest.raises(CompileError, match="cmd_t has a header: headers cannot be handed over"):
        compile_file(path)


def deparser(text: str, declaration: str, use: str) -> str:
    """The program with a declaration and a statement in its ingress deparser."""
    old = "    apply {\n        clone_i2e_meta"
    assert old in text
    return text.replace(old, f"    {declaration}\n    apply {{\n        {use} clone_i2e_meta")


def test_an_extern_without_a_counterpart_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.p4"
    extra = "Checksum<bit<16>>(PSA_HashAlgorithm_t.CRC16) extra;"
    path.write_text(deparser(PROGRAM.read_text(), extra, "extra.clear();"))
    with pytest.raises(CompileError, match="is not supported") as failure:
        compile_file(path)
    assert failure.value.diagnostics[0].span.file.path == str(path)


def test_a_digest_and_a_field_among_the_headers(tmp_path: Path) -> None:
    path = tmp_path / "x.p4"
    text = deparser(
        PROGRAM.read_text(),
        "Digest<tuple<bit<16>, bit<16>>>() learnt;",
        "normal_meta.value = 0x1111; if (hdr.tag == 5) { learnt.pack({ normal_meta.value, 0x77 }); }",
    )
    text = text.replace("    report_t report;\n}", "    report_t report;\n    bit<8> tag;\n}")
    text = text.replace("counted.count(1);", "counted.count(1); hdr.tag = hdr.cmd.to + 3;")
    path.write_text(text.replace("packet.emit(hdr);", "packet.emit(hdr.cmd); packet.emit(hdr.report);"))
    compiled = compile_file(path)
    [digest] = compiled.p4info.digests
    assert (digest.preamble.name, digest.preamble.alias) == ("IngressDeparserImpl.learnt", "learnt")
    engine = Engine.load(compiled.device_config())
    event = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        engine.keep_digests(event)
        assert len(engine.process(1, bytes.fromhex("00 02 0000 00 00 0000 0000 0000 abcd"))) == 1
        assert engine.digests() == [Digest("IngressDeparserImpl.learnt", (0x1111, 0x77))]
    finally:
        os.close(event)


@pytest.mark.parametrize("include", ["<psa.p4>", '"psa.p4"', "<bmv2/psa.p4>", '"bmv2/psa.p4"'])
def test_psa_p4_of_p4c_is_not_used(tmp_path: Path, include: str) -> None:
    (tmp_path / "p4include/bmv2").mkdir(parents=True)
    for name in ("psa.p4", "bmv2/psa.p4"):
        (tmp_path / "p4include" / name).write_text("extern Register<T, S> { Register(bit<32> size); }")
    path = tmp_path / "x.p4"
    path.write_text(PROGRAM.read_text().replace("<psa.p4>", include))
    assert compile_file(path, include_dirs=[tmp_path / "p4include"]).p4info.pkg_info.arch == "psa"
