"""Programs that the specification forbids, though BMv2 could run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fanin.p4compiler import Compiled, CompileError, compile_file
from tests.p4compiler.conftest import HEADERS, source

Build = Callable[..., Compiled]
Complain = Callable[..., str]
MARKED = """action a() {{ }} action b() {{ }} action c() {{ }}
    table t {{ key = {{ hdr.h.a: exact; }} actions = {{ @tableonly a; b; @defaultonly c; }} {} }}"""


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"locals": MARKED.format("default_action = a;"), "apply": "t.apply();"},
            "'a' is marked @tableonly: it cannot be the default action",
        ),
        (
            {
                "locals": MARKED.format("default_action = b; const entries = { 1: c(); }"),
                "apply": "t.apply();",
            },
            "'c' is marked @defaultonly: it cannot be an entry's action",
        ),
        (
            {"apply": "hash(meta.x, HashAlgorithm.crc16, 16w0, hdr.h.a, 16w9);"},
            "hash() needs a list of fields, not a value of bit<8>",
        ),
        (
            {"update": "update_checksum(true, hdr.h.c, hdr.h.b, HashAlgorithm.csum16);"},
            "update_checksum() needs a list of fields, not a value of bit<32>",
        ),
        ({"locals": "action a(in int n) { meta.y = n; }"}, "'n': a parameter of type int has no direction"),
        (
            {"declarations": f"{HEADERS} bit<8> f(inout int n) {{ return 1; }}"},
            "'n': a parameter of type int has no direction",
        ),
        (
            {"parser": "state start { transition again; } state again { transition start; }"},
            "parser 'P' never comes to accept or reject",
        ),
        (
            {
                "parser": "state start { packet.extract(hdr.h); transition select(hdr.h.a) { 1: start; _: start; } }"
            },
            "parser 'P' never comes to accept or reject",
        ),
        (
            {"declarations": f"{HEADERS} control C() {{ apply {{ }} }} C() c;"},
            "a control cannot be instantiated at the top level",
        ),
        (
            {"declarations": f'{HEADERS} @p4runtime_translation("u", bool) type bit<8> n_t;'},
            "@p4runtime_translation needs a URI and the type that the control plane uses",
        ),
        (
            {"declarations": f'{HEADERS} @p4runtime_translation("u", int<32>) type bit<8> n_t;'},
            "@p4runtime_translation needs a URI and the type that the control plane uses",
        ),
        (
            {"declarations": f'{HEADERS} @p4runtime_translation("u", bit<5+3>) type bit<8> n_t;'},
            "@p4runtime_translation needs a URI and the type that the control plane uses",
        ),
    ],
)
def test_what_the_specification_forbids(complain: Complain, parts: dict[str, str], message: str) -> None:
    assert f"error: {message}\n" in complain(**parts)


@pytest.mark.parametrize(
    "parts",
    [
        {
            "locals": MARKED.format("default_action = c; const entries = { 1: a(); 2: b(); }"),
            "apply": "t.apply();",
        },
        # A select in which no case may match can leave the parser.
        {"parser": "state start { packet.extract(hdr.h); transition select(hdr.h.a) { 1: start; } }"},
        {"parser": "state start { transition reject; }"},
        *(
            {"declarations": f'{HEADERS} @p4runtime_translation("u", {of}) type bit<8> n_t;'}
            for of in ("32", "bit<32>", "string")
        ),
    ],
)
def test_what_it_allows(build: Build, parts: dict[str, str]) -> None:
    build(**parts)


@pytest.mark.parametrize("version", ["-1", "20170101", "20210101"])
def test_a_version_of_v1model_that_does_not_exist(tmp_path: Path, version: str) -> None:
    program = tmp_path / "test.p4"
    program.write_text(source())
    with pytest.raises(CompileError, match="V1MODEL_VERSION is between 20180101 and 20200408"):
        compile_file(program, defines={"V1MODEL_VERSION": version})


# What programs of other versions of v1model call


@pytest.mark.parametrize(
    ("apply", "message", "hint"),
    [
        (
            "mark_to_drop();",
            "mark_to_drop() takes 1 argument, not 0",
            "write mark_to_drop(standard_metadata)",
        ),
        (
            "clone3(CloneType.I2E, 5, { meta.x });",
            "v1model no longer has clone3()",
            "write clone_preserving_field_list(CloneType.I2E, 5, 1); "
            "and mark each metadata field that is to be kept: @field_list(1) bit<16> x;",
        ),
        (
            "resubmit({ meta.x });",
            "v1model no longer has resubmit()",
            "write resubmit_preserving_field_list(1); "
            "and mark each metadata field that is to be kept: @field_list(1) bit<16> x;",
        ),
        (
            "hash(meta.x);",
            "hash() takes 5 arguments, not 1",
            "write hash(result, HashAlgorithm.crc32, base, data, max)",
        ),
        (
            "meta.x = random();",
            "random() returns no value: it writes its result to its first argument",
            "write random(meta.x);",
        ),
    ],
)
def test_calls_of_former_versions(complain: Complain, apply: str, message: str, hint: str) -> None:
    found = complain(apply=apply)
    assert f"error: {message}\n" in found
    assert f"hint: {hint}" in found


def test_a_hint_names_the_variable_of_the_program(complain: Complain) -> None:
    declarations = f"""{HEADERS}
        control C(inout standard_metadata_t stdmeta) {{ apply {{ mark_to_drop(); }} }}"""
    assert "hint: write mark_to_drop(stdmeta)" in complain(declarations=declarations)
