"""The errors for students: one for each mistake, at the right place, with its cause and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.p4compiler import CompileError, compile_file
from fanin.p4compiler.source import Diagnostic

HERE = Path(__file__).parent
ROUTER = (HERE / "router.p4").read_text()


class Mistake(NamedTuple):
    """A program with a mistake, the place of its error, and parts of the error's message and hint."""

    program: str
    line: int
    column: int
    error: str
    hint: str


def read_mistake(text: str) -> tuple[str, Mistake]:
    """The title of a paragraph of mistakes.txt, and its mistake."""
    title, *lines = text.strip("\n").split("\n")
    edit = [line for line in lines if line.startswith(("- ", "+ ", "  "))]
    old, new = ("".join(f"{line[2:]}\n" for line in edit if line[0] != sign) for sign in "+-")
    given = dict(line.split(": ", 1) for line in lines if line not in edit)
    assert old in ROUTER, title
    program = ROUTER.replace(old, new.replace("^", ""), 1)
    marked = given.get("at", new)
    at = ROUTER.index(old) if marked is new else program.index(marked.replace("^", ""))
    before = program[: at + marked.index("^")]
    column = len(before) - before.rfind("\n")
    return title, Mistake(program, before.count("\n") + 1, column, given["error"], given["hint"])


MISTAKES = dict(map(read_mistake, (HERE / "mistakes.txt").read_text().split("\n== ")[1:]))


def errors(text: str, folder: Path) -> list[Diagnostic]:
    """The errors of a program; none if it compiles."""
    program = folder / "router.p4"
    program.write_text(text)
    try:
        compile_file(program)
    except CompileError as failure:
        return failure.diagnostics
    return []


def test_the_program_without_a_mistake_has_no_errors_and_no_warnings(tmp_path: Path) -> None:
    program = tmp_path / "router.p4"
    program.write_text(ROUTER)
    assert compile_file(program).warnings == ()


def test_the_table_has_sixty_mistakes_and_more() -> None:
    assert len(MISTAKES) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_gets_one_error_with_its_place_cause_and_fix(mistake: Mistake, tmp_path: Path) -> None:
    [found] = errors(mistake.program, tmp_path)
    assert mistake.error in found.message
    assert mistake.hint in (found.hint or "")
    assert (found.span.line, found.span.column + 1) == (mistake.line, mistake.column)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("inout headers hdr", "in headers hdr", "the architecture gives 'inout headers'"),
        ("bit<32> flow;", "", "metadata has no field 'flow'"),
        ("const bit<16> TYPE_IPV4 = 0x800;", "", "there is no name 'TYPE_IPV4'"),
        ("register<bit<32>>(1024) flows;", "", "there is no name 'flows'"),
        ("typedef bit<9> egressSpec_t;", "", "there is no type 'egressSpec_t'"),
    ],
)
def test_a_cause_that_shows_in_many_places_is_reported_once(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    before, name, ingress = ROUTER.partition("control MyIngress(")
    text = (before + name + ingress.replace(old, new, 1)) if old in ingress else ROUTER.replace(old, new, 1)
    [found] = errors(text, tmp_path)
    assert message in found.message


@given(st.sampled_from(list(MISTAKES.values())), st.data())
def test_no_change_of_a_mistaken_program_breaks_the_compiler(
    tmp_path_factory: pytest.TempPathFactory, mistake: Mistake, data: st.DataObject
) -> None:
    text = mistake.program
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 12))
    other = data.draw(st.integers(0, len(text)))
    put = data.draw(
        st.sampled_from(
            ["", ";", "{", "}", "(", ")", "<", "=", ".", "@", '"', "0", "if", text[other : other + 20]]
        )
    )
    changed = text[:at] + put + text[at + cut :]
    errors(changed, tmp_path_factory.mktemp("changed"))  # raises nothing else
