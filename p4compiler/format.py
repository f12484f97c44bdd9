"""The layout of programs: the text of one file -> the same tokens and comments in fanin's style.

The style is described in docs/reference/format.md. Macros are not expanded: what a programmer has written is laid out,
not what the compiler makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from fanin.p4compiler.parse.lex import NAME, NEWLINE, NUMBER, STRING, SYMBOL, TOKEN
from fanin.p4compiler.source import SourceFile, Span, error

INDENT = 4
WIDTH = 120  # a block on one line that is longer is broken; other lines are the author's

_COMMENT = "comment"
_DIRECTIVE = "directive"
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())
_BLOCK_PROPERTIES = ("key", "actions", "entries")
_LISTS = ("enum", "error", "match_kind")
_BEFORE_PARENTHESIS = ("if", "for", "switch", "return", "in", "while")  # these keep a space before it
_BASE_TYPES = ("bit", "int", "varbit", "bool", "tuple", "list", "error", "string", "void")
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(slots=True)
class _Piece:
    """Token, comment or whole line of a directive, with the number of line ends before it."""

    kind: str
    text: str
    span: Span
    newlines: int
    glued: bool

    @property
    def is_token(self) -> bool:
        return self.kind not in (_COMMENT, _DIRECTIVE)

    @property
    def ends_line(self) -> bool:
        return self.kind == _DIRECTIVE or self.text.startswith("//")


def format_text(text: str, path: str) -> str:
    """Return a program in fanin's style. Its tokens and comments stay as they are, and a second time changes nothing.

    Args:
        text: The text of one file, which need not be a whole program.
        path: Its name for errors.

    Raises:
        CompileError: If a comment or bracket is not closed, or a character begins no token.
    """
    pieces = list(_pieces(SourceFile(path, tuple(text.split("\n")))))
    structure = _Structure(pieces, _pairs(pieces))
    broken: set[int] = set()  # the blocks that do not stay on one line
    while True:
        layout = _Layout(structure, broken)
        too_long = {block for block, line in layout.one_line.items() if layout.width(line) > WIDTH}
        if not too_long:
            return "".join(line + "\n" for line in _with_comments(layout.lines))
        closing = structure.closing
        broken |= {b for b in too_long if not any(other < b < closing[other] for other in too_long)}


def _pieces(file: SourceFile) -> Iterator[_Piece]:
    """Yield the tokens, comments and directives of a file."""
    text = "\n".join(file.lines) + "\n"
    position, line, line_start, newlines, glued = 0, 1, 0, 0, False
    begins = True  # whether only white space and comments stand before this on its line
    while position < len(text):
        found = TOKEN.match(text, position)
        span = Span(file, line, position - line_start, line, position - line_start + 1)
        if found is None:
            raise error(span, f"unexpected character {text[position]!r}")
        kind, end = str(found.lastgroup), found.end()
        written = found.group()
        if kind == "open":
            raise error(span, "this comment is never closed", "end it with */")
        if kind == SYMBOL and written == "#" and begins:
            kind, end = _DIRECTIVE, _end_of_directive(text, position)
            written = text[position:end]
        if kind == NEWLINE:
            newlines += 1
            begins, glued = True, False
        elif kind == "space" and not written.startswith(("//", "/*")):
            newlines += "\n" in written  # after a backslash
            glued = False
        else:
            is_comment = kind == "space"
            yield _Piece(_COMMENT if is_comment else kind, written, span, newlines, glued)
            newlines, begins, glued = 0, begins and is_comment, not is_comment
        crossed = text.count("\n", position, end)
        if crossed:
            line += crossed
            line_start = text.rindex("\n", position, end) + 1
        position = end


def _end_of_directive(text: str, position: int) -> int:
    """Return where the line of a directive ends, with the lines that continue it."""
    while text[position] != "\n":
        found = TOKEN.match(text, position)
        stray = (
            found is None
            or found.lastgroup == "open"
            or (found.lastgroup == STRING and "\n" in found.group())
        )
        position = position + 1 if found is None or stray else found.end()
    return position


def _pairs(pieces: list[_Piece]) -> dict[int, int]:
    """Return the closing bracket of each opening one, by their places. A branch of an #if has brackets of its own.

    Raises:
        CompileError: If a bracket lacks its other half.
    """
    pairs: dict[int, int] = {}
    opened: list[int] = []
    saved: list[list[int]] = []
    previous = ""
    for place, piece in enumerate(pieces):
        if piece.kind == SYMBOL and piece.text == "#" and previous != "{":
            raise error(piece.span, "unexpected character '#'", "a directive is alone on its line")
        previous = piece.text if piece.is_token else previous
        if piece.kind == _DIRECTIVE:
            opened = _in_branch(piece.text, opened, saved)
        elif piece.kind == SYMBOL and piece.text in _OPENING:
            opened.append(place)
        elif piece.kind == SYMBOL and piece.text in _CLOSING:
            if not opened or _OPENING[pieces[opened[-1]].text] != piece.text:
                hint = "without pairs of brackets there is nothing to indent by"
                raise error(piece.span, f"this '{piece.text}' closes nothing", hint)
            pairs.setdefault(opened.pop(), place)
    if opened:
        bracket = pieces[opened[-1]]
        raise error(
            bracket.span, f"this '{bracket.text}' is never closed", f"end it with {_OPENING[bracket.text]}"
        )
    return pairs


_Saved = TypeVar("_Saved")


def _in_branch(directive: str, state: list[_Saved], saved: list[list[_Saved]]) -> list[_Saved]:
    """Return the open brackets after a directive: each branch of an #if begins with those before it."""
    [name] = re.findall(r"^#[ \t]*([a-z]*)", directive)
    if name.startswith("if"):
        saved.append(deepcopy(state))
    elif name in ("else", "elif") and saved:
        return deepcopy(saved[-1])
    elif name == "endif" and saved:
        saved.pop()
    return state


