"""The preprocessor: a P4 file and everything it includes -> one list of tokens with expanded macros.

It implements a subset of C's preprocessor (ISO C 6.10) on P4's tokens: #include, #define (object- and function-like,
# and ##), #undef, #if with integer expressions and defined(), #ifdef, #ifndef, #elif, #else, #endif, #error, #warning.
#pragma is ignored, and so is any other line that begins with # and no directive, as with `cpp -x assembler-with-cpp`.
Line markers written by cpp set the places of the lines after them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from os.path import abspath
from pathlib import Path

from fanin.native.files import read_bytes
from fanin.p4compiler.index import Definition, NameIndex
from fanin.p4compiler.parse.conditions import evaluate
from fanin.p4compiler.parse.lex import (
    NAME,
    NEWLINE,
    NUMBER,
    STRAY,
    STRING,
    SYMBOL,
    Token,
    parse_number,
    tokenize,
)
from fanin.p4compiler.source import CompileError, Diagnostic, Expansion, Reporter, SourceFile, Span, error

MAX_INCLUDE_DEPTH = 64
# A few lines can name more than fits into any memory: each macro, or each file, has the one before twice.
MAX_EXPANDED = 1 << 18  # tokens that macros are looked for in
MAX_INCLUDES = 10_000
_PSA = ("psa.p4", "bmv2/psa.p4")
_MAX_KEPT = 64  # files whose tokens are kept
_MOST_BYTES = 16 << 20  # of a file
_DIRECTIVES = (
    "if", "ifdef", "ifndef", "elif", "else", "endif", "define", "undef", "include", "error", "warning", "pragma",
)  # fmt: skip
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b")

# Files that were looked up, with a digest of their text; None for files that did not exist.
Lookups = dict[Path, str | None]

_Item = tuple[Token, frozenset[str]]  # a token and the macros that must not be expanded in it


@dataclass(frozen=True, slots=True)
class Macro:
    """Macro: its name, its parameters (None if object-like) and its replacement."""

    name: str
    parameters: tuple[str, ...] | None
    body: tuple[Token, ...]


@dataclass(slots=True)
class _Condition:
    """Open #if: whether this branch is read, whether a branch has been read, whether #else has been seen."""

    opened: Span
    reading: bool
    taken: bool
    finished: bool = False


@dataclass(slots=True)
class _Note:
    """Something for an index: the use of a macro, or its definition if `macro` is given; else a file."""

    name: str = ""
    span: Span | None = None
    macro: Macro | None = None
    path: Path | None = None


@dataclass(slots=True)
class _Kept:
    """Result of an included file. It is used again while the macros before it and the files that it read are the same.

    Attributes:
        before: The macros before it.
        after: The macros after it.
        texts: The files that were read.
        missing: Places where no file was.
        output: The tokens.
        notes: What the index has received.
        warnings: What the reporter has received.
    """

    before: dict[str, Macro]
    after: dict[str, Macro]
    texts: list[tuple[Path, str]]
    missing: list[Path]
    output: list[Token]
    notes: list[_Note]
    warnings: list[Diagnostic]


KeptIncludes = dict[tuple[Path, str], _Kept]


