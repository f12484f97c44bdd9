"""Switches that were not started by fanin: by hand, by scripts of courses, or by p4-utils. They are found in /proc."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from fanin.testbed.runs import VARIABLE, command_line

_COMMANDS = ("simple_switch", "simple_switch_grpc")
_MODULE = "fanin.p4switch"
_THRIFT_PORT = 9090  # that simple_switch serves unless another one is given


@dataclass(frozen=True, slots=True)
class OwnSwitch:
    """A switch that was not started by fanin.

    Attributes:
        process: Its process id.
        command: Its command line.
        engine: Program that runs as a switch, as in the option --switch: embedded, or bmv2.
        device_id: P4Runtime device id.
        address: Host and port where it serves P4Runtime, in its network namespace; None for simple_switch.
        thrift_port: Port where it serves BMv2's runtime interface; None if the command line names none.
        ports: Interface of each port.
    """

    process: int
    command: tuple[str, ...]
    engine: str
    device_id: int
    address: str | None
    thrift_port: int | None
    ports: Mapping[int, str]


def own_switches() -> list[OwnSwitch]:
    """Return the switches on this machine that do not belong to a run of fanin, whoever has started them."""
    return list(_switches())


def _switches() -> Iterator[OwnSwitch]:
    from fanin.p4switch.options import UsageError  # not above: help of commands needs none of it

    for process in sorted(int(path.name) for path in Path("/proc").glob("[0-9]*")):
        words = command_line(process)
        name, arguments = _split(words)
        if name is None or _is_of_run(process, name):
            continue
        # What only BMv2 knows is refused; without options that can be read, nobody can ask the switch anything.
        with suppress(UsageError, SystemExit):
            yield _switch(process, words, name, arguments)


def _is_of_run(process: int, name: str) -> bool:
    """Return whether fanin has started a switch. Of other users' switches, those of fanin have the module's name."""
    try:
        return f"{VARIABLE}=".encode() in Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return name == _MODULE


def _split(words: tuple[str, ...]) -> tuple[str | None, list[str]]:
    """Return the command and the arguments of a switch; None if it is another program."""
    name = PurePath(words[0]).name.removeprefix("lt-") if words else ""  # lt-: where BMv2 was built
    if name in _COMMANDS:
        return name, list(words[1:])
    if _MODULE in words and words[words.index(_MODULE) - 1] == "-m":
        return _MODULE, list(words[words.index(_MODULE) + 1 :])
    return None, []


def _switch(process: int, words: tuple[str, ...], name: str, arguments: list[str]) -> OwnSwitch:
    from fanin.p4switch.options import parse  # not above: help of commands needs none of it

    if name == "simple_switch":
        end = arguments.index("--") if "--" in arguments else len(arguments)
        arguments = [*arguments[:end], "--no-grpc"]  # its target options are others
    options = parse(arguments)
    address = options.grpc_address
    if address is not None:
        host, _, port = address.rpartition(":")
        address = f"127.0.0.1:{port}" if host in ("0.0.0.0", "[::]") else address
    return OwnSwitch(
        process,
        words,
        _engine(process),
        options.device_id,
        address,
        options.thrift_port or (_THRIFT_PORT if name == "simple_switch" else None),
        options.ports,
    )


def _engine(process: int) -> str:
    try:
        program = Path(f"/proc/{process}/exe").readlink().name
    except OSError:  # another user's: if it is BMv2, it refuses what only ours can do
        return "embedded"
    return "embedded" if program.startswith("python") else "bmv2"
