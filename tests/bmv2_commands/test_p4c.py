"""p4c and p4c-bm2-ss: the files they write, and what they refuse."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import json_format, text_format

from fanin.bmv2_commands.p4c import main
from fanin.p4compiler.compile import INCLUDE

PROGRAM = """
#include <v1model.p4>
#ifndef PORT
#define PORT 2
#endif
header h_t { bit<8> f; }
struct headers { h_t h; }
struct metadata { }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t s) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t s) {
    action send(bit<9> port) { s.egress_spec = port; }
    table t { key = { hdr.h.f: exact; } actions = { send; NoAction; } default_action = NoAction(); }
    apply { s.egress_spec = PORT; t.apply(); BODY }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t s) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""
UNINITIALIZED = "bit<8> x; hdr.h.f = x;"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prog.p4").write_text(PROGRAM.replace("BODY", ""))
    Path("warned.p4").write_text(PROGRAM.replace("BODY", UNINITIALIZED))


def test_tutorials_name_the_json_for_p4c_bm2_ss():
    line = "--p4v 16 --p4runtime-files build/prog.p4.p4info.txtpb -o build/prog.json prog.p4"
    assert main("p4c-bm2-ss", line.split()) == 0
    assert "pipelines" in json.loads(Path("build/prog.json").read_text())
    info = text_format.Parse(Path("build/prog.p4.p4info.txtpb").read_text(), p4i.P4Info())
    assert [table.preamble.name for table in info.tables] == ["I.t"]


def test_tutorials_name_a_folder_for_p4c():
    line = "--target bmv2 --arch v1model --p4runtime-files build/prog.p4info.txtpb -o build prog.p4"
    assert main("p4c", line.split()) == 0
    assert sorted(path.name for path in Path("build").iterdir()) == ["prog.json", "prog.p4info.txtpb"]


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("p4c -b bmv2 --std p4-16 prog.p4", "prog.json"),
        ("p4c prog.p4 --target bmv2 --arch v1model --std p4-16 -o out", "out/prog.json"),
        ("p4c -o out.json prog.p4", "out.json"),
        ("p4c-bm2-ss -o out prog.p4", "out"),
        ("p4c-bm2-ss --std=p4-16 -o . prog.p4", "prog.json"),
        ("p4c-bm2-ss prog.p4", "prog.json"),
    ],
)
def test_the_json_is_where_scripts_expect_it(line, written):
    command, *arguments = line.split()
    assert main(command, arguments) == 0
    assert "pipelines" in json.loads(Path(written).read_text())


def test_programs_for_psa_are_compiled():
    shutil.copy(Path(__file__).parents[1] / "p4compiler" / "psa" / "psa.p4", "prog.p4")
    assert main("p4c", ["--target", "bmv2", "--arch", "psa", "prog.p4"]) == 0
    assert Path("prog.json").exists()


def test_a_v1model_of_one_s_own_can_replace_the_compiler_s(monkeypatch):
    own = (INCLUDE / "v1model.p4").read_text()
    field = '@alias("queueing_metadata.qid") bit<5> qid;'
    Path("own").mkdir()
    Path("own/v1model.p4").write_text(
        own.replace("struct standard_metadata_t {", f"struct standard_metadata_t {{ {field}")
    )
    Path("prog.p4").write_text(PROGRAM.replace("BODY", "hdr.h.f = (bit<8>) s.qid;"))
    assert main("p4c", ["prog.p4"]) == 1
    monkeypatch.setenv("P4C_16_INCLUDE_PATH", "own")
    assert main("p4c", ["prog.p4"]) == 0


def test_p4info_files_have_the_format_that_their_names_say():
    assert main("p4c", ["--p4runtime-files", "a.txt,a.json,a.bin", "prog.p4"]) == 0
    text = text_format.Parse(Path("a.txt").read_text(), p4i.P4Info())
    assert json_format.Parse(Path("a.json").read_text(), p4i.P4Info()) == text
    assert p4i.P4Info.FromString(Path("a.bin").read_bytes()) == text
    assert text.tables