def preprocess(
    path: Path,
    include_dirs: Iterable[Path],
    defines: Mapping[str, str],
    reporter: Reporter,
    lookups: Lookups | None = None,
    *,
    confined: bool = False,
    texts: Mapping[Path, str] | None = None,
    index: NameIndex | None = None,
    kept: KeptIncludes | None = None,
) -> list[Token]:
    """Preprocess a file and return its tokens.

    `#include "x"` looks in the folder of the including file first, then in `include_dirs`; `#include <x>` looks only in
    `include_dirs`.

    Args:
        path: The file.
        include_dirs: The folders to search. The last one has the compiler's own files.
        defines: Macros by name.
        reporter: Receives the warnings.
        lookups: Receives all files that the tokens depend on.
        confined: Whether files outside of the folder of `path` and of `include_dirs` count as missing.
        texts: What stands for the text of files, by their absolute paths, such as what an editor has not saved.
        index: Receives the files, the macros and the places that use them.
        kept: The results of included files from the last time, which are brought up to date. Only with an index.

    Raises:
        CompileError: If a directive is wrong, or an included file cannot be read.
        OSError: If `path` itself cannot be read.
    """
    places = tuple(include_dirs)
    below = [place.resolve() for place in (path.parent, *places)] if confined else None
    lookups = {} if lookups is None else lookups
    preprocessor = _Preprocessor(places, reporter, lookups, below, texts or {}, index, kept)
    for name, value in defines.items():
        origin = SourceFile(f"-D{name}", (value,))
        body = tuple(token for token in tokenize(origin) if token.kind != NEWLINE)
        preprocessor.macros[name] = Macro(name, None, body)
    preprocessor.read(path, str(path))
    return preprocessor.output


def unchanged(lookups: Lookups) -> bool:
    """Return whether all files that were looked up are unchanged."""
    try:
        return all(
            (_digest(_text(path)) if path.is_file() else None) == digest for path, digest in lookups.items()
        )
    except OSError:
        return False


def _absolute(path: Path) -> Path:
    """Return the absolute path. Resolving symbolic links as well would take a third of the preprocessor's time."""
    return Path(abspath(path))  # noqa: PTH100


def _text(path: Path) -> str:
    return read_bytes(path, _MOST_BYTES).decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


@lru_cache(_MAX_KEPT)
def _tokens(shown: str, text: str) -> tuple[SourceFile, tuple[Token, ...]]:
    """Return a file and its tokens, cached because every program includes core.p4 and v1model.p4."""
    file = SourceFile(shown, tuple(text.split("\n")))
    return file, tuple(tokenize(file))


