"""`fanin compile`: the files it writes and what it says of errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from google.protobuf import text_format
from typer.testing import CliRunner

from fanin.cli import app
from fanin.p4compiler import PHASE_NAMES
from fanin.p4switch.engine.engine import Engine
from fanin.verbs.programs.compile import Phase

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


def test_an_error_names_place_line_and_fix(program: Path) -> None:
    done = CliRunner().invoke(app, ["compile", str(program)])
    assert done.exit_code == 1
    assert f"{program}:11:47: error: there is no name 'STEP'" in done.output
    assert not Path("step.json").exists()


OVERFLOW = """\
{place}: {severity}: 300 does not fit in bit<8>; it becomes 44 [--W{option}=overflow]
      apply {{ hdr.byte.value = hdr.byte.value + 300; standard_metadata.egress_spec = 3; }}
                                                ^~~
"""


@pytest.fixture
def overflowing(program: Path) -> Path:
    program.write_text(PROGRAM.replace("STEP", "300"))
    return program


def test_warnings_are_shown_with_their_place_and_p4cs_option(overflowing: Path) -> None:
    done = CliRunner().invoke(app, ["compile", str(overflowing)])
    assert done.exit_code == 0
    place = f"{overflowing}:11:47"
    assert done.stderr == OVERFLOW.format(place=place, severity="warning", option="warn")
    assert done.stdout == "wrote step.json\nwrote step.p4info.txtpb\n"


def test_warnings_as_errors_write_nothing(overflowing: Path) -> None:
    done = CliRunner().invoke(app, ["compile", str(overflowing), "--werror"])
    assert done.exit_code == 1
    place = f"{overflowing}:11:47"
    assert done.stderr == OVERFLOW.format(place=place, severity="error", option="error")
    assert not list(Path().glob("step.*[!4]"))


def test_warnings_are_chosen_by_name(overflowing: Path) -> None:
    place = f"{overflowing}:11:47"
    warning = OVERFLOW.format(place=place, severity="warning", option="warn")
    error = OVERFLOW.format(place=place, severity="error", option="error")
    for options, status, said in (
        (["--Werror=overflow"], 1, error),
        (["--Werror=unused"], 0, warning),
        (["--Werror=overflow", "--Wwarn=overflow"], 0, warning),
        (["--werror", "--Wwarn", "overflow"], 0, warning),
        (["--werror", "--Wwarn", "unused"], 1, error),
        (["--werror", "--Wdisable", "overflow"], 0, ""),
    ):
        done = CliRunner().invoke(app, ["compile", str(overflowing), *options])
        assert (done.exit_code, done.stderr) == (status, said), options


def test_a_name_that_no_warning_has_is_refused(overflowing: Path) -> None:
    for option in ("--Wdisable", "--Werror", "--Wwarn"):
        done = CliRunner().invoke(app, ["compile", str(overflowing), option, "overflows"])
        assert done.exit_code == 2
        assert f"{option} overflows: no warning has this name; the names are duplicate-keys, " in done.stderr


def test_a_program_without_warnings_passes_werror(program: Path) -> None:
    done = CliRunner().invoke(app, ["compile", str(program), "-DSTEP=5", "--werror"])
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.slow
def test_other_verbs_that_compile_show_warnings(overflowing: Path) -> None:
    test = overflowing.with_suffix(".stf")
    test.write_text("packet 1 07\nexpect 3 33\n")
    warning = OVERFLOW.format(place=f"{overflowing}:11:47", severity="warning", option="warn")
    for arguments in (["stf", str(overflowing), str(test)], ["trace", str(overflowing), "--packet", "07"]):
        done = CliRunner().invoke(app, arguments)
        assert (done.exit_code, done.stderr) == (0, warning), done.output


def test_p4info_lies_beside_the_json(program: Path) -> None:
    Path("made").mkdir()
    done = CliRunner().invoke(app, ["compile", str(program), "-DSTEP=1", "-o", "made/a.json"])
    assert done.output == "wrote made/a.json\nwrote made/a.p4info.txtpb\n"


def test_help_says_where_files_go() -> None:
    said = " ".join(CliRunner().invoke(app, ["compile", "--help"]).output.replace("│", " ").split())
    assert "PROGRAM.json by default" in said
    assert "next to the JSON as .p4info.txtpb by default" in said


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


def test_the_program_after_a_phase_comes_with_the_warnings_until_then(overflowing: Path) -> None:
    done = CliRunner().invoke(app, ["compile", str(overflowing), "--dump-after", "check"])
    place = f"{overflowing}:11:47"
    assert done.exit_code == 0
    assert done.stderr == OVERFLOW.format(place=place, severity="warning", option="warn")
    assert "control" in done.stdout
    strict = CliRunner().invoke(app, ["compile", str(overflowing), "--dump-after", "check", "--werror"])
    assert (strict.exit_code, strict.stdout) == (1, "")
    assert strict.stderr == OVERFLOW.format(place=place, severity="error", option="error")
    before = CliRunner().invoke(app, ["compile", str(overflowing), "--dump-after", "parse", "--werror"])
    assert (before.exit_code, before.stderr) == (0, "")


def test_the_phases_to_choose_from_are_the_compilers() -> None:
    assert get_args(Phase) == PHASE_NAMES


def test_a_phase_that_does_not_exist(program: Path) -> None:
    done = CliRunner().invoke(
        app, ["compile", str(program), "--dump-after", "optimize"], env={"COLUMNS": "200"}
    )
    assert done.exit_code == 2
    assert "'optimize' is not one of 'parse', 'check', 'inline', 'lower', 'graph'" in done.output
