"""A network built with Mininet: a namespace for each host, a process for each switch, shaped links."""

import contextlib
import errno
import logging
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fanin.native import libc
from fanin.testbed import mininet_api, patience, running, sandbox, superframes
from fanin.testbed.capture import Capture
from fanin.testbed.preloaded import Process, start
from fanin.testbed.running import RunningHost, RunningSwitch
from fanin.testbed.shaping import shape
from fanin.testbed.switch_processes import SwitchLauncher, SwitchProcess
from fanin.topologies.emulation import EmulatedLink, emulated_links, for_switch
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import LOOPBACK_IN, LOOPBACK_OUT, Host, Link, Topology

_ETH_P_ALL, _SOL_PACKET, _PACKET_IGNORE_OUTGOING = 3, 263, 23  # linux/if_ether.h, socket.h, if_packet.h
_logger = logging.getLogger(__name__)


class MininetNetwork:
    """A live network of `topology`, as a context manager.

    Interfaces have the names of `Endpoint.interface`; those of the switches are in the sandbox's own namespace. Hosts
    send everything to their leaf, whose MAC address they know, so there is no traffic unless a process sends some.

    Args:
        topology: The network.
        launcher: Program that runs as a switch. Its output goes to `logs`/<switch>.log.
        logs: Folder of the switches' output.
        captures: Folder for captures of all switch ports (capture.py), or None.
        awaited: Called with a text on what the start waits for.
        loopback: Seconds after which what a switch sends to its port LOOPBACK_OUT comes back by its port LOOPBACK_IN;
            None: switches have no such ports.

    Attributes:
        patience: Factor by which time limits are stretched on this machine, once the network is up.
        superframes: Whether UDP datagrams cross the running network many in a frame, as far as `topology.offload`, the
            switch and the kernel allow.

    Raises:
        NetworkError: Outside of `sandbox.enter`, where something might be left behind.
    """

    def __init__(
        self,
        topology: Topology,
        launcher: SwitchLauncher,
        logs: Path,
        captures: Path | None = None,
        awaited: Callable[[str], None] = lambda _: None,
        loopback: float | None = None,
    ) -> None:
        if not sandbox.inside():
            raise NetworkError(
                "a network is built in a sandbox only; call fanin.testbed.sandbox.enter() first"
            )
        self.topology = topology
        self.patience = 1.0
        self._awaited = awaited
        self._launcher = launcher
        self._loopback = loopback
        self._logs = logs
        self._capture = None if captures is None else Capture(topology, captures)
        self.superframes = False
        self._mininet: Any = None
        self._switches: list[SwitchProcess] = []
        self._host_processes: list[Process] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        lost = self.lost_hosts() if isinstance(error, Exception) else {}
        self.stop()
        if missing := [why for why in lost.values() if why != str(error)]:  # the cause of any other failure
            raise NetworkError("\n".join([*missing, str(error)])) from error

    def start(self) -> None:
        """Build everything and return when each switch accepts connections on its P4Runtime port.

        Raises:
            NetworkError: A part failed, or a switch is stuck. Nothing of the network is left then.
        """
        begun = time.monotonic()
        for each in self.topology.switches:  # a name that is too long is an error before anything is built
            self.topology.interfaces(each.name)
        self._logs.mkdir(parents=True, exist_ok=True)
        self._mininet = mininet_api.new_network()
        try:
            self.superframes = self.topology.offload and self._launcher.offload and superframes.carried()
            self._add_nodes()
            self._configure()
            if self._capture is not None:
                self._capture.start()
            self._mininet.start()
            for switch in self._switches:
                switch.wait_ready(self._awaited)
            self.patience = patience.proved(time.monotonic() - begun)
            running.announce(
                {
                    s.name: RunningSwitch(
                        s.device_id, s.grpc_port, self._launcher.engine, self.topology.neighbours(s.name)
                    )
                    for s in self.topology.switches
                },
                {
                    host.name: RunningHost(self._mininet[host.name].pid, str(host.ip))
                    for host in self.topology.hosts
                },
            )
        except BaseException as error:
            self._stop_after(error)
            raise

    def _stop_after(self, error: BaseException | None) -> None:
        """Stop the network. If a host's shell is lost, report that as the cause of `error`."""
        lost = self.lost_hosts() if isinstance(error, Exception) else {}
        self.stop()
        if causes := [why for why in lost.values() if why != str(error)]:
            raise NetworkError("\n".join([*causes, str(error)])) from error

    def stop(self) -> None:
        """End all processes and remove all interfaces and namespaces. Idempotent."""
        running.withdraw()
        for process in self._host_processes:
            process.kill()  # it may not have its session yet
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._host_processes.clear()
        for switch in self._switches:
            switch.terminate()
        for switch in self._switches:  # before their interfaces are removed
            switch.stop()
        self._switches.clear()
        if self._capture is not None:
            self._capture.stop()
        if self._mininet is not None:
            # Mininet's stop() would ask each node's shell to do it and wait for the answer.
            try:
                _run([(["ip", "-force", "-batch", "-"], "\n".join(self._deletions()))])
            except NetworkError as error:  # the interfaces disappear with the sandbox
                _logger.warning("the network's interfaces are not removed yet: %s", error)
            for node in (*self._mininet.hosts, *self._mininet.switches):
                node.terminate()
            self._mininet = None

    def check(self) -> None:
        """Check that all switches are alive, and the shells of all hosts.

        Raises:
            NetworkError: One has died. For a switch, the message includes the end of its log.
        """
        # Hosts first: the end of a host takes its link down, and with it perhaps its switch.
        for host in self._mininet.hosts:
            mininet_api.check_shell(host)
        for switch in self._switches:
            switch.check()

    def lost_hosts(self) -> dict[str, str]:
        """Return the hosts on which nothing new can be started, and why."""
        lost = {}
        for host in self._mininet.hosts if self._mininet is not None else ():
            try:
                mininet_api.check_shell(host)
            except NetworkError as error:
                lost[host.name] = str(error)
        return lost

    def start_again(self) -> list[str]:
        """Restart switches that have ended, without a program, and return how each of them had ended.

        Raises:
            NetworkError: A switch has ended too often.
        """
        return [how for switch in self._switches if (how := switch.start_again())]

    def links_down(self) -> tuple[Link, ...]:
        """Return the links that are down because one of their ends was taken down or is gone.

        Raises:
            OSError: The state cannot be determined.
        """
        return tuple(link for link in self.topology.links if not _has_carrier(link.b.interface))

    def switch_seconds(self) -> float:
        """Return the processor time of all switches so far, in seconds."""
        return sum(switch.processor_seconds() for switch in self._switches)

    def host_popen(self, host: str, argv: Sequence[str], **options: Any) -> Process:
        """Start `argv` in the namespaces of `host`, in its own session; `options` are those of preloaded.start."""
        self.topology.host(host)
        process = start(argv, self._mininet[host].pid, **options)
        self._host_processes.append(process)
        return process

    def host_socket(self, host: str) -> socket.socket:
        """Return a raw socket on the interface of `host`: it sends and receives whole Ethernet frames."""
        (link,) = self.topology.links_of(host)
        there = Path("/proc", str(self._mininet[host].pid), "ns/net")
        with Path("/proc/thread-self/ns/net").open() as ours, there.open() as theirs:
            libc.call("setns", theirs.fileno(), libc.NEW_NETWORK, of=str(there))
            try:
                made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
            finally:
                libc.call("setns", ours.fileno(), libc.NEW_NETWORK)
        made.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        made.bind((link.end(host).interface, _ETH_P_ALL))
        return made

    def _add_nodes(self) -> None:
        topology = self.topology
        for host in topology.hosts:
            self._mininet.addHost(host.name, ip=None)
        for switch in topology.switches:
            interfaces, links = topology.interfaces(switch.name), emulated_links(topology, switch.name)
            if self._loopback is not None:
                out, back = _loopback_interfaces(switch.name)
                interfaces = {**interfaces, LOOPBACK_OUT: out, LOOPBACK_IN: back}
                links.append(EmulatedLink(LOOPBACK_OUT, switch.name, "egress", {"delay": self._loopback}))
            command = self._launcher.command(switch, interfaces, links)
            process = SwitchProcess(switch, command, self._logs / f"{switch.name}.log")
            self._switches.append(process)
            mininet_api.add_switch(self._mininet, process)
        macs = {host.name: host.mac for host in topology.hosts}
        macs |= {switch.name: switch.mac for switch in topology.switches}
        for link in topology.links:
            mininet_api.add_link(self._mininet, link, macs)

    def _configure(self) -> None:
        topology = self.topology
        of_switches = [(link, s.name) for s in topology.switches for link in topology.links_of(s.name)]
        scripts = [(["sh", "-e"], "\n".join([*self._set_up(of_switches), *self._loopback_script()]))]
        for host in topology.hosts:
            into = ["mnexec", "-a", str(self._mininet[host.name].pid), "sh", "-e"]
            scripts.append((into, "\n".join(self._host_script(host))))
        try:
            _run(scripts)
        except NetworkError as error:
            raise NetworkError(f"the network's interfaces cannot be set up: {error}") from None

    def _deletions(self) -> Iterable[str]:
        """Yield the lines of `ip -batch` that remove all links, each by its end in the namespace of the switches."""
        of_links = [link.b.interface for link in self.topology.links]
        for interface in (*of_links, *(_loopback_interfaces(one.name)[0] for one in self.topology.switches)):
            if Path("/sys/class/net", interface).exists():
                yield f"link delete {interface}"

    def _loopback_script(self) -> Iterable[str]:
        """Yield the shell lines that make the loopback ports of all switches."""
        for switch in self.topology.switches if self._loopback is not None else ():
            out, back = _loopback_interfaces(switch.name)
            yield f"ip link add {out} type veth peer name {back}"
            yield from (f"ip link set {interface} multicast off up" for interface in (out, back))

    def _host_script(self, host: Host) -> Iterable[str]:
        (link,) = self.topology.links_of(host.name)
        device = link.end(host.name).interface
        gateway_mac = self.topology.switch(host.leaf).mac
        yield "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do [ ! -e $f ] || echo 1 > $f; done"
        # There is only one path, so any redirect is forged.
        yield "for f in /proc/sys/net/ipv4/conf/*/accept_redirects; do echo 0 > $f; done"
        yield from self._set_up([(link, host.name)])
        yield "ip -batch - << end"
        yield "link set lo up"
        # No route to its own rack: neighbours are also reached through the leaf, without ARP between them.
        yield f"address add {host.ip}/{host.prefix_length} dev {device} noprefixroute"
        yield f"route add {host.gateway} dev {device}"
        yield f"route add default via {host.gateway}"
        # A lost ARP request would cost a second in the middle of a measurement.
        yield f"neighbour add {host.gateway} lladdr {gateway_mac} dev {device} nud permanent"
        yield "end"

    def _set_up(self, ends: Sequence[tuple[Link, str]]) -> Iterable[str]:
        """Yield the shell lines that set up these ends of links, each given with its node."""
        yield "ip -batch - << end"
        for link, node in ends:
            yield f"link set {link.end(node).interface} multicast off up"
        yield "end"
        refused = None
        if not self._launcher.offload:
            refused = "tx"
        elif not self.superframes:
            refused = "tx-udp-segmentation"
        if refused:
            yield from (
                f"ethtool -K {link.end(node).interface} {refused} off > /dev/null" for link, node in ends
            )
        yield "tc -batch - << end"
        for link, node in ends:
            # A switch that emulates the link that it sends on also limits the rate.
            if link.rate_bits_per_second is not None and (
                link.end(node).port == 0 or not for_switch(link.properties)
            ):
                yield from shape(link.end(node).interface, link.rate_bits_per_second)
        yield "end"


