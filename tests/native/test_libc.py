"""How other programs see a process that renames itself."""

from __future__ import annotations

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
