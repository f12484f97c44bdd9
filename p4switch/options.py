"""The command line of simple_switch_grpc, so that scripts made for BMv2 can use this switch instead.

Options for features that this switch lacks are rejected by name, unless their absence makes no difference.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NoReturn

from fanin.p4switch.engine.links import Direction, LinkError, LinkProperties, changed, link_option
from fanin.p4switch.tls import TlsFiles

MODULE = "python -m fanin.p4switch"  # the command that starts the switch without simple_switch's name
_GRPC_ADDRESS = (
    # simple_switch_grpc listens on all addresses, but whoever can connect may set the program
    "127.0.0.1:9559"
)
_JSON_VERSION = "2.23"
_MAX_PORT = 511  # v1model's ports are bit<9>
_MAX_PRIORITIES = 8  # v1model's priority is bit<3>
_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
# The levels of BMv2's lines about packets, by their first letters. At "info", only --dump-packet-data logs something.
_PACKET_LEVELS = {"trace": "TDIE", "debug": "DIE"}
_REFUSED = {
    "--use-files": "attach interfaces with -i",
    "--packet-in": "attach interfaces with -i",
    "--debugger": "there is no debugger",
    "--debugger-addr": "there is no debugger",
    "--restore-state": "write the entries again over P4Runtime",
}
_REFUSED_TARGET = {
    "--dp-grpc-server-addr": "attach interfaces with -i",
    "--load-modules": "externs are written in Python (CONTRIBUTING.md)",
    "--disable-swap": "a controller can always replace the program",
}
# Options that BMv2 obeys and this switch does not, with the reason. A warning names it.
_WITHOUT_EFFECT = {
    "--nanolog": "read the log instead (--log-console, --log-file)",
    "--max-port-count": f"ports go up to {_MAX_PORT}",
    **dict.fromkeys(("--log-file-max-size", "--log-file-max-files"), "the log is one file of any size"),
}
_TARGET_WITHOUT_EFFECT = dict.fromkeys(
    ("--max-mc-groups", "--max-l1-entries", "--max-l2-entries"), "multicast has no such limits"
)


class UsageError(Exception):
    """Invalid command line. The message explains what to change."""


class StartError(Exception):
    """Condition that prevents the switch from starting. The message names it."""


@dataclass(frozen=True, slots=True)
class Options:
    """Parsed command line.

    `program` is a BMv2 JSON, or None with --no-p4; `ports` maps port numbers to interfaces; `pcap` is a folder or None.
    `grpc_address` is None with --no-grpc. `empty_config` is False with --no-empty-config.
    `packet_levels` has the first letters of the levels at which packets are logged. `warnings` name options without
    effect.
    """

    program: Path | None
    ports: dict[int, str]
    links: dict[tuple[int, Direction], LinkProperties]
    device_id: int
    grpc_address: str | None
    empty_config: bool
    tls: TlsFiles | None
    cpu_port: int | None
    drop_port: int
    priority_queues: int
    log_level: int
    log_console: bool
    log_file: Path | None
    pcap: Path | None
    thrift_port: int | None
    notifications_address: str
    packet_levels: str
    dumped_bytes: int
    warnings: Sequence[str]


def parse(argv: Sequence[str], command: str = MODULE) -> Options:
    """Parse a command line.

    Args:
        argv: The arguments.
        command: What was typed before them, for the help.

    Raises:
        UsageError: If an option is unknown or invalid, or two exclude each other.
    """
    general, target = _split(argv)
    _refuse(general, _REFUSED)
    _refuse(target, _REFUSED_TARGET)
    switch = _switch_parser(command).parse_args(general)
    if switch.program is None and switch.pcap is not None and switch.pcap.suffix == ".json":
        # `--pcap PROGRAM.json`: the folder was left out
        switch.program, switch.pcap = switch.pcap, Path()
    grpc = _target_parser().parse_args(target)
    if switch.program is not None and switch.program.suffix in (".p4", ".p4i"):
        compiled = switch.program.with_suffix(".json")
        compiler = "fanin compile" if command == MODULE else "p4c-bm2-ss"
        raise UsageError(
            f"{switch.program} is P4 source: compile it with {compiler} -o {compiled} {switch.program}, "
            f"and give {compiled} to the switch"
        )
    if switch.no_p4 == (switch.program is not None):
        raise UsageError("give either the path of a BMv2 JSON or --no-p4")
    if switch.log_console and switch.log_file:
        raise UsageError("give either --log-console or --log-file")
    logging_wanted = switch.log_console or switch.log_file
    ports = _ports(switch.interface)
    options = Options(
        program=switch.program,
        ports=ports,
        links=_links(switch.link, ports),
        device_id=switch.device_id,
        grpc_address=None if switch.no_grpc else grpc.grpc_server_addr,
        empty_config=not switch.no_empty_config,
        tls=_tls(grpc),
        cpu_port=grpc.cpu_port,
        drop_port=grpc.drop_port,
        priority_queues=grpc.priority_queues,
        log_level=_LEVELS[switch.log_level if logging_wanted else "warn"],
        log_console=switch.log_console,
        log_file=switch.log_file,
        pcap=switch.pcap,
        thrift_port=switch.thrift_port,
        packet_levels=_packet_levels(switch) if logging_wanted else "",
        dumped_bytes=switch.dump_packet_data,
        warnings=[
            f"{option} has no effect on fanin's switch: {(_WITHOUT_EFFECT | _TARGET_WITHOUT_EFFECT)[option]}"
            for option in dict.fromkeys([*switch.without_effect, *grpc.without_effect])
        ],
        notifications_address=switch.notifications_addr
        or f"ipc:///tmp/bmv2-{switch.device_id}-notifications.ipc",
    )
    for name, port in (("--cpu-port", options.cpu_port), ("--drop-port", options.drop_port)):
        if port is not None and not 0 < port <= _MAX_PORT:
            raise UsageError(f"{name} {port} is not in 1..{_MAX_PORT}")
        if port in options.ports:
            raise UsageError(f"{name} {port} is also given to the interface {options.ports[port]}")
    if not 0 < options.priority_queues <= _MAX_PRIORITIES:
        raise UsageError(f"--priority-queues {options.priority_queues} is not in 1..{_MAX_PRIORITIES}")
    if options.cpu_port == options.drop_port:
        raise UsageError(f"--cpu-port and --drop-port are both {options.cpu_port}")
    return options


def _packet_levels(switch: argparse.Namespace) -> str:
    dumps = switch.log_level == "info" and switch.dump_packet_data > 0
    return _PACKET_LEVELS.get(switch.log_level, "IE" if dumps else "")


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    arguments = list(argv)
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _refuse(arguments: Iterable[str], refused: Mapping[str, str]) -> None:
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in refused:
            raise UsageError(f"{name} is not supported: {refused[name]}")


def _ports(interfaces: Iterable[str]) -> dict[int, str]:
    ports: dict[int, str] = {}
    for item in interfaces:
        number, at, interface = item.partition("@")
        if not (number.isdecimal() and at and interface):
            raise UsageError(f"-i {item}: write PORT@INTERFACE, for example 1@veth0")
        port = int(number)
        if port > _MAX_PORT:
            raise UsageError(f"-i {item}: v1model's ports go up to {_MAX_PORT}")
        if port in ports:
            raise UsageError(f"-i {item}: port {port} is {ports[port]} already")
        ports[port] = interface
    return ports


def _links(items: Iterable[str], ports: Mapping[int, str]) -> dict[tuple[int, Direction], LinkProperties]:
    links: dict[tuple[int, Direction], LinkProperties] = {}
    for item in items:
        try:
            port, direction, given = link_option(item)
            if port not in ports:
                raise LinkError(f"port {port} has no interface: give it one with -i")
            links[port, direction] = changed(links.get((port, direction), LinkProperties()), given)
        except LinkError as error:
            raise UsageError(f"--link {item}: {error}") from None
    return links


def _tls(grpc: argparse.Namespace) -> TlsFiles | None:
    given = {
        "--grpc-server-cert": grpc.grpc_server_cert,
        "--grpc-server-key": grpc.grpc_server_key,
        "--grpc-server-cacert": grpc.grpc_server_cacert,
        "--grpc-server-with-client-auth": grpc.grpc_server_with_client_auth,
    }
    folder: Path | None = grpc.grpc_mutual_tls
    if folder is not None:
        for name, value in {"--grpc-server-ssl": grpc.grpc_server_ssl, **given}.items():
            if value:
                raise UsageError(f"--grpc-mutual-tls includes {name}: give only one of them")
        return TlsFiles(folder / "server.crt", folder / "server.key", folder / "ca.crt")
    if not grpc.grpc_server_ssl:
        for name, value in given.items():
            if value:
                raise UsageError(f"{name} needs --grpc-server-ssl")
        return None
    needed = ["--grpc-server-cert", "--grpc-server-key"]
    if grpc.grpc_server_with_client_auth:
        needed.append("--grpc-server-cacert")
    for name in needed:
        if given[name] is None:
            raise UsageError(f"--grpc-server-ssl needs {name} FILE")
    return TlsFiles(
        grpc.grpc_server_cert,
        grpc.grpc_server_key,
        grpc.grpc_server_cacert if grpc.grpc_server_with_client_auth else None,
    )


class _ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class _WithoutEffect(argparse.Action):
    def __call__(
        self, _parser: object, namespace: argparse.Namespace, _values: object, option: str | None = None
    ) -> None:
        namespace.without_effect.append(option)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # not above: it takes memory

        print(f"fanin {version('fanin')}")
        parser.exit()


def _switch_parser(command: str) -> _ArgumentParser:
    parser = _ArgumentParser(
        prog=command,
        usage="%(prog)s [options] PROGRAM.json|--no-p4 [-- target options]",
        description="A v1model switch with the command line of simple_switch_grpc.",
        epilog=_target_parser().format_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "program", nargs="?", type=Path, metavar="PROGRAM.json", help="a program as BMv2 JSON"
    )
    parser.add_argument("-v", "--version", nargs=0, action=_Version, help="show fanin's version and exit")
    parser.add_argument(
        "--json-version",
        action="version",
        version=_JSON_VERSION,
        help="show the newest version of BMv2's JSON that is supported, and exit",
    )
    parser.add_argument(
        "--no-p4", action="store_true", help="start without a program: a controller will set one"
    )
    parser.add_argument(
        *("-i", "--interface"),
        action="append",
        default=[],
        metavar="PORT@INTERFACE",
        help="attach an interface as a port; may be repeated",
    )
    parser.add_argument(
        "--link",
        action="append",
        default=[],
        metavar="PORT[:ingress]:NAME=VALUE,…",
        help="emulate the link at a port, for packets that leave or enter through it; may be repeated; names: "
        + ", ".join(field.name for field in fields(LinkProperties)),
    )
    parser.add_argument(
        "--device-id", type=int, default=0, metavar="N", help="P4Runtime device id; default 0"
    )
    parser.add_argument(
        "--pcap",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="FOLDER",
        help="capture the packets of each port in FOLDER/INTERFACE_in.pcap and _out.pcap; default: this folder",
    )
    parser.add_argument(
        "--thrift-port", type=int, metavar="PORT", help="serve BMv2's runtime interface at 127.0.0.1:PORT"
    )
    parser.add_argument(
        "--notifications-addr",
        metavar="ADDRESS",
        help="nanomsg address for digests; default ipc:///tmp/bmv2-N-notifications.ipc, where N is the device id",
    )
    parser.add_argument("--no-grpc", action="store_true", help="serve neither P4Runtime nor gNMI")
    parser.add_argument(
        "--no-empty-config",
        action="store_true",
        help="let GetForwardingPipelineConfig fail until a controller has set a pipeline, as in BMv2; "
        "by default its answer is then empty, as in P4Runtime's specification",
    )
    parser.add_argument("--log-console", action="store_true", help="log to the standard output")
    parser.add_argument(
        "--dump-packet-data",
        type=int,
        default=0,
        metavar="BYTES",
        help="log so many bytes of each packet that arrives or leaves, at level info",
    )
    parser.add_argument("--log-file", type=Path, metavar="FILE", help="log to a file")
    parser.add_argument(
        "-L",
        "--log-level",
        choices=_LEVELS,
        default="info",
        help="default info; debug and trace also log each packet",
    )
    parser.add_argument("--log-flush", action="store_true", help="accepted: logs are always flushed")
    _add_without_effect(parser, _WITHOUT_EFFECT)
    return parser


def _target_parser() -> _ArgumentParser:
    parser = _ArgumentParser(prog="--", usage="target options:", add_help=False, allow_abbrev=False)
    parser.add_argument(
        "--grpc-server-addr",
        default=_GRPC_ADDRESS,
        metavar="HOST:PORT",
        help=f"default {_GRPC_ADDRESS}; 0.0.0.0:9559 also accepts other hosts; then better use --grpc-mutual-tls",
    )
    parser.add_argument(
        "--grpc-mutual-tls",
        type=Path,
        metavar="FOLDER",
        help="serve over TLS only, with FOLDER's server.crt and server.key; its ca.crt signs the clients' certificates",
    )
    parser.add_argument("--grpc-server-ssl", action="store_true", help="serve over TLS only")
    parser.add_argument("--grpc-server-cert", type=Path, metavar="FILE", help="the server's certificate, PEM")
    parser.add_argument("--grpc-server-key", type=Path, metavar="FILE", help="its private key, PEM")
    parser.add_argument(
        "--grpc-server-cacert",
        type=Path,
        metavar="FILE",
        help="certificate of the authority that signs clients' certificates, PEM",
    )
    parser.add_argument(
        "--grpc-server-with-client-auth", action="store_true", help="clients need a certificate, too"
    )
    parser.add_argument(
        "--cpu-port", type=int, metavar="N", help="port for packet-in and -out; none by default"
    )
    parser.add_argument("--drop-port", type=int, default=_MAX_PORT, metavar="N", help=f"default {_MAX_PORT}")
    parser.add_argument(
        "--priority-queues",
        type=int,
        default=1,
        metavar="N",
        help="on emulated links, a port has a queue for each priority below N, and serves the highest first",
    )
    parser.add_argument(
        "--enable-swap", action="store_true", help="accepted: programs can always be replaced"
    )
    _add_without_effect(parser, _TARGET_WITHOUT_EFFECT)
    return parser


def _add_without_effect(parser: _ArgumentParser, names: Iterable[str]) -> None:
    parser.set_defaults(without_effect=[])
    for name in names:
        parser.add_argument(name, action=_WithoutEffect, metavar="X", help="accepted, without effect")
