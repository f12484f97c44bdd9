"""Compiling: once for each program, and a clear word where there is no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from p4switch import toolchain
from p4switch.toolchain import PACKAGE, TRANSLATION, ToolchainError, compile_program


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fanin"


def test_compiled_once(cache: Path) -> None:
    """The second time nothing is even translated; the C is kept beside the library."""
    asked = []

    def translate() -> str:
        asked.append(1)
        return "int answer(void) { return 42; }"

    first = compile_program(b"config", translate)
    assert first.parent == cache
    assert first.with_suffix(".c").read_text() == translate()
    assert compile_program(b"config", translate) == first
    assert compile_program(b"another", translate) != first
    assert len(asked) == 3
    assert sorted(p.suffix for p in cache.iterdir() if p.suffix != ".lock") == [".c", ".c", ".so", ".so"]


def test_a_compilation_whose_caller_is_killed_is_finished_for_the_next(cache: Path, tmp_path: Path) -> None:
    """The next one waits for it, and finds the library made."""
    compiler, started, go = (tmp_path / name for name in ("cc", "started", "go"))
    os.mkfifo(started)
    os.mkfifo(go)
    compiler.write_text(f'#!/bin/sh\necho > {started}; cat {go} > {tmp_path}/gone\nexec cc "$@"\n')
    compiler.chmod(0o755)
    caller = [
        sys.executable,
        "-c",
        "from p4switch.toolchain import *; compile_program(b'', lambda: 'int x;')",
    ]
    environment = os.environ | {"CC": str(compiler), "PYTHONPATH": str(PACKAGE.parent)}
    with subprocess.Popen(caller, env=environment) as killed:
        started.read_text()
        killed.kill()
    with subprocess.Popen(caller, env=environment) as waiting:
        go.write_text("")
        assert waiting.wait() == 0
    assert sorted(path.suffix for path in cache.iterdir()) == [".c", ".lock", ".so"]


def test_whatever_decides_how_a_program_is_translated_compiles_anew() -> None:
    """Else the cache would go on with what an older translation has made."""
    loaded = """
import sys, p4switch.codegen.translate, p4switch.reader.read
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("p4switch")), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    needed = {path for path in map(Path, done.stdout.split()) if path.name != "__init__.py"}
    counted = {path for pattern in TRANSLATION for path in PACKAGE.glob(pattern)}
    assert needed <= counted


@pytest.mark.usefixtures("cache")
def test_other_flags_compile_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_program(b"config", lambda: "int x;")
    monkeypatch.setenv("P4SWITCH_CFLAGS", "-O1")
    assert compile_program(b"config", lambda: "int x;") != first


PROCESSORS = {
    "x86": "processor\t: 0\nmodel\t\t: 85\nflags\t\t: sse2 avx512f\n\nprocessor\t: 1\nflags\t\t: sse2 avx512f\n",
    "x86 without AVX-512": "processor\t: 0\nmodel\t\t: 85\nflags\t\t: sse2\n",
    "an x86 of another model": "processor\t: 0\nmodel\t\t: 86\nflags\t\t: sse2\n",
    "ARM": "processor\t: 0\nFeatures\t: fp asimd sve\nCPU part\t: 0xd40\n",
    "ARM without SVE": "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd40\n",
    "ARM of another part": "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n",
}


@pytest.mark.usefixtures("cache")
def test_a_library_made_for_another_processor_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache may come along from another machine, and -march=native is that one's."""
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(toolchain, "CPUINFO", cpuinfo)
    made = []
    for described in (*PROCESSORS.values(), PROCESSORS["x86"]):
        cpuinfo.write_text(described)
        toolchain._processor.cache_clear()
        made.append(compile_program(b"config", lambda: "int x;"))
    toolchain._processor.cache_clear()
    assert len(set(made)) == len(PROCESSORS)
    assert made[-1] == made[0]


@pytest.mark.usefixtures("cache")
def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    toolchain._compiler.cache_clear()
    try:
        with pytest.raises(
            ToolchainError, match=r"no C compiler \(no-such-compiler\) found.*apt-get install gcc"
        ):
            compile_program(b"config", lambda: "")
    finally:
        toolchain._compiler.cache_clear()


def test_c_that_does_not_compile(cache: Path) -> None:
    with pytest.raises(ToolchainError, match="unknown type name"):
        compile_program(b"config", lambda: "nonsense x;")
    assert [p.suffix for p in cache.iterdir() if p.suffix != ".lock"] == [".c"]
