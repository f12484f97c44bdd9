"""An analysis for editors: what it knows about a program with errors, and what it uses again from the last time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fanin.p4compiler import CompileError, lint_file
from fanin.p4compiler.compile import Analysis, Kept, analyze, findings
from tests.p4compiler.conftest import HEADERS, source
from tests.sizes import sized

MAIN = source(
    declarations="#define TWICE(x) x x\n",
    metadata="bit<16> x; bit<8> y;",
    apply="TWICE(meta.x = 1;) FAST\n",
)
FILES = {
    "main.p4": f'#include "headers.p4"\n#include "checks.p4"\n{MAIN}',
    "headers.p4": f"#ifndef HEADERS_P4\n#define HEADERS_P4\n{HEADERS}\n#define SIZE 8\n#endif\n",
    "checks.p4": '#include "headers.p4"\n#define FAST meta.y = 2;\nconst bit<8> LIMIT = SIZE;\n#warning once\n',
}
SLIPS = (
    *("{", "}", "(", ";", "\n", "/*", "meta.", "h_t", "SIZE", "FAST", "TWICE(", "const bit<8> N = 1;\n"),
    *("\n#define SIZE 9\n", "\n#undef SIZE\n", "\n#if 0\n", "\n#endif\n"),
    *('\n#include "other.p4"\n', '\n#include "headers.p4"\n'),
)


def facts(analysis: Analysis) -> list[object]:
    index = analysis.index
    names = [
        (d.name, d.span.file.path, d.span[1:5], [(u.file.path, u[1:5]) for u in d.uses])
        for d in index.definitions
    ]
    includes = [(span[1:5], path) for span, path in index.includes]
    problems = [str(each) for each in (*analysis.errors, *analysis.reporter.warnings)]
    declarations = [d.name for d in analysis.tree.declarations] if analysis.tree is not None else None
    return [names, index.paths, includes, problems, declarations, analysis.sound]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(sized(15, 1000)))
def test_what_is_used_again_changes_nothing(tmp_path: Path, seed: int) -> None:
    r = random.Random(seed)
    texts = {tmp_path / name: text for name, text in FILES.items()}
    root, kept = tmp_path / "main.p4", Kept()
    assert analyze(root, texts=texts, kept=kept).sound
    for _ in range(6):
        path = r.choice([*texts, tmp_path / "other.p4"])
        text = texts.get(path, "")
        begin = r.randrange(len(text) + 1)
        before = dict(texts)
        texts[path] = text[:begin] + r.choice(SLIPS) + text[begin + r.choice([0, 0, 1, 30]) :]
        assert facts(analyze(root, texts=texts, kept=kept)) == facts(analyze(root, texts=texts))
        if r.random() < 0.7:
            texts = before


def test_an_analysis_finds_what_lint_finds(tmp_path: Path) -> None:
    program = tmp_path / "x.p4"
    for body in (
        "meta.x = meta.x * 3;",
        "bit<8> n; meta.y = n;",
        "hdr.h.q = 1;",
        "hdr.h.a = 1; meta.y = 3w1;",
    ):
        program.write_text(source(apply=body))
        analysis = analyze(program)
        if analysis.errors:
            with pytest.raises(CompileError) as refused:
                lint_file(program)
            assert [str(e) for e in analysis.errors] == [str(e) for e in refused.value.diagnostics]
            continue
        misfits, warnings = lint_file(program)
        found, reported = findings(analysis)
        assert [str(m.diagnostic) for m in found] == [str(m.diagnostic) for m in misfits]
        assert [str(w) for w in reported] == [str(w) for w in warnings]


@pytest.mark.parametrize(
    ("broken", "missing"),
    [
        ({"apply": "meta.x = ; meta.y = 2;"}, set()),
        ({"apply": "if (meta.x == ) { meta.y = 1; }\n meta.y = 2;"}, set()),
        ({"locals": "action a() { } \n action wrong( { } \n action c() { }"}, {"wrong"}),
        ({"locals": "action a() { } \n table wrong { actions = \n } \n action c() { }"}, {"wrong"}),
        ({"metadata": "bit<16> x; bit<8> ; bit<8> y;"}, set()),
        (
            {"declarations": HEADERS + "\nconst bit<8> wrong = ;\naction c() { }"},
            {"wrong"},
        ),
    ],
)
def test_what_is_broken_is_skipped(tmp_path: Path, broken: dict[str, str], missing: set[str]) -> None:
    program = tmp_path / "x.p4"
    program.write_text(source(**broken))
    analysis = analyze(program)
    assert not analysis.sound
    assert len(analysis.errors) == 1
    names = {d.name for d in analysis.index.definitions}
    wanted = {"P", "I", "D", "h_t", "metadata", "x", "y"} if "metadata" in broken else {"P", "I", "D", "h_t"}
    wanted |= {"a", "c"} if missing else set()
    assert wanted <= names
    assert not missing & names