def test_a_format_can_be_given_for_a_file_with_another_suffix():
    assert main("p4c-bm2-ss", ["--p4runtime-file", "info", "--p4runtime-format", "json", "prog.p4"]) == 0
    assert json_format.Parse(Path("info").read_text(), p4i.P4Info()).tables


def test_macros_and_folders_of_includes_reach_the_preprocessor():
    Path("inc").mkdir()
    Path("inc/port.h").write_text("#define PORT OTHER\n")
    Path("prog.p4").write_text(PROGRAM.replace("BODY", "").replace("#ifndef", '#include "port.h"\n#ifndef'))
    assert main("p4c", ["-Iinc", "-DOTHER=77", "prog.p4"]) == 0
    assert '"0x004d"' in Path("prog.json").read_text().replace('"0x4d"', '"0x004d"')
    assert main("p4c", ["-Iinc", "-DOTHER=77", "-UOTHER", "prog.p4"]) == 1


def test_warnings_are_printed_and_can_be_omitted_or_refused(capsys):
    assert main("p4c", ["warned.p4"]) == 0
    said = capsys.readouterr().err
    assert "warning" in said
    name = said.partition("--Wwarn=")[2].partition("]")[0]
    for omitted in (["--Wdisable", "warned.p4"], [f"--Wdisable={name}", "warned.p4"]):
        for words in (omitted, omitted[::-1]):
            assert main("p4c", words) == 0
            assert capsys.readouterr().err == ""
    Path("warned.json").unlink()
    assert main("p4c", ["warned.p4", f"--Werror={name}"]) == 1
    assert "error" in capsys.readouterr().err
    assert not Path("warned.json").exists()
    for kept in (["--Werror", f"--Wwarn={name}"], [f"--Werror={name}", "--Wwarn"]):
        for words in (["warned.p4", *kept], [*kept, "warned.p4"], ["--Wwarn", name, *kept, "warned.p4"]):
            assert main("p4c", words) == 0
            assert f"[--Wwarn={name}]" in capsys.readouterr().err


def test_several_warnings_may_be_named_at_once(capsys):
    assert main("p4c", ["--Wdisable=uninitialized-use,unused", "warned.p4"]) == 0
    assert "uninitialized" not in capsys.readouterr().err
    assert main("p4c", ["--Werror=unused,uninitialized-use", "warned.p4"]) == 1


def test_warnings_may_be_notes(capsys):
    assert main("p4c-bm2-ss", ["--Winfo", "--Werror=unused", "warned.p4"]) == 0
    said = capsys.readouterr().err
    assert "info: " in said
    assert "warning: " not in said


def test_the_driver_preprocesses_into_a_file(capfd):
    assert main("p4c", ["-E", "-DPORT=77", "-o", "out", "prog.p4"]) == 0
    assert [path.name for path in Path("out").iterdir()] == ["prog.p4i"]
    assert "s.egress_spec = 77;" in Path("out/prog.p4i").read_text()
    assert capfd.readouterr() == ("", "")


def test_the_compiler_preprocesses_to_the_standard_output(capfd):
    assert main("p4c-bm2-ss", ["-E", "-DPORT=77", "prog.p4"]) == 0
    assert "s.egress_spec = 77;" in capfd.readouterr().out
    assert not Path("prog.json").exists()
    assert not Path("prog.p4i").exists()


def test_a_preprocessed_program_can_be_compiled():
    assert main("p4c", ["-E", "-DPORT=77", "prog.p4"]) == 0
    assert main("p4c", ["-e", "prog.p4i", "-o", "again"]) == 0
    assert main("p4c", ["-DPORT=77", "prog.p4"]) == 0
    ports = [
        re.findall(r'"0x4d"|"0x004d"', Path(name).read_text()) for name in ("again/prog.json", "prog.json")
    ]
    assert ports[0] == ports[1] != []