_BLOCKS = ("block", "switch", "list")


@dataclass(slots=True)
class _Bracket:
    """Open bracket while the structure is read, or the file itself.

    Attributes:
        role: What it is, as in `_Structure.roles`.
        head: The tokens of the statement that is being read, without those in brackets.
        ended: Whether the next token begins a statement.
        conditionals: The number of `?` whose `:` is to come.
    """

    role: str
    head: list[str] = field(default_factory=list)
    ended: bool = True
    conditionals: int = 0


class _Structure:
    """Meaning of the tokens of a file for its layout.

    Attributes:
        pieces: All tokens, comments and directives.
        closing: The closing bracket of each opening one.
        opening: The opening bracket of each closing one.
        roles: What a symbol is, where its text does not tell. Brackets are "block" (with statements), "switch", "list"
            (with the names of an enum), "value" (braces in an expression) or "cast". < and > are "types", operators
            "unary", and : is "ternary" or "slice".
        begins: The tokens that begin a statement, True for those that always begin a line.
        operands: The tokens that follow an operand: a minus before them is binary.
    """

    def __init__(self, pieces: list[_Piece], closing: dict[int, int]) -> None:
        self.pieces = pieces
        self.closing = closing
        self.opening = {close: opened for opened, close in closing.items()}
        self.roles: dict[int, str] = {}
        self.begins: dict[int, bool] = {}
        self.operands: set[int] = set()
        self._tokens = [place for place, piece in enumerate(pieces) if piece.is_token]
        self._at = 0  # the current token, in _tokens
        frames = [_Bracket("block")]
        saved: list[list[_Bracket]] = []
        operand = False
        for place, piece in enumerate(pieces):
            if piece.kind == _DIRECTIVE:
                frames = _in_branch(piece.text, frames, saved)
            elif piece.is_token:
                operand = self._token(place, piece, frames, operand)
                self._at += 1

    def _near(self, offset: int) -> tuple[int, str]:
        """Return the place and the text of a token near the current one; -1 and nothing if there is none."""
        at = self._at + offset
        if not 0 <= at < len(self._tokens):
            return -1, ""
        place = self._tokens[at]
        return place, self.pieces[place].text

    def _token(self, place: int, piece: _Piece, frames: list[_Bracket], operand: bool) -> bool:
        """Read a token, and return whether an operand ends with it."""
        symbol = piece.text if piece.kind == SYMBOL else ""
        if operand:
            self.operands.add(place)
        if symbol in _CLOSING:
            return self._close(place, symbol, frames)
        frame = frames[-1]
        if frame.role in _BLOCKS:
            self._begin(place, piece, frame)
        if symbol in _OPENING:
            role = self._role_of_bracket(place, symbol, frame, operand)
            if role:
                self.roles[place] = role
            frames.append(_Bracket(role or symbol))
            return False
        frame.head.append(piece.text)
        ends_operand = piece.kind in (NUMBER, STRING) or (
            piece.kind == NAME and piece.text not in _BEFORE_PARENTHESIS
        )
        match symbol:
            case "<" if operand:
                end = self._end_of_types(piece)
                if end is not None:
                    self.roles[place] = self.roles[end] = "types"
            case ">" if place in self.roles:
                ends_operand = True
            case "-" | "+" | "!" | "~" if not operand:
                self.roles[place] = "unary"
            case "?":
                frame.conditionals += 1
            case ":":
                self._colon(place, frame)
            case ";" if frame.role in _BLOCKS:
                frame.ended = True
            case "," if frame.role == "list":
                frame.ended = True
        return ends_operand

    def _close(self, place: int, symbol: str, frames: list[_Bracket]) -> bool:
        if len(frames) > 1:
            frames.pop()
        frame = frames[-1]
        role = self.roles.get(self.opening.get(place, -1), "")
        if role:
            self.roles[place] = role
        frame.head.append(symbol)
        if role in _BLOCKS:
            frame.ended = self._near(1)[1] not in (";", ",", ")", "]")
        return role not in (*_BLOCKS, "cast")

    def _begin(self, place: int, piece: _Piece, frame: _Bracket) -> None:
        """Note whether a token begins a statement."""
        previous = self.pieces[place - 1].text if place else ""
        if frame.ended:
            first = frame.role != "list" or self._near(-1)[1] == "{"
            if piece.text == "else" and previous == "}":
                first = False
            if piece.text not in (";", ","):
                self.begins[place] = first
        elif _is_macro(frame.head) and piece.newlines and (piece.kind == NAME or piece.text == "@"):
            self.begins[place] = True  # the call of a macro needs no semicolon
        elif _only_annotations(frame.head):
            self.begins[place] = False
        if self.begins.get(place, False) or frame.ended:
            frame.head.clear()
            frame.conditionals = 0
        frame.ended = False

    def _role_of_bracket(self, place: int, symbol: str, frame: _Bracket, operand: bool) -> str:
        before = self._near(-1)[1]
        if symbol == "(":
            return "cast" if not operand and self._is_cast(place, before) else ""
        if symbol == "[":
            return ""
        head = frame.head
        if frame.role not in _BLOCKS or before in ("return", "in", ",", "?") or self._near(1)[1] == "#":
            return "value"
        if before == "=":
            return "block" if head[-2:-1] and head[-2] in _BLOCK_PROPERTIES else "value"
        if before == ":":
            return "block" if frame.role == "switch" else "value"
        if head and self.roles.get(self._near(-1)[0]) == "cast":
            return "value"
        if any(word in _LISTS for word in head[:1]):
            return "list"
        return "switch" if "switch" in head[:1] or head[:2] == ["else", "switch"] else "block"

    def _colon(self, place: int, frame: _Bracket) -> None:
        if frame.conditionals:
            frame.conditionals -= 1
            self.roles[place] = "ternary"
        elif frame.role == "[":
            self.roles[place] = "slice"
        elif frame.role == "switch":
            after = self._near(1)[0]
            frame.ended = after >= 0 and self.pieces[after].newlines > 0

    def _end_of_types(self, piece: _Piece) -> int | None:
        """Return the > that closes the list of types which a < opens, or None if it is a comparison."""
        certain = self._near(-1)[1] in _BASE_TYPES
        depth, offset = 1, 1
        while depth:
            place, text = self._near(offset)
            inner = self.pieces[place] if place >= 0 else None
            if inner is None or text in (";", "{", "}", ")", "]", "&&", "||"):
                return None
            if text == "(" and inner.kind == SYMBOL:
                offset = self._past(place, offset)
            elif inner.kind == SYMBOL and not certain and text not in (",", ".", "<", ">"):
                return None
            certain = certain or text in _BASE_TYPES
            depth += (text == "<") - (text == ">")
            offset += 1
        return place if certain or piece.glued else None

    def _past(self, place: int, offset: int) -> int:
        """Return the offset of the bracket that closes one, from the current token."""
        while self._near(offset)[0] != self.closing.get(place, -1):
            offset += 1
        return offset

    def _is_cast(self, place: int, before: str) -> bool:
        """Return whether a parenthesis, which is not that of a call, begins a cast."""
        if before in ("if", "for", "switch", "while"):
            return False
        inner = [p for p in self.pieces[place + 1 : self.closing.get(place, 0)] if p.is_token]
        basic = bool(inner) and inner[0].text in _BASE_TYPES
        if inner and inner[0].text == ".":
            inner = inner[1:]
        if not inner or inner[0].kind != NAME or not (len(inner) == 1 or inner[1].text == "<"):
            return False
        if len(inner) > 1 and inner[-1].text != ">":
            return False
        after, text = self._near(self._past(place, 0) + 1)
        if after < 0:
            return False
        if self.pieces[after].kind == SYMBOL:
            return text in ("(", "{", "!", "~") or (basic and text in ("-", "+", "."))
        return True


