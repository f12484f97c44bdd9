"""Compiling: once for each program, and a clear word where there is no compiler."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fanin.native import toolchain
from fanin.native.cache import LOOKED
from fanin.native.toolchain import INCLUDE, CompileLimitError, ToolchainError, compile_folder, compile_text

ROOT = INCLUDE.parent
# What /proc/cpuinfo says of processors.
PROCESSORS = {
    "x86": "processor\t: 0\nmodel\t\t: 85\nflags\t\t: sse2 avx512f\n\nprocessor\t: 1\nflags\t\t: sse2 avx512f\n",
    "x86 without AVX-512": "processor\t: 0\nmodel\t\t: 85\nflags\t\t: sse2\n",
    "an x86 of another model": "processor\t: 0\nmodel\t\t: 86\nflags\t\t: sse2\n",
    "ARM": "processor\t: 0\nFeatures\t: fp asimd sve\nCPU part\t: 0xd40\n",
    "ARM without SVE": "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd40\n",
    "ARM of another part": "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fanin"


def compiled(content: bytes, text: Callable[[], str]) -> Path:
    return compile_text("program", content, text, INCLUDE)


def slow_compiler(first: str) -> str:
    """A script that does something before it compiles, and nothing when it is only asked for its version."""
    return f'#!/bin/sh\ncase "$*" in *-shared*) {first};; esac\nexec cc "$@"\n'


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes of a line of shell what is done before compiling."""

    def install(first: str) -> None:
        path = tmp_path / "compiler"
        path.write_text(slow_compiler(first))
        path.chmod(0o755)
        monkeypatch.setenv("CC", str(path))
        forget()

    asked = (toolchain._compiler, toolchain._accepted)

    def forget() -> None:
        for known in asked:
            known.cache_clear()

    yield install
    forget()


def test_compiled_once(cache: Path) -> None:
    """The second time nothing is even translated; the C is kept beside the library."""
    asked = []

    def translate() -> str:
        asked.append(1)
        return "int answer(void) { return 42; }"

    first = compiled(b"config", translate)
    assert first.parent == cache
    assert first.with_suffix(".c").read_text() == translate()
    assert compiled(b"config", translate) == first
    assert compiled(b"another", translate) != first
    assert len(asked) == 3
    kept = [p.suffix for p in cache.iterdir() if p.name != LOOKED and p.suffix != ".lock"]
    assert sorted(kept) == [".c", ".c", ".so", ".so"]


