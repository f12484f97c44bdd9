"""Phases make new trees of trees, and what one must not make is found when it has made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fanin.p4compiler import PHASE_NAMES, compile_file, dump_after, ir, phases, types
from fanin.p4compiler.compile import INCLUDE
from fanin.p4compiler.graph import GraphProgram, TableNode
from fanin.p4compiler.names import Names
from fanin.p4compiler.parse.preprocess import preprocess
from fanin.p4compiler.source import Reporter
from tests.p4compiler.verify.phases import INVARIANTS, BrokenPhaseError, verified

GOLDEN = Path(__file__).parent / "golden"
PROGRAM = GOLDEN / "inlined" / "program.p4"


def trees(program: Path) -> dict[str, Any]:
    """Return the result of each phase by its name; under `preprocess`, the tokens that the first one takes."""
    reporter = Reporter()
    made: dict[str, Any] = {"preprocess": preprocess(program, (INCLUDE,), {}, reporter)}
    for phase in phases.PHASES:
        made[phase.name] = phase.run(list(made.values())[-1], reporter)
    return made


def problems(phase: str, tree: Any) -> str:
    return "\n".join(INVARIANTS[phase](tree))


@pytest.mark.parametrize("program", sorted(GOLDEN.glob("*/program.p4")), ids=lambda path: path.parent.name)
def test_a_phase_leaves_what_it_is_given_as_it_is(program: Path) -> None:
    made = list(trees(program).values())
    for given, phase, following in zip(made[1:], phases.PHASES, phases.PHASES[1:], strict=False):
        before = phase.dump(given)
        first, second = (following.run(given, Reporter()) for _ in range(2))
        assert phase.dump(given) == before
        assert following.dump(first) == following.dump(second)


def test_a_dump_needs_a_phase_that_exists() -> None:
    with pytest.raises(ValueError, match="no phase 'ssa': the phases are parse, check, inline, lower, graph"):
        dump_after("ssa", PROGRAM)


# Phases that do nothing


@pytest.mark.parametrize("name", ["inline", "lower"])
def test_a_phase_that_is_broken_ends_compilation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(tree: Any, _: Reporter) -> Any:
        return _not_inlined(tree) if name == "inline" else tree

    position = PHASE_NAMES.index(name)
    phase = verified(replace(phases.PHASES[position], run=broken))
    monkeypatch.setattr(phases, "PHASES", (*phases.PHASES[:position], phase, *phases.PHASES[position + 1 :]))
    with pytest.raises(BrokenPhaseError, match=rf"^after {name}: .*program\.p4:\d+:\d+: "):
        compile_file(PROGRAM)


def _not_inlined(program: ir.Program) -> ir.FlatProgram:
    blocks = {role: i.block for role, i in program.blocks.items() if i.block is not None}
    return ir.FlatProgram(
        blocks, ir.Roots(*blocks[ir.Role.PARSER].parameters[1:]), program.instances, program
    )


def test_what_inlining_must_write_out() -> None:
    found = problems("inline", _not_inlined(trees(PROGRAM)["check"]))
    assert "'count' is not written out" in found
    assert "ApplyBlock is not written out" in found
    assert "Call inside an expression" in found


def test_what_lowering_must_replace() -> None:
    found = problems("lower", trees(PROGRAM)["inline"])
    assert "an assignment to a slice of bit<8>" in found
    assert "a switch over a value" in found
    assert "a header is given what is not a header" in found
    assert "a key that is computed" in found
    parsing = problems("lower", trees(GOLDEN / "parsing" / "program.p4")["inline"])
    assert "lookahead inside an expression" in parsing


# Phases that break one thing

Break = Callable[[Any], Any]


def with_body(change: Callable[[tuple[ir.Stmt, ...]], tuple[ir.Stmt, ...]]) -> Break:
    """A flat program with another ingress."""

    def broken(program: ir.FlatProgram) -> ir.FlatProgram:
        block = program.blocks[ir.Role.INGRESS]
        return replace(
            program,
            blocks=program.blocks | {ir.Role.INGRESS: replace(block, body=change(block.body))},
        )

    return broken


def with_checked_body(change: Callable[[tuple[ir.Stmt, ...]], tuple[ir.Stmt, ...]]) -> Break:
    """A checked program with another ingress."""

    def broken(program: ir.Program) -> ir.Program:
        instance = program.blocks[ir.Role.INGRESS]
        assert instance.block is not None
        block = replace(instance.block, body=change(instance.block.body))
        return replace(program, blocks=program.blocks | {ir.Role.INGRESS: replace(instance, block=block)})

    return broken


def with_table(change: Callable[[ir.Table], ir.Table]) -> Break:
    """A flat program with another first table."""

    def broken(program: ir.FlatProgram) -> ir.FlatProgram:
        block = program.blocks[ir.Role.INGRESS]
        declared = tuple(change(d) if d is block.tables[0] else d for d in block.declared)
        return replace(program, blocks=program.blocks | {ir.Role.INGRESS: replace(block, declared=declared)})

    return broken


def with_first_node(change: Callable[[TableNode], TableNode]) -> Break:
    """A program whose ingress begins otherwise."""

    def broken(program: GraphProgram) -> GraphProgram:
        graph = program.graphs[ir.Role.INGRESS]
        first = graph.nodes[0]
        assert isinstance(first, TableNode)
        nodes = (change(first), *graph.nodes[1:])
        return replace(
            program, graphs=program.graphs | {ir.Role.INGRESS: replace(graph, first=nodes[0], nodes=nodes)}
        )

    return broken


def condition(body: tuple[ir.Stmt, ...]) -> ir.Expr:
    """Return the condition of the last `if` of a body."""
    last = body[-1]
    assert isinstance(last, ir.If)
    return last.condition


def variable(name: str, body: tuple[ir.Stmt, ...]) -> ir.Ref:
    """A variable of its own that nothing declares."""
    span = body[-1].span
    return ir.Ref(types.Bool(), span, ir.Variable(name, types.Bool(), span))


def assigning(
    target: Callable[[tuple[ir.Stmt, ...]], ir.Expr], value: int = 1, of: types.Type | None = None
) -> Any:
    """An assignment more."""

    def changed(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        span = body[-1].span
        constant = ir.Constant(of or types.Bool(), span, value)
        return (*body, ir.Assign(span, target(body), constant))

    return changed


def two_of_a_name(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    for _ in range(2):
        body = assigning(lambda body: variable("tmp_9", body))(body)
    return body


def calling(action: ir.Action) -> Callable[[ir.Table], ir.Table]:
    return lambda table: replace(table, default=replace(table.default, action=action))


def stranger() -> ir.Action:
    span = trees(PROGRAM)["parse"].declarations[0].span
    return ir.Action("stranger", (), (), span)


BREAKS: dict[str, tuple[str, Break, str]] = {
    "a role without a block": ("check", lambda p: replace(p, blocks={}), "no parser for p"),
    "a variable that is not declared": (
        "check",
        with_checked_body(assigning(lambda body: variable("ghost", body))),
        "'ghost' is not declared",
    ),
    "a value of another type": (
        "check",
        with_checked_body(assigning(condition, of=types.Bits(8))),
        "bool is given a value of type bit<8>",
    ),
    "a number that its type does not hold": (
        "check",
        with_checked_body(assigning(condition, value=2)),
        "Constant is not of type bool",
    ),
    "a constant that is written": (
        "inline",
        with_body(assigning(lambda body: ir.Constant(types.Bool(), body[-1].span, 1))),
        "what is written is not a place",
    ),
    "a return that leaves nothing": (
        "inline",
        with_body(lambda body: (*body, ir.Return(body[-1].span, None))),
        "a return outside of every scope",
    ),
    "a break that leaves nothing": (
        "inline",
        with_body(lambda body: (*body, ir.Break(body[-1].span))),
        "a break outside of every loop",
    ),
    "a variable that stays declared": (
        "inline",
        with_body(lambda body: (ir.Declare(body[0].span, variable("x", body).variable, None), *body)),
        "Declare is not written out",
    ),
    "two variables of one name": (
        "inline",
        with_body(two_of_a_name),
        "another variable is called 'tmp_9', too",
    ),
    "a table's action that is not one of its own": (
        "lower",
        with_table(calling(stranger())),
        "calls 'stranger', which is not one of its actions",
    ),
    "a table that is not the block's": (
        "lower",
        with_table(replace),
        "what this uses is not of this block",
    ),
    "a table without a name": (
        "graph",
        with_first_node(lambda node: replace(node, table=replace(node.table, name=""))),
        "another node is called ''",
    ),
    "a node that leads to itself": (
        "graph",
        with_first_node(lambda node: (node.by_action.update({None: node}), node)[1]),
        "leads back, or out of its pipeline",
    ),
    "an action that nothing follows": (
        "graph",
        with_first_node(lambda node: replace(node, by_action={})),
        "what follows other actions of 'tbl_program32' is not known",
    ),
}


@pytest.mark.parametrize(("phase", "break_", "message"), BREAKS.values(), ids=list(BREAKS))
def test_what_a_phase_must_not_make_is_found(phase: str, break_: Break, message: str) -> None:
    tree = trees(PROGRAM)[phase]
    assert problems(phase, tree) == ""
    assert message in problems(phase, break_(tree))


def test_a_place_outside_of_the_source_is_found() -> None:
    program = trees(PROGRAM)["parse"]
    last = program.declarations[-1]
    moved = replace(last, span=last.span._replace(line=1000, end_line=1000))
    assert "Instance: its span is not in" in problems("parse", replace(program, declarations=(moved,)))


def test_a_transition_to_no_state_is_found() -> None:
    program = trees(PROGRAM)["lower"]
    parser = program.blocks[ir.Role.PARSER]
    state = parser.states[0]
    lost = replace(state, cases=(replace(state.cases[0], target="nowhere"),))
    blocks = program.blocks | {ir.Role.PARSER: replace(parser, states=(lost,))}
    assert "a transition to 'nowhere', which does not exist" in problems(
        "lower", replace(program, blocks=blocks)
    )


# Names


def test_names_are_given_out_once() -> None:
    names = Names(["act", "act_0"])
    assert [names.unique(name) for name in ("act", "act", "other", "other")] == [
        "act_1",
        "act_2",
        "other",
        "other_0",
    ]
    assert [names.numbered("tmp") for _ in range(2)] == ["tmp_0", "tmp_1"]
    names.take(["tmp_2"])
    assert names.numbered("tmp") == "tmp_3"
    assert [names.serial(name) for name in ("tmp", "key")] == ["tmp$0", "key$1"]
