"""An editor for tests: a client of the language server over its standard input and output."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

_Result = TypeVar("_Result")
PATIENCE = 60  # seconds, for a machine that is busy


class Editor:
    """Client in a thread of its own, whose methods wait for the answers."""

    def __init__(self, folder: Path, encoding: str = "utf-16") -> None:
        self.folder = folder
        self.encoding = encoding
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.client = LanguageClient("tests", "1")
        self.published: dict[str, list[lsp.Diagnostic]] = {}
        self.counts: dict[str, int] = {}
        self.shown: list[str] = []
        self.versions: dict[str, int] = {}
        self.news = threading.Condition()

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params: lsp.PublishDiagnosticsParams) -> None:
            with self.news:
                self.published[params.uri] = list(params.diagnostics)
                self.counts[params.uri] = self.counts.get(params.uri, 0) + 1
                self.news.notify_all()

        @self.client.feature(lsp.WINDOW_SHOW_MESSAGE)
        def show(params: lsp.ShowMessageParams) -> None:
            self.shown.append(params.message)

    def wait(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def start(self) -> lsp.InitializeResult:
        self.thread.start()
        self.wait(self.client.start_io(sys.executable, "-m", "fanin", "lsp", cwd=self.folder))
        general = lsp.GeneralClientCapabilities(position_encodings=[lsp.PositionEncodingKind(self.encoding)])
        answer = self.wait(
            self.client.initialize_async(
                lsp.InitializeParams(
                    lsp.ClientCapabilities(general=general),
                    workspace_folders=[lsp.WorkspaceFolder(self.folder.as_uri(), "tests")],
                )
            )
        )
        self.client.initialized(lsp.InitializedParams())
        return answer

    def stop(self) -> int | None:
        self.wait(self.client.shutdown_async(None))
        server = self.client._server
        assert server is not None

        async def leave() -> int | None:
            self.client.exit(None)
            code = await server.wait()
            await self.client.stop()
            return code

        try:
            return self.wait(leave())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(PATIENCE)
            self.loop.close()

    # Documents

    def open(self, path: Path, text: str | None = None) -> str:
        """Open a file, perhaps with a text that is not saved."""
        uri = path.as_uri()
        text = path.read_text() if text is None else text
        self.versions[uri] = 1
        self.client.text_document_did_open(
            lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "p4", 1, text))
        )
        return text

    def change(self, path: Path, text: str) -> None:
        uri = path.as_uri()
        self.versions[uri] += 1
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(self.versions[uri], uri),
                [lsp.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    def close(self, path: Path) -> None:
        self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(_document(path)))

    def diagnostics(self, path: Path, wanted: str) -> list[lsp.Diagnostic]:
        """Wait until a diagnostic contains a text, or until there are none for an empty one."""

        def there() -> bool:
            found = self.published.get(path.as_uri())
            return found is not None and (any(wanted in d.message for d in found) if wanted else not found)

        with self.news:
            assert self.news.wait_for(there, PATIENCE), (wanted, self.published)
            return self.published[path.as_uri()]

    # Requests

    def hover(self, path: Path, line: int, character: int) -> str:
        answer = self.wait(
            self.client.text_document_hover_async(lsp.HoverParams(*_at(path, line, character)))
        )
        if answer is None:
            return ""
        assert isinstance(answer.contents, lsp.MarkupContent)
        return answer.contents.value

    def definition(self, path: Path, line: int, character: int) -> lsp.Location | None:
        at = lsp.DefinitionParams(*_at(path, line, character))
        answer = self.wait(self.client.text_document_definition_async(at))
        assert answer is None or isinstance(answer, lsp.Location)
        return answer

    def references(
        self, path: Path, line: int, character: int, declaration: bool = True
    ) -> list[lsp.Location]:
        context = lsp.ReferenceContext(declaration)
        at = lsp.ReferenceParams(context, *_at(path, line, character))
        return list(self.wait(self.client.text_document_references_async(at)) or ())

    def prepare_rename(self, path: Path, line: int, character: int) -> Any:
        at = lsp.PrepareRenameParams(*_at(path, line, character))
        return self.wait(self.client.text_document_prepare_rename_async(at))

    def rename(self, path: Path, line: int, character: int, name: str) -> dict[str, list[lsp.TextEdit]]:
        document, position = _at(path, line, character)
        answer = self.wait(
            self.client.text_document_rename_async(
                lsp.RenameParams(text_document=document, position=position, new_name=name)
            )
        )
        assert answer is not None
        return {uri: list(edits) for uri, edits in (answer.changes or {}).items()}

    def complete(self, path: Path, line: int, character: int) -> dict[str, lsp.CompletionItem]:
        at = lsp.CompletionParams(*_at(path, line, character))
        answer = self.wait(self.client.text_document_completion_async(at))
        assert isinstance(answer, list)
        return {item.label: item for item in answer}

    def symbols(self, path: Path) -> list[lsp.DocumentSymbol]:
        params = lsp.DocumentSymbolParams(_document(path))
        answer = self.wait(self.client.text_document_document_symbol_async(params)) or []
        return [each for each in answer if isinstance(each, lsp.DocumentSymbol)]

    def workspace_symbols(self, query: str) -> list[str]:
        params = lsp.WorkspaceSymbolParams(query)
        return [s.name for s in self.wait(self.client.workspace_symbol_async(params)) or ()]

    def format(self, path: Path) -> list[lsp.TextEdit]:
        options = lsp.FormattingOptions(4, True)
        params = lsp.DocumentFormattingParams(_document(path), options)
        return list(self.wait(self.client.text_document_formatting_async(params)) or ())


@contextmanager
def editing(folder: Path, encoding: str = "utf-16") -> Iterator[Editor]:
    """Start a server and a client for a folder, and stop them."""
    editor = Editor(folder, encoding)
    editor.start()
    try:
        yield editor
    except BaseException:
        editor.stop()
        raise
    assert editor.stop() == 0


def apply(text: str, edits: list[lsp.TextEdit]) -> str:
    """Return a text (of the basic plane) with edits."""
    lines = text.split("\n")

    def offset(at: lsp.Position) -> int:
        return sum(len(line) + 1 for line in lines[: at.line]) + at.character

    for edit in sorted(edits, key=lambda e: (e.range.start.line, e.range.start.character), reverse=True):
        text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
    return text


def _document(path: Path) -> lsp.TextDocumentIdentifier:
    return lsp.TextDocumentIdentifier(path.as_uri())


def _at(path: Path, line: int, character: int) -> tuple[lsp.TextDocumentIdentifier, lsp.Position]:
    return _document(path), lsp.Position(line, character)