def test_a_compilation_whose_caller_is_killed_is_finished_for_the_next(cache: Path, tmp_path: Path) -> None:
    """The next one waits for it, and finds the library made."""
    compiler, started, go = (tmp_path / name for name in ("cc", "started", "go"))
    os.mkfifo(started)
    os.mkfifo(go)
    compiler.write_text(slow_compiler(f"echo > {started}; cat {go} > {tmp_path}/gone"))
    compiler.chmod(0o755)
    caller = [
        sys.executable,
        "-c",
        "from fanin.native.toolchain import *; compile_text('program', b'', lambda: 'int x;', INCLUDE)",
    ]
    environment = os.environ | {"CC": str(compiler), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(caller, env=environment) as killed:
        started.read_text()
        killed.kill()
    with subprocess.Popen(caller, env=environment) as waiting:
        go.write_text("")
        assert waiting.wait() == 0
    assert sorted(path.suffix for path in cache.iterdir()) == [".c", ".lock", ".so"]


@pytest.mark.usefixtures("cache")
def test_a_folder_is_compiled_anew_when_any_of_its_files_or_the_options_have_changed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x.h").write_text("extern int x;")
    (folder / "x.c").write_text('#include "x.h"\n#include "shared.h"\nint x;')
    first = compile_folder(folder)
    assert compile_folder(folder) == first
    assert first.name.startswith("folder-")
    (folder / "x.h").write_text("extern int x, y;")
    second = compile_folder(folder)
    assert compile_folder(folder, "-lm") != second != first


@pytest.mark.usefixtures("cache")
def test_other_flags_compile_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled(b"config", lambda: "int x;")
    monkeypatch.setenv("P4SWITCH_CFLAGS", "-O1")
    assert compiled(b"config", lambda: "int x;") != first


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
        made.append(compiled(b"config", lambda: "int x;"))
    toolchain._processor.cache_clear()
    assert len(set(made)) == len(PROCESSORS)
    assert made[-1] == made[0]


@pytest.mark.usefixtures("cache")
def test_no_compiler(compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    compiler("")
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(
        ToolchainError, match=r"no C compiler \(no-such-compiler\) found.*apt-get install gcc"
    ):
        compiled(b"config", lambda: "")


@pytest.mark.live
def test_a_cache_from_which_nothing_can_be_loaded(tmp_path: Path) -> None:
    """Mounted noexec: it is not even compiled."""
    caller = "from fanin.native.toolchain import *; compile_text('program', b'', lambda: 1 / 0, INCLUDE)"
    done = subprocess.run(
        [
            *("unshare", "-r", "-m", "sh", "-c"),
            'mount -t tmpfs -o noexec none "$0" && exec "$@"',
            *(tmp_path, sys.executable, "-c", caller),
        ],
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stderr.splitlines()[-1]
    assert f"no compiled program can be loaded from {tmp_path}/fanin, where a file system is mounted" in said
    assert "name a folder elsewhere in $XDG_CACHE_HOME" in said


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    with pytest.raises(ToolchainError, match=r"kept in .*file/fanin: Not a directory; name another folder"):
        compiled(b"config", lambda: "int x;")


def test_c_that_does_not_compile(cache: Path) -> None:
    with pytest.raises(ToolchainError, match="unknown type name"):
        compiled(b"config", lambda: "nonsense x;")
    assert [p.suffix for p in cache.iterdir() if p.suffix != ".lock"] == [".c"]


# Limits: the program may be a stranger's.


def running(marker: Path) -> bool:
    """Return whether the process that wrote its number there still runs; after a kill it may take a moment to end."""
    try:
        process = os.pidfd_open(int(marker.read_text()))
    except ProcessLookupError:
        return False
    try:
        ended, _, _ = select.select([process], [], [], 60)
    finally:
        os.close(process)
    return not ended


@pytest.mark.slow
def test_a_compiler_that_only_waits_is_stopped_with_all_its_processes(
    cache: Path, tmp_path: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(f"sleep 1000 & echo $! > {tmp_path}/child; touch $TMPDIR/x; wait")
    monkeypatch.setenv("P4SWITCH_COMPILE_SECONDS", "1")
    with pytest.raises(CompileLimitError, match=r"may take 1 s of processor time.*P4SWITCH_COMPILE_SECONDS"):
        compiled(b"config", lambda: "int x;")
    assert not running(tmp_path / "child")
    assert sorted(path.suffix for path in cache.iterdir()) == [".c", ".lock"]


@pytest.mark.slow
def test_a_compiler_that_computes_for_ever_is_stopped(
    cache: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler("while :; do :; done")
    monkeypatch.setenv("P4SWITCH_COMPILE_SECONDS", "1")
    with pytest.raises(CompileLimitError):
        compiled(b"config", lambda: "int x;")
    assert sorted(path.suffix for path in cache.iterdir()) == [".c", ".lock"]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["cc", "clang"])
def test_the_stack_of_a_function_is_limited(
    name: str, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program whose expressions need more than a thread has would end the switch with its first packet."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    compiler("")
    monkeypatch.setenv("CC", name)
    code = "int other(char *); int f(void) { char x[%d]; return other(x); }"
    with pytest.raises(CompileLimitError, match=r"at most 256 KiB of stack: split.*variables") as refused:
        compiled(b"config", lambda: code % (257 << 10))
    assert "'f'" in str(refused.value) or "‘f’" in str(refused.value)
    compiled(b"config", lambda: code % (255 << 10))


@pytest.mark.parametrize(("limit", "bytes_"), [("MAX_MEMORY", 16 << 20), ("MAX_OUTPUT", 4 << 10)])
@pytest.mark.usefixtures("cache")
def test_memory_and_output_are_limited(monkeypatch: pytest.MonkeyPatch, limit: str, bytes_: int) -> None:
    monkeypatch.setattr(toolchain, limit, bytes_)
    with pytest.raises(CompileLimitError, match=r"of memory and .* of output"):
        compiled(b"config", lambda: "int x[4096] = {1};")


@pytest.mark.usefixtures("cache")
def test_interrupted_it_leaves_nothing(
    tmp_path: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(f"sleep 1000 & echo $! > {tmp_path}/child; wait")
    toolchain._accepted()
    toolchain._without_network()
    wait = subprocess.Popen.wait

    def interrupted(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout is None:
            return wait(self)
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text().strip():
            assert self.poll() is None
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled(b"config", lambda: "int x;")
    assert not running(tmp_path / "child")


@pytest.mark.usefixtures("cache")
def test_the_compiler_knows_nothing_of_our_environment(
    tmp_path: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where to find other headers: what is compiled depends on nothing that is not in the key."""
    compiler(
        f"env > {tmp_path}/environment; ls /sys/class/net > {tmp_path}/network; ip -o link > {tmp_path}/links"
    )
    monkeypatch.setenv("SECRET", "of ours")
    monkeypatch.setenv("CPATH", str(tmp_path))
    compiled(b"config", lambda: "int x;")
    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert names <= {"PATH", "PWD", "LC_ALL", "TMPDIR", "_", "SHLVL", "OLDPWD"} | {
        f"{what}_LIMIT" for what in ("SECONDS", "MEMORY", "OUTPUT")
    }
    if toolchain._without_network():
        links = (tmp_path / "links").read_text().splitlines()
        assert all("lo:" in line and "state DOWN" in line for line in links)


def test_what_the_compiler_says_is_cut(cache: Path) -> None:
    with pytest.raises(ToolchainError) as refused:
        compiled(b"config", lambda: "\n".join(f"nonsense{n} x;" for n in range(1000)))
    assert len(str(refused.value)) < 4000
    assert cache.exists()


# The folder that libraries are loaded from


def test_the_folder_is_ours_alone(cache: Path) -> None:
    compiled(b"config", lambda: "int x;")
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_that_others_may_write_to_is_refused(cache: Path, mode: int) -> None:
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(ToolchainError, match=f"others may write to it .mode {mode:04o}.; remove it"):
        compiled(b"config", lambda: "int x;")
    assert not list(cache.iterdir())


def test_a_folder_in_one_that_others_may_write_to_is_refused(cache: Path) -> None:
    """They could put their own in its place; in a folder like /tmp they could not."""
    cache.parent.chmod(0o777)
    with pytest.raises(ToolchainError, match=r"others may replace it: .* is writable by all"):
        compiled(b"config", lambda: "int x;")
    cache.parent.chmod(0o1777)
    assert compiled(b"config", lambda: "int x;").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_stranger_s_folder_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(mode=0o700)
    os.chown(cache, 12345, 12345)
    with pytest.raises(ToolchainError, match="belongs to user 12345, not to 0"):
        compiled(b"config", lambda: "int x;")
    monkeypatch.setenv("SUDO_UID", "12345")  # whose it is who became root
    assert compiled(b"config", lambda: "int x;").exists()


# The processor


@pytest.mark.parametrize(
    ("refused", "used"), [("", "-march=native"), ("-march=*", "-mcpu=native"), ("-march=*|-mcpu=*", None)]
)
def test_the_compiler_says_what_it_takes_for_this_processor(
    cache: Path,
    compiler: Callable[[str], None],
    refused: str,
    used: str | None,
) -> None:
    compiler("")
    path = Path(os.environ["CC"])
    other = 'for a; do shift; case "$a" in -mcpu=native);; *) set -- "$@" "$a";; esac; done'
    check = (
        f'for a; do case "$a" in {refused}) echo "unknown $a" >&2; exit 1;; esac; done\n' if refused else ""
    )
    path.write_text(f'#!/bin/sh\n{check}{other}\nexec cc "$@"\n')
    assert toolchain._accepted()[0][:-1] == ((used,) if used else ())
    assert compiled(b"config", lambda: "int x;").parent == cache


def test_another_version_of_the_compiler_compiles_anew(
    cache: Path, compiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler("")
    first = compiled(b"config", lambda: "int x;")
    monkeypatch.setattr(toolchain, "_accepted", lambda: ((), "version 99"))
    assert compiled(b"config", lambda: "int x;") != first
    assert first.parent == cache
