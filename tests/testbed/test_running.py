"""How a network tells that it is up, and others ask it."""

import json
from pathlib import Path

import pytest

from fanin.testbed import running, runs
from fanin.testbed.running import RunningHost, announce, withdraw


def test_who_looks_while_it_is_told_never_sees_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(runs.VARIABLE, str(tmp_path))
    announce({}, {"h1": RunningHost(1, "10.1.0.1")})
    (path,) = tmp_path.iterdir()
    with path.open() as looking:
        announce({}, {"h2": RunningHost(2, "10.1.0.2")})
        assert list(json.load(looking)["hosts"]) == ["h1"]  # it was replaced, not written over
    assert list(json.loads(path.read_text())["hosts"]) == ["h2"]
    withdraw()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["{", "[]", '{"switches": {"s1": {"neighbours": {}}}, "hosts": {}}'])
def test_a_network_of_another_version_of_fanin_is_passed_over(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other:
        alive = True

        def read(self, _name: str) -> str:
            return text

    monkeypatch.setattr(running, "all_runs", lambda: [Other()])
    assert running.running_networks() == []
