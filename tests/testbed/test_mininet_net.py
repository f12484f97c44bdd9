"""A network built for real: what its hosts see, what runs, and that nothing of it is left."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fanin.testbed import mininet_api
from fanin.testbed.mininet_net import MininetNetwork
from fanin.testbed.switch_processes import P4Switch
from fanin.topologies.errors import NetworkError
from fanin.topologies.shapes import leaf_spine

Run = Callable[[str], subprocess.CompletedProcess[str]]

ONE_LEAF = """
from in_sandbox import *
topology = leaf_spine(spines=0, leaves=1, hosts_per_leaf=2, rate=20_000_000)
network = MininetNetwork(topology, Tiny(topology), LOGS)
"""


def _succeeds(run: Run, script: str) -> str:
    done = run(ONE_LEAF + script)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.few(1)
@pytest.mark.live
def test_hosts_have_the_addresses_of_the_topology_and_nothing_is_sent_unasked(run: Run) -> None:
    seen = _succeeds(
        run,
        """
import subprocess
look = "ip -brief address; ip route; ip neighbour; echo ipv6 off $(cat /proc/sys/net/ipv6/conf/all/disable_ipv6); "
look += "echo redirects $(cat /proc/sys/net/ipv4/conf/{all,h2-eth0}/accept_redirects)"
with network:
    host = network.host_popen("h2", ["bash", "-c", look], stdout=subprocess.PIPE, text=True)
    print(host.communicate()[0])
    for statistic in ("tx_packets", "rx_packets"):
        for interface in ("leaf1-eth1", "leaf1-eth2"):
            with open(f"/sys/class/net/{interface}/statistics/{statistic}") as counted:
                print(statistic, counted.read().strip())
""",
    )
    assert "h2-eth0" in seen
    assert "10.1.0.2/24" in seen
    assert "default via 10.1.0.254" in seen
    assert "10.1.0.254 dev h2-eth0 lladdr 02:00:0a:01:00:fe PERMANENT" in seen
    assert "fe80" not in seen
    assert "ipv6 off 1" in seen
    assert "redirects 0 0" in seen
    assert seen.splitlines()[-4:] == ["tx_packets 0"] * 2 + ["rx_packets 0"] * 2


@pytest.mark.few(1)
@pytest.mark.live
def test_what_a_host_sends_arrives_at_the_rate_of_its_link_at_most(run: Run) -> None:
    seen = _succeeds(
        run,
        """
import subprocess, sys
receive = '''
import socket, sys, time
server = socket.create_server(("10.1.0.2", 5000)); print("ready", flush=True)
connection, peer = server.accept()
start, received = time.monotonic(), 0
while data := connection.recv(65536):
    received += len(data)
print(peer[0], received, received * 8 / (time.monotonic() - start))
'''
send = 'import socket; socket.create_connection(("10.1.0.2", 5000)).sendall(bytes(1_000_000))'
with network:
    receiver = network.host_popen("h2", [sys.executable, "-c", receive], stdout=subprocess.PIPE, text=True)
    receiver.stdout.readline()
    assert network.host_popen("h1", [sys.executable, "-c", send]).wait() == 0
    print(receiver.communicate()[0])
    tc = ["tc", "-statistics", "qdisc", "show", "dev", "leaf1-eth2"]
    print(subprocess.run(tc, capture_output=True, text=True).stdout)
""",
    )
    source, received, rate = seen.splitlines()[0].split()
    assert (source, received) == ("10.1.0.1", "1000000")
    assert float(rate) < 20_000_000
    assert "htb" in seen
    assert "direct_packets_stat 0" in seen  # none went past the class


@pytest.mark.few(1)
@pytest.mark.live
def test_stop_leaves_nothing_and_the_same_network_can_be_built_again(run: Run) -> None:
    seen = _succeeds(
        run,
        """
for attempt in range(2):
    with network:
        network.host_popen("h1", ["sh", "-c", "sleep 1000 & sleep 1000"])
        network.check()
        assert len(left()["interfaces"]) == 2
    print(left())