def _is_macro(head: list[str]) -> bool:
    """Return whether a statement so far is nothing but names in capitals, with or without arguments."""
    return bool(head) and all(text == ")" or _MACRO.fullmatch(text) for text in head)


def _only_annotations(head: list[str]) -> bool:
    """Return whether a statement so far is nothing but annotations."""
    at = 0
    while at < len(head):
        if head[at] != "@":
            return False
        at += 2
        if at < len(head) and head[at] in (")", "]"):
            at += 1
    return bool(head) and at == len(head)


@dataclass(slots=True)
class _Line:
    """Line of the result; `comment` is the one after its code, which may be aligned with its neighbours."""

    code: str
    comment: str = ""
    verbatim: bool = False


@dataclass(slots=True)
class _Frame:
    """Open bracket while lines are written, or the file itself.

    Attributes:
        block: Whether it holds statements.
        base: The indentation of the statement that a block belongs to; that of the line with any other bracket.
        inner: Where lines in it begin; None until the first token in a bracket has a place.
        column: The place of the bracket in its line.
        written_base: The author's indentation of the line with the bracket.
        hanging: Whether a bracket ends its line.
        continued: Whether a line has begun in it.
        one_line: Whether a block stays on one line.
    """

    block: bool
    base: int
    inner: int | None
    column: int = 0
    written_base: int = 0
    hanging: bool = False
    continued: bool = False
    one_line: bool = False


