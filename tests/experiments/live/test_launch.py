"""The conditions that a launch waits for before its ranks begin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fanin.testbed import launch
from fanin.testbed.runs import Run
from fanin.topologies.errors import NetworkError


class Network:
    """One whose hosts answer as `command` does."""

    def __init__(self, folder: Path, *command: str) -> None:
        self._command = command
        self.run = Run(folder)

    def inside(self, _argv: Sequence[str], _host: str) -> Sequence[str]:
        return self._command


def listening_on(port: int) -> tuple[str, str]:
    return "echo", f"  0: 00000000:{port:04X} 00000000:0000 0A"


def test_a_host_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launch, "_ANSWER_SECONDS", 0.01)
    network: Any = Network(tmp_path, "sleep", "1000")
    with (
        pytest.raises(NetworkError, match=r"h1: its open ports are not read within .* s; end the network"),
        launch._master_port(network, "h1"),
    ):
        pass


def test_a_port_that_is_used_is_not_taken(tmp_path: Path) -> None:
    network: Any = Network(tmp_path, *listening_on(29500))
    with launch._master_port(network, "h1") as port:
        assert port == 29501


def test_a_port_of_another_launch_is_not_taken_until_it_ends(tmp_path: Path) -> None:
    network: Any = Network(tmp_path, *listening_on(22))
    with launch._master_port(network, "h1") as first:
        with launch._master_port(network, "h1") as second, launch._master_port(network, "h2") as elsewhere:
            assert (first, second, elsewhere) == (29500, 29501, 29500)
        with launch._master_port(network, "h1") as again:
            assert again == 29501