network.stop()
print(left())
""",
    )
    assert seen.splitlines() == ["{'interfaces': [], 'processes': []}"] * 3


@pytest.mark.few(4)
@pytest.mark.live
@pytest.mark.parametrize(
    ("switch", "patience", "complaint", "last_words"),
    [
        (
            ["/no/such/switch"],
            1,
            "leaf1 does not start: [Errno 2] No such file or directory: '/no/such/switch'",
            "",
        ),
        (
            ["sh", "-c", "echo no memory left; exit 3"],
            1,
            "leaf1 has ended with status 3; ",
            "  no memory left",
        ),
        (["sh", "-c", "kill -9 $$"], 1, "leaf1 has ended with signal SIGKILL; ", "is empty"),
        (
            ["sh", "-c", "sleep 1000"],
            0.01,
            "leaf1 does not answer on port 9559 (0 s of processor time so far; FANIN_PATIENCE stretches time limits); ",
            "is empty",
        ),
    ],
)
def test_a_switch_that_fails_is_named_with_its_last_words_and_nothing_is_left(
    run: Run, switch: list[str], patience: float, complaint: str, last_words: str
) -> None:
    seen = _succeeds(
        run,
        f"""
import os
os.environ["FANIN_PATIENCE"] = "{patience}"

class Failing(Tiny):
    def command(self, switch, ports, links):
        return {switch!r} if switch.name == "leaf1" else super().command(switch, ports, links)

topology = leaf_spine(spines=1, leaves=2, hosts_per_leaf=1)
try:
    MininetNetwork(topology, Failing(topology), LOGS).start()
except NetworkError as error:
    print(error)
print(left())
""",
    )
    assert complaint in seen
    assert last_words in seen
    assert seen.splitlines()[-1] == "{'interfaces': [], 'processes': []}"


_SHELL = """
import os, signal, subprocess

def strike(node, number):
    found = subprocess.run(["pgrep", "-f", f"mininet:{node}"], capture_output=True, text=True).stdout
    os.kill(int(found), number)
    os.waitid(os.P_PID, int(found), os.WEXITED | os.WSTOPPED | os.WNOWAIT)

os.environ["FANIN_PATIENCE"] = "0.1"
"""


@pytest.mark.few(2)
@pytest.mark.live
@pytest.mark.parametrize("node", ["h1", "leaf1"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_network_ends_whatever_has_happened_to_a_shell(run: Run, node: str, number: signal.Signals) -> None:
    seen = _succeeds(
        run,
        f"""{_SHELL}
with network:
    strike({node!r}, {int(number)})
print(left())
""",
    )
    assert seen == "{'interfaces': [], 'processes': []}\n"


@pytest.mark.few(2)
@pytest.mark.live
@pytest.mark.parametrize("node", ["h1", "leaf1"])
@pytest.mark.parametrize(
    ("number", "complaint"),
    [
        (signal.SIGKILL, "its shell (bash mininet:{}) has ended with signal SIGKILL; "),
        (signal.SIGSTOP, "its shell is stuck: process "),
    ],
)
def test_a_shell_that_is_lost_while_the_network_is_built_is_named(
    run: Run, node: str, number: signal.Signals, complaint: str
) -> None:
    seen = _succeeds(
        run,
        f"""{_SHELL}
class Striking(MininetNetwork):
    def _configure(self):
        strike({node!r}, {int(number)})
        self._mininet[{node!r}].cmd("true")

try:
    Striking(topology, Tiny(topology), LOGS).start()
except NetworkError as error:
    print(error)
print(left())
""",
    )
    first, last = seen.splitlines()
    assert first.startswith(f"{node}: {complaint.format(node)}")
    assert last == "{'interfaces': [], 'processes': []}"


@pytest.mark.few(2)
@pytest.mark.live
@pytest.mark.parametrize("node", ["h1", "leaf1"])
def test_a_link_to_a_node_whose_shell_was_lost_before_is_not_made(run: Run, node: str) -> None:
    seen = _succeeds(
        run,
        f"""{_SHELL}