def test_dependencies_are_those_of_the_preprocessor(capfd):
    Path("port.h").write_text("#define PORT 3\n")
    Path("prog.p4").write_text('#include "port.h"\n' + PROGRAM.replace("BODY", ""))
    assert main("p4c-bm2-ss", ["-M", "prog.p4"]) == 0
    assert "port.h" in capfd.readouterr().out
    assert not Path("prog.json").exists()
    assert main("p4c", ["-MD", "-MF", "deps.d", "prog.p4"]) == 0
    assert "port.h" in Path("deps.d").read_text()
    assert Path("prog.json").exists()


def test_warnings_of_the_preprocessor_are_not_those_of_p4(capfd):
    Path("warned.p4").write_text("#define PORT 1\n#define PORT 2\n" + PROGRAM.replace("BODY", ""))
    assert main("p4c-bm2-ss", ["-Wall", "warned.p4"]) == 0
    assert "redefined" in capfd.readouterr().err
    assert main("p4c-bm2-ss", ["-Werror", "warned.p4"]) == 1
    said = capfd.readouterr().err
    assert "p4c-bm2-ss: the C preprocessor ended with status 1" in said


def test_the_driver_passes_options_on():
    assert main("p4c", ["-Xpreprocessor", "-DPORT=OTHER", "-DOTHER=5", "-E", "prog.p4"]) == 0
    assert "s.egress_spec = 5;" in Path("prog.p4i").read_text()
    assert main("p4c", ["-Xp4c=--Werror=uninitialized-use", "warned.p4"]) == 1
    assert main("p4c", ["-Xp4c", "--Werror=uninitialized-use", "warned.p4"]) == 1


def test_only_the_compiler_of_bmv2_says_that_it_is_for_bmv2():
    Path("prog.p4").write_text(PROGRAM.replace("BODY", "").replace("#ifndef PORT", "#ifdef __TARGET_BMV2__"))
    assert main("p4c-bm2-ss", ["prog.p4"]) == 0
    assert main("p4c", ["prog.p4"]) == 1


def test_defaults_of_the_driver_come_from_the_environment(monkeypatch, capsys):
    for variable, option in (("TARGET", "target"), ("ARCH", "arch"), ("LANGUAGE", "std")):
        monkeypatch.setenv(f"P4C_DEFAULT_{variable}", "other")
        assert main("p4c", ["prog.p4"]) == 1
        assert capsys.readouterr().err.startswith(f"p4c: --{option} other: fanin compiles")
        assert main("p4c-bm2-ss", ["prog.p4"]) == 0
        monkeypatch.delenv(f"P4C_DEFAULT_{variable}")


def test_one_p4info_file_is_binary_unless_a_format_is_given():
    assert main("p4c-bm2-ss", ["--p4runtime-file", "info.txt", "prog.p4"]) == 0
    assert p4i.P4Info.FromString(Path("info.txt").read_bytes()).tables


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--target dpdk prog.p4", "--target dpdk: fanin compiles for bmv2 only"),
        ("--arch pna prog.p4", "--arch pna: fanin compiles programs for v1model and psa only"),
        ("--std p4-14 prog.p4", "--std p4-14: fanin compiles P4_16 only"),
        ("nowhere.p4", "nowhere.p4: No such file or directory"),
        ("-o prog.p4/x prog.p4", "prog.p4/x: Not a directory"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(line, why, capsys):
    assert main("p4c", line.split()) == 1
    assert why in capsys.readouterr().err


def test_errors_name_their_place(capsys):
    Path("prog.p4").write_text(PROGRAM.replace("BODY", "hdr.h.g = 1;"))
    assert main("p4c", ["prog.p4"]) == 1
    assert "prog.p4:16:" in capsys.readouterr().err


def test_an_unknown_option_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        main("p4c", ["--loud", "prog.p4"])
    assert ended.value.code == 1
    assert "--loud" in capsys.readouterr().err
