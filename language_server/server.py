"""The protocol between an editor and the language server (LSP 3.17), carried out with pygls."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from fanin.language_server.completion import complete, kind_of
from fanin.language_server.describe import describe
from fanin.language_server.outline import Entry, outline
from fanin.language_server.places import Moves, from_units, to_units
from fanin.language_server.programs import Place, Programs, of_compiler
from fanin.language_server.rename import RenameError, check_renamable, rename
from fanin.p4compiler.compile import findings
from fanin.p4compiler.format import format_text
from fanin.p4compiler.source import CompileError, Diagnostic, Span, page_of

if TYPE_CHECKING:
    from pygls.server import ServerErrors

# After the last change: until errors are looked for, and until warnings are, which take longer.
_ERRORS_AFTER = 0.02
_WARNINGS_AFTER = 0.3
_SOURCE = "fanin"
_MOST_SYMBOLS = 500
_UNUSED = ("unused", "unreachable")

_KINDS = {
    "field": lsp.SymbolKind.Field, "member": lsp.SymbolKind.EnumMember, "method": lsp.SymbolKind.Method,
    "function": lsp.SymbolKind.Function, "action": lsp.SymbolKind.Function, "table": lsp.SymbolKind.Object,
    "state": lsp.SymbolKind.Event, "parser": lsp.SymbolKind.Class, "control": lsp.SymbolKind.Class,
    "package": lsp.SymbolKind.Package, "header": lsp.SymbolKind.Struct, "struct": lsp.SymbolKind.Struct,
    "header_union": lsp.SymbolKind.Struct, "enum": lsp.SymbolKind.Enum, "extern": lsp.SymbolKind.Interface,
    "constant": lsp.SymbolKind.Constant, "typedef": lsp.SymbolKind.TypeParameter, "macro": lsp.SymbolKind.Constant,
}  # fmt: skip
_COMPLETIONS = {
    "keyword": lsp.CompletionItemKind.Keyword, "field": lsp.CompletionItemKind.Field,
    "member": lsp.CompletionItemKind.EnumMember, "method": lsp.CompletionItemKind.Method,
    "function": lsp.CompletionItemKind.Function, "action": lsp.CompletionItemKind.Function,
    "struct": lsp.CompletionItemKind.Struct, "enum": lsp.CompletionItemKind.Enum,
    "extern": lsp.CompletionItemKind.Interface, "constant": lsp.CompletionItemKind.Constant,
    "typedef": lsp.CompletionItemKind.TypeParameter, "control": lsp.CompletionItemKind.Class,
    "parser": lsp.CompletionItemKind.Class, "macro": lsp.CompletionItemKind.Constant,
    "annotation": lsp.CompletionItemKind.Property, "match_kind": lsp.CompletionItemKind.Value,
    "state": lsp.CompletionItemKind.Event, "table": lsp.CompletionItemKind.Class,
}  # fmt: skip


# Refusals, such as that of a rename, are answers, and no faults of the server.
logging.getLogger("pygls.protocol.json_rpc").addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], JsonRpcInvalidParams))
)


class P4Server(LanguageServer):
    """Language server with the programs that the editor works on."""

    def __init__(self, version: str) -> None:
        # Whole texts: an editor and pygls may count lines differently where a text has unusual line ends.
        super().__init__("fanin", version, lsp.TextDocumentSyncKind.Full)
        self.programs = Programs()
        self.waiting: asyncio.Task[None] | None = None
        self.published: dict[Path, set[Path]] = {}  # for each program, the files that have diagnostics

    def report_server_error(self, error: Exception, source: ServerErrors) -> None:
        """Show a fault of the server. A refusal has been answered already."""
        if not isinstance(error, JsonRpcInvalidParams):
            super().report_server_error(error, source)

    @property
    def encoding(self) -> str:
        """Return the units of columns."""
        return str(
            getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding) or "utf-16"
        )

    # Places

    def column(self, path: Path, position: lsp.Position) -> tuple[int, int]:
        """Return a position as a line from 1 and a character from 0."""
        line = position.line + 1
        return line, from_units(self.programs.line(path, line), position.character, self.encoding)

    def range(self, path: Path, span: Span) -> lsp.Range:
        """Return a span of the text of now as a range."""
        return lsp.Range(
            self.position(path, span.line, span.column), self.position(path, span.end_line, span.end_column)
        )

    def position(self, path: Path, line: int, column: int) -> lsp.Position:
        """Return a place as a position."""
        return lsp.Position(max(line - 1, 0), to_units(self.programs.line(path, line), column, self.encoding))

    def location(self, place: Place) -> lsp.Location:
        """Return a place as a location."""
        return lsp.Location(_uri(place.path), self.range(place.path, place.span))

    def symbols(self, path: Path, entries: Iterable[Entry], moves: Moves) -> Iterator[lsp.DocumentSymbol]:
        """Yield the entries of an outline whose places of now are known."""
        for entry in entries:
            span, name_span = moves.span(entry.span), moves.span(entry.name_span)
            if span is not None and name_span is not None:
                kind = _KINDS.get(entry.kind, lsp.SymbolKind.Variable)
                whole, name = self.range(path, span), self.range(path, name_span)
                inner = list(self.symbols(path, entry.inner, moves))
                yield lsp.DocumentSymbol(entry.name, kind, whole, name, entry.kind, children=inner)

    def edit(self, path: Path, before: str, after: str) -> lsp.TextEdit:
        """Return the edit of whole lines that makes one text of another, as small as possible."""
        old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
        same = 0
        while same < min(len(old), len(new)) and old[same] == new[same]:
            same += 1
        tail = 0
        while tail < min(len(old), len(new)) - same and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        changed = "".join(old[: len(old) - tail])
        begin = self.position(path, same + 1, 0)
        end = self.position(path, changed.count("\n") + 1, len(changed.rpartition("\n")[2]))
        return lsp.TextEdit(lsp.Range(begin, end), "".join(new[same : len(new) - tail]))

    # Diagnostics

    def changed(self, path: Path) -> None:
        """Look for errors soon. A change that follows before that makes this unnecessary."""
        if self.waiting is not None:
            self.waiting.cancel()
        self.waiting = asyncio.get_running_loop().create_task(self._report(path))

    async def _report(self, path: Path) -> None:
        await asyncio.sleep(_ERRORS_AFTER)
        root = self.programs.roots(path)[0]
        analysis = self.programs.snapshot(root).analysis
        errors = [d for d in analysis.errors if not _incomplete(d)]
        self._publish(root, [(d, lsp.DiagnosticSeverity.Error, None) for d in errors])
        if analysis.typed is None:
            return
        await asyncio.sleep(_WARNINGS_AFTER)
        found: list[tuple[Diagnostic, lsp.DiagnosticSeverity, str | None]] = []
        try:
            misfits, warnings = findings(analysis)
            found += [(w, lsp.DiagnosticSeverity.Warning, w.option) for w in warnings]
            found += [(m.diagnostic, lsp.DiagnosticSeverity.Information, m.code) for m in misfits]
        except CompileError as failure:
            found += [(d, lsp.DiagnosticSeverity.Error, None) for d in failure.diagnostics]
        self._publish(root, found)

    def _publish(
        self, root: Path, found: Iterable[tuple[Diagnostic, lsp.DiagnosticSeverity, str | None]]
    ) -> None:
        """Send the diagnostics of a program, and none for files that had some before."""
        paths = self.programs.snapshot(root).analysis.index.paths
        by_file: dict[Path, list[lsp.Diagnostic]] = {path: [] for path in self.published.get(root, ())}
        by_file[root] = []
        for diagnostic, severity, code in found:
            path = paths.get(diagnostic.span.file.path)
            span = diagnostic.span
            if path is None or of_compiler(path):
                path, span = root, Span(span.file, 1, 0, 1, 0)
            by_file.setdefault(path, []).append(
                self._diagnostic(path, span, diagnostic, severity, code, paths)
            )
        self.published[root] = {path for path, each in by_file.items() if each}
        for path, each in by_file.items():
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(_uri(path), each))

    def _diagnostic(
        self,
        path: Path,
        span: Span,
        diagnostic: Diagnostic,
        severity: lsp.DiagnosticSeverity,
        code: str | None,
        paths: dict[str, Path],
    ) -> lsp.Diagnostic:
        related = []
        if diagnostic.other is not None and (other := paths.get(diagnostic.other.file.path)) is not None:
            place = self.location(Place(other, diagnostic.other))
            related.append(lsp.DiagnosticRelatedInformation(place, "the other is here"))
        hint = f"\nhint: {diagnostic.hint}" if diagnostic.hint else ""
        page = _page(code)
        return lsp.Diagnostic(
            self.range(path, span),
            diagnostic.message + hint,
            severity,
            code,
            lsp.CodeDescription(page) if page is not None else None,
            _SOURCE,
            [lsp.DiagnosticTag.Unnecessary] if code in _UNUSED else None,
            related or None,
        )


def _incomplete(diagnostic: Diagnostic) -> bool:
    """Return whether an error only reports that a file is not a whole program, which included files need not be."""
    return diagnostic.message == "the program has no 'main' package"


@contextmanager
def _refusing() -> Iterator[None]:
    """Answer a request that cannot be carried out with the reason."""
    try:
        yield
    except RenameError as refusal:
        raise JsonRpcInvalidParams(str(refusal)) from None


def _page(code: str | None) -> str | None:
    """Return the address of the section that explains a code, or None if it is not on this machine."""
    name, _, heading = page_of(code).partition("#")
    page = Path(__file__).resolve().parents[1] / name
    return f"{from_fs_path(str(page))}#{heading}" if heading and page.exists() else None


def _uri(path: Path) -> str:
    return str(from_fs_path(str(path)))


def _path(uri: str) -> Path:
    """Return the file that an address names. One that is not in the file system stands for itself."""
    found = to_fs_path(uri)
    try:
        return Path(found).resolve() if found else Path(f"/{uri.replace(chr(0), '')}")
    except (OSError, ValueError, RuntimeError):
        return Path("/unreadable.p4")


_Handler = Callable[[P4Server, Any], object]
# Names of requests and notifications, with the options of their registration.
_HANDLERS: list[tuple[str, object, _Handler]] = []


def _answers(name: str, options: object = None) -> Callable[[_Handler], _Handler]:
    """Register the handler of a request or notification."""

    def register(handler: _Handler) -> _Handler:
        _HANDLERS.append((name, options, handler))
        return handler

    return register


@_answers(lsp.INITIALIZED)
def _initialized(server: P4Server, _: lsp.InitializedParams) -> None:
    folders = [_path(f.uri) for f in server.workspace.folders.values()]
    if not folders and server.workspace.root_uri:
        folders = [_path(server.workspace.root_uri)]
    server.programs.folders = folders
    server.programs.look_again()


@_answers(lsp.TEXT_DOCUMENT_DID_OPEN)
def _opened(server: P4Server, params: lsp.DidOpenTextDocumentParams) -> None:
    path = _path(params.text_document.uri)
    server.programs.buffers[path] = params.text_document.text
    server.programs.look_again()
    server.changed(path)


@_answers(lsp.TEXT_DOCUMENT_DID_CHANGE)
def _changed(server: P4Server, params: lsp.DidChangeTextDocumentParams) -> None:
    path = _path(params.text_document.uri)
    server.programs.buffers[path] = server.workspace.get_text_document(params.text_document.uri).source
    server.changed(path)


@_answers(lsp.TEXT_DOCUMENT_DID_CLOSE)
def _closed(server: P4Server, params: lsp.DidCloseTextDocumentParams) -> None:
    path = _path(params.text_document.uri)
    server.programs.buffers.pop(path, None)
    server.programs.look_again()
    for file in server.published.pop(path, set()):
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(_uri(file), []))


@_answers(lsp.TEXT_DOCUMENT_DID_SAVE)
def _saved(server: P4Server, params: lsp.DidSaveTextDocumentParams) -> None:
    server.changed(_path(params.text_document.uri))


@_answers(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
def _watched(server: P4Server, _: lsp.DidChangeWatchedFilesParams) -> None:
    server.programs.look_again()
    for path in list(server.programs.buffers)[:1]:
        server.changed(path)


@_answers(lsp.TEXT_DOCUMENT_HOVER)
def _hover(server: P4Server, params: lsp.HoverParams) -> lsp.Hover | None:
    path = _path(params.text_document.uri)
    found = server.programs.find(path, *server.column(path, params.position))
    if found is None:
        return None
    content = lsp.MarkupContent(lsp.MarkupKind.Markdown, describe(found.definition))
    return lsp.Hover(content, server.range(path, found.place.span))


@_answers(lsp.TEXT_DOCUMENT_DEFINITION)
def _definition(server: P4Server, params: lsp.DefinitionParams) -> lsp.Location | None:
    path = _path(params.text_document.uri)
    line, column = server.column(path, params.position)
    found = server.programs.find(path, line, column)
    if found is not None:
        place = server.programs.place(found.snapshot, found.definition.span)
        return server.location(place) if place is not None else None
    for snapshot in server.programs.snapshots(path):
        for span, target in snapshot.analysis.index.includes:
            at = server.programs.place(snapshot, span)
            if at is not None and at.path == path and at.span.line == line:
                return lsp.Location(_uri(target), lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0)))
    return None


@_answers(lsp.TEXT_DOCUMENT_REFERENCES)
def _references(server: P4Server, params: lsp.ReferenceParams) -> list[lsp.Location]:
    path = _path(params.text_document.uri)
    found = server.programs.find(path, *server.column(path, params.position))
    if found is None:
        return []
    declared = server.programs.place(found.snapshot, found.definition.span)
    places = server.programs.uses(found)
    if not params.context.include_declaration and declared is not None:
        places = [p for p in places if (p.path, p.span[1:3]) != (declared.path, declared.span[1:3])]
    return [server.location(place) for place in places]


@_answers(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
def _prepare_rename(server: P4Server, params: lsp.PrepareRenameParams) -> lsp.Range:
    path = _path(params.text_document.uri)
    with _refusing():
        found = check_renamable(server.programs.find(path, *server.column(path, params.position)))
    return server.range(path, found.place.span)


@_answers(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
def _renamed(server: P4Server, params: lsp.RenameParams) -> lsp.WorkspaceEdit:
    path = _path(params.text_document.uri)
    with _refusing():
        places = rename(
            server.programs,
            server.programs.find(path, *server.column(path, params.position)),
            params.new_name,
        )
    changes: dict[str, list[lsp.TextEdit]] = {}
    for place in places:
        edit = lsp.TextEdit(server.range(place.path, place.span), params.new_name)
        changes.setdefault(_uri(place.path), []).append(edit)
    return lsp.WorkspaceEdit(changes)


@_answers(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "@", "#", ":"]))
def _completion(server: P4Server, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
    path = _path(params.text_document.uri)
    found = complete(server.programs, path, *server.column(path, params.position))
    kinds = _COMPLETIONS
    return [
        lsp.CompletionItem(
            s.name, kind=kinds.get(s.kind, lsp.CompletionItemKind.Variable), detail=s.detail or None
        )
        for s in found
    ]


@_answers(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
def _document_symbols(server: P4Server, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    path = _path(params.text_document.uri)
    snapshot = server.programs.snapshots(path)[-1]  # the one without syntax errors, if there is one
    tree, names = snapshot.analysis.tree, snapshot.analysis.index.paths
    if tree is None:
        return []
    entries = [e for name, real in names.items() if real == path for e in outline(tree, name)]
    return list(server.symbols(path, entries, server.programs.moves(snapshot, path)))


@_answers(lsp.WORKSPACE_SYMBOL)
def _workspace_symbols(server: P4Server, params: lsp.WorkspaceSymbolParams) -> list[lsp.WorkspaceSymbol]:
    wanted = params.query.lower()
    found: dict[tuple[str, Path, int, int], lsp.WorkspaceSymbol] = {}
    for root in server.programs.all_roots():
        snapshot = server.programs.snapshots(root)[-1]
        for each in snapshot.analysis.index.definitions:
            if (
                wanted not in each.name.lower()
                or (place := server.programs.place(snapshot, each.span)) is None
            ):
                continue
            if not of_compiler(place.path) and len(found) < _MOST_SYMBOLS:
                kind = _KINDS.get(kind_of(each), lsp.SymbolKind.Variable)
                made = lsp.WorkspaceSymbol(
                    server.location(place), each.name, kind, container_name=place.path.name
                )
                found.setdefault((each.name, place.path, *place.span[1:3]), made)
    return list(found.values())


@_answers(lsp.TEXT_DOCUMENT_FORMATTING)
def _formatting(server: P4Server, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
    path = _path(params.text_document.uri)
    before = server.programs.text(path)
    try:
        after = format_text(before, path.name)
    except CompileError as failure:
        raise JsonRpcInvalidParams(str(failure)) from None
    return [server.edit(path, before, after)] if after != before else []


def make_server(version: str) -> P4Server:
    """Return a server that answers what editors ask."""
    server = P4Server(version)
    for name, options, handler in _HANDLERS:
        server.feature(name, options)(handler)
    return server
