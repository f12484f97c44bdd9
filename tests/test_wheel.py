"""A source distribution, and the wheel made of it, hold all that fanin needs away from its repository."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fanin.testbed.patience import setting

ROOT = Path(__file__).parents[1]
STF = ROOT / "tests" / "p4switch" / "stf"
PACKAGES = [path.resolve() for path in sorted((ROOT / "fanin").iterdir()) if path.is_symlink()]
# Little of the lesson: one point, of a few packets.
SMALLEST = [
    f"--set={change}" for change in ("algorithm=in-network", "loss=0", "seed=1", "size=4 kB", "workers=2")
]

# In one process of pytest-xdist, which would make the environment in each that has one of these otherwise.
pytestmark = pytest.mark.slow

Installed = Callable[..., "subprocess.CompletedProcess[str]"]


def run(command: list[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    limit = 600 * setting()
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, **options)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; what fanin depends on is this one's."""
    folder = tmp_path_factory.mktemp("wheel")
    tools = folder / "tools"
    fetched = run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--target",
            tools,
            "hatchling>=1.26",
        ]
    )
    if "No matching distribution" in fetched.stderr:
        pytest.skip("pip has no package index here, from which to fetch hatchling")
    assert fetched.returncode == 0, fetched.stderr

    def build(source: Path, target: str) -> Path:
        command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder]
        done = run(command, cwd=source, env=os.environ | {"PYTHONPATH": str(tools)})
        assert done.returncode == 0, done.stderr
        (made,) = folder.glob("*.tar.gz" if target == "sdist" else "*.whl")
        return made

    run(["tar", "-C", folder, "-xf", build(ROOT, "sdist")]).check_returncode()
    (source,) = (path for path in folder.iterdir() if path.name.startswith("fanin-") and path.is_dir())
    wheel = build(source, "wheel")
    made = folder / "environment"
    run([sys.executable, "-m", "venv", "--without-pip", made]).check_returncode()
    installed = run(
        [sys.executable, "-m", "pip", "--python", made / "bin" / "python", "install", "--no-deps", wheel]
    )
    assert installed.returncode == 0, installed.stderr
    # Packages beside this fanin; not what leads from there to its repository, which is in other files like this.
    packages(made).joinpath("dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return made


def packages(environment: Path) -> Path:
    """Where it keeps them."""
    (found,) = environment.glob("lib/python*/site-packages")
    return found


@pytest.fixture
def installed(environment: Path, tmp_path: Path) -> Installed:
    """`installed(command, *arguments)` runs what is installed there, in an empty folder, with nothing cached."""
    own: dict[str, str | Path] = {"HOME": tmp_path / "home", "XDG_CACHE_HOME": tmp_path / "cache"}
    own["PYTHONDONTWRITEBYTECODE"] = "1"
    own["P4SWITCH_CFLAGS"] = "-Og"  # takes less than half as long, and needs the same files
    (tmp_path / "here").mkdir()
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        done = run(
            [environment / "bin" / command, *arguments],
            cwd=tmp_path / "here",
            env=inherited | {name: str(value) for name, value in own.items()},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return call


def test_it_adds_one_name_to_an_environment(environment: Path) -> None:
    (record,) = packages(environment).glob("fanin-*.dist-info/RECORD")
    names = {Path(line.split(",")[0]).parts[0] for line in record.read_text().splitlines()}
    assert names == {"..", "fanin", record.parent.name}  # ..: the command in bin/


def test_nothing_comes_from_the_repository(environment: Path, installed: Installed) -> None:
    names = ["fanin", *(f"fanin.{path.name}" for path in PACKAGES if (path / "__init__.py").exists())]
    script = (
        f"import sys, {', '.join(names)}; print(*(sys.modules[name].__file__ for name in {names}), sep='\\n')"
    )
    places = installed("python", "-c", script).stdout.splitlines()
    assert places == [str(packages(environment).joinpath(*name.split("."), "__init__.py")) for name in names]
    assert (packages(environment) / "fanin" / "py.typed").exists()


def test_every_file_that_is_no_python_is_in_it(environment: Path) -> None:
    wanted = {
        Path("fanin", path.relative_to(ROOT))
        for package in PACKAGES
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert not {path for path in wanted if not (packages(environment) / path).is_file()}


@pytest.mark.few(0)
@pytest.mark.live
def test_a_script_may_be_called_as_a_package_and_lie_beside_others(
    installed: Installed, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    for name in ("controller.py", "native.py"):
        (here / name).write_text("raise SystemExit('not this one')")
    for name in ("experiments", "p4src", "scenarios", "tests", "topologies"):
        (here / name).mkdir()
        (here / name / "__init__.py").write_text("raise SystemExit('not this one')")
    (here / "workers.py").write_text(
        "import fanin, numpy, sys\n"
        "assert 'workers' not in sys.modules\n"
        "print(fanin.init().allreduce(numpy.ones(1000, numpy.float32))[0])\n"
    )
    said = installed("fanin", "launch", "--up", "--workers 2", "workers.py").stdout
    assert said.count("2.0") == 2
    (here / "train.py").write_text(
        (here / "workers.py").read_text().replace("'workers' not", "'controller' not")
    )
    assert installed("fanin", "launch", "--up", "--workers 2", "train.py").stdout.count("2.0") == 2


@pytest.mark.few(0)
def test_it_compiles_runs_a_lesson_and_tests_a_switch(
    environment: Path, installed: Installed, tmp_path: Path
) -> None:
    def contents() -> list[Path]:
        return sorted(packages(environment).rglob("*"))

    before = contents()
    here = tmp_path / "here"
    installed("fanin", "compile", packages(environment) / "fanin" / "p4src" / "fanin.p4", "--c", "fanin.c")
    assert {path.name for path in here.iterdir()} == {"fanin.json", "fanin.p4info.txtpb", "fanin.c"}
    said = installed("fanin", "run", "lesson:loss", *SMALLEST).stdout
    assert "Results: results/lesson-loss/results.json" in said
    assert (here / "results" / "lesson-loss" / "lesson-loss.png").stat().st_size > 0
    said = installed("fanin", "stf", STF / "arithmetic.p4", STF / "arithmetic.stf").stdout
    assert said.splitlines()[-1].startswith("PASS")
    assert (tmp_path / "cache" / "fanin").is_dir()
    assert contents() == before
