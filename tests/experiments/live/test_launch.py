"""The conditions that a launch waits for before its ranks begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fanin.testbed import launch
from fanin.topologies.errors import NetworkError


class Network:
    """One whose hosts answer as `command` does."""

    def __init__(self, *command: str) -> None:
        self._command = command

    def inside(self, _argv: Sequence[str], _host: str) -> Sequence[str]:
        return self._command


def test_a_host_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_ANSWER_SECONDS", 0.01)
    network: Any = Network("sleep", "1000")
    with pytest.raises(NetworkError, match=r"h1: its open ports are not read within .* s; end the network"):
        launch._free_port(network, "h1")


def test_a_port_that_is_used_is_not_taken() -> None:
    network: Any = Network("echo", f"  0: 00000000:{29500:04X} 00000000:0000 0A")
    assert launch._free_port(network, "h1") == 29501