class _Preprocessor:
    def __init__(
        self,
        include_dirs: tuple[Path, ...],
        reporter: Reporter,
        lookups: Lookups,
        below: list[Path] | None,
        texts: Mapping[Path, str],
        index: NameIndex | None,
        kept: KeptIncludes | None,
    ) -> None:
        self.include_dirs = include_dirs
        self.reporter = reporter
        self.lookups = lookups
        self.below = below
        self.texts = texts
        self.index = index
        self.kept = kept
        self.notes: list[_Note] = []
        self.read_texts: list[tuple[Path, str]] = []
        self.missing: list[Path] = []
        self.macros: dict[str, Macro] = {}
        self.definitions: dict[str, Definition] = {}  # of macros; only with an index
        self.output: list[Token] = []
        self.depth = 0
        self.includes = 0
        self.expanded = 0

    def read(self, path: Path, shown: str) -> None:
        self.depth += 1
        text = self.text(path)
        self.lookups[path] = _digest(text)
        self.read_texts.append((path, text))
        self.note(_Note(shown, path=_absolute(path)))
        file, tokens = _tokens(shown, text)
        conditions: list[_Condition] = []
        pending: list[Token] = []
        marker: _Marker | None = None
        for line in _lines(tokens):
            if line[0].text == "#" and line[0].kind == SYMBOL:
                self.flush(pending)
                if _is_marker(line):
                    marker = _Marker(line, file)
                else:
                    self.directive(line, path, conditions)
            elif all(c.reading for c in conditions):
                line = [self.conditional(t, path) if t.kind == STRING and "\n" in t.text else t for t in line]
                pending += line if marker is None else map(marker.placed, line)
        self.flush(pending)
        _require_closed(conditions)
        self.depth -= 1

    def text(self, path: Path) -> str:
        text = self.texts.get(_absolute(path)) if self.texts else None
        return _text(path) if text is None else text

    def exists(self, path: Path) -> bool:
        return path.is_file() or (bool(self.texts) and _absolute(path) in self.texts)

    def note(self, note: _Note) -> None:
        """Give the index something, and keep it for the next time."""
        index, (name, span) = self.index, (note.name, note.span)
        if index is None:
            return
        self.notes.append(note)
        if note.path is not None:
            if span is None:
                index.paths[name] = note.path
            else:
                index.includes.append((span, note.path))
        elif span is not None and note.macro is not None:
            self.definitions[name] = index.define(name, span, note.macro)
        elif span is not None:
            index.use(name, span, self.definitions.get(name))

    def read_included(self, path: Path, shown: str) -> None:
        """Read an included file, or use its result from the last time."""
        if self.kept is None:
            self.read(path, shown)
            return
        kept = self.kept.get((path, shown))
        if kept is None or not self.fits(kept):
            before = dict(self.macros)
            marks = [len(self.read_texts), len(self.missing), len(self.output), len(self.notes)]
            warned = len(self.reporter.warnings)
            self.read(path, shown)
            self.kept[path, shown] = _Kept(
                before, dict(self.macros), self.read_texts[marks[0] :], self.missing[marks[1] :],
                self.output[marks[2] :], self.notes[marks[3] :], self.reporter.warnings[warned:],
            )  # fmt: skip
            return
        self.macros = dict(kept.after)
        self.read_texts += kept.texts
        self.missing += kept.missing
        self.output += kept.output
        self.reporter.warnings += kept.warnings
        for note in kept.notes:
            self.note(note)

    def fits(self, kept: _Kept) -> bool:
        """Return whether a kept result is that of now."""
        same = kept.before == self.macros and not any(map(self.exists, kept.missing))
        return same and all(self.exists(path) and self.text(path) == text for path, text in kept.texts)

    def flush(self, pending: list[Token]) -> None:
        for place, token in enumerate(pending):
            if token.kind == STRAY and not _in_annotation([*self.output, *pending[:place]]):
                hint = "this string is never closed" if token.text == '"' else None
                raise error(token.span, f"unexpected character {token.text!r}", hint)
        self.output += self.expand(pending)
        pending.clear()

    # Directives

    def directive(self, line: list[Token], path: Path, conditions: list[_Condition]) -> None:
        if len(line) == 1:
            return
        name, rest = line[1], line[2:]
        if name.text not in _DIRECTIVES:
            self.ignore(name)
            return
        for token in rest:
            if token.kind == STRAY and token.text == '"':
                raise error(token.span, "a string in a directive ends on its line", 'is a " missing?')
        reading = all(c.reading for c in conditions)
        match name.text:
            case "if" | "ifdef" | "ifndef":
                taken = reading and self.holds(name, rest)
                conditions.append(_Condition(name.span, taken, taken or not reading))
            case "elif" | "else":
                if not conditions or conditions[-1].finished:
                    raise error(name.span, f"#{name.text} without an #if before it")
                last = conditions[-1]
                last.finished = name.text == "else"
                last.reading = not last.taken and (last.finished or self.holds(name, rest))
                last.taken = last.taken or last.reading
            case "endif":
                if not conditions:
                    raise error(name.span, "#endif without an #if before it")
                conditions.pop()
            case _ if not reading:
                pass
            case "define":
                self.define(name, rest)
            case "undef":
                self.macros.pop(_macro_name(name, rest).text, None)
            case "include":
                self.include(name, rest, path)
            case "error":
                raise error(name.span.to(line[-1].span), f"#error {_spelling(rest)}")
            case "warning":
                self.reporter.warn(name.span.to(line[-1].span), f"#warning {_spelling(rest)}")
            case "pragma":
                pass

    def ignore(self, name: Token) -> None:
        """Ignore a line that begins with # and no directive: courses write comments so. A slip is an error."""
        if not name.glued or name.kind != NAME:
            return
        meant = get_close_matches(name.text, _DIRECTIVES, 1, 0.8)
        if meant:
            raise error(name.span, f"unknown directive #{name.text}", f"did you mean #{meant[0]}?")
        hint = "write // before a comment"
        self.reporter.warn(name.span, f"#{name.text} is no directive: the line is ignored", hint)

    def conditional(self, string: Token, path: Path) -> Token:
        """Return a string of several lines without those that #if lines in it rule out. Their places stay empty."""
        first, *lines = string.text.split("\n")
        kept = [first]
        conditions: list[_Condition] = []
        for number, line in enumerate(lines, string.span.line + 1):
            if _CONDITION.match(line):
                file = SourceFile(string.span.file.path, (line,), number)
                [tokens] = _lines(tokenize(file))
                self.directive(tokens, path, conditions)
                kept.append("")
            else:
                kept.append(line if all(c.reading for c in conditions) else "")
        _require_closed(conditions)
        return string._replace(text="\n".join(kept))

    def holds(self, name: Token, rest: list[Token]) -> bool:
        if name.text in ("ifdef", "ifndef"):
            self.note_uses(rest[:1])
            return (_macro_name(name, rest).text in self.macros) == (name.text == "ifdef")
        if not rest:
            raise error(name.span, f"#{name.text} without a condition")
        return evaluate(self.expand(self.replace_defined(rest)), name.span) != 0

    def replace_defined(self, tokens: list[Token]) -> list[Token]:
        """Replace `defined X` and `defined(X)` by 1 or 0, before macros are expanded."""
        result: list[Token] = []
        at = 0
        while at < len(tokens):
            token = tokens[at]
            at += 1
            if token.text != "defined":
                result.append(token)
                continue
            bracketed = at < len(tokens) and tokens[at].text == "("
            at += bracketed
            if at >= len(tokens) or tokens[at].kind != NAME:
                raise error(token.span, "'defined' needs the name of a macro", "write defined(NAME)")
            result.append(Token("number", str(int(tokens[at].text in self.macros)), token.span))
            at += 1 + bracketed
        return result

    def define(self, directive: Token, rest: list[Token]) -> None:
        name = _macro_name(directive, rest)
        parameters: tuple[str, ...] | None = None
        body = rest[1:]
        if body and body[0].text == "(" and body[0].glued:
            try:
                close = next(i for i, token in enumerate(body) if token.text == ")")
            except StopIteration:
                raise error(name.span, f"the parameters of macro '{name.text}' are never closed") from None
            names = body[1:close:2]
            if any(t.kind != NAME for t in names) or any(t.text != "," for t in body[2:close:2]):
                raise error(
                    body[0].span.to(body[close].span), "a macro's parameters are names, separated by commas"
                )
            parameters = tuple(t.text for t in names)
            body = body[close + 1 :]
        for end in (body[:1], body[-1:]):
            if end and end[0].text == "##":
                raise error(end[0].span, "'##' needs a token on each side")
        macro = Macro(name.text, parameters, tuple(body))
        old = self.macros.get(name.text)
        if old is not None and (old.parameters != parameters or _texts(old.body) != _texts(macro.body)):
            hint = "#undef it first, if another meaning is intended"
            self.reporter.warn(
                name.span,
                f"macro '{name.text}' is defined again with another meaning",
                hint,
                option="macro-redefined",
            )
        self.macros[name.text] = macro
        self.note(_Note(name.text, name.span, macro))

    def include(self, directive: Token, rest: list[Token], path: Path) -> None:
        if rest and rest[0].kind == NAME:
            rest = self.expand(rest)
        if rest and rest[0].kind == STRING:
            wanted, places = rest[0].text[1:-1], (path.parent, *self.include_dirs)
        elif len(rest) > 2 and rest[0].text == "<" and rest[-1].text == ">":
            wanted, places = "".join(t.text for t in rest[1:-1]), self.include_dirs
        else:
            raise error(
                directive.span, "#include needs a file", 'write #include "file.p4" or #include <file.p4>'
            )
        if wanted in _PSA:  # p4c's, in a folder of -I, does not say how PSA is carried out here
            places = tuple(place for place in places if place not in self.include_dirs[:-1])
        span = rest[0].span.to(rest[-1].span)
        if self.depth >= MAX_INCLUDE_DEPTH:
            raise error(
                span, f"#include is nested more than {MAX_INCLUDE_DEPTH} deep", "does a file include itself?"
            )
        self.includes += 1
        if self.includes > MAX_INCLUDES:
            raise error(
                span, f"more than {MAX_INCLUDES:,} files are included", "does a file include others twice?"
            )
        for place in places:
            found = place / wanted
            if self.below is not None and not any(map(found.resolve().is_relative_to, self.below)):
                continue
            if self.exists(found):
                self.note(_Note("", span, path=_absolute(found)))
                self.read_included(found, wanted if rest[0].text == "<" else str(found))
                return
            self.lookups[found] = None
            self.missing.append(found)
        looked = f"looked in {', '.join(map(str, places))}"
        there = {f.name for place in places if place.is_dir() for f in place.iterdir()}
        near = get_close_matches(Path(wanted).name, sorted(there), n=1)
        open_, close = rest[0].text[0], rest[-1].text[-1]
        hint = f"write #include {open_}{near[0]}{close}" if near else looked
        raise error(span, f"no such file: {wanted}", hint)

    # Macro expansion (Prosser's algorithm: each token carries the macros that it came from)

    def expand(self, tokens: list[Token]) -> list[Token]:
        if not any(token.text in self.macros for token in tokens):
            return tokens
        self.note_uses(tokens)
        nothing: frozenset[str] = frozenset()
        return [token for token, _ in self.expand_items([(token, nothing) for token in tokens])]

    def note_uses(self, tokens: Iterable[Token]) -> None:
        """Note the names of macros among the tokens of a file in the index."""
        if self.index is not None:
            for token in tokens:
                if token.text in self.macros:
                    self.note(_Note(token.text, token.span))

    def expand_items(self, items: list[_Item]) -> list[_Item]:
        result: list[_Item] = []
        stack = items[::-1]
        macros = self.macros
        while stack:
            item = stack.pop()
            token, hidden = item
            self.expanded += 1
            if self.expanded > MAX_EXPANDED:
                raise error(
                    token.span, f"macros expand to more than {MAX_EXPANDED:,} tokens", "use fewer of them"
                )
            macro = macros.get(token.text) if token.kind == NAME else None
            if macro is None or macro.name in hidden:
                result.append(item)
            elif macro.parameters is None:
                stack += self.substitute(macro, token, {}, hidden)
            elif stack and stack[-1][0].text == "(":
                arguments = self.arguments(macro, token, stack)
                stack += self.substitute(macro, token, arguments, hidden)
            else:
                result.append(item)
        return result

    def arguments(self, macro: Macro, call: Token, stack: list[_Item]) -> dict[str, list[_Item]]:
        stack.pop()
        arguments: list[list[_Item]] = [[]]
        depth = 0
        while True:
            if not stack:
                raise error(call.span, f"the call of macro '{macro.name}' is never closed", "end it with )")
            item = stack.pop()
            text = item[0].text
            if depth == 0 and text == ")":
                break
            if depth == 0 and text == ",":
                arguments.append([])
                continue
            depth += (text == "(") - (text == ")")
            arguments[-1].append(item)
        assert macro.parameters is not None
        if not macro.parameters and arguments == [[]]:
            return {}
        if len(arguments) != len(macro.parameters):
            wants = f"takes {len(macro.parameters)} argument{'s' * (len(macro.parameters) != 1)}"
            raise error(call.span, f"macro '{macro.name}' {wants}, not {len(arguments)}")
        return dict(zip(macro.parameters, arguments, strict=True))

    def substitute(
        self, macro: Macro, call: Token, arguments: dict[str, list[_Item]], hidden: frozenset[str]
    ) -> list[_Item]:
        """Return the replacement of a macro call, its last token first."""
        hidden = hidden | {macro.name}
        expanded: dict[str, list[_Item]] = {}
        result: list[_Item] = []
        body = macro.body
        begin = call.span[:5]
        at = 0
        operand = False  # whether a following ## has a token on its left (an argument may be empty)
        while at < len(body):
            token = body[at]
            at += 1
            before = operand
            pasting = at < len(body) and body[at].text == "##"
            pasted = at >= 2 and body[at - 2].text == "##"
            if token.text == "##":
                continue
            if token.text == "#" and macro.parameters and at < len(body) and body[at].text in arguments:
                text = _spelling([t for t, _ in arguments[body[at].text]])
                escaped = text.replace("\\", "\\\\").replace('"', '\\"')
                pieces = [(Token(STRING, f'"{escaped}"', call.span), hidden)]
                at += 1
            elif token.text in arguments:
                if pasting or pasted:
                    pieces = arguments[token.text]
                else:
                    if token.text not in expanded:
                        expanded[token.text] = self.expand_items(arguments[token.text])
                    pieces = expanded[token.text]
            else:
                spelled = token.span
                place = Expansion(macro.name, spelled.file, spelled.line, spelled.column)
                pieces = [(Token(token.kind, token.text, Span(*begin, place), token.glued), hidden)]
            operand = bool(pieces) or (pasted and operand)
            if pasted and before and pieces:
                joined = _paste(result.pop()[0], pieces[0][0])
                pieces = [*((token, hidden) for token in joined), *pieces[1:]]
            result += pieces
        result.reverse()
        return result


