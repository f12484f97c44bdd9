"""Check all prose that people read, in documents, programs, scenarios and pages: `make lint` runs it.

    python docs/prose.py            check everything
    python docs/prose.py PATH...    check the files whose path begins with one of these

A finding is a phrase of PHRASES, a docstring that begins with a word of FRAGMENTS (of a function: also of NO_VERBS), or
a sentence of more than LONGEST words. Every finding is an error. These files are read:

- Markdown: all but code.
- Python: docstrings, help texts, and messages, which are texts of `raise` and of calls of TELLING. In other strings of
  several words, only phrases are looked for.
- TOML and P4 (scenarios, manifests of labs, programs): texts of several words, and comments.
- YAML, HTML, TypeScript, JavaScript that is not built, shell and Makefile: only phrases are looked for.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).parents[1]

LONGEST = 35
FRAGMENTS = (
    "Of",
    "By",
    "What",
    "Who",
    "Whether",
    "Those",
    "Where",
    "When",
    "Which",
    "How",
    "Why",
    "Not",
    "Also",
)
NO_VERBS = (
    "The",
    "A",
    "An",
    "All",
    "Each",
    "Every",
    "Its",
    "Their",
    "Some",
    "From",
    "For",
    "In",
    "On",
    "At",
    "As",
)

# What is found, and what to write instead.
PHRASES = {
    r"in the place of": "instead of, or: replaces",
    r"for ever": "indefinitely",
    r"anew": "again",
    r"by heart": "in memory",
    r"(?:is|are|was|were|be|been) sent again|sends? (?:it|them) again": "retransmitted; spurious retransmission",
    r"by ring": "using the ring",
    r"a STF": "an STF",
    r"(?:libraries|programs|tools|systems|frameworks|languages) as (?-i:[A-Z])\w+": "such as",
    r"beside(?!\.py)": "compared with, without involving, or: next to",
    r"(?:is|are|was|were|be|been) told": "is reported, receives, or: how it is detected",
    r"what is meant": "the reference implementation, or name the thing",
    r"h[au]ngs? on(?! (?:a )?(?:call|read|connect))": "attaches to, or: waits for",
    r"of no use any ?more": "can no longer be used",
    r"(?:go|goes|going|went) on(?! to\b)": "continue, or name what happens",
    r"ways? of a (?:packet|flow|gradient|program)": "path",
    r"for who": "you need, or: this page is for",
    r"(?:^|(?<=[.:;,] ))who (?:finds|knows|wants|has|needs|asks|sends|reads)": "a sender that, a reader who",
    r"one's own": "your own",
    r"closed forms?": "analytical model",
    r"rivals?": "baseline",
    r"(?:is|are) heard|hears?": "receives",
    r"be it (?:in|a|of|by|for)": "whether",
    r"any ?more(?! than)": "no longer, or: left",
    r"(?:within|after|of|from|with) so many": "the number: n seconds, this many packets",
    r"but for": "except",
    r"(?:waits?|sent|done) for nothing": "spurious, or: waits for no result",
    r"again and again": "repeatedly",
    r"(?:that|which|what|who) (?:is|are) no (?!longer|more|larger)\w+": "is not a …",
    r"(?:says|saying)": "reports, prints, lists, states",
    r"one case in \d+": "once in … cases",
    r"seams?": "interface",
    r"wherein|whereof|whereby|thereof|therein|thereby|thence|whence": "a relative clause with which or where",
    r"of course|simply|obviously": "leave it out",
}
_SPACE = re.compile(r" (?!\))")  # except at the end of a lookbehind, which has a fixed length
_PHRASES = {  # a phrase may go over the end of a line
    re.compile(r"\b(?:" + _SPACE.sub(r"\\s+", phrase) + r")\b", re.I): instead
    for phrase, instead in PHRASES.items()
}
_ENTRY = re.compile(
    r"(?<=^ {4})(?: {4})*[\w.]+(?:, [\w.]+)*(?=: )", re.M
)  # the names below `Args:`, which are code
_OF = re.compile(r"(?:^|(?<=[.:;]\s))Of (?:the|a|an|what|several|them|these|those)\b")


class Finding(NamedTuple):
    """One place in a text, what is wrong there, and what to write instead."""

    path: str
    line: int
    column: int
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.found}: {self.instead}"


# Functions whose arguments are read by a user.
TELLING = (
    *("say", "failure", "print", "echo"),
    *("Problem", "ExpectationError", "NotPossibleError", "step", "check", "lab_test"),  # of labs
)

# message: it is checked for phrases alone. function: the docstring of one.
Kind = Literal["text", "message", "docstring", "function"]


class Text(NamedTuple):
    """A piece of prose, where it begins, and what it is."""

    path: str
    line: int
    column: int
    text: str
    kind: Kind = "text"


def _blank(match: re.Match[str]) -> str:
    """Return spaces for what is no prose, so that the rest keeps its line and column."""
    return re.sub(r"[^\n]", " ", match[0])


def _word(match: re.Match[str]) -> str:
    """Return one word as long as inline code, which is one word to a reader."""
    return re.sub(r"[^\n]", "x", match[0])


def without_code(markdown: str) -> str:
    """Return Markdown with all but prose blanked: fenced code, addresses of links, comments."""
    text = re.sub(r"^```.*?^```", _blank, markdown, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", _blank, text, flags=re.S)
    text = re.sub(r"``[^`]+``|`[^`]+`", _word, text)
    return re.sub(r"(?<=\])\([^)\s]*\)|<[^>\s]+>|https?://\S+", _blank, text)


def sentences(prose: str) -> Iterator[tuple[int, str]]:
    """Yield each sentence with its offset.

    Headings, items of lists, cells of tables and paragraphs end a sentence, too, and so do the entries below `Args:`,
    `Attributes:` and `Raises:` of a docstring.
    """
    blocks = r"\n\s*\n|\n(?=\s*(?:[-*#|>]|\d+\.)\s?)|\n(?= {4,}x+: )|\|"
    begins = r"[\"'(*]*(?:[A-Z0-9x`\[]|(?:fanin|htsim|p4c|v1model)\b|\w+\(\)|[\w -]+\"|[a-z][\w ,.]{0,24}: )"
    ends = rf"{blocks}|(?<=[.!?])[\"')*]*\s+(?={begins})"
    begin = 0
    for end in [*re.finditer(ends, prose), None]:
        sentence = prose[begin : end.start() if end else len(prose)]
        if sentence.strip():
            yield begin + len(sentence) - len(sentence.lstrip()), sentence.strip()
        begin = end.end() if end else 0


def check(piece: Text) -> Iterator[Finding]:
    """Yield what is wrong in a piece of prose, in its order."""
    text = piece.text
    if piece.path.endswith(".md"):
        text = re.sub(r"(?:(?<=\n\n)|\A)(?: {4}.*\n|\n(?= {4}))+", _blank, text)  # indented code
    prose = without_code(text)
    if piece.kind in ("docstring", "function"):
        prose = _ENTRY.sub(_word, prose)

    def finding(offset: int, found: str, instead: str) -> Finding:
        before = prose[:offset]
        line = before.count("\n")
        column = len(before) - before.rfind("\n") + (0 if line else piece.column - 1)
        return Finding(piece.path, piece.line + line, column, found, instead)

    findings = [
        (match.start(), f'"{" ".join(match[0].split())}"', f"write {instead}")
        for pattern, instead in _PHRASES.items()
        for match in pattern.finditer(prose)
    ]
    findings += [(match.start(), f'"{match[0]} …"', "put the subject first") for match in _OF.finditer(prose)]
    findings += [
        (match.start(), "the mark of a merge conflict", "resolve it")
        for match in re.finditer(r"^(?:<{7}|>{7}) ", piece.text, re.M)
    ]
    wrong = {"docstring": FRAGMENTS, "function": (*FRAGMENTS, *NO_VERBS)}.get(piece.kind, ())
    if wrong and (first := re.match(rf"\s*({'|'.join(wrong)})\b(?!-)", prose)):
        instead = "begin with a verb" if piece.kind == "function" else "begin with a noun"
        findings.append((first.start(1), f'docstring begins with "{first[1]}"', instead))
    for offset, sentence in sentences(prose) if piece.kind != "message" else ():
        words = sum(1 for word in sentence.split() if re.search(r"\w", word))
        if words > LONGEST:
            findings.append(
                (offset, f"sentence of {words} words", f"write at most {LONGEST}, one idea in each")
            )
    yield from (finding(*each) for each in sorted(findings))


def python_texts(path: str, source: str) -> Iterator[Text]:
    """Yield the prose of a Python file.

    These are docstrings, `help=` and `description=` texts, the summaries of verbs, and messages: all other strings of
    several words.
    """
    tree = ast.parse(source)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    kinds: dict[ast.AST, Kind] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *functions)) and ast.get_docstring(node, clean=False):
            is_property = any("property" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))
            docstring = node.body[0].value  # type: ignore[attr-defined]
            kinds[docstring] = "function" if isinstance(node, functions) and not is_property else "docstring"
        elif isinstance(node, ast.Call):
            helps = [keyword.value for keyword in node.keywords if keyword.arg in ("help", "description")]
            if isinstance(node.func, ast.Name) and node.func.id == "Verb":
                helps += node.args[1:2]
            if ast.unparse(node.func).rpartition(".")[2] in TELLING:
                helps += node.args
            kinds |= {value: "text" for value in helps if isinstance(value, _STRINGS)}
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            kinds |= {value: "text" for value in node.exc.args if isinstance(value, _STRINGS)}
    yield from _strings(path, tree, kinds)


_STRINGS = (ast.Constant, ast.JoinedStr)


def _strings(path: str, node: ast.AST, kinds: dict[ast.AST, Kind]) -> Iterator[Text]:
    """Yield the strings of several words below a node. A value in an f-string counts as one word."""
    if isinstance(node, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        yield from _string(path, node, "".join(parts), kinds)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _strings(path, part.value, kinds)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield from _string(path, node, node.value, kinds)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(path, child, kinds)


def _string(path: str, node: ast.expr, text: str, kinds: dict[ast.AST, Kind]) -> Iterator[Text]:
    kind = kinds.get(node, "message")
    if kind != "message" or " " in text:
        quotes = 3 if kind in ("docstring", "function") else 1
        yield Text(path, node.lineno, node.col_offset + 1 + quotes, text, kind)


def comments_and_strings(path: str, source: str) -> Iterator[Text]:
    """Yield the prose of a TOML or P4 file: comments, and strings of several words."""
    for found in _COMMENTS_AND_STRINGS[Path(path).suffix].finditer(source):
        name = found.lastgroup
        assert name is not None
        text = re.sub(r"(?m)^[ \t]*(?://+|#+|/?\*+(?!/))", _blank, found[name]).replace("*/", "  ")
        before = source[: found.start(name)]
        if " " in text.strip():
            yield Text(path, before.count("\n") + 1, len(before) - before.rfind("\n"), text)


def _comments_and_strings(mark: str) -> re.Pattern[str]:
    """Return what finds strings and comments that begin with a mark. Lines with nothing else are one comment."""
    return re.compile(
        rf"^(?P<comment>[ \t]*{mark}.*(?:\n[ \t]*{mark}.*)*)|{mark}(?P<trailing>.*)|/\*(?P<block>[\s\S]*?)\*/"
        r'|"""(?P<text>[\s\S]*?)"""|"(?P<string>(?:[^"\\\n]|\\.)*)"',
        re.M,
    )


_COMMENTS_AND_STRINGS = {
    ".toml": _comments_and_strings("#(?!:)"),  # not #:schema
    ".p4": _comments_and_strings("//"),
}


def listed_files() -> list[str]:
    """Return the files that have prose, but for tests and what is generated."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    kinds = tuple(name for names in READERS for name in names)
    return [
        name
        for name in names
        if (ROOT / name).is_file()
        and name.endswith(kinds)
        and not name.startswith(("tests/", "browser/built/", "p4compiler/include/"))
        and not re.search(r"_pb2\.py$|^docs/\w+\.py$|-lock\.json$", name)
    ]


def document(path: str, source: str) -> Iterator[Text]:
    """Yield the prose of a Markdown file: all of it."""
    yield Text(path, 1, 1, source)


def page(path: str, source: str) -> Iterator[Text]:
    """Yield a file whose sentences cannot be told from code, to be checked for phrases."""
    yield Text(path, 1, 1, source, "message")


READERS = {
    (".md",): document,
    (".py",): python_texts,
    (".toml", ".p4"): comments_and_strings,
    (".yml", ".html", ".ts", ".tsx", ".js", ".sh", "Makefile"): page,
}


def texts(path: str) -> Iterator[Text]:
    """Yield the prose of a file."""
    [read] = (reader for kinds, reader in READERS.items() if path.endswith(kinds))
    yield from read(path, (ROOT / path).read_text())


def main(words: list[str]) -> int:
    """Check, print the findings, and return the exit status."""
    parser = argparse.ArgumentParser(
        description="Check the prose of documents, help texts, docstrings and messages."
    )
    parser.add_argument("paths", nargs="*", help="only files whose path begins with one of these")
    paths = tuple(parser.parse_args(words).paths)
    files = [path for path in listed_files() if not paths or path.startswith(paths)]
    findings = [finding for path in files for piece in texts(path) for finding in check(piece)]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
