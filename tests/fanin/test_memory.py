"""Where a process may use few addresses (`ulimit -v`), verbs do their work or say that memory is short."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fanin import cli_errors as failing
from tests.fanin.command import ROOT, RUN

RUN_SCENARIO = ("run", "scenarios/small-virtual.toml", "--results")
COMPILE = ("compile", "p4src/fanin.p4", "-o")
STF = ("stf", "tests/p4switch/stf/arithmetic.p4", "tests/p4switch/stf/arithmetic.stf")


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mebibytes", "words"),
    # At some limits, which move with each change, CPython itself crashes: COMPILE does at 40 MiB, not at 39 or 42.
    [(60, RUN_SCENARIO), (170, RUN_SCENARIO), (300, RUN_SCENARIO), (42, COMPILE), (40, STF)],
)
def test_a_verb_that_lacks_memory_says_so_in_a_line(
    tmp_path: Path, mebibytes: int, words: tuple[str, ...]
) -> None:
    file = [str(tmp_path / "out")] if words is not STF else []
    limited = ["sh", "-c", f'ulimit -v {mebibytes << 10}; exec "$@"', "sh", sys.executable, "-c", RUN]
    done = subprocess.run([*limited, *words, *file], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith(
        f"fanin: out of memory: processes are limited to {mebibytes} MiB of addresses; "
        "to raise it: ulimit -v unlimited\n"
    )


@pytest.mark.parametrize(
    ("error", "limit", "says"),
    [
        (MemoryError(), resource.RLIM_INFINITY, "out of memory: end other programs"),
        (
            RuntimeError("can't start new thread"),
            300 << 20,
            "out of memory: processes are limited to 300 MiB",
        ),
        (RuntimeError("can't start new thread"), resource.RLIM_INFINITY, None),
        (ImportError("x.so: failed to map segment from shared object"), 300 << 20, "out of memory"),
        (ImportError("no module x"), 300 << 20, None),
        (OSError(28, "No space left on device"), 300 << 20, None),
    ],
)
def test_which_errors_are_of_memory(
    monkeypatch: pytest.MonkeyPatch, error: Exception, limit: int, says: str | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    message = failing.out_of_memory(error)
    assert message == says if says is None else message.startswith(says)


def test_what_a_lack_of_memory_has_led_to_is_one() -> None:
    error = ValueError("no result")
    error.__cause__ = MemoryError()
    assert "out of memory" in failing.out_of_memory(error)