class _Marker:
    """Line marker of cpp, `# 12 "file"` or `#line 12 "file"`, which gives the origin of the lines after it."""

    def __init__(self, line: list[Token], file: SourceFile) -> None:
        number, *named = line[2:] if line[1].text == "line" else line[1:]
        self.shift = parse_number(number).value - (line[0].span.line + 1)
        path = named[0].text[1:-1] if named and named[0].kind == STRING else file.path
        self.file = SourceFile(path, file.lines, 1 + self.shift)

    def placed(self, token: Token) -> Token:
        """Return the token with the place that it comes from."""
        span = token.span
        shifted = (span.line + self.shift, span.column, span.end_line + self.shift, span.end_column)
        return token._replace(span=Span(self.file, *shifted))


def _require_closed(conditions: list[_Condition]) -> None:
    if conditions:
        raise error(conditions[-1].opened, "this #if is never closed", "end it with #endif")


def _in_annotation(before: list[Token]) -> bool:
    """Return whether what follows these tokens is inside an annotation, whose text is free."""
    depth = 0
    for place in range(len(before) - 1, 1, -1):
        text = before[place].text
        if text in (")", "]", "}"):
            depth += 1
        elif text in ("(", "[", "{"):
            if not depth and before[place - 2].text == "@":
                return True
            depth -= depth > 0
    return False


