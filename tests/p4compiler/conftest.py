from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fanin.p4compiler import Compiled, CompileError, compile_file, phases
from tests.p4compiler.verify.phases import verified as verified_phase

# A whole v1model program around the parts that a test is about.
PROGRAM = """\
#include <core.p4>
#include <v1model.p4>
{declarations}
struct metadata {{ {metadata} }}
parser P(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {{
    {parser}
}}
control V(inout headers hdr, inout metadata meta) {{ apply {{ {verify} }} }} @noWarn("egress-spec")
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {{
    {locals}
    apply {{ {apply} }}
}}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {{ apply {{ }} }}
control U(inout headers hdr, inout metadata meta) {{ apply {{ {update} }} }}
control D(packet_out packet, in headers hdr) {{ apply {{ packet.emit(hdr); }} }}
V1Switch(P(), V(), I(), E(), U(), D()) main;
"""
HEADERS = """\
header h_t { bit<8> a; bit<16> b; int<8> s; bit<32> c; }
struct headers { h_t h; }"""
PARTS = {
    "declarations": HEADERS,
    "metadata": "bit<16> x; bit<8> y; bool flag;",
    "parser": "state start { packet.extract(hdr.h); transition accept; }",
    "verify": "",
    "locals": "",
    "apply": "",
    "update": "",
}


def source(**parts: str) -> str:
    """A program with these parts in place of the usual ones."""
    return PROGRAM.format(**(PARTS | parts))


@pytest.fixture(autouse=True, scope="module")
def verified() -> Iterator[None]:
    """Verify the result of every phase in all tests of the compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases, "PHASES", tuple(map(verified_phase, phases.PHASES)))
        yield


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Compiled]:
    """Compiles a program with the parts given, as test.p4 in the working directory."""
    monkeypatch.chdir(tmp_path)

    def compile_parts(**parts: str) -> Compiled:
        Path("test.p4").write_text(source(**parts))
        return compile_file("test.p4")

    return compile_parts


@pytest.fixture
def complain(build: Callable[..., Compiled]) -> Callable[..., str]:
    """Return the compiler's diagnostics for a program with these parts."""

    def messages(**parts: str) -> str:
        with pytest.raises(CompileError) as failure:
            build(**parts)
        return str(failure.value)

    return messages
