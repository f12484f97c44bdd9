"""`make setup` shows how far pip is, on a terminal; a log is short; what fails, fails. A script stands in for pip."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LINES = [f"Collecting package{n}" for n in range(50)]
PIP = f"""#!/bin/sh
for n in $(seq 0 {len(LINES) - 1}); do echo "Collecting package$n"; done
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment of nothing but a pip that says much."""
    (tmp_path / "bin").mkdir()
    return pip(tmp_path, PIP)


def pip(environment: Path, script: str) -> Path:
    program = environment / "bin" / "pip"
    program.write_text(script)
    program.chmod(0o755)
    return environment


def setup(environment: Path, output: int, target: str = "setup") -> subprocess.CompletedProcess[str]:
    command = ["make", "--silent", target, f"VENV={environment}", "PYTHON=python3"]
    # Another make's options, as of `make test`, are not meant for this one.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        command, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True, env=inherited, check=False
    )


def next_line(environment: Path) -> str:
    return f"fanin is installed. Now type: . {environment}/bin/activate && fanin doctor"


def test_in_a_log_are_one_line_and_what_to_type_next(environment: Path) -> None:
    done = setup(environment, subprocess.PIPE)
    assert (done.returncode, done.stdout.splitlines()[1:], done.stderr) == (0, [next_line(environment)], "")
    assert (environment / "installed").exists()


def test_on_a_terminal_each_line_takes_the_place_of_the_one_before(environment: Path) -> None:
    reader, terminal = os.openpty()
    done = setup(environment, terminal)
    os.close(terminal)
    shown = b""
    try:
        while read := os.read(reader, 1 << 16):
            shown += read
    except OSError:  # nobody has the terminal any more
        pass
    os.close(reader)
    assert done.returncode == 0
    assert shown.decode().split("\r\x1b[K")[1:] == [*LINES, f"{next_line(environment)}\r\n"]


def test_when_pip_fails_it_says_why_and_nothing_counts_as_installed(environment: Path) -> None:
    pip(environment, f"{PIP}echo 'ERROR: no index' >&2; exit 1\n")
    done = setup(environment, subprocess.PIPE)
    assert done.returncode != 0
    assert not set(LINES) & set(done.stdout.splitlines())
    assert "ERROR: no index" in done.stderr
    assert not (environment / "installed").exists()


@pytest.mark.parametrize("status", [0, 1], ids=["with BMv2", "without"])
def test_the_tests_on_bmv2_begin_with_its_demo(environment: Path, status: int) -> None:
    """Which says what to install, where BMv2 is not."""
    (environment / "installed").touch()
    for program in ("fanin", "pytest"):
        (environment / "bin" / program).write_text(f'#!/bin/sh\necho "{program} $*"\nexit {status}\n')
        (environment / "bin" / program).chmod(0o755)
    done = setup(environment, subprocess.PIPE, "test-bmv2")
    demo, *tests = done.stdout.splitlines()
    assert demo == "fanin demo --switch bmv2"
    if status:
        assert done.returncode
        assert not tests
    else:
        assert "-m p4c or bmv2" in tests[0]


@pytest.mark.parametrize("failing", ["", "pytest", "mypy"])
def test_lint_runs_beside_the_tests_and_both_outcomes_are_reported(environment: Path, failing: str) -> None:
    (environment / "installed").touch()
    for program in ("pytest", "ruff", "mypy", "lint-imports", "python", "codespell"):
        (environment / "bin" / program).write_text(
            f'#!/bin/sh\necho "{program} $*"\nexit {int(program == failing)}\n'
        )
        (environment / "bin" / program).chmod(0o755)
    done = setup(environment, subprocess.PIPE, "test-fast")
    tests, *lint, summary = done.stdout.splitlines()
    assert tests.endswith("-m not live and not slow")
    assert any(line.startswith("mypy") for line in lint)
    assert summary == (
        f"lint: {'failed' if failing == 'mypy' else 'passed'}, "
        f"tests: {'failed' if failing == 'pytest' else 'passed'}"
    )
    assert bool(done.returncode) == bool(failing)