def _run(scripts: Sequence[tuple[Sequence[str], str]]) -> None:
    """Run commands at the same time, each with its standard input.

    Raises:
        NetworkError: One has failed, or is stuck. All of them have ended.
    """
    with contextlib.ExitStack() as stack:
        running = []
        for argv, script in scripts:
            given = stack.enter_context(tempfile.TemporaryFile("w+"))
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            given.write(script)
            given.seek(0)
            process = subprocess.Popen(argv, stdin=given, stderr=errors)
            stack.callback(process.wait)
            stack.callback(process.kill)
            running.append((process, errors))
        for process, errors in running:
            patience.await_process(process.pid)
            if process.wait() != 0:
                errors.seek(0)
                raise NetworkError(errors.read().strip() or f"{process.args!r} failed: {process.returncode}")


def _loopback_interfaces(switch: str) -> tuple[str, str]:
    """Return the two ends of a switch's loopback port: where packets leave, and where they come back."""
    return f"{switch}-out", f"{switch}-in"


def _has_carrier(interface: str) -> bool:
    """Return whether both ends of a link are up; False if this end is down, where the kernel does not tell.

    Raises:
        OSError: The state cannot be determined.
    """
    try:
        return Path("/sys/class/net", interface, "carrier").read_text() == "1\n"
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.EINVAL):
            return False
        raise