class _Layout:
    """The lines of a file, in `lines`. Blocks of `broken` do not stay on one line; `one_line` has those that do."""

    def __init__(self, structure: _Structure, broken: set[int]) -> None:
        self.structure = structure
        self.pieces = structure.pieces
        self.broken = broken
        self.lines: list[_Line] = []
        self.one_line: dict[int, int] = {}  # with their lines
        self._code = ""  # of the line that is being written
        self._before = -1  # the token before
        frames = [_Frame(True, 0, 0)]
        saved: list[list[_Frame]] = []
        for place, piece in enumerate(self.pieces):
            if piece.kind == _DIRECTIVE:
                self._finish()
                self._blank(piece)
                self.lines.append(_Line(_stripped(piece.text), verbatim=True))
                frames = _in_branch(piece.text, frames, saved)
            elif piece.kind == _COMMENT:
                self._comment(place, piece, frames)
            else:
                self._token(place, piece, frames)
                self._before = place
        self._finish()
        self._drop_blank()

    def width(self, line: int) -> int:
        """Return the length of a line without the comment after it."""
        return max(map(len, self.lines[line].code.split("\n")))

    def _finish(self, comment: str = "", verbatim: bool = False) -> None:
        """End the line that is being written."""
        if self._code:
            self.lines.append(_Line(self._code, comment, verbatim))
        self._code = ""

    def _blank(self, piece: _Piece) -> None:
        """Keep one of the empty lines before a piece, but none at the beginning of the file or of a block."""
        if piece.newlines > 1 and self.lines and self.lines[-1].code:
            before = self.lines[-1]
            if before.verbatim or not before.code.endswith("{"):
                self.lines.append(_Line(""))

    def _drop_blank(self) -> None:
        while self.lines and not self.lines[-1].code:
            self.lines.pop()

    def _start(self, piece: _Piece, indentation: int) -> None:
        self._finish()
        self._blank(piece)
        self._code = " " * indentation

    def _indentation(self, place: int, frame: _Frame) -> int:
        """Return where a line begins whose first token is at a place."""
        if frame.block:
            inner = frame.inner or 0
            role = self.structure.roles.get(place)
            return inner if place in self.structure.begins or role in _BLOCKS else inner + INDENT
        if frame.inner is None:
            frame.hanging = True
            frame.inner = frame.base + INDENT
        elif not frame.continued and self._written_at(place) == frame.written_base + INDENT:
            frame.inner = frame.base + INDENT
        frame.continued = True
        return frame.inner

    def _written_at(self, place: int) -> int:
        """Return the author's indentation of the line with a piece."""
        span = self.pieces[place].span
        return _indentation(span.file.line(span.line).expandtabs(INDENT))

    def _comment(self, place: int, piece: _Piece, frames: list[_Frame]) -> None:
        following = self.pieces[place + 1] if place + 1 < len(self.pieces) else None
        ends = piece.ends_line or following is None or following.newlines > 0
        if self._code and not piece.newlines:
            if ends:
                self._finish(_stripped(piece.text))
            else:
                self._code += self._gap(place) + _stripped(piece.text)
            return
        after = next((p for p in range(place, len(self.pieces)) if self.pieces[p].is_token), None)
        closes = after is None or (
            frames[-1].block and self.structure.roles.get(self.structure.opening.get(after, -1)) in _BLOCKS
        )
        column = frames[-1].inner or 0 if closes else self._indentation(after or 0, frames[-1])
        self._start(piece, column)
        self._code += _shifted(_stripped(piece.text), piece, column)
        if ends:
            self._finish(verbatim=True)

    def _token(self, place: int, piece: _Piece, frames: list[_Frame]) -> None:
        roles = self.structure.roles
        symbol = piece.text if piece.kind == SYMBOL else ""
        if symbol in _CLOSING:
            self._close(place, piece, frames.pop())
            return
        frame = frames[-1]
        block = roles.get(place) in _BLOCKS and symbol == "{"
        begins = self.structure.begins.get(place, False)
        joined = frame.one_line or block or symbol in (";", ",", "#")
        joined = joined or (piece.text == "else" and self._code.strip() == "}")
        if not self._code or (begins and not frame.one_line) or (piece.newlines and not joined):
            self._start(piece, self._indentation(place, frame))
        else:
            self._code += self._gap(place)
            if frame.inner is None:
                frame.inner = len(self._code.rpartition("\n")[2])
        line = self._code.rpartition("\n")[2]
        if block:
            one_line = frame.one_line or self._fits_one_line(place)
            if one_line and not frame.one_line:
                self.one_line[place] = len(self.lines)
            base = frame.inner or 0
            frames.append(_Frame(True, base, base + INDENT, one_line=one_line))
        elif symbol in _OPENING:
            base = len(line) - len(line.lstrip(" "))
            frames.append(_Frame(False, base, None, len(line), self._written_at(place)))
        self._code += piece.text

    def _fits_one_line(self, place: int) -> bool:
        """Return whether the author has written a block on one line, which is not too long."""
        closing = self.structure.closing.get(place)
        if closing is None or place in self.broken:
            return False
        inside = self.pieces[place + 1 : closing + 1]
        if len(inside) == 1:
            return True
        return not any(p.newlines or p.ends_line or "\n" in p.text for p in inside)

    def _close(self, place: int, piece: _Piece, frame: _Frame) -> None:
        """Write a closing bracket."""
        empty = self._code and self._before == self.structure.opening[place] == place - 1
        if frame.block and not frame.one_line:
            self._finish()
            self._drop_blank()
            self._code = " " * frame.base
        elif not frame.block and (not self._code or (piece.newlines and not empty)):
            self._start(piece, frame.base if frame.hanging else frame.column)
        else:
            self._code += " " if empty and piece.text == "}" else self._gap(place)
        self._code += piece.text

    def _gap(self, place: int) -> str:
        """Return what stands between a piece and the token before it on its line."""
        if self._before < 0 or not self._code.strip():
            return ""
        before, piece = self.pieces[self._before], self.pieces[place]
        if self.pieces[place - 1].kind == _COMMENT:
            before = self.pieces[place - 1]
            return "" if piece.text in (")", "]", ",", ";") else " "
        gap = self._usual_gap(place)
        if gap == "" and not piece.glued:
            joined = TOKEN.match(before.text + piece.text)
            if joined is not None and joined.end() != len(before.text):
                return " "  # together they would be another token
        return gap

    def _usual_gap(self, place: int) -> str:
        roles, operand = self.structure.roles, place in self.structure.operands
        before, piece = self.pieces[self._before], self.pieces[place]
        role, role_before = roles.get(place, ""), roles.get(self._before, "")
        left = before.text if before.kind == SYMBOL else ""
        right = piece.text if piece.kind == SYMBOL else ""
        if (left == ">" and right[:1] == ">") or role == role_before == "unary":
            return "" if piece.glued else " "
        if left in ("(", "[", ".", "@", "#", "::") or role_before in ("unary", "slice"):
            return ""
        if (left == "<" and role_before == "types") or (left == ")" and role_before == "cast"):
            return ""
        match right:
            case ")" | "]" | "," | ";" | "#" | "::":
                return ""
            case ":":
                return " " if role == "ternary" else ""
            case "<" | ">" if role == "types":
                return ""
            case "(" | "[" | "." if operand:
                return ""
        return " "


