"""The P4 programs of public repositories: which of them compile, and why the others are refused.

`python -m fanin.assurance.courses.programs CHECKOUT… [-D NAME=VALUE]… [-I FOLDER]…` compiles every program below each
checkout, and prints a table in Markdown and the first error of each refused program. A program is a file that
declares `main` with an architecture that the compiler has. Whether a refusal is right is for a person to judge: the
command groups those with the same message.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fanin.p4compiler import CompileError, compile_file

ARCHITECTURES = ("V1Switch", "PSA_Switch")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MAIN = re.compile(r"\b(\w+)\s*(?:<[^;{}]*>)?\s*\([^;{}]*\)\s*main\s*;")


@dataclass(slots=True)
class Programs:
    """The outcome for each program of a repository.

    Attributes:
        compiled: The programs that compile.
        refused: The first error of each program that does not.
        others: The architecture of each program for another one.
    """

    compiled: list[Path] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)
    others: dict[Path, str] = field(default_factory=dict)


def compile_all(checkout: Path, include_dirs: Iterable[Path], defines: Mapping[str, str]) -> Programs:
    """Compile every program of a repository, and tell what became of each.

    Args:
        checkout: The folder of the repository.
        include_dirs: Further folders to search for included files.
        defines: Macros by name.
    """
    found = Programs()
    for file in sorted(checkout.rglob("*.p4")):
        if not file.is_file():
            continue
        main = _MAIN.search(_COMMENT.sub(" ", file.read_text(errors="replace")))
        if main is None:
            continue
        if main[1] not in ARCHITECTURES:
            found.others[file] = main[1]
            continue
        try:
            compile_file(file, include_dirs=include_dirs, defines=defines)
            found.compiled.append(file)
        except CompileError as error:
            found.refused[file] = str(error).splitlines()[0]
    return found


def main(arguments: Iterable[str] | None = None) -> int:
    """Print the table, and what was refused."""
    parser = argparse.ArgumentParser(prog="programs", description="Compile the programs of repositories.")
    parser.add_argument("checkout", nargs="+", type=Path)
    parser.add_argument("-I", dest="include_dirs", action="append", type=Path, default=[])
    parser.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args(None if arguments is None else [*arguments])
    defines = {name: value or "1" for name, _, value in (each.partition("=") for each in options.defines)}
    print("| repository | programs | compiled | refused | other architectures |\n|---|---|---|---|---|")
    reasons: dict[str, list[str]] = defaultdict(list)
    for checkout in options.checkout:
        if not checkout.is_dir():
            parser.error(f"{checkout}: no such folder")
        found = compile_all(checkout, options.include_dirs, defines)
        programs = len(found.compiled) + len(found.refused)
        print(
            f"| {checkout.name} | {programs} | {len(found.compiled)} | {len(found.refused)} | {len(found.others)} |",
            flush=True,
        )
        for file, text in found.refused.items():
            place, _, message = text.partition(": error: ")
            reasons[re.sub(r"'[^']*'|\b\d+\b", "…", message)].append(
                f"{file} ({place.rpartition('/')[2]}): {message}"
            )
    for reason in sorted(reasons, key=lambda each: -len(reasons[each])):
        print(f"\n{len(reasons[reason])} × {reason}")
        print("\n".join(f"  {each}" for each in reasons[reason]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
