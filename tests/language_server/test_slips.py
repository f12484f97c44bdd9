"""Whatever is typed, the language server answers, and places are right."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from pygls.exceptions import JsonRpcException

from fanin.language_server.completion import complete
from fanin.language_server.describe import describe
from fanin.language_server.outline import outline
from fanin.language_server.programs import Programs
from fanin.language_server.rename import RenameError, rename
from fanin.p4compiler import CompileError
from fanin.p4compiler.compile import findings
from tests.language_server.editor import editing
from tests.sizes import sized

ROOT = Path(__file__).parents[2]
TEXTS = [path.read_text() for path in sorted((ROOT / "tests" / "p4switch" / "stf").glob("*.p4"))]
TEXTS.append((ROOT / "tests" / "p4compiler" / "psa" / "psa.p4").read_text())
SLIPS = (
    *"{}()[];,<>#\"@:?=\n", "/*", "else", "if (", "switch (", "...", "&&&", "\n#if X\n", "\n#else\n", "\n#endif\n",
    "\\\n",
    "\n#define A(x) x\n", "A(A(", "\n#include \"none.p4\"\n", "\n#include \"x.p4\"\n", "\n#line 5 \"y.p4\"\n", "é", "𝄞",
    "hdr.", "table t {", "key = {", "action a(", "state s {", "transition select(", "header h {", "enum bit<8> e {",
    "control c(", "0x", "bit<", "\x00", "\r\n", "\u2028", "error.", "{#}",
)  # fmt: skip


def with_slips(text: str, r: random.Random) -> str:
    for _ in range(r.choice([1, 1, 2, 4])):
        begin = r.randrange(len(text) + 1)
        text = text[:begin] + r.choice(SLIPS) + text[begin + r.choice([0, 0, 0, 1, 3, 20, 200]) :]
    return text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(sized(8, 500)))
def test_every_question_about_a_program_with_slips_is_answered(tmp_path: Path, seed: int) -> None:
    r = random.Random(seed)
    programs, path = Programs(), tmp_path.resolve() / "x.p4"
    text = programs.buffers[path] = r.choice(TEXTS)
    programs.snapshot(path)
    for _ in range(3):
        text = programs.buffers[path] = with_slips(text, r)
        lines = text.split("\n")
        for snapshot in programs.snapshots(path):
            with suppress(CompileError):
                findings(snapshot.analysis)
            if snapshot.analysis.tree is not None:
                outline(snapshot.analysis.tree, str(path))
            for definition in snapshot.analysis.index.definitions:
                describe(definition)
        for _ in range(8):
            line = r.randrange(len(lines)) + 1
            column = r.randrange(len(lines[line - 1]) + 1)
            complete(programs, path, line, column)
            found = programs.find(path, line, column)
            if found is None:
                continue
            for place in programs.uses(found):
                if place.path == path:
                    span = place.span
                    assert lines[span.line - 1][span.column : span.end_column] == found.definition.name
            with suppress(RenameError):
                rename(programs, found, r.choice(["other", "hdr", "if"]))


@pytest.mark.slow
def test_no_request_about_a_program_with_slips_is_a_fault(tmp_path: Path) -> None:
    r = random.Random(1)
    folder = tmp_path.resolve()
    path = folder / "x.p4"
    path.write_text(TEXTS[0])
    with editing(folder) as editor:
        editor.open(path)
        for _ in range(sized(8, 200)):
            text = with_slips(r.choice(TEXTS), r)
            editor.change(path, text)
            lines = text.split("\n")
            line = r.randrange(len(lines))
            at = path, r.choice([line, line, len(lines) + 5]), r.randrange(len(lines[line]) + 3)
            editor.hover(*at)
            editor.definition(*at)
            editor.references(*at)
            editor.complete(*at)
            editor.symbols(path)
            editor.workspace_symbols("h")
            for refusable in (
                lambda at=at: editor.prepare_rename(*at),
                lambda at=at: editor.rename(*at, "other"),
                lambda: editor.format(path),
            ):
                with suppress(JsonRpcException):
                    refusable()
        assert editor.shown == []
