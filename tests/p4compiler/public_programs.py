"""How many public P4 programs compile, and how many STF tests pass: the counts in docs/reference/compiler.md.

    python -m tests.p4compiler.public_programs FOLDER [-I FOLDER]

FOLDER is a clone of another repository, for example p4c's `testdata/p4_16_samples`. A program with main and v1model or
PSA counts; if NAME.stf lies next to NAME.p4, its test runs.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from fanin.native.toolchain import ToolchainError
from fanin.p4compiler import CompileError, compile_file
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.stf.run import run_stf
from fanin.p4switch.stf.syntax import StfError

# dpdk/psa.p4 belongs to another target
_MODEL = re.compile(r'^\s*#\s*include\s*[<"](?:(?!dpdk/)[^">]*/)?(v1model|psa)\.p4[>"]', re.MULTILINE)
_MAIN = re.compile(r"\)\s*main\s*;")


def outcome(path: Path, include: list[Path]) -> tuple[str, str]:
    """Compile a program and run its STF test, if it has one.

    Args:
        path: The program.
        include: Folders to search for #include.

    Returns:
        What became of it ("compiles", "passes", "refused", "fails"), and the first line of the reason.
    """
    try:
        compiled = compile_file(path, include_dirs=include)
        test = path.with_suffix(".stf")
        if not test.exists():
            return "compiles", ""
        differences = run_stf(compiled.device_config(), test.read_text(errors="replace")).differences
        return ("fails", differences[0]) if differences else ("passes", "")
    except CompileError as error:
        return "refused", str(error).split("\n", 1)[0]
    except (ProgramError, StfError, ToolchainError) as error:
        return "fails", str(error).split("\n", 1)[0]


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
    arguments = parser.parse_args()
    files = [path for path in sorted(arguments.folder.rglob("*.p4")) if path.is_file()]
    programs = [(path, of) for path in files if (of := model(path))]
    counts: Counter[tuple[str, str]] = Counter()
    with ProcessPoolExecutor() as pool:
        results = pool.map(partial(outcome, include=arguments.include), [path for path, _ in programs])
        for (path, of), (result, reason) in zip(programs, results, strict=True):
            counts[of, result] += 1
            if reason:
                print(f"{result}: {reason if result == 'refused' else f'{path}: {reason}'}")
    for (of, result), count in sorted(counts.items()):
        print(f"{of:8} {result:9} {count:5}")


if __name__ == "__main__":
    main()
