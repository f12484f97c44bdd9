"""PSA programs: `psa.stf` sends a packet along every path through `psa.p4`, and a table shows what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.p4compiler import CompileError, compile_file
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


@pytest.mark.parametrize("include", ["<psa.p4>", "<bmv2/psa.p4>", '"bmv2/psa.p4"'])
def test_names_of_the_include(tmp_path: Path, include: str) -> None:
    path = tmp_path / "x.p4"
    path.write_text(PROGRAM.read_text().replace("<psa.p4>", include))
    assert compile_file(path).p4info.pkg_info.arch == "psa"


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
            "    report_t report;\n}",
            "    report_t report;\n    bit<8> x;\n}",
            "field 'x' of headers_t is not a header",
        ),
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
    ("declaration", "use"),
    [
        ("Digest<handed_t>() extra;", "extra.pack(resubmit_meta);"),
        ("Checksum<bit<16>>(PSA_HashAlgorithm_t.CRC16) extra;", "extra.clear();"),
    ],
)
def test_an_extern_without_a_counterpart_is_refused(tmp_path: Path, declaration: str, use: str) -> None:
    path = tmp_path / "x.p4"
    old = "    apply {\n        clone_i2e_meta"
    text = PROGRAM.read_text().replace(old, f"    {declaration}\n    apply {{\n        {use} clone_i2e_meta")
    path.write_text(text)
    with pytest.raises(CompileError, match="is not supported") as failure:
        compile_file(path)
    assert failure.value.diagnostics[0].span.file.path == str(path)
