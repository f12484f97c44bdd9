"""How a network tells that it is up, and others ask it."""

import json
import socket
from pathlib import Path

import pytest

from topologies import running, runs
from topologies.errors import NetworkError
from topologies.running import JOB_SERVICE, RunningHost, RunningNetwork, announce, withdraw


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


def test_a_job_service_that_does_not_answer_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_ANSWER_SECONDS", 0.1)
    folder = tmp_path / "fanin-run-1-4711-1"
    folder.mkdir()
    network = RunningNetwork(runs.Run(folder), {}, {})
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        service.bind(JOB_SERVICE)
        service.listen()
        with pytest.raises(NetworkError, match=r"of process 4711 has not answered for 0\.1 s"):
            network.ask_job_service({"list": None})
    with pytest.raises(NetworkError, match="no job service answers"):
        network.ask_job_service({"list": None})
