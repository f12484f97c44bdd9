"""How other programs see a process that renames itself, and memory that is given back."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.native import libc


def seen(call: str, *arguments: str) -> tuple[str, list[bytes]]:
    """The name and the command line of a process that has called a function of libc."""
    script = f"""
import sys
from fanin.native import libc
{call}
print(open("/proc/self/comm").read().strip())
print(open("/proc/self/cmdline", "rb").read().rstrip(b"\\0").split(b"\\0"))
"""
    command = [sys.executable, "-c", script, *arguments]
    name, line = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return name, eval(line)


def test_a_name_is_cut_as_the_kernel_does() -> None:
    assert seen("libc.set_process_name('simple_switch_grpc')")[0] == "simple_switch_g"


def test_a_command_line_replaces_the_present_one() -> None:
    words = ["switch", "-i", "1@s1-eth1", "", "caf\\udce9"]
    assert seen(f"libc.set_command_line({words!r})".replace("\\\\", "\\"))[1] == [
        *(b"switch", b"-i", b"1@s1-eth1", b""),
        b"caf\xe9",
    ]


def test_a_command_line_is_cut_to_the_length_of_the_present_one() -> None:
    _, [line] = seen("libc.set_command_line(['x' * 100_000])", "room" * 100)
    assert 400 < len(line) < 100_000
    assert set(line) == {ord("x")}


def test_without_proc_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path("/proc/self/cmdline").read_bytes()

    def missing(_path: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    libc.set_command_line(["renamed"])
    monkeypatch.undo()
    assert Path("/proc/self/cmdline").read_bytes() == before


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library has no malloc_trim")
def test_free_memory_is_returned() -> None:
    script = """
import os
from pathlib import Path

from fanin.native import libc

def pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

blocks = [b"x" * (100_000 + at) for at in range(200)]  # each below the size from which malloc uses pages of its own
last = b"x" * 100_000
before = pages()
del blocks
libc.return_free_memory()
print((before - pages()) * os.sysconf("SC_PAGESIZE"))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(found.stdout) > 15_000_000  # of 20 million bytes
