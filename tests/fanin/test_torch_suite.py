"""PyTorch's own tests of process groups, with our backend: what passes, what is left out and why, what fails."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.fanin import command
from tests.fanin.network import Up

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
pytest.importorskip("expecttest", reason="PyTorch's tests need expecttest: make test-torch")

pytestmark = [pytest.mark.torch, pytest.mark.live, pytest.mark.slow]

SUITE = Path(__file__).with_name("torch_suite.py")
SECONDS = 1500.0  # for all of them; they take five minutes on two cores


def names() -> list[str]:
    spec = importlib.util.find_spec("torch")
    assert spec
    assert spec.origin
    path = Path(spec.origin).parent / "testing" / "_internal" / "distributed" / "distributed_test.py"
    tests = path.read_text().partition("class _DistTestBase")[2]
    return sorted(set(re.findall(r"^        def (test_\w+)\(", tests, re.MULTILINE)))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Return the outcome of each test on four ranks, two on each of two hosts."""
    folder = tmp_path_factory.mktemp("suite")
    with Up(tmp_path_factory.mktemp("up")) as up:
        done = command.run(
            "launch",
            "--per-host",
            2,
            SUITE,
            "fanin",
            folder,
            environment={**up.environment, "TORCH_CPP_LOG_LEVEL": "ERROR"},
            timeout=SECONDS,
        )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in re.findall(r"^\[0\] (\{.*\})$", done.stdout, re.MULTILINE)]
    return {line["test"]: line for line in lines}


@pytest.mark.parametrize("name", names())
def test_of_pytorch(outcomes: dict[str, dict[str, str]], name: str) -> None:
    if name not in outcomes:
        pytest.skip("PyTorch's class does not have it, whatever the backend")
    outcome, why = outcomes[name]["outcome"], outcomes[name]["why"]
    if outcome == "skipped":
        pytest.skip(why)
    assert outcome == "passed", why


def test_nearly_all_that_the_source_has_are_run(outcomes: dict[str, dict[str, str]]) -> None:
    assert set(outcomes) < set(names())
    assert len(outcomes) == 285