from fanin.testbed import mininet_api

def struck(*arguments, add_link=mininet_api.add_link):
    strike({node!r}, signal.SIGKILL)
    add_link(*arguments)

mininet_api.add_link = struck
try:
    network.start()
except NetworkError as error:
    print(error)
print(left())
""",
    )
    first, last = seen.splitlines()
    assert first.startswith(f"{node}: its shell (bash mininet:{node}) has ended with signal SIGKILL; ")
    assert last == "{'interfaces': [], 'processes': []}"


@pytest.mark.few(1)
@pytest.mark.live
def test_the_death_of_a_host_s_shell_is_noticed(run: Run) -> None:
    seen = _succeeds(
        run,
        f"""{_SHELL}
with network:
    network.check()
    strike("h1", signal.SIGKILL)
    print(network.lost_hosts())
    try:
        network.check()
    except NetworkError as error:
        print(error)
""",
    )
    assert seen.startswith("{'h1': 'h1: its shell (bash mininet:h1) has ended with signal SIGKILL; ")
    assert seen.splitlines()[1].startswith("h1: its shell (bash mininet:h1) has ended with signal SIGKILL; ")


@pytest.mark.few(1)
@pytest.mark.live
def test_the_death_of_a_running_switch_is_noticed(run: Run) -> None:
    seen = _succeeds(
        run,
        """
import os, signal, subprocess
with network:
    found = subprocess.run(["pgrep", "-f", "tiny_switch[.]py 9"], capture_output=True, text=True).stdout
    os.kill(int(found), signal.SIGKILL)
    os.waitid(os.P_PID, int(found), os.WEXITED | os.WNOWAIT)
    try:
        network.check()
    except NetworkError as error:
        print(error)
""",
    )
    assert "leaf1 has ended with signal SIGKILL" in seen
    assert "  tiny switch is up" in seen


def test_a_network_is_built_in_a_sandbox_only(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"call fanin\.testbed\.sandbox\.enter\(\) first"):
        MininetNetwork(leaf_spine(), P4Switch(), tmp_path)


def test_a_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(
        sys.modules, "mininet", raising=False
    )  # tools are looked for when it is first imported
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NetworkError, match="mnexec is missing; install it: sudo apt install mininet"):
        mininet_api.new_network()


@pytest.mark.live
def test_mininet_needs_no_distutils_which_python_3_12_has_not_and_leaves_no_other() -> None:
    script = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "Distutils" not in type(finder).__name__]
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("distutils", "setuptools"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without())
from fanin.testbed import mininet_api
print(mininet_api.version(), "distutils" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1:] == ["False"]


@pytest.mark.few(1)
@pytest.mark.live
def test_a_network_with_emulated_links(run: Run) -> None:
    """The switch has the links; it keeps the rate of what it sends, the kernel that of what hosts send."""
    done = run(
        """
from in_sandbox import *
import subprocess, sys
from fanin.topologies.link import LinkProperties
from fanin.testbed.switch_processes import P4Switch
topology = leaf_spine(0, 1, 1, rate=20_000_000, properties=LinkProperties(loss=0.5, seed=3))
with MininetNetwork(topology, P4Switch(), LOGS) as network:
    command = [sys.executable, "-m", "fanin.p4switch.management", "127.0.0.1:9559", "Links"]
    print(subprocess.check_output(command, text=True))
    host = network.host_popen("h1", ["tc", "qdisc"], stdout=subprocess.PIPE, text=True)
    print("host htb", "htb" in host.communicate()[0])
    print("switch htb", "htb" in subprocess.check_output(["tc", "qdisc"], text=True))
"""
    )
    assert done.returncode == 0, done.stderr
    [links, *shaped] = [line for line in done.stdout.splitlines() if line]
    [port] = json.loads(links)["ports"]
    assert port["egress"]["properties"] == {"loss": 0.5, "rate": 20_000_000, "seed": 3}
    assert port["ingress"]["properties"] == {"loss": 0.5, "seed": 3}
    assert shaped == ["host htb True", "switch htb False"]
