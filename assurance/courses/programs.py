"""The P4 programs of public repositories: which of them compile, and why the others are refused.

`python -m fanin.assurance.courses.programs CHECKOUT… [-D NAME=VALUE]… [-I FOLDER]…` compiles every program below each
checkout, and prints a table in Markdown and the first error of each refused program. A program is a file that
declares `main` with an architecture that the compiler has. Whether a refusal is right is for a person to judge: the
command groups those with the same message.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import ThreadPool
from pathlib import Path

from fanin.experiments.scenario.tools import P4C, ToolError
from fanin.p4compiler import CompileError, compile_file

ARCHITECTURES = ("V1Switch", "PSA_Switch")
P4C_SECONDS = 60  # for one program
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MAIN = re.compile(r"\b(\w+)\s*(?:<[^;{}]*>)?\s*\([^;{}]*\)\s*main\s*;")


@dataclass(slots=True)
class Programs:
    """The outcome for each program of a repository.

    Attributes:
        compiled: The programs that compile.
        refused: The first error of each program that does not.
        others: The architecture of each program for another one.
        by_p4c: The first error of p4c for each program that it was asked to compile, or None if it does.
    """

    compiled: list[Path] = field(default_factory=list)
    refused: dict[Path, str] = field(default_factory=dict)
    others: dict[Path, str] = field(default_factory=dict)
    by_p4c: dict[Path, str | None] = field(default_factory=dict)

    @property
    def refused_by_p4c(self) -> dict[Path, str]:
        """Return the first error of p4c for each program that it does not compile."""
        return {file: error for file, error in self.by_p4c.items() if error is not None}

    @property
    def wrongly_refused(self) -> list[Path]:
        """Return the programs that p4c compiles and our compiler does not."""
        return [file for file in self.refused if self.by_p4c.get(file, "not asked") is None]

    @property
    def wrongly_compiled(self) -> list[Path]:
        """Return the programs that our compiler compiles and p4c does not."""
        return [file for file in self.compiled if file in self.refused_by_p4c]

    def ask_p4c(self, p4c: Sequence[str], include_dirs: Iterable[Path], defines: Mapping[str, str]) -> None:
        """Compile the programs with p4c, too. Those for PSA count only if p4c-bm2-psa lies next to p4c-bm2-ss.

        Args:
            p4c: The command of p4c-bm2-ss.
            include_dirs: See compile_all.
            defines: See compile_all.
        """
        options = [
            *(f"-I{folder}" for folder in include_dirs),
            *(f"-D{name}={value}" for name, value in defines.items()),
        ]
        compilers = {"V1Switch": [*p4c]}
        psa = Path(shutil.which(p4c[0]) or p4c[0]).with_name("p4c-bm2-psa")
        if psa.exists():
            compilers["PSA_Switch"] = [os.fspath(psa), *p4c[1:]]
        architectures = {file: _main_of(file) for file in (*self.compiled, *self.refused)}
        asked = [file for file, architecture in architectures.items() if architecture in compilers]

        def refusal(file: Path) -> str | None:
            command = [
                *compilers[str(architectures[file])],
                *options,
                "--Wdisable",
                "-o",
                os.devnull,
                os.fspath(file),
            ]
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=P4C_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"does not end in {P4C_SECONDS} s"
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            return (errors or [f"ends with status {done.returncode}"])[0] if done.returncode else None

        with ThreadPool(os.cpu_count()) as pool:
            self.by_p4c = dict(zip(asked, pool.map(refusal, asked), strict=True))


def _main_of(file: Path) -> str | None:
    """Return the architecture of a program; None for a file without `main`."""
    found = _MAIN.search(_COMMENT.sub(" ", file.read_text(errors="replace")))
    return found and found[1]


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
        architecture = _main_of(file)
        if architecture is None:
            continue
        if architecture not in ARCHITECTURES:
            found.others[file] = architecture
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
    parser.add_argument("--p4c", action="store_true", help="judge by p4c")
    options = parser.parse_args(None if arguments is None else [*arguments])
    defines = {name: value or "1" for name, _, value in (each.partition("=") for each in options.defines)}
    try:
        p4c = P4C.find() if options.p4c else None
    except ToolError as error:
        parser.error(str(error))
    judged = " refused by p4c | only by us | only by p4c |" if p4c else ""
    print(f"| repository | programs | compiled | refused | other architectures |{judged}")
    print(f"|---|---|---|---|---|{judged and '---|---|---|'}")
    reasons: dict[str, list[str]] = defaultdict(list)
    differences: list[str] = []
    for checkout in options.checkout:
        if not checkout.is_dir():
            parser.error(f"{checkout}: no such folder")
        found = compile_all(checkout, options.include_dirs, defines)
        programs = len(found.compiled) + len(found.refused)
        counts = [programs, len(found.compiled), len(found.refused), len(found.others)]
        if p4c:
            found.ask_p4c(p4c, options.include_dirs, defines)
            counts += [
                len(found.refused_by_p4c),
                len(found.wrongly_refused),
                len(found.wrongly_compiled),
            ]
            differences += [f"only by us: {found.refused[file]}" for file in found.wrongly_refused]
            differences += [f"only by p4c: {found.refused_by_p4c[file]}" for file in found.wrongly_compiled]
        print(f"| {checkout.name} | {' | '.join(map(str, counts))} |", flush=True)
        for file, text in found.refused.items():
            place, _, message = text.partition(": error: ")
            reasons[re.sub(r"'[^']*'|\b\d+\b", "…", message)].append(
                f"{file} ({place.rpartition('/')[2]}): {message}"
            )
    for reason in sorted(reasons, key=lambda each: -len(reasons[each])):
        print(f"\n{len(reasons[reason])} × {reason}")
        print("\n".join(f"  {each}" for each in reasons[reason]))
    if differences:
        print("\nRefused by one of the compilers only:", *differences, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