def _stripped(text: str) -> str:
    """Return a comment or directive without white space at the ends of its lines, where that means nothing."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line if line.rstrip().endswith("\\") else line.rstrip() for line in lines)


def _shifted(text: str, piece: _Piece, column: int) -> str:
    """Return a comment whose further lines have moved as far as its first one."""
    if "\n" not in text or not text.startswith("/*"):
        return text
    before = piece.span.file.line(piece.span.line)[: piece.span.column]
    by = column - len(before.expandtabs(INDENT))
    first, *lines = text.split("\n")
    moved = [first]
    for line in lines:
        body = line.lstrip(" \t")
        indentation = len(line[: len(line) - len(body)].expandtabs(INDENT))
        moved.append(" " * max(indentation + by, 0) + body if body else "")
    return "\n".join(moved)


def _with_comments(lines: list[_Line]) -> Iterator[str]:
    """Yield the lines with the comments after them, which begin at one column in neighbouring lines."""
    groups = groupby(lines, key=lambda line: (bool(line.code) and not line.verbatim, _indentation(line.code)))
    for _, group in groups:
        together = list(group)
        lengths = [len(line.code.rpartition("\n")[2]) for line in together]
        column = 1 + max((n for line, n in zip(together, lengths, strict=True) if line.comment), default=0)
        for line, length in zip(together, lengths, strict=True):
            yield line.code + (" " * (column - length) + line.comment if line.comment else "")


def _indentation(code: str) -> int:
    return len(code) - len(code.lstrip(" "))
