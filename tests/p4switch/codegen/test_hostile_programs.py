"""A program is data: no text or number in a BMv2 JSON becomes code of the C that it is translated to."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.p4compiler import compile_once
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.codegen.names import check, comment, quoted
from fanin.p4switch.codegen.translate import translate
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.reader import expressions, headers, pipelines, read, read_program, values
from tests.sizes import sized

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1]
PROGRAMS = [
    *(FOLDER / "programs" / f"{name}.p4" for name in ("forwarder", "externs", "tables")),
    *(FOLDER / "stf" / f"{name}.p4" for name in ("meters", "passes", "unions", "varbit")),
]
WORDS = {"type", "op", "match_type", "algo"}  # the format's own
# Two words that stand apart in the C only where the text is code: in an identifier they have become one.
CANARY = "CANARY YRANAC"
HOSTILE = [
    f"*/ {CANARY} /*",
    f"x */\n#error {CANARY}\n/*",
    f'x */\n#include "/etc/{CANARY}"\n/*',
    f"x\n{CANARY}",
    f"x\r{CANARY}\r",
    f"x\\\n{CANARY}",
    f"x??/\n{CANARY}",
    f"// {CANARY}",
    f'"); {CANARY}; ("',
    f"\\{CANARY}",
    f"; {CANARY};",
    f"] = {{{CANARY}}}; [",
    f"0) {CANARY} (",
    f"%n%s {CANARY} {{}}",
    f"\0{CANARY}",
    f"\u202e{CANARY}\u2066",
    f"\ud800{CANARY}",
    f"{CANARY} " + "x" * 5000,
]
TOKEN = re.compile(
    r"(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<string>\"(?:\\.|[^\"\\\n])*\")|(?P<word>[^\W\d]\w*)|\.?\d[\w.]*|\S",
    re.DOTALL,
)


def tokens(c: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of a compiler, by rules of our own: lines are joined where they end with a backslash."""
    return TOKEN.finditer(c.replace("??/", "\\").replace("\\\n", ""))


def assert_harmless(c: str) -> None:
    for match in tokens(c):
        if match["comment"] is None and match["string"] is None:
            token = match.group()
            assert token not in {'"', "'", "\\"}, f"{token} outside a string"
            assert "CANARY" not in token or "YRANAC" in token, f"{token} is code"
    directives = set(re.findall(r"^[ \t]*#.*", c, re.MULTILINE))
    assert all(
        re.fullmatch(r'\s*#(include ["<]\w+\.h[">]|define \w+( [\w, ]+)?)', line) for line in directives
    )


@cache
def source(number: int) -> str:
    return compile_once(PROGRAMS[number]).json_text()


