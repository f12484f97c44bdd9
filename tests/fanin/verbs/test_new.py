"""`fanin new` makes a folder in which everything runs, as in its README."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments.results.files import read_rows
from fanin.verbs.new import TEMPLATES
from tests.fanin.command import run
from tests.fanin.conftest import Fanin

pytestmark = pytest.mark.slow

FANIN = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work") / "mine-2"
    done = CliRunner().invoke(app, ["new", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def commands(folder: Path) -> list[str]:
    """Return the commands of the README's first block."""
    block = (folder / "README.md").read_text().split("\n\n")[3]
    return [line.split("#")[0].strip() for line in block.splitlines()]


@pytest.mark.few(0)
def test_the_commands_of_its_readme_run(made: Path) -> None:
    stf, scenario, live, compile_program = commands(made)
    assert (scenario, live) == ("fanin run scenario.toml", "fanin run scenario.toml --set world=live")
    for command in (stf, scenario, compile_program):
        done = run(*shlex.split(command)[1:], environment={"PYTHONPATH": str(FANIN)}, cwd=made)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    rows = read_rows(made / "results" / "mine-2")
    assert len(rows) == 6
    assert all(row["violations"] == 0 and row["error"] is None for row in rows)
    for name, file in (("program", "program.p4"), ("controller", "control.py"), ("worker", "worker.py")):
        assert {row[name] for row in rows} == {str(made / file)}
    assert (made / "results" / "mine-2" / "mine-2.png").exists()


def test_what_is_its_own_takes_part(made: Path) -> None:
    """Not only beside ours: switches hold the marks, and workers send everything twice."""
    from fanin.controller.planner import planner_of
    from fanin.experiments.scenario.file import load_scenario
    from fanin.experiments.scenario.user_files import program_of
    from fanin.experiments.virtual.point import run_virtual
    from fanin.p4switch.engine.engine import Engine

    changes = ["loss=0", "seed=1", "repetitions=1"]
    (point,) = load_scenario(made / "scenario.toml", changes).points
    plan = planner_of(point.controller).plan_forwarding(point.network)
    assert [entry.params for entry in plan["leaf1"].entries if entry.table == "ingress.marking"] == [
        {"dscp": 46}
    ]
    assert not [entry for entry in plan["spine1"].entries if entry.table == "ingress.marking"]
    engine = Engine.load(program_of(point).device_config)
    twice = run_virtual(point, engine)
    once = run_virtual(point.model_copy(update={"worker": None}), engine)
    assert twice.violations == 0
    assert twice.packets_per_worker > 1.4 * once.packets_per_worker


def test_its_python_files_are_typed(made: Path) -> None:
    # Beside `make lint`, which has checked already what they import.
    kept = ["--config-file", str(FANIN / "pyproject.toml"), "--cache-dir", str(FANIN / ".mypy_cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *kept, "control.py", "worker.py"],
        cwd=made,
        env=os.environ | {"PYTHONPATH": str(FANIN)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_file_is_in_the_readme(made: Path) -> None:
    readme = (made / "README.md").read_text()
    for template in TEMPLATES.iterdir():
        assert template.name == "README.md" or f"`{template.name}`" in readme


def test_a_protocol_runs_as_its_readme_says(tmp_path: Path) -> None:
    folder = tmp_path / "vote"
    assert CliRunner().invoke(app, ["new", "--protocol", str(folder)]).exit_code == 0
    readme = (folder / "README.md").read_text()
    given = [line.split("#")[0].strip() for line in readme.splitlines() if line.startswith("    fanin")]
    small = {"fanin soak --protocol . --seeds 20": "fanin soak --protocol . --seeds 2"}
    ran = [small.get(command, command) for command in given if "world=live" not in command]
    assert len(ran) == len(given) - 1 == 5
    for command in ran:
        environment = {"PYTHONPATH": str(FANIN), "P4SWITCH_CFLAGS": "-Og"}  # compiles in half the time
        done = run(*shlex.split(command)[1:], environment=environment, cwd=folder)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    mine, ours = (read_rows(folder / "results" / name) for name in ("mine", "fanin"))
    assert {row["protocol"] for row in mine} == {str(folder)}
    assert {row["protocol"] for row in ours} == {"fanin"}
    assert all(row["violations"] == 0 and row["error"] is None for row in (*mine, *ours))
    for file in folder.iterdir():
        assert file.is_dir() or f"`{file.name}`" in readme


def test_nothing_is_written_over(made: Path, fanin: Fanin) -> None:
    done = fanin("new", str(made))
    assert done.returncode == 2
    assert done.stderr == f"fanin new: {made} exists already; choose another name\n"
    done = fanin("new", str(made.parent / "Mine"))
    assert done.returncode == 2
    assert not (made.parent / "Mine").exists()
