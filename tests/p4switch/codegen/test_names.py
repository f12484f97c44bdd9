"""Names of a program that mean something else in C."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from fanin.p4compiler import compile_file
from fanin.p4switch.codegen.names import RUNTIME, Names
from fanin.p4switch.engine.engine import Engine
from tests.p4compiler.conftest import source


def test_no_name_is_a_macro_of_the_c_library() -> None:
    """Asks the compiler which macros the library's headers define that the runtime includes."""
    texts = [header.read_text() for header in RUNTIME.glob("*.h")]
    includes = "\n".join(
        i for text in texts for i in re.findall(r"#include <std\w+\.h>|#include <[a-z]+\.h>", text)
    )
    command = ["cc", "-std=gnu11", "-dM", "-E", "-"]
    listed = subprocess.run(command, input=includes, capture_output=True, text=True, check=True).stdout
    macros = {line.split()[1].partition("(")[0] for line in listed.splitlines()}
    assert {"EOF", "UINT64_MAX", "stdin"} <= macros
    assert [m for m in sorted(macros) if not m.startswith("_") and Names().identifier("", m) == m] == []


def test_a_program_with_such_names_runs(tmp_path: Path) -> None:
    program = tmp_path / "test.p4"
    program.write_text(
        source(
            declarations="header h_t { bit<8> EOF; bit<8> UINT64_MAX; } struct headers { h_t SEEK_SET; }",
            metadata="bit<8> EOF; bit<8> offsetof; bit<8> BUFSIZ;",
            parser="state start { packet.extract(hdr.SEEK_SET); transition accept; }",
            locals="""bit<8> CHAR_BIT = 1; action UINT8_MAX(bit<8> SIZE_MAX) { meta.EOF = SIZE_MAX + CHAR_BIT; }
                table L_tmpnam { key = { hdr.SEEK_SET.EOF: exact; } actions = { UINT8_MAX; }
                    default_action = UINT8_MAX(6); }""",
            apply="""L_tmpnam.apply(); hdr.SEEK_SET.UINT64_MAX = meta.EOF + meta.offsetof + meta.BUFSIZ;
                standard_metadata.egress_spec = 1;""",
        )
    )
    engine = Engine.load(compile_file(program).device_config())
    assert engine.process(0, b"\1\2") == [(1, b"\1\7")]
