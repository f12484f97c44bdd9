"""`fanin format`: P4 programs in one style."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import complain
from fanin.native.files import read_bytes, replacing
from fanin.output import say

_STDIN = "-"


def format_programs(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="P4 files, or folders with such files; - for standard input"),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; name the files that are not in the style")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; show what would change")] = False,
) -> None:
    """Lay out P4 programs in fanin's style.

    Only white space changes: tokens, comments and directives stay as they are, and so does the compiled program.

    The exit status is 0, or 1 if a file is not in the style and --check or --diff is given, or 2 if a file cannot be
    read or formatted. Standard input is written to standard output.

    Examples:
        fanin format program.p4
        fanin format --check p4src
    """
    from fanin.p4compiler.format import format_text
    from fanin.p4compiler.source import CompileError

    changed = refused = False
    for path in _found(files):
        shown = "<stdin>" if path == _STDIN else path
        try:
            data = sys.stdin.buffer.read() if path == _STDIN else read_bytes(Path(path))
            text = data.decode()
            made = format_text(text, shown)
        except CompileError as error:
            say(error, err=True)
        except UnicodeDecodeError as error:
            complain(
                "format",
                f"{shown}: byte {error.start} is not UTF-8: convert the file, for example with iconv",
            )
        except OSError as error:
            complain("format", f"{shown}: cannot be read: {error.strerror}")
        else:
            changed = changed or made != text
            if diff:
                before, after = text.split("\n"), made.split("\n")
                lines = difflib.unified_diff(before, after, shown, f"{shown} (formatted)", lineterm="")
                say("\n".join(lines), nl=made != text)
            elif check:
                if made != text:
                    say(f"{shown}: not in the style; run: fanin format {shown}")
            elif path == _STDIN:
                sys.stdout.buffer.write(made.encode())
            elif made != text:
                with replacing(Path(path)) as new:
                    new.write_bytes(made.encode())
                    new.chmod(Path(path).stat().st_mode)
                say(f"formatted {shown}")
            continue
        refused = True
    if refused:
        raise typer.Exit(2)
    if changed and (check or diff):
        raise typer.Exit(1)


def _found(files: list[str]) -> list[str]:
    """Return the files that the arguments name: of a folder, all that end in .p4."""
    found: list[str] = []
    for file in files:
        below = sorted(Path(file).rglob("*.p4")) if file != _STDIN and Path(file).is_dir() else []
        found += map(str, below) if below else [file]
    return found
