"""The language server as an editor sees it: over standard input and output, with a real client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from fanin.p4compiler.compile import INCLUDE
from tests.language_server.editor import Editor, apply, editing

HEADERS = """\
#define SLOTS 16

// Layer 2.
header ethernet_t {
    bit<48> destination;
    bit<48> source;  // of the sender
    bit<16> kind;
}

struct headers_t { ethernet_t ethernet; }
struct metadata_t { bit<16> count; }
"""
PROGRAM = """\
#include <core.p4>
#include <v1model.p4>
#include "headers.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            0x800: more;
            default: accept;
        }
    }
    state more { transition accept; }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<16>>(SLOTS) seen;

    // Send it there.
    action forward(bit<9> port) { standard.egress_spec = port; }
    action drop() { mark_to_drop(standard); }
    table routes {
        key = { hdr.ethernet.destination: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 64;
    }

    apply {
        bit<16> now = 0;
        /* 𝄞é */ seen.read(now, 3);
        meta.count = now;
        routes.apply();
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control U(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }

V1Switch(P(), V(), I(), E(), U(), D()) main;
"""
LINES = PROGRAM.split("\n")


class Project:
    """Editor with a program of two files, which each test begins with as they are on the disk."""

    def __init__(self, editor: Editor, folder: Path) -> None:
        self.editor = editor
        self.program, self.headers = folder / "program.p4", folder / "headers.p4"

    def at(self, line: str, word: str, text: str = PROGRAM) -> tuple[Path, int, int]:
        """Return the place of a word in the first line with a text, in UTF-16."""
        number = next(n for n, each in enumerate(text.split("\n")) if line in each)
        before = text.split("\n")[number].partition(word)[0]
        return self.program, number, len(before.encode("utf-16-le")) // 2

    def type(self, line: str, typed: str) -> tuple[str, tuple[Path, int, int]]:
        """Type a line before another one; return the text and the place after what was typed."""
        number = next(n for n, each in enumerate(LINES) if line in each)
        text = "\n".join([*LINES[:number], typed, *LINES[number:]])
        self.editor.change(self.program, text)
        return text, (self.program, number, len(typed))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("project").resolve()
    (folder / "headers.p4").write_text(HEADERS)
    (folder / "program.p4").write_text(PROGRAM)
    with editing(folder) as editor:
        project = Project(editor, folder)
        editor.open(project.program)
        yield project


@pytest.fixture
def project(opened: Project) -> Project:
    opened.editor.change(opened.program, PROGRAM)
    return opened


@pytest.mark.slow
def test_errors_show_while_typing_and_go_away(project: Project) -> None:
    editor = project.editor
    project.type("meta.count = now", "        meta.conut = 1;")
    [found] = editor.diagnostics(project.program, "no field 'conut'")
    assert (found.range.start.line, found.range.start.character, found.range.end.character) == (33, 13, 18)
    assert "hint: did you mean 'count'?" in found.message
    editor.change(project.program, PROGRAM)
    editor.diagnostics(project.program, "")
    project.type("meta.count = now", "        meta.count = meta.count * 3;")
    [found] = editor.diagnostics(project.program, "multiplies")
    assert (found.code, found.severity) == ("P101", lsp.DiagnosticSeverity.Information)
    assert found.code_description is not None
    assert found.code_description.href.endswith("docs/reference/lint.md#p101")


def test_warnings_have_their_page(project: Project) -> None:
    project.editor.change(
        project.program, PROGRAM.replace("        routes.apply();\n", "        forward(1);\n")
    )
    [found] = project.editor.diagnostics(project.program, "'routes' is never applied")
    assert (found.code, found.tags) == ("unused", (lsp.DiagnosticTag.Unnecessary,))
    assert found.code_description is not None
    assert found.code_description.href.endswith("docs/reference/messages.md#unused")


def test_an_error_in_an_included_file_that_is_not_saved_shows_there(project: Project) -> None:
    editor = project.editor
    editor.open(project.headers, HEADERS.replace("bit<16> kind", "bit<16> kind_"))
    editor.diagnostics(project.program, "no field 'kind'")
    editor.change(project.headers, HEADERS.replace("ethernet_t ethernet;", "ethernte_t ethernet;"))
    [found] = editor.diagnostics(project.headers, "no type 'ethernte_t'")
    assert found.range.start.line == 9
    editor.close(project.headers)
    editor.change(project.program, PROGRAM + "\n")
    editor.diagnostics(project.headers, "")


@pytest.mark.parametrize(
    ("line", "word", "parts"),
    [
        (
            "routes.apply",
            "routes",
            ["table routes", "`hdr.ethernet.destination` : bit<48> | exact", "size `64`"],
        ),
        ("routes.apply", "routes", ["actions `forward`, `drop`; default `drop`"]),
        (
            "transition select",
            "kind",
            ["bit<16> ethernet_t.kind", "bit 96 of `ethernet_t`, 16 bits, 2 bytes"],
        ),
        ("transition select", "hdr", ["out headers_t hdr", "112 bits", "`ethernet`"]),
        ("actions =", "forward", ["action forward(bit<9> port)", "Send it there."]),
        ("meta.count = now", "now", ["bit<16> now"]),
        ("SLOTS", "SLOTS", ["#define SLOTS 16"]),
        ("seen.read", "seen", ["register<bit<16>>(SLOTS) seen"]),
        ("seen.read", "read", ["void read(out T result, in bit<32> index)"]),
        ("mark_to_drop", "mark_to_drop", ["void mark_to_drop(inout standard_metadata_t standard_metadata)"]),
        ("parser P", "packet_in", ["extern packet_in", "void advance(in bit<32> sizeInBits)"]),
        ("0x800", "more", ["state more"]),
        ("V1Switch", "I(", ["control I(inout headers_t hdr"]),
    ],
)
def test_hover_shows_types_and_widths(project: Project, line: str, word: str, parts: list[str]) -> None:
    shown = project.editor.hover(*project.at(line, word))
    assert all(part in shown for part in parts), shown


def test_hover_over_a_header_shows_where_its_fields_are(project: Project) -> None:
    shown = project.editor.hover(project.headers, 3, 8)
    assert "header ethernet_t" in shown
    assert "Layer 2." in shown
    assert "| `source` | bit<48> | 48–95 |" in shown


def test_hover_has_nothing_about_comments_and_keywords(project: Project) -> None:
    for line, word in (("Send it there", "it"), ("transition select", "select"), ("apply { }", "apply")):
        assert project.editor.hover(*project.at(line, word)) == ""


def test_definitions_are_in_all_files(project: Project) -> None:
    for line, word, path, number in (
        ("transition select", "kind", project.headers, 6),
        ("seen.read", "seen", project.program, 18),
        ("0x800", "more", project.program, 12),
        ("SLOTS", "SLOTS", project.headers, 0),
        ('"headers.p4"', "headers", project.headers, 0),
    ):
        found = project.editor.definition(*project.at(line, word))
        assert found is not None, word
        assert (found.uri, found.range.start.line) == (path.as_uri(), number)
    found = project.editor.definition(*project.at("mark_to_drop", "mark_to_drop"))
    assert found is not None
    assert found.uri == (INCLUDE / "v1model.p4").resolve().as_uri()


def test_columns_are_in_units_of_utf_16(project: Project) -> None:
    _, line, character = project.at("seen.read", "seen")
    assert (character, LINES[line].index("seen")) == (18, 17)
    found = project.editor.references(project.program, line, character)
    assert [(r.range.start.line, r.range.start.character, r.range.end.character) for r in found] == [
        (18, 29, 33),
        (line, 18, 22),
    ]


@pytest.mark.slow
def test_columns_are_in_characters_if_the_editor_wants_them_so(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "headers.p4").write_text(HEADERS)
    with editing(folder, "utf-32") as editor:
        editor.open(folder / "program.p4", PROGRAM)
        line = next(n for n, each in enumerate(LINES) if "seen.read" in each)
        assert "seen" in editor.hover(folder / "program.p4", line, LINES[line].index("seen"))


def test_references_with_and_without_the_declaration(project: Project) -> None:
    for word, count in (("kind", 2), ("hdr", 3)):
        at = project.at("transition select", word)
        assert len(project.editor.references(*at)) == count
        assert len(project.editor.references(*at, declaration=False)) == count - 1


def test_rename_changes_every_use(project: Project) -> None:
    editor = project.editor
    changes = editor.rename(*project.at("transition select", "kind"), "ethertype")
    assert apply(HEADERS, changes[project.headers.as_uri()]) == HEADERS.replace("kind", "ethertype")
    assert apply(PROGRAM, changes[project.program.as_uri()]) == PROGRAM.replace("kind", "ethertype")
    changes = editor.rename(*project.at("actions =", "forward"), "send")
    assert apply(PROGRAM, changes[project.program.as_uri()]) == PROGRAM.replace("forward", "send")


@pytest.mark.parametrize(
    ("line", "word", "name", "reason"),
    [
        ("actions =", "forward", "drop", "'drop' is declared twice"),
        ("meta.count = now", "now", "meta", "'meta' is already the name of a parameter"),
        ("meta.count = now", "now", "seen", "wrong"),
        ("meta.count = now", "now", "if", "not a name"),
        ("meta.count = now", "now", "a b", "not a name"),
        ("standard.egress_spec", "egress_spec", "port", "belongs to the architecture"),
        ("mark_to_drop", "mark_to_drop", "drop_it", "belongs to the architecture"),
        ("SLOTS", "SLOTS", "CELLS", "is a macro"),
        ("state start", "start", "begin", "in every program"),
        ("Send it there", "it", "x", "no name"),
    ],
)
def test_a_rename_that_would_change_the_program_is_refused(
    project: Project, line: str, word: str, name: str, reason: str
) -> None:
    with pytest.raises(JsonRpcException, match=reason):
        project.editor.rename(*project.at(line, word), name)
    if reason in ("belongs to the architecture", "is a macro", "no name"):
        with pytest.raises(JsonRpcException, match=reason):
            project.editor.prepare_rename(*project.at(line, word))


def test_a_rename_is_refused_where_a_use_cannot_be_seen(project: Project) -> None:
    text = PROGRAM.replace(
        "        routes.apply();", "#ifdef DEBUG\n        seen.write(0, 0);\n#endif\n        routes.apply();"
    )
    project.editor.change(project.program, text)
    with pytest.raises(
        JsonRpcException,
        match=r"'seen' is also at program.p4:\d+:9, in a macro or in code that #if leaves out",
    ):
        project.editor.rename(*project.at("seen.read", "seen"), "known")


@pytest.mark.parametrize(
    ("line", "typed", "some", "not_"),
    [
        ("meta.count = now", "        hdr.", ["ethernet"], ["kind", "meta"]),
        ("meta.count = now", "        hdr.ethernet.", ["kind", "isValid", "setValid"], ["ethernet", "if"]),
        ("meta.count = now", "        seen.", ["read", "write"], ["count"]),
        ("meta.count = now", "        routes.", ["apply"], []),
        ("meta.count = now", "        if (routes.apply().", ["hit", "miss"], []),
        ("meta.count = now", "        meta.count = (bit<16>)HashAlgorithm.", ["crc32"], ["meta"]),
        ("meta.count = now", "        standard.parser_error == error.", ["NoError"], ["meta"]),
        (
            "meta.count = now",
            "        ",
            ["meta", "hdr", "now", "routes", "drop", "seen", "if"],
            ["packet", "kind"],
        ),
        ("meta.count = now", "        routes.apply(); r", ["routes"], []),
        ("key = {", "        key = { meta.count: ", ["exact", "lpm", "ternary", "range"], ["meta", "if"]),
        ("key = {", "        actions = { ", ["forward", "drop", "NoAction"], ["meta", "hdr"]),
        ("key = {", "        ", ["key", "actions", "size", "default_action"], ["hdr"]),
        ("0x800", "            1: ", ["more", "accept", "reject"], ["hdr"]),
        ("table routes", "    @", ["name", "noWarn", "hidden"], ["hdr"]),
        ("control E", "#", ["include", "ifdef"], ["hdr"]),
        ("control E", "", ["control", "header", "headers_t"], ["routes", "now"]),
        ("meta.count = now", "        // hdr.", [], ["ethernet"]),
        ("meta.count = now", '        log_msg("hdr.', [], ["ethernet"]),
    ],
)
def test_completion(project: Project, line: str, typed: str, some: list[str], not_: list[str]) -> None:
    _, place = project.type(line, typed)
    names = project.editor.complete(*place)
    assert set(some) <= set(names)
    assert not set(not_) & set(names)
    assert some or not names


def test_completion_shows_types(project: Project) -> None:
    _, place = project.type("meta.count = now", "        hdr.ethernet.")
    assert project.editor.complete(*place)["kind"].detail == "bit<16>"


UNFINISHED = (
    "hdr.",
    "if (hdr.",
    "if (meta.count == ",
    "if (now == 1) {",
    "/* ",
    'log_msg("x',
    "foo(",
    "}",
    "switch (",
)


@pytest.mark.parametrize("unfinished", UNFINISHED)
def test_an_unfinished_line_leaves_the_rest_as_it_was(project: Project, unfinished: str) -> None:
    editor = project.editor
    symbols = [s.name for s in editor.symbols(project.program)]
    text, _ = project.type("meta.count = now", f"        {unfinished}")
    for line, word, part in (
        ("seen.read", "seen", "register<bit<16>>"),
        ("routes.apply", "routes", "table routes"),
        ("packet.emit", "hdr", "in headers_t hdr"),
    ):
        assert part in editor.hover(*project.at(line, word, text)), line
    assert [s.name for s in editor.symbols(project.program)] == symbols
    found = editor.definition(*project.at("routes.apply", "routes", text))
    assert found is not None
    assert text.split("\n")[found.range.start.line][found.range.start.character :].startswith("routes")
    for place in editor.references(*project.at("packet.emit", "ethernet", text)):
        if place.uri == project.program.as_uri():
            at = text.split("\n")[place.range.start.line]
            assert at[place.range.start.character : place.range.end.character] == "ethernet"


def test_symbols_of_a_file_and_of_the_workspace(project: Project) -> None:
    found = {s.name: s for s in project.editor.symbols(project.program)}
    assert list(found) == ["P", "V", "I", "E", "U", "D", "main"]
    assert [s.name for s in found["I"].children or ()] == ["seen", "forward", "drop", "routes"]
    assert [s.name for s in found["P"].children or ()] == ["start", "more"]
    for symbol in found.values():
        assert LINES[symbol.selection_range.start.line][symbol.selection_range.start.character :].startswith(
            symbol.name
        )
        assert symbol.range.start.line <= symbol.selection_range.start.line <= symbol.range.end.line
    assert [s.name for s in project.editor.symbols(project.headers)] == [
        "ethernet_t",
        "headers_t",
        "metadata_t",
    ]
    assert set(project.editor.workspace_symbols("ethernet")) == {"ethernet_t", "ethernet"}
    assert project.editor.workspace_symbols("standard_metadata") == []


def test_formatting_changes_only_lines_that_are_not_in_the_style(project: Project) -> None:
    editor = project.editor
    styled = apply(PROGRAM, editor.format(project.program))
    editor.change(project.program, styled)
    assert editor.format(project.program) == []
    editor.change(project.program, styled.replace("        meta.count = now;", "meta.count=now ;"))
    [edit] = editor.format(project.program)
    assert (edit.new_text, edit.range.end.line - edit.range.start.line) == ("        meta.count = now;\n", 1)
    editor.change(project.program, styled.rstrip("\n"))
    [edit] = editor.format(project.program)
    assert apply(styled.rstrip("\n"), [edit]) == styled
    editor.change(project.program, styled + "{")
    with pytest.raises(JsonRpcException, match="never closed"):
        editor.format(project.program)


@pytest.mark.slow
def test_nothing_was_a_fault_of_the_server(project: Project) -> None:
    assert project.editor.shown == []
