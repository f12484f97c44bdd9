"""Check the prose of documents, help texts and docstrings: `make lint` runs it.

    python docs/prose.py                  check everything against the counts in docs/prose.json
    python docs/prose.py --all [PATH...]  print every finding, also those that the counts allow
    python docs/prose.py --update         lower the counts to what is left

A finding is a phrase of PHRASES, a docstring that begins with a word of FRAGMENTS, or a sentence of more than
LONGEST words. docs/prose.json has the paths that still have findings, with their number. The numbers may only go
down, and a path that is not there has none: everything new is checked strictly.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "docs" / "prose.json"

LONGEST = 35
FRAGMENTS = ("Of", "By", "What", "Who", "Whether", "Those")

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
    r"beside": "compared with, without involving, or: next to",
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
}
_PHRASES = {re.compile(rf"\b(?:{phrase})\b", re.I): instead for phrase, instead in PHRASES.items()}
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


class Text(NamedTuple):
    """A piece of prose, where it begins, and whether it is a docstring."""

    path: str
    line: int
    column: int
    text: str
    docstring: bool = False


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
    """Yield each sentence with its offset; headings, items of lists, cells of tables and paragraphs end one, too."""
    blocks = r"\n\s*\n|\n(?=\s*(?:[-*#|>]|\d+\.)\s?)|\|"
    begins = r"[\"'(*]*(?:[A-Z0-9x`\[]|(?:fanin|htsim|p4c)\b)"
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

    def finding(offset: int, found: str, instead: str) -> Finding:
        before = prose[:offset]
        line = before.count("\n")
        column = len(before) - before.rfind("\n") + (0 if line else piece.column - 1)
        return Finding(piece.path, piece.line + line, column, found, instead)

    findings = [
        (match.start(), f'"{match[0]}"', f"write {instead}")
        for pattern, instead in _PHRASES.items()
        for match in pattern.finditer(prose)
    ]
    findings += [(match.start(), f'"{match[0]} …"', "put the subject first") for match in _OF.finditer(prose)]
    if piece.docstring and (first := re.match(rf"\s*({'|'.join(FRAGMENTS)})\b", prose)):
        findings.append(
            (first.start(1), f'docstring begins with "{first[1]}"', "begin with a verb or a noun")
        )
    for offset, sentence in sentences(prose):
        words = sum(1 for word in sentence.split() if re.search(r"\w", word))
        if words > LONGEST:
            findings.append(
                (offset, f"sentence of {words} words", f"write at most {LONGEST}, one idea in each")
            )
    yield from (finding(*each) for each in sorted(findings))


def _strings(node: ast.AST) -> Iterator[ast.Constant]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node


def python_texts(path: str, source: str) -> Iterator[Text]:
    """Yield the docstrings of a Python file, its `help=` texts and the summaries of verbs."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and node.body and ast.get_docstring(node, clean=False):
            value = node.body[0].value  # type: ignore[attr-defined]
            yield Text(path, value.lineno, value.col_offset + 4, value.value, docstring=True)
        elif isinstance(node, ast.Call):
            helps = [keyword.value for keyword in node.keywords if keyword.arg in ("help", "description")]
            if isinstance(node.func, ast.Name) and node.func.id == "Verb":
                helps += node.args[1:2]
            for value in helps:
                for string in _strings(value):
                    yield Text(path, string.lineno, string.col_offset + 2, str(string.value))


def listed_files() -> list[str]:
    """Return the documents and the Python files of the packages."""
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    top = {"README.md", "CONTRIBUTING.md", "SECURITY.md"}
    return [
        name
        for name in names
        if (ROOT / name).is_file()
        and (name in top or re.fullmatch(r"docs/.*\.md|(?!tests/|docs/).*\.py", name))
        and not name.endswith("_pb2.py")
    ]


def texts(path: str) -> Iterator[Text]:
    """Yield the prose of a file."""
    source = (ROOT / path).read_text()
    if path.endswith(".py"):
        yield from python_texts(path, source)
    else:
        yield Text(path, 1, 1, source)


def group(path: str) -> str:
    """Return the path whose count a file belongs to: a document itself, or the folder of a Python file."""
    return path if path.endswith(".md") else f"{Path(path).parent}/"


def verdict(found: Counter[str], allowed: dict[str, int]) -> dict[str, int]:
    """Return the paths that have more findings than they may, with how many they may have."""
    return {path: limit for path, count in sorted(found.items()) if count > (limit := allowed.get(path, 0))}


def main(words: list[str]) -> int:
    """Check, and return the exit status."""
    parser = argparse.ArgumentParser(description="Check the prose of documents, help texts and docstrings.")
    parser.add_argument("--all", action="store_true", help="print every finding")
    parser.add_argument("--update", action="store_true", help="lower the counts to what is left")
    parser.add_argument("paths", nargs="*", help="only files whose path begins with one of these")
    options = parser.parse_args(words)
    files = [path for path in listed_files() if path.startswith(tuple(options.paths) or "")]
    findings = [finding for path in files for piece in texts(path) for finding in check(piece)]
    found = Counter(group(finding.path) for finding in findings)
    allowed: dict[str, int] = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    if options.update:
        lower = {path: min(count, allowed.get(path, 0)) for path, count in found.items() if path in allowed}
        COUNTS.write_text(json.dumps(dict(sorted(lower.items())), indent=1) + "\n")
        return 0
    over = verdict(found, allowed)
    for finding in findings:
        if options.all or group(finding.path) in over:
            print(finding)
    for path, limit in over.items():
        print(
            f"{path}: {found[path]} findings, and {limit} are allowed (docs/prose.json): rewrite what is new"
        )
    lower = sum(1 for path, limit in allowed.items() if found[path] < limit)
    if lower and not options.paths:
        print(f"{lower} paths have fewer findings than docs/prose.json allows: python docs/prose.py --update")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
