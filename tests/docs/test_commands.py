"""Every command of the documents runs, or says in tests/docs/commands.py why it does not, or where it does."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments.results.files import read_rows
from fanin.testbed import runs, sandbox
from tests.docs.commands import (
    DOCUMENTS,
    ELSEWHERE,
    EXEMPT,
    FENCE,
    HELP,
    ROOT,
    SMALLER,
    TEXTS,
    commands,
    documents_to_run,
    smaller,
    to_run,
)

SHOWN = {command for document in TEXTS for command, _ in commands(document)}
ADVICE = "what cannot run in a test belongs into EXEMPT, what another test runs into ELSEWHERE"


def test_the_tables_have_only_what_documents_show_and_each_once() -> None:
    assert len(SHOWN) > 60
    assert not {*EXEMPT, *ELSEWHERE} - SHOWN
    assert not EXEMPT.keys() & ELSEWHERE.keys()
    assert not {part for part in SMALLER if not any(part in command for command in SHOWN)}


def test_the_tests_that_run_the_others_exist() -> None:
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(), place


@pytest.mark.parametrize(
    "command",
    [
        command for command in EXEMPT if "make " in command and "make run" not in command
    ],  # of p4lang/tutorials
)
def test_make_knows_a_target_that_is_not_made_here(command: str) -> None:
    words = shlex.split(command.removeprefix("sudo "))
    subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, check=True)


def test_no_command_hides_in_a_block_of_another_kind() -> None:
    kinds = {kind for document in DOCUMENTS for kind in FENCE.findall(document.read_text())}
    assert kinds <= {"asm", "c", "diff", "lua", "python", "text", "toml", "traced"}, (
        "indent commands by four spaces"
    )


def leave(child: int, run: runs.Run, _: int) -> NoReturn:
    """In the place of waiting for a command that goes on in a sandbox, and after it a copy of all these tests."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    run.remove()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, sandbox.stop_signals())
    raise sandbox.SandboxError("it makes a network")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "document",
    [
        # The examples of help take longest. tests/fanin/test_cli.py checks each time that they can be typed.
        pytest.param(document, marks=pytest.mark.few(0)) if document == HELP else document
        for document in documents_to_run(live=False)
    ],
)
def test_what_needs_no_network_runs(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandbox, "_supervise", leave)
    for command, _ in to_run(document, live=False):
        program, *words = shlex.split(smaller(command))
        if "KEY" in words:
            words[words.index("KEY")] = read_rows(Path(words[1]))[0]["key"]
        if program == "fanin":
            done = CliRunner().invoke(app, words)
            status, said = done.exit_code, done.output
        else:
            assert program == "python", f"{command}: {ADVICE}"
            run = subprocess.run(
                [sys.executable, *words],
                env={"PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=False,
            )
            status, said = run.returncode, run.stdout + run.stderr
        assert status == 0, f"{command}: {said}\n{ADVICE}"
        assert said
