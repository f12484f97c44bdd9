"""The beginning of the live tests' scripts: the sandbox, a switch, a snapshot of what is there."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fanin.testbed import sandbox
from fanin.testbed.mininet_net import MininetNetwork
from fanin.topologies.emulation import EmulatedLink
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Switch, Topology
from fanin.topologies.shapes import leaf_spine

__all__ = ["LOGS", "MininetNetwork", "NetworkError", "Tiny", "Topology", "leaf_spine", "left"]

sandbox.enter()
_logs = tempfile.TemporaryDirectory()  # removed when the script ends
LOGS = Path(_logs.name)


class Tiny:
    """Runs tiny_switch.py, which knows the hosts of its leaf only."""

    engine = "tiny"
    offload = False

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def command(
        self, switch: Switch, ports: Mapping[int, str], links: Sequence[EmulatedLink] = ()
    ) -> Sequence[str]:
        assert not links
        hosts = [
            f"{host.ip}@{host.mac}@{ports[self._topology.port_towards(switch.name, host.name)]}"
            for host in self._topology.hosts_of(switch.name)
        ]
        return [
            sys.executable,
            str(Path(__file__).with_name("tiny_switch.py")),
            str(switch.grpc_port),
            *hosts,
        ]


def left() -> dict[str, list[str]]:
    """Interfaces and living processes of the sandbox, but for loopback and this process."""
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "interfaces": [line.split()[0] for line in links.splitlines() if not line.startswith("lo ")],
        "processes": [d.name for d in Path("/proc").glob("[0-9]*") if d.name != "1" and lives(d)],
    }


def lives(process: Path) -> bool:
    return process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
