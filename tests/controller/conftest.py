"""The program of p4src, and switches without ports that run it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from p4compiler import Compiled, compile_file
from topologies.model import Topology, leaf_spine, topology_from

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def program() -> Compiled:
    return compile_file(ROOT / "p4src" / "fanin.p4")


@pytest.fixture(scope="session")
def network() -> Iterator[Topology]:
    """A leaf-spine network whose switches are p4switch processes on this machine's loopback, without ports."""
    data = leaf_spine(spines=2, leaves=2, hosts_per_leaf=2).model_dump(mode="json")
    running = []
    for switch in data["switches"]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            switch["grpc_port"] = free.getsockname()[1]
        target = ["--grpc-server-addr", f"127.0.0.1:{switch['grpc_port']}", "--cpu-port", "255"]
        command = [sys.executable, "-m", "p4switch", "--no-p4", "--device-id", str(switch["device_id"]), "--"]
        running.append(
            subprocess.Popen(
                [*command, *target],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        )
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
        yield topology_from(data)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.communicate()