def _is_marker(line: list[Token]) -> bool:
    after = line[2:] if len(line) > 1 and line[1].text == "line" else line[1:]
    return bool(after) and after[0].kind == NUMBER


def _lines(tokens: Iterable[Token]) -> Iterable[list[Token]]:
    line: list[Token] = []
    for token in tokens:
        if token.kind != NEWLINE:
            line.append(token)
        elif line:
            yield line
            line = []


def _texts(tokens: Iterable[Token]) -> list[str]:
    return [token.text for token in tokens]


def _spelling(tokens: Iterable[Token]) -> str:
    return " ".join(_texts(tokens))


def _macro_name(directive: Token, rest: list[Token]) -> Token:
    if not rest or rest[0].kind != NAME:
        place = rest[0].span if rest else directive.span
        raise error(place, f"#{directive.text} needs the name of a macro")
    return rest[0]


def _paste(left: Token, right: Token) -> tuple[Token, ...]:
    """Paste two tokens into one, or return both if that is not a token, as `cpp -x assembler-with-cpp` does."""
    text = left.text + right.text
    try:
        (token, _) = tokenize(SourceFile("", (text,)))
    except (CompileError, ValueError):
        return left, right._replace(glued=True)
    return (Token(token.kind, text, left.span, left.glued),)
