"""`fanin compile`: the files it writes and what it says of errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf import text_format
from typer.testing import CliRunner

from fanin.cli import app
from p4switch.engine.engine import Engine

PROGRAM = """\
#include <core.p4>
#include <v1model.p4>
header byte_t { bit<8> value; }
struct headers_t { byte_t byte; }
struct metadata_t {}
parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start { packet.extract(hdr.byte); transition accept; }
}
control check(inout headers_t hdr, inout metadata_t meta) { apply {} }
control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply { hdr.byte.value = hdr.byte.value + STEP; standard_metadata.egress_spec = 3; }
}
control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.byte); } }
V1Switch(parse(), check(), ingress(), egress(), check(), deparse()) main;
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "step.p4"
    path.write_text(PROGRAM)
    return path


def test_what_it_writes_runs_on_the_switch(program: Path) -> None:
    from finsy.proto import p4i

    done = CliRunner().invoke(app, ["compile", str(program), "-D", "STEP=5"])
    assert done.exit_code == 0, done.output
    assert done.output == "wrote step.json\nwrote step.p4info.txtpb\n"
    engine = Engine.load(Path("step.json").read_bytes())
    assert engine.process(1, bytes([7, 8])) == [(3, bytes([12, 8]))]
    info = text_format.Parse(Path("step.p4info.txtpb").read_text(), p4i.P4Info())
    assert info.pkg_info.arch == "v1model"


def test_outputs_go_where_they_are_told(program: Path) -> None:
    CliRunner().invoke(app, ["compile", str(program), "-DSTEP=1", "-o", "a.json", "--p4info", "b.txtpb"])
    assert json.loads(Path("a.json").read_text())["__meta__"]["version"]
    assert Path("b.txtpb").exists()


def test_the_c_of_the_switch_on_request(program: Path) -> None:
    done = CliRunner().invoke(app, ["compile", str(program), "-DSTEP=5", "--c", "step.c"])
    assert done.output.splitlines()[-1] == "wrote step.c"
    [line] = [line for line in Path("step.c").read_text().splitlines() if "byte_t_value, (" in line]
    assert line.strip().startswith("put32(p->header[H_byte], byte_t_value, (get32(")


def test_an_error_names_place_line_and_mend(program: Path) -> None:
    done = CliRunner().invoke(app, ["compile", str(program)])
    assert done.exit_code == 1
    assert f"{program}:11:47: error: there is no name 'STEP'" in done.output
    assert not Path("step.json").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["missing.p4"], "does not exist"),
        (["step.p4", "-DSTEP=1", "-o", "no/where.json"], "cannot be written"),
    ],
)
@pytest.mark.usefixtures("program")
def test_files_that_are_not_there_are_named(arguments: list[str], complaint: str) -> None:
    done = CliRunner().invoke(app, ["compile", *arguments])
    assert done.exit_code != 0
    assert complaint in done.output


def test_the_program_after_a_phase_on_request(program: Path) -> None:
    done = CliRunner().invoke(app, ["compile", str(program), "-DSTEP=1", "--dump-after", "lower"])
    assert done.exit_code == 0, done.output
    assert "    apply {\n        hdr.byte.value = hdr.byte.value + 8w1;  // step.p4:11\n" in done.output
    assert not list(Path().glob("*.json"))


def test_a_phase_that_does_not_exist(program: Path) -> None:
    done = CliRunner().invoke(app, ["compile", str(program), "-DSTEP=1", "--dump-after", "optimize"])
    assert done.exit_code == 2
    assert "there is no phase 'optimize': the phases are parse, check, inline, lower, graph" in done.output
