"""The examples: each command that the README of an example shows runs, in a copy of its folder, as it says."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from fanin.experiments.results.files import read_rows
from tests.fanin import command
from tests.fanin.network import Up

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"}
LIVE = ("launch", "up")


def commands(name: str, *, live: bool) -> list[list[str]]:
    """Return the words after `fanin` of each command in an example's README."""
    shown = re.findall(r"^    fanin (.*)$", (EXAMPLES / name / "README.md").read_text(), re.M)
    return [words for words in map(shlex.split, shown) if (words[0] in LIVE) == live]


def fanin(*words: str, cwd: Path, **environment: str) -> str:
    """Run a command and return its output."""
    done = command.run(*words, environment=ENVIRONMENT | environment, cwd=cwd)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the example that the test is about."""
    return shutil.copytree(EXAMPLES / request.param, tmp_path / request.param)


def test_each_example_is_listed_and_shows_its_commands() -> None:
    listed = re.findall(r"\]\(([\w-]+)/README\.md\)", (EXAMPLES / "README.md").read_text())
    assert sorted(listed) == NAMES
    for name in NAMES:
        text = (EXAMPLES / name / "README.md").read_text()
        assert len(text.splitlines()) <= 12, name
        blocks = re.findall(r"^    (.*)$", text, re.M)
        assert blocks, name
        assert all(line.startswith("fanin ") for line in blocks), name


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "copy", [name for name in NAMES if commands(name, live=False)], indirect=True, ids=str
)
def test_what_needs_no_network_runs(copy: Path) -> None:
    said = [fanin(*words, cwd=copy) for words in commands(copy.name, live=False)]
    results = copy / "results"
    match copy.name:
        case "own-program":
            assert said[0] == "PASS firewall.stf\n"
            assert "=> 1 packet out: port 2" in said[1]
        case "own-topology":
            seconds = {row["algorithm"]: row["median_seconds"] for row in read_rows(results / "uneven")}
            assert 0.16 < seconds["in-network"] < seconds["ring"]  # 1 MB over 50 Mb/s
        case "own-controller":
            carried = read_rows(results / "pinned" / "links.parquet")
            passed = {row[end] for row in carried for end in ("near", "far")}
            assert "spine2" in passed
            assert "spine1" not in passed
        case "scenario-with-figure":
            rows = read_rows(results / "workers")
            assert {(row["workers"], row["algorithm"]) for row in rows} == {
                (workers, algorithm)
                for workers in (2, 4, 8, 16)
                for algorithm in ("in-network", "ring", "halving-doubling")
            }
            assert (results / "workers" / "workers.png").stat().st_size
            assert (results / "workers" / "report.html").stat().st_size
        case _:
            raise AssertionError(f"{copy.name}: say what its commands must do")
    for path in results.glob("*/results.parquet"):
        assert all(row["violations"] == 0 and row["error"] is None for row in read_rows(path.parent))


@pytest.mark.live
@pytest.mark.parametrize("copy", ["numpy-worker"], indirect=True)
def test_the_numpy_workers_agree_on_the_line(copy: Path, tmp_path: Path) -> None:
    [words] = commands(copy.name, live=True)
    said = fanin(*words, cwd=copy, TMPDIR=str(tmp_path))
    lines = re.findall(r"^\[\d\] worker (\d) of 4: y = (.*) x \+ (.*)$", said, re.M)
    assert sorted(worker for worker, _, _ in lines) == ["0", "1", "2", "3"]
    [(slope, intercept)] = {line[1:] for line in lines}
    assert float(slope) == pytest.approx(3, abs=0.02)
    assert float(intercept) == pytest.approx(2, abs=0.02)


@pytest.mark.live
@pytest.mark.torch
@pytest.mark.parametrize("copy", ["pytorch-ddp"], indirect=True)
def test_the_ranks_of_pytorch_have_the_same_weights(copy: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: make test-torch")
    [words] = commands(copy.name, live=True)
    said = fanin(*words, cwd=copy, TMPDIR=str(tmp_path))
    lines = re.findall(r"rank (\d) of 2: (\d+)% of its points right, sum of all weights (.*)$", said, re.M)
    assert sorted(rank for rank, _, _ in lines) == ["0", "1"]
    assert len({weights for _, _, weights in lines}) == 1
    assert all(int(right) > 85 for _, right, _ in lines)


@pytest.mark.few(1)
@pytest.mark.live
@pytest.mark.parametrize("copy", ["own-topology", "own-controller"], indirect=True)
def test_their_networks_come_up_and_aggregate(copy: Path, tmp_path: Path) -> None:
    [(_, *words)] = commands(copy.name, live=True)
    options = [copy / word if (copy / word).is_file() else word for word in words]
    with Up(tmp_path, *options) as network:
        assert len(re.findall(r"^ ?h\d ", network.said, re.M)) == 4
        fanin("allreduce", "--sizes", "4 kB", "--repetitions", "1", cwd=copy, **network.environment)
        summed = fanin("counters", "spine1", "--json", cwd=copy, **network.environment)
        events = [cell for cell in map(json.loads, summed.splitlines()) if "events" in cell["counter"]]
        assert bool(events) == (copy.name == "own-topology")  # the controller keeps spine1 free
        network.end()


def test_each_live_command_has_a_test() -> None:
    """The live tests above name their examples; a new one must be added there and here."""
    assert {name for name in NAMES if commands(name, live=True)} == {
        "numpy-worker",
        "own-controller",
        "own-topology",
        "pytorch-ddp",
    }
