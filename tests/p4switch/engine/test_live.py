"""Ports on a live network: two hosts, each in a namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from p4switch.engine import Engine
from p4switch.live import PortError

ROOT = Path(__file__).parents[3]


def session(case: str, *configs: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("live_session.py")
    command = ["unshare", "-rn", sys.executable, str(script), case, *map(str, configs)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # behind what ethtool says
    return seen


@pytest.fixture
def files(config: Callable[[str], bytes], tmp_path: Path) -> Callable[[str], Path]:
    def written(name: str) -> Path:
        path = tmp_path / f"{name}.json"
        path.write_bytes(config(name))
        return path

    return written


@pytest.mark.live
def test_offload_changes_no_result(files: Callable[[str], Path]) -> None:
    """The same datagrams in the same order, the same stream: with superframes in and out, in only, and without any.

    The forwarder does not look at checksums, so they may stay partial; the router verifies those of UDP, so they are
    completed, and each datagram then leaves with its own.
    """
    seen = session("offload", files("forwarder"), files("router"))
    both, received, none = (
        {"received in superframes": i, "sent in superframes": o, "all sent": True}
        for i, o in ((True, True), (True, False), (False, False))
    )
    assert seen == {
        "forwarder both": both,
        "forwarder in": received,
        "forwarder none": none,
        "forwarder same": True,
        "router both": received,
        "router in": received,
        "router none": none,
        "router same": True,
        "intact": True,
    }


@pytest.mark.live
def test_control_and_end(files: Callable[[str], Path]) -> None:
    assert session("control", files("forwarder")) == {
        "packet in": True,
        "packet out": True,
        "VLAN tag": 0x2005,
        "host sees nothing": True,
        "clsact left": False,
        "left": [0, 0],
    }


def test_ports_that_cannot_be_opened(engine: Callable[[str], Engine]) -> None:
    switch = engine("forwarder")
    with pytest.raises(PortError, match="port 1: cannot open interface nowhere: No such device"):
        switch.start({1: "nowhere"})
    with pytest.raises(PortError, match="255 is the CPU port"):
        switch.start({255: "lo"})
    with pytest.raises(PortError, match="open ports"):
        switch.packet_out(b"", 255)
    switch.stop()