def places(item: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in a document, as what holds it and where."""
    for key, value in item.items() if isinstance(item, dict) else enumerate(item):
        yield item, key
        if isinstance(value, (dict, list)):
            yield from places(value)


def renamed(item: Any, names: dict[str, str], under: str = "") -> Any:
    """The document with names replaced wherever they stand, so that they are still found."""
    if isinstance(item, dict):
        keys = names if under == "next_tables" else {}
        return {keys.get(key, key): renamed(value, names, key) for key, value in item.items()}
    if isinstance(item, list):
        return [renamed(value, names, under) for value in item]
    return names.get(item, item) if isinstance(item, str) and under not in WORDS else item


def named(document: Any) -> list[str]:
    """The texts of a document that name something, and those that say where it stands in the source."""
    wanted = ("name", "filename", "source_fragment")
    found = {holder[key] for holder, key in places(document) if key in wanted}
    types = {kind["name"]: {field[0] for field in kind["fields"]} for kind in document["header_types"]}
    errors = {name for name, _ in document["errors"]}
    fixed = {"ingress", "egress", "standard_metadata"} | types["standard_metadata"]
    return sorted((found | errors).union(*types.values()) - fixed)


def translated(document: Any) -> str | None:
    """The C, traced or not; None for a program that is refused."""
    try:
        program = read_program(json.dumps(document).encode())
        return translate(program) + translate(program, traced=True)
    except ProgramError:
        return None


hostile = st.sampled_from(HOSTILE) | st.tuples(
    st.text(max_size=8), st.sampled_from([CANARY, f"*/{CANARY}/*"]), st.text(max_size=8)
).map("".join)
numbers = st.sampled_from(
    [0, 1, -1, 7, 2**31, 2**32 - 1, 2**32, 2**64, 10**30, True, 1.5, float("inf"), None]
)
anything: st.SearchStrategy[Any] = (
    hostile
    | numbers
    | st.integers(-(2**70), 2**70).map(hex)
    | st.just([])
    | st.just({})
    | st.lists(hostile, max_size=3)
    | hostile.map(lambda text: {"type": "hexstr", "value": text})
)
thorough = settings(max_examples=sized(30, 100))


@pytest.mark.long
@thorough
@given(number=st.integers(0, len(PROGRAMS) - 1), data=st.data())
def test_a_hostile_name_is_refused_or_becomes_one_identifier(number: int, data: st.DataObject) -> None:
    document = json.loads(source(number))
    old = data.draw(st.sampled_from(named(document)))
    result = translated(renamed(document, {old: data.draw(hostile)}))
    if result is not None:
        assert_harmless(result)


@pytest.mark.long
@thorough
@given(number=st.integers(0, len(PROGRAMS) - 1), data=st.data())
def test_whatever_stands_anywhere_is_refused_or_harmless(number: int, data: st.DataObject) -> None:
    """Texts for numbers, numbers for texts, numbers that are too large, lists for objects; several at once."""
    document = json.loads(source(number))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(list(places(document))))
        holder[key] = data.draw(anything)
    result = translated(document)
    if result is not None:
        assert_harmless(result)


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=[path.stem for path in PROGRAMS])
@pytest.mark.parametrize("text", ["name; CANARY", "größe {x}", ". $ [0] <bit<8>> |x| 100% @ #"])
def test_names_decide_nothing_but_identifiers(number: int, text: str) -> None:
    """Renaming everything leaves every other token as it is, and as many of them."""
    document = json.loads(source(number))
    changed = renamed(document, {old: f"{text} {count}" for count, old in enumerate(named(document))})
    before, after = (re.sub(r"\b\d+\b", "n", " ".join(shape(d))) for d in (document, changed))
    assert before == after


def shape(document: Any) -> list[str]:
    """The C's tokens without the words of their own that names become, and without texts of messages."""
    result = translate(read_program(json.dumps(document).encode()))
    return [
        "word" if m["word"] else "string" if m["string"] else m.group()
        for m in tokens(result)
        if not m["comment"]
    ]


@given(text=st.text() | st.sampled_from(HOSTILE))
def test_any_text_is_one_comment_and_one_string(text: str) -> None:
    whole = f"a {comment(text)} b {quoted(text)} c"
    found = [m for m in tokens(whole) if not m["comment"]]
    assert [m.group() for m in found if not m["string"]] == ["a", "b", "c"]
    assert sum(m["string"] is not None for m in found) == 1
    assert re.fullmatch(r'"[ -~]*"', quoted(text))


@pytest.mark.parametrize(
    "line",
    [
        "x; /* y",
        "x */ y",
        "// x",
        "x;\n#error y",
        "x \\",
        "x ??/ y",
        "#error x",
        '#include "/etc/passwd"',
        "#define x() y; z",
        "#pragma x",
        'f("a" b");',
        "'x'",
        "größe",
        "\x0c",
    ],
)
def test_a_line_that_is_more_than_code_is_not_written(line: str) -> None:
    with pytest.raises(ProgramError, match="would be code for the C compiler"):
        check(line)


@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=[path.stem for path in PROGRAMS])
def test_the_translation_does_not_rely_on_the_reader(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that the reader would refuse become identifiers and comments, too: all of them at once."""
    for module in (expressions, headers, pipelines, read, values):
        monkeypatch.setattr(module, "checked_name", lambda name, _what: name)
    document = json.loads(source(number))
    for text in HOSTILE:
        changed = renamed(document, {old: f"{text} {count}" for count, old in enumerate(named(document))})
        program = read_program(json.dumps(changed).encode())
        assert_harmless(translate(program) + translate(program, traced=True))


@pytest.mark.parametrize("key", ["filename", "source_fragment"])
def test_a_fragment_of_the_source_may_be_anything_and_runs_nothing(
    config: Callable[[str], bytes], tmp_path: Path, key: str
) -> None:
    """Compiled and loaded: what would run as soon as the library is loaded does not."""
    canary = tmp_path / "canary"
    text = (
        f'*/\n#include <stdio.h>\n__attribute__((constructor)) void f(void) {{ fopen("{canary}", "w"); }}\n/*'
    )
    document = json.loads(config("forwarder"))
    for holder, place in list(places(document)):
        if place == "source_info":
            holder[place][key] = text
    Engine.load(json.dumps(document).encode())
    assert not canary.exists()


# What p4c makes of names: of controls, of instances, of annotations, of generic types, of what it has made itself.
P4C_NAMES = [
    "MyIngress.ipv4_lpm",
    ".NoAction",
    "tbl_act_0",
    "node_12",
    "hdr.vlan[3].$valid$",
    "standard_metadata",
    "hdr.ipv4.dstAddr[7:0]",
    "list<tuple<bit<8>, bit<16>>>",
    "ingress|parser|tmp",
    "a name with @name(…)",
    "meta.x & 0xff",
    "größe",
]


@pytest.mark.parametrize("name", P4C_NAMES)
def test_names_as_p4c_writes_them_pass(config: Callable[[str], bytes], name: str) -> None:
    document = json.loads(config("forwarder"))
    table = document["pipelines"][0]["tables"][0]["name"]
    action = document["actions"][0]["name"]
    changed = renamed(document, {table: name, action: f"{name}'"})
    program = read_program(json.dumps(changed).encode())
    assert name in program.tables
    assert translate(program)


@pytest.mark.parametrize("text", [text for text in HOSTILE if not re.match(r"[;\]0%]", text)])
def test_a_refused_name_is_said_with_its_object(config: Callable[[str], bytes], text: str) -> None:
    document = json.loads(config("forwarder"))
    document["header_types"][-1]["name"] = text
    with pytest.raises(ProgramError, match=r"name of '.*CANARY.* is .*") as refused:
        read_program(json.dumps(document).encode())
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 2000


def assignment(document: Any) -> dict[str, Any]:
    """Return the value of the first assignment."""
    calls = (
        call for action in document["actions"] for call in action["primitives"] if call["op"] == "assign"
    )
    found: dict[str, Any] = next(calls)["parameters"][1]
    found["type"] = "expression"
    return found


@contextmanager
def at_most_frames(number: int) -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(number)
    yield
    sys.setrecursionlimit(before)


def nested(depth: int) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "hexstr", "value": "0x1"}
    for _ in range(depth):
        item = {"type": "expression", "value": {"op": "~", "left": None, "right": item}}
    return item


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d["register_arrays"][0].update(size=2**32 - 1), "register .*: 4294967295 cells of"),
        (lambda d: d["register_arrays"][0].update(bitwidth=2**31), "bitwidth of .* is 2147483648: at most"),
        (lambda d: d["counter_arrays"][0].update(size=2**31), "counter .*: 2147483648 cells of"),
        (lambda d: d["header_types"][1]["fields"].append(["x", 2**19, False]), "is not a width of up to"),
        (lambda d: d["actions"][0].update(name=["x"]), "not a name"),
        (lambda d: d["actions"][0].update(id=True), "not a number"),
        (lambda d: d["actions"][0].update(id="0"), "not a number"),
        (lambda d: assignment(d).update(value=nested(600)), "nested"),
    ],
)
def test_what_would_take_too_much_is_refused_first(
    config: Callable[[str], bytes], change: Callable[[Any], None], why: str
) -> None:
    document = json.loads(config("externs"))
    change(document)
    with at_most_frames(3000):  # else json.dumps would be the one to refuse
        config_bytes = json.dumps(document).encode()
    with pytest.raises(ProgramError, match=why):
        Engine.load(config_bytes)


def test_brackets_without_end_are_refused() -> None:
    with pytest.raises(ProgramError, match="nested too deeply"):
        read_program(b'{"a":' * 100_000)
