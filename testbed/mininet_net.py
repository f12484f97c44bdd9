"""A network built with Mininet: a namespace for each host, a process for each switch, shaped links."""

import contextlib
import errno
import logging
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fanin.testbed import mininet_api, patience, running, sandbox, superframes
from fanin.testbed.capture import Capture
from fanin.testbed.preloaded import Process, start
from fanin.testbed.running import RunningHost, RunningSwitch
from fanin.testbed.shaping import shape
from fanin.testbed.switch_processes import SwitchLauncher, SwitchProcess
from fanin.topologies.emulation import emulated_links, for_switch
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Host, Link, Topology

_logger = logging.getLogger(__name__)


class MininetNetwork:
    """`topology` for real; `launcher` says what runs as a switch, whose output goes to `logs`/<switch>.log.
    What crosses each of their ports goes to `captures`, where given, as capture.py has it. `superframes`, of a network
    that is up: whether UDP datagrams cross it many in a frame, as `topology.offload` allows and switch and kernel can.
    Who keeps the network from being up is told to `awaited`.

    A context manager. Interfaces are called as `Endpoint.interface` says; those of the switches are in the
    sandbox's own namespace. Hosts send everything by way of their leaf, whose MAC address they know: on a
    network where no process sends, nothing is sent.

    Raises:
        NetworkError: outside of `sandbox.enter`, where something might be left behind.
    """

    def __init__(
        self,
        topology: Topology,
        launcher: SwitchLauncher,
        logs: Path,
        captures: Path | None = None,
        awaited: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not sandbox.inside():
            raise NetworkError(
                "a network is built in a sandbox only; call fanin.testbed.sandbox.enter() first"
            )
        self.topology = topology
        self.patience = 1.0  # the factor by which time limits are stretched on this machine, once it is up
        self._awaited = awaited
        self._launcher = launcher
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
        if missing := [
            why for why in lost.values() if why != str(error)
        ]:  # whatever else fails, fails for it
            raise NetworkError("\n".join([*missing, str(error)])) from error

    def start(self) -> None:
        """Builds everything and returns when each switch's P4Runtime port takes connections.

        Raises:
            NetworkError: a part that failed, or a switch that is stuck. Nothing of the network is left then.
        """
        begun = time.monotonic()
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
        """Stop; whatever has failed, has failed for a host's shell that is lost, if there is one."""
        lost = self.lost_hosts() if isinstance(error, Exception) else {}
        self.stop()
        if causes := [why for why in lost.values() if why != str(error)]:
            raise NetworkError("\n".join([*causes, str(error)])) from error

    def stop(self) -> None:
        """Ends all processes and removes all interfaces and namespaces; idempotent."""
        running.withdraw()
        for process in self._host_processes:
            process.kill()  # it may not have its session yet
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._host_processes.clear()
        for switch in self._switches:
            switch.terminate()
        for switch in self._switches:  # before their interfaces go
            switch.stop()
        self._switches.clear()
        if self._capture is not None:
            self._capture.stop()
        if self._mininet is not None:
            # Not by Mininet's stop(), which asks each node's shell to do it, and waits for its answer.
            try:
                _run([(["ip", "-force", "-batch", "-"], "\n".join(self._deletions()))])
            except NetworkError as error:  # the sandbox takes the interfaces with it when it ends
                _logger.warning("the network's interfaces are not removed yet: %s", error)
            for node in (*self._mininet.hosts, *self._mininet.switches):
                node.terminate()
            self._mininet = None

    def check(self) -> None:
        """Check that all switches are alive, and the shells of all hosts.

        Raises:
            NetworkError: One has died; of a switch, with the end of its log.
        """
        # Hosts first: with one its link goes, and with that perhaps its switch.
        for host in self._mininet.hosts:
            mininet_api.check_shell(host)
        for switch in self._switches:
            switch.check()

    def lost_hosts(self) -> dict[str, str]:
        """Return the hosts on which nothing can be started any more, and why."""
        lost = {}
        for host in self._mininet.hosts if self._mininet is not None else ():
            try:
                mininet_api.check_shell(host)
            except NetworkError as error:
                lost[host.name] = str(error)
        return lost

    def start_again(self) -> list[str]:
        """Starts switches that have ended again, without a program; how each of them had ended.

        Raises:
            NetworkError: one has ended too often.
        """
        return [how for switch in self._switches if (how := switch.start_again())]

    def links_down(self) -> tuple[Link, ...]:
        """The links that one of their ends has been taken down of, or lost.

        Raises:
            OSError: It cannot be found out.
        """
        return tuple(link for link in self.topology.links if not _has_carrier(link.b.interface))

    def switch_seconds(self) -> float:
        """Processor time of all switches so far."""
        return sum(switch.processor_seconds() for switch in self._switches)

    def host_popen(self, host: str, argv: Sequence[str], **options: Any) -> Process:
        """Starts `argv` in the namespaces of `host`, in its own session; `options` are those of preloaded.start."""
        self.topology.host(host)
        process = start(argv, self._mininet[host].pid, **options)
        self._host_processes.append(process)
        return process

    def _add_nodes(self) -> None:
        topology = self.topology
        for host in topology.hosts:
            self._mininet.addHost(host.name, ip=None)
        for switch in topology.switches:
            interfaces, links = topology.interfaces(switch.name), emulated_links(topology, switch.name)
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
        scripts = [(["sh", "-e"], "\n".join(self._set_up(of_switches)))]
        for host in topology.hosts:
            into = ["mnexec", "-a", str(self._mininet[host.name].pid), "sh", "-e"]
            scripts.append((into, "\n".join(self._host_script(host))))
        try:
            _run(scripts)
        except NetworkError as error:
            raise NetworkError(f"the network's interfaces cannot be set up: {error}") from None

    def _deletions(self) -> Iterable[str]:
        """The lines of `ip -batch` that remove all links, each by its end in the namespace of the switches."""
        for link in self.topology.links:
            if Path("/sys/class/net", link.b.interface).exists():
                yield f"link delete {link.b.interface}"

    def _host_script(self, host: Host) -> Iterable[str]:
        (link,) = self.topology.links_of(host.name)
        device = link.end(host.name).interface
        gateway_mac = self.topology.switch(host.leaf).mac
        yield "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do [ ! -e $f ] || echo 1 > $f; done"
        # There is one way: a redirect is forged.
        yield "for f in /proc/sys/net/ipv4/conf/*/accept_redirects; do echo 0 > $f; done"
        yield from self._set_up([(link, host.name)])
        yield "ip -batch - << end"
        yield "link set lo up"
        # No route to its own rack: neighbours are reached by way of the leaf as well, without ARP among them.
        yield f"address add {host.ip}/{host.prefix_length} dev {device} noprefixroute"
        yield f"route add {host.gateway} dev {device}"
        yield f"route add default via {host.gateway}"
        # A lost ARP request would cost a second in the middle of a measurement.
        yield f"neighbour add {host.gateway} lladdr {gateway_mac} dev {device} nud permanent"
        yield "end"

    def _set_up(self, ends: Sequence[tuple[Link, str]]) -> Iterable[str]:
        """The lines of a shell that set up these ends of links, each by the node that it is at."""
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
            # Where a switch emulates the link that it sends on, it keeps the rate as well.
            if link.rate_bits_per_second is not None and (
                link.end(node).port == 0 or not for_switch(link.properties)
            ):
                yield from shape(link.end(node).interface, link.rate_bits_per_second)
        yield "end"


def _run(scripts: Sequence[tuple[Sequence[str], str]]) -> None:
    """Run commands at the same time, each with its standard input.

    Raises:
        NetworkError: One has failed, or is stuck; none of them is left.
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


def _has_carrier(interface: str) -> bool:
    """Whether both ends of the link are up; of one that is down itself, the kernel does not say.

    Raises:
        OSError: It cannot be found out.
    """
    try:
        return Path("/sys/class/net", interface, "carrier").read_text() == "1\n"
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.EINVAL):
            return False
        raise
