"""What a machine needs to run fanin, found out by trying it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from experiments.tools import BMV2, P4C, Tool, ToolError
from fanin import shell_environment
from p4switch.toolchain import ToolchainError, compile_folder
from topologies import mininet_api, runs, sandbox
from topologies.errors import NetworkError

State = Literal["ok", "optional", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. Of what is not there: what that costs, and how to mend it."""

    name: str
    state: State
    detail: str
    costs: str = ""
    mend: str = ""


def examine() -> Iterator[Finding]:
    """Everything, one after the other; nothing is left behind."""
    yield _machine()
    yield _python()
    yield _namespaces()
    yield from _kernel()
    yield _socket_offload()
    yield _mininet()
    yield from _commands()
    yield _c_compiler()
    yield _tool(BMV2, "the switch is the embedded one only; fanin demo --switch bmv2 and fanin diff need it")
    yield _tool(P4C, "programs are compiled by the embedded compiler only; --compiler p4c needs it")
    yield _shell()
    yield _tshark()
    yield _leftovers()


def _machine() -> Finding:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    detail = f"{cores} cores, {memory:.1f} GiB, Linux {platform.release()}, {platform.machine()}"
    if cores >= 2 and memory >= 1.8:
        return Finding("machine", "ok", detail)
    return Finding(
        "machine",
        "optional",
        detail,
        costs="the demo takes longer, and its times say more of the processor than of the links",
        mend="2 cores and 2 GiB are enough",
    )


def _python() -> Finding:
    return Finding("Python", "ok", f"{platform.python_version()} in {sys.prefix}")


def _namespaces() -> Finding:
    who = "root" if os.geteuid() == 0 else "an ordinary user, in user namespaces"
    try:
        sandbox.check()
    except sandbox.SandboxError as error:
        return Finding("namespaces", "missing", who, "no network can be built", str(error))
    return Finding("namespaces", "ok", who)


@dataclass(frozen=True, slots=True)
class _Probe:
    """Commands that must work on the interface veth0 of a veth pair, in fresh namespaces."""

    name: str
    script: str
    costs: str
    mend: str
    needed: bool = True


_MODULE = "sudo modprobe {}; some slim kernels leave the module to another package (linux-modules-extra-…)"
_PROBES = (
    _Probe("veth", "ip link show dev veth0", "no network can be built", _MODULE.format("veth")),
    _Probe(
        "htb and bfifo",
        "tc qdisc add dev veth0 root handle 1: htb default 1 "
        "&& tc class add dev veth0 parent 1: classid 1:1 htb rate 1mbit "
        "&& tc qdisc add dev veth0 parent 1:1 bfifo limit 100000",
        "links have no rate: fanin demo cannot limit them",
        _MODULE.format("sch_htb"),
    ),
    _Probe(
        "clsact and BPF filters",
        "tc qdisc add dev veth0 clsact "
        "&& tc filter add dev veth0 ingress protocol all prio 1 bpf da bytecode '1,6 0 0 2'",
        "switches do not start: the host's own stack would process each of their packets again",
        _MODULE.format("cls_bpf"),
    ),
    _Probe(
        "segmentation offload",
        "ethtool -k veth0 | grep -q 'tx-udp-segmentation: on'",
        "datagrams cross the network one by one: large all-reduces take several times as long",
        "a kernel from 5.3 on lets veth carry superframes; ethtool -K INTERFACE tx-udp-segmentation on",
        needed=False,
    ),
)


def _kernel() -> Iterator[Finding]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    for probe in _PROBES:
        script = f"ip link add name veth0 type veth peer name veth1 && {probe.script}"
        done = subprocess.run(
            ["unshare", *user, "--net", "--", "sh", "-c", script],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            yield Finding(probe.name, "ok", "works")
        else:
            state: State = "missing" if probe.needed else "optional"
            said = done.stderr.strip().splitlines()[-1:] or ["not there"]
            yield Finding(probe.name, state, said[0], probe.costs, probe.mend)


def _socket_offload() -> Finding:
    udp_segment = 103  # linux/udp.h
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        try:
            udp.setsockopt(socket.IPPROTO_UDP, udp_segment, 0)
        except OSError as error:
            return Finding(
                "UDP_SEGMENT",
                "optional",
                str(error),
                "workers send each datagram with a system call of its own",
                "a kernel from 4.18 on has it",
            )
    return Finding("UDP_SEGMENT", "ok", "works")


def _mininet() -> Finding:
    try:
        version = mininet_api.version()
    except NetworkError as error:
        return Finding(
            "Mininet", "missing", str(error), "no network can be built", "sudo ./system-packages.sh"
        )
    return Finding("Mininet", "ok", version)


def _commands() -> Iterator[Finding]:
    for command, package in (("ethtool", "ethtool"), ("setpriv", "util-linux")):
        place = shutil.which(command)
        if place:
            yield Finding(command, "ok", place)
        else:
            mend = f"sudo apt-get install {package}"
            yield Finding(command, "missing", "not on PATH", "no network can be built", mend)


def _c_compiler() -> Finding:
    try:
        compile_folder()
    except ToolchainError as error:
        return Finding("C compiler", "missing", "", "the embedded switch does not start", str(error))
    return Finding("C compiler", "ok", _first_line([os.environ.get("CC", "cc"), "--version"]))


def _tool(tool: Tool, costs: str) -> Finding:
    try:
        command = tool.find()
    except ToolError as error:
        return Finding(tool.name, "optional", "not here", costs, str(error))
    return Finding(tool.name, "ok", f"{_first_line([command[0], '--version'])} ({command[0]})")


def _first_line(command: list[str]) -> str:
    """Of what a command says, the first line with a version."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return next((line for line in lines if re.search(r"\d\.\d", line)), "version unknown")


def _shell() -> Finding:
    if shell_environment.PYTHON.exists():
        return Finding("p4runtime-shell", "ok", str(shell_environment.FOLDER))
    return Finding(
        "p4runtime-shell",
        "optional",
        "not set up yet",
        "nothing: fanin shell sets it up when it is first used, which needs the package index",
    )


def _tshark() -> Finding:
    if place := shutil.which("tshark"):
        return Finding("tshark", "ok", place)
    mend = "sudo apt-get install tshark, or open captures in Wireshark elsewhere"
    return Finding("tshark", "optional", "not here", "the dissector's tests are skipped", mend)


def _leftovers() -> Finding:
    dead = [str(run.folder) for run in runs.all_runs() if not run.alive]
    if not dead:
        return Finding("leftovers", "ok", "none")
    return Finding("leftovers", "optional", ", ".join(dead), "room on the disk", "fanin clean")
