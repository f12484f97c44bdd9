"""How many public P4 programs compile, and how many STF tests pass: the counts in docs/reference/compiler.md.

    python -m tests.p4compiler.public_programs FOLDER [-I FOLDER] [--p4info FOLDER]

FOLDER is a clone of another repository, for example p4c's `testdata/p4_16_samples`. A program with main and v1model or
PSA counts; if NAME.stf lies next to NAME.p4, its test runs. `--p4info` names a folder with what p4c made of the same
programs, for example `testdata/p4_16_samples_outputs`: P4Info is compared with its NAME.p4.p4info.txtpb.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from finsy.proto import p4i
from google.protobuf import text_format

from fanin.native.toolchain import ToolchainError
from fanin.p4compiler import CompileError, compile_file
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.stf.run import run_stf
from fanin.p4switch.stf.syntax import StfError

# dpdk/psa.p4 belongs to another target
_MODEL = re.compile(r'^\s*#\s*include\s*[<"](?:(?!dpdk/)[^">]*/)?(v1model|psa)\.p4[>"]', re.MULTILINE)
_MAIN = re.compile(r"\)\s*main\s*;")


def outcome(path: Path, expected: Path | None, include: list[Path]) -> tuple[str, str, bool | None]:
    """Compile a program and run its STF test, if it has one.

    Args:
        path: The program.
        expected: The file with the P4Info that p4c makes of it.
        include: Folders to search for #include.

    Returns:
        What became of it ("compiles", "passes", "refused", "fails"), the first line of the reason, and whether its
        P4Info is the expected one (None if there is nothing to compare).
    """
    same = None
    try:
        compiled = compile_file(path, include_dirs=include)
        if expected is not None and expected.exists():
            same = compiled.p4info == text_format.Parse(expected.read_text(), p4i.P4Info())
        test = path.with_suffix(".stf")
        if not test.exists():
            return "compiles", "", same
        differences = run_stf(compiled.device_config(), test.read_text(errors="replace")).differences
        return ("fails", differences[0], same) if differences else ("passes", "", same)
    except CompileError as error:
        return "refused", str(error).split("\n", 1)[0], None
    except (ProgramError, StfError, ToolchainError) as error:
        return "fails", str(error).split("\n", 1)[0], same


def model(path: Path) -> str | None:
    """Return the architecture of a whole program ("v1model" or "psa"), or None for any other file."""
    text = path.read_text(errors="replace")
    found = _MODEL.search(text)
    return found[1] if found and _MAIN.search(text) else None


def main() -> None:
    """Print the programs that are refused or fail, and the counts for each architecture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("-I", dest="include", type=Path, action="append", default=[])
    parser.add_argument("--p4info", type=Path)
    arguments = parser.parse_args()
    files = [path for path in sorted(arguments.folder.rglob("*.p4")) if path.is_file()]
    programs = [(path, of) for path in files if (of := model(path))]
    counts: Counter[tuple[str, str]] = Counter()
    compared: Counter[bool] = Counter()
    expected = [
        arguments.p4info and arguments.p4info / f"{path.relative_to(arguments.folder)}.p4info.txtpb"
        for path, _ in programs
    ]
    with ProcessPoolExecutor() as pool:
        paths = [path for path, _ in programs]
        results = pool.map(partial(outcome, include=arguments.include), paths, expected)
        for (path, of), (result, reason, same) in zip(programs, results, strict=True):
            counts[of, result] += 1
            if same is not None:
                compared[same] += 1
            if reason:
                print(f"{result}: {reason if result == 'refused' else f'{path}: {reason}'}")
            if same is False:
                print(f"P4Info differs: {path}")
    for (of, result), count in sorted(counts.items()):
        print(f"{of:8} {result:9} {count:5}")
    if arguments.p4info:
        print(f"P4Info: {compared[True]} of {compared.total()} as p4c's")


if __name__ == "__main__":
    main()
