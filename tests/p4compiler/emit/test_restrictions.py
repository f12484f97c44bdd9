"""Annotations that constrain entries: the compiler refuses malformed ones, at their place."""

from pathlib import Path

import pytest

from fanin.p4compiler import CompileError, compile_once

SOURCE = Path(__file__).parents[2] / "p4switch" / "p4runtime" / "entities" / "constrained.p4"


def errors(tmp_path: Path, text: str) -> str:
    program = tmp_path / "program.p4"
    program.write_text(text)
    with pytest.raises(CompileError) as refused:
        compile_once(program)
    return str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "at", "why"),
    [
        ("port < 500", "port < true", "< true", "'<' cannot compare bit<9> with bool"),
        ("vrf != 0;", "vrf != ;", ";", "is expected here, not ';'"),
        ("kind::mask == 0;", "kind::length == 0;", "length", "has value, mask, not 'length'"),
        (
            '@action_restriction("port != 0; port < 500")',
            "@action_restriction()",
            "@",
            "a constraint in quotes",
        ),
        ("@refers_to(nexthops, nexthop)", "@refers_to(nexthops)", "@", "a table and a field"),
        ("@refers_to(nexthops, nexthop)", "@refers_to(nexthops, vrf)", "@", "has no key field 'vrf'"),
        ('@p4runtime_role("routing")', "@p4runtime_role()", "@", "the name of a role"),
        ('@p4runtime_role("routing")', '@action_restriction("true")', "@", "it belongs before an action"),
    ],
)
def test_what_is_malformed_is_refused_where_it_stands(
    tmp_path: Path, old: str, new: str, at: str, why: str
) -> None:
    before, found, after = SOURCE.read_text().partition(old)
    assert found
    message = errors(tmp_path, before + new + after)
    ahead = (before + new[: new.index(at)]).split("\n")
    assert f"program.p4:{len(ahead)}:{len(ahead[-1]) + 1}: error: " in message
    assert why in message
