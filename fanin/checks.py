"""Checks of what fanin needs from a machine, made by trying it."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fanin import shell_environment
from fanin.experiments.scenario.tools import BMV2, P4C, Tool, ToolError
from fanin.native.cache import CacheError
from fanin.native.toolchain import ToolchainError, compile_folder
from fanin.p4switch.codegen.names import RUNTIME
from fanin.testbed import mininet_api, runs, sandbox, superframes, time_slices
from fanin.topologies.errors import NetworkError
from fanin.topologies.units import BYTES, quantity_text

State = Literal["ok", "optional", "missing"]
C_COMPILER = "C compiler"  # the name of its finding


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: The thing that was checked.
        state: Whether it works, is missing and optional, or is missing and needed: all of fanin needs a C compiler,
            and live networks need the rest.
        detail: Its version, place or size, or why it does not work.
        costs: The consequences if it is missing.
        fix: How to fix it.
    """

    name: str
    state: State
    detail: str
    costs: str = ""
    fix: str = ""


def examine() -> Iterator[Finding]:
    """Yield the finding of each check. The checks leave nothing behind."""
    yield _machine()
    yield _python()
    yield (namespaces := _namespaces())
    if namespaces.state == "ok":  # the checks below need them
        yield from _kernel()
        yield _packet_sockets()
        yield _superframes()
    yield _time_slices()
    yield _mininet()
    yield from _commands()
    yield _c_compiler()
    yield _tool(
        BMV2, "--switch bmv2 does not work, and fanin diff compares compilers on the embedded switch only"
    )
    yield _tool(P4C, "--compiler p4c does not work, and fanin diff compares switches with our compiler only")
    yield _shell()
    yield _tshark()
    yield _leftovers()


def _machine() -> Finding:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    detail = (
        f"{cores} cores, {quantity_text(memory, BYTES)}, Linux {platform.release()}, {platform.machine()}"
    )
    if cores >= 2 and memory >= _ENOUGH_MEMORY:
        return Finding("machine", "ok", detail)
    return Finding(
        "machine",
        "optional",
        detail,
        costs="the demo takes longer, and the processor limits its times more than the links do",
        fix="2 cores and 2 GB are enough",
    )


def _python() -> Finding:
    return Finding("Python", "ok", f"{platform.python_version()} in {sys.prefix}")


def _namespaces() -> Finding:
    who = "root" if os.geteuid() == 0 else "ordinary user, in user namespaces"
    try:
        sandbox.check()
    except sandbox.SandboxError as error:
        costs = "no live network can be built; fanin lab grade does not mark; fanin play needs --no-sandbox"
        return Finding("namespaces", "missing", who, costs, str(error))
    return Finding("namespaces", "ok", who)


@dataclass(frozen=True, slots=True)
class _Probe:
    """Commands that must work on the interface veth0 of a veth pair, in new namespaces."""

    name: str
    script: str
    costs: str
    fix: str


_VETH = "ip link add name veth0 type veth peer name veth1"
_MODULE = "sudo modprobe {}; some slim kernels leave the module to another package (linux-modules-extra-…)"
_PROBES = (
    _Probe("veth", "ip link show dev veth0", "no network can be built", _MODULE.format("veth")),
    _Probe(
        "htb and bfifo",
        "tc qdisc add dev veth0 root handle 1: htb default 1 "
        "&& tc class add dev veth0 parent 1: classid 1:1 htb rate 1mbit "
        "&& tc qdisc add dev veth0 parent 1:1 bfifo limit 100000",
        "links cannot be limited to a rate, so that fanin demo does not run",
        _MODULE.format("sch_htb"),
    ),
    _Probe(
        "clsact and BPF filters",
        "tc qdisc add dev veth0 clsact "
        "&& tc filter add dev veth0 ingress protocol all prio 1 bpf da bytecode '1,6 0 0 2'",
        "switches do not start: the host's own stack would process each of their packets again",
        _MODULE.format("cls_bpf"),
    ),
)
# Prints the size of a switch's receive buffer in bytes.
_PORT = """
import os, socket, sys
from fanin.p4switch.engine.library import runtime
opened = runtime().port_open(b"veth0")
if opened < 0:
    sys.exit(os.strerror(-opened))
print(socket.socket(fileno=opened).getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
"""
_START_SECONDS = 30.0  # to wait for a program to print its version
_ENOUGH_BUFFER = 8 << 20
_ENOUGH_MEMORY = 1.9e9  # 2 GiB without what the kernel reserves


def _kernel() -> Iterator[Finding]:
    for probe in _PROBES:
        done = _inside("sh", "-c", f"{_VETH} && {probe.script}")
        if done.returncode == 0:
            yield Finding(probe.name, "ok", "works")
        else:
            yield Finding(probe.name, "missing", _last_line(done.stderr), probe.costs, probe.fix)


