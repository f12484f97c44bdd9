"""Our own C and that of every program here compile without a warning, with all compilers here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fanin.native.toolchain import INCLUDE
from fanin.p4compiler import compile_once
from fanin.p4switch.codegen.names import RUNTIME
from fanin.p4switch.codegen.translate import translate
from fanin.p4switch.reader import read_program

# In one process of pytest-xdist: what they compile takes as long to make as one compiler takes for it.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
OURS = {"runtime": RUNTIME, "workers": ROOT / "workers/engines", "virtual": ROOT / "simulator/loop"}
PROGRAMS = [ROOT / "p4src" / "fanin.p4", *sorted((ROOT / "tests/p4switch").rglob("*.p4"))]
WARNINGS = ("-std=gnu11", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror")
COMPILERS = [
    *(f"gcc-{version}" for version in range(11, 16)),
    *(f"clang-{version}" for version in range(14, 21)),
    "aarch64-linux-gnu-gcc",
    "clang --target=aarch64-linux-gnu",
]


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest) -> list[str]:
    """A command; skipped where it is not installed, or has no headers for its target."""
    command: list[str] = request.param.split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: apt-get install {command[0].replace('-gcc', '')}")
    works = subprocess.run(
        [*command, "-fsyntax-only", "-x", "c", "-"],
        input="#include <stdlib.h>",
        text=True,
        capture_output=True,
        check=False,
    )
    if works.returncode:
        pytest.skip(f"{request.param} has no headers for its target: apt-get install libc6-dev-arm64-cross")
    return command


def warnings(command: list[str], *arguments: str | Path) -> str:
    """Return what the compiler prints about C files, empty if it accepts them without a warning."""
    done = subprocess.run([*command, *WARNINGS, *arguments], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode or done.stderr else ""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The C of every program, with and without traces."""
    folder, files = tmp_path_factory.mktemp("generated"), []
    for number, path in enumerate(PROGRAMS):
        program = read_program(compile_once(path).device_config())
        for traced in (False, True):
            files.append(folder / f"{number}-{path.stem}{'-traced' if traced else ''}.c")
            files[-1].write_text(translate(program, traced=traced), encoding="utf-8")
    return files


@pytest.mark.parametrize("folder", OURS.values(), ids=OURS)
def test_ours(compiler: list[str], folder: Path, tmp_path: Path) -> None:
    """With optimization: some warnings come from it."""
    for source in sorted(folder.rglob("*.c")):
        assert not warnings(compiler, "-O2", "-S", "-I", INCLUDE, "-o", tmp_path / "x.s", source)


@pytest.mark.few(0)
def test_generated(compiler: list[str], generated: list[Path]) -> None:
    assert not warnings(compiler, "-fsyntax-only", "-I", RUNTIME, *generated)