def _inside(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in new namespaces."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return subprocess.run(
        ["unshare", *user, "--net", "--", *command], capture_output=True, text=True, check=False
    )


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def _packet_sockets() -> Finding:
    """Open a packet socket as the switch does, if the switch can be compiled on this machine."""
    try:
        compile_folder(RUNTIME)
    except (ToolchainError, OSError):
        return Finding("packet sockets", "optional", "not checked: the switch cannot be compiled here")
    done = _inside("sh", "-c", f'{_VETH} && exec "$0" -c "$1"', sys.executable, _PORT)
    if done.returncode != 0:
        return Finding(
            "packet sockets",
            "missing",
            _last_line(done.stderr),
            "switches do not start",
            "Linux 4.20 or later, for PACKET_IGNORE_OUTGOING",
        )
    size = int(done.stdout)
    if size >= _ENOUGH_BUFFER:
        return Finding("packet sockets", "ok", f"buffers of {quantity_text(size, BYTES)}")
    return Finding(
        "packet sockets",
        "optional",
        f"buffers of only {quantity_text(size, BYTES)}: net.core.rmem_max limits users other than root",
        "on a busy machine, full buffers drop frames, which are then retransmitted",
        f"sudo sysctl -w net.core.rmem_max={_ENOUGH_BUFFER * 4}, or run it as root",
    )


def _superframes() -> Finding:
    done = _inside(sys.executable, "-P", "-m", "fanin.testbed.superframes")
    refusal = done.stdout.strip() if done.returncode == 0 else _last_line(done.stderr)
    if not refusal:
        return Finding("superframes", "ok", "work between hosts and switches, in both directions")
    return Finding(
        "superframes",
        "optional",
        refusal,
        superframes.COSTS,
        "Linux 6.2 or later",
    )


def _time_slices() -> Finding:
    if time_slices.shorten():
        return Finding("time slices", "ok", "short for processes on a network")
    return Finding(
        "time slices",
        "optional",
        "as long as those of other processes",
        "small all-reduces take longer while other processes use the cores",
        "Linux 6.12 or later",
    )


def _mininet() -> Finding:
    try:
        version = mininet_api.version()
    except NetworkError as error:
        return Finding(
            "Mininet", "missing", str(error), "no network can be built", "sudo ./system-packages.sh"
        )
    return Finding("Mininet", "ok", version)


def _commands() -> Iterator[Finding]:
    for command, package, costs in (
        ("ethtool", "ethtool", "no network can be built"),
        ("setpriv", "util-linux", "fanin launch cannot start a network itself"),
    ):
        place = shutil.which(command)
        if place:
            yield Finding(command, "ok", place)
        else:
            yield Finding(command, "missing", "not on PATH", costs, f"sudo apt-get install {package}")


def _c_compiler() -> Finding:
    try:
        compile_folder(RUNTIME)
    except ToolchainError as error:
        return Finding(C_COMPILER, "missing", "", "the embedded switch does not start", str(error))
    return Finding(C_COMPILER, "ok", _version([os.environ.get("CC", "cc")]) or "version unknown")


def _tool(tool: Tool, costs: str) -> Finding:
    try:
        command = tool.find()
    except ToolError as error:
        return Finding(tool.name, "optional", "not installed", costs, str(error))
    version = _version(command)
    if version is None:
        fix = f"check why {shlex.join(command)} --version fails, or set {tool.variable} to another command"
        return Finding(tool.name, "optional", f"{command[0]} does not start", costs, fix)
    return Finding(tool.name, "ok", f"{version} ({command[0]})")


def _version(command: Sequence[str]) -> str | None:
    """Return the first line with a version that a command prints, or None if it does not start."""
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=False, timeout=_START_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    lines = (done.stdout + done.stderr).strip().splitlines()
    return next((line for line in lines if re.search(r"\d\.\d", line)), "version unknown")


def _shell() -> Finding:
    try:
        if shell_environment.ready():
            return Finding("p4runtime-shell", "ok", str(shell_environment.folder()))
    except CacheError as error:
        return Finding(
            "p4runtime-shell", "optional", "cannot be stored", "fanin shell does not work", str(error)
        )
    return Finding(
        "p4runtime-shell",
        "optional",
        "not set up yet",
        "nothing: the first fanin shell sets it up, which needs the package index",
    )


def _tshark() -> Finding:
    if (place := shutil.which("tshark")) and (version := _version([place])):
        return Finding("tshark", "ok", f"{version} ({place})")
    fix = "sudo apt-get install tshark, or open captures in Wireshark on another machine"
    detail = f"{place} does not start" if place else "not installed"
    return Finding("tshark", "optional", detail, "the dissector's tests are skipped", fix)


def _leftovers() -> Finding:
    dead = [str(run.folder) for run in runs.all_runs() if not run.alive]
    if not dead:
        return Finding("leftovers", "ok", "none")
    return Finding("leftovers", "optional", ", ".join(dead), "disk space", "fanin clean")
