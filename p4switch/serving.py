"""The switch as a process, after its command line is parsed: its services, until a signal ends it."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Callable
from functools import cached_property
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import grpc

from fanin.native import libc
from fanin.native.collector import collect_seldom
from fanin.native.toolchain import ToolchainError
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.engine.live_ports import PortError
from fanin.p4switch.log import MessageLog, write_lines
from fanin.p4switch.options import Options, StartError
from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.p4runtime.server import P4RuntimeService, serve
from fanin.p4switch.ports.capture import open_captures
from fanin.p4switch.tls import TlsError

if TYPE_CHECKING:
    from fanin.p4switch.bmv2_runtime.server import ThriftServer
    from fanin.p4switch.trace.bmv2_log import PacketLog

_log = logging.getLogger(__name__)


def run(options: Options) -> None:
    """Serve P4Runtime, gNMI and management calls, and forward packets, until SIGTERM or SIGINT.

    Raises:
        StartError: If something prevents it. The message names it.
    """
    # Written to when the signal arrives. A handler in Python might not run, if the main thread is just about to wait
    # or another thread receives the signal.
    ended, end = os.pipe()
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: None)

    try:
        captures = open_captures(options.pcap, options.ports) if options.pcap else None
    except OSError as error:
        raise StartError(f"--pcap: {error.filename}: {error.strerror}") from None
    messages = MessageLog()
    device = Device(
        options.ports,
        options.cpu_port,
        options.drop_port,
        options.links,
        options.device_id,
        options.priority_queues,
        captures,
        messages.follow,
    )
    try:
        if options.program is not None:
            device.boot(options.program.read_bytes())
        thrift = _serve_thrift(device, options) if options.thrift_port is not None else None
        services = _serve_grpc(device, options, options.grpc_address) if options.grpc_address else None
    except ProgramError as error:
        raise StartError(f"{options.program}: {error}") from None
    except (OSError, PortError, TlsError, ToolchainError, OverflowError) as error:
        device.stop()
        raise StartError(str(error)) from None
    thrift_port = thrift.port if thrift else None
    packet_log = _log_packets(device, options, thrift_port) if options.packet_levels else None
    leave_start_uncollected()
    libc.return_free_memory()  # the JSON of a large program took 8 MB
    ports = ",".join(f"{number}@{interface}" for number, interface in sorted(options.ports.items()))
    at = f" grpc={services[1]}" if services else ""
    at += f" thrift=127.0.0.1:{thrift.port}" if thrift else ""
    print(f"ready device_id={options.device_id}{at} ports={ports}", flush=True)
    messages.write_until(ended)
    if packet_log:
        packet_log.stop()
    if thrift:
        thrift.stop()
    if services:
        services[0].stop(grace=0).wait()
    device.stop()
    messages.write()


def leave_start_uncollected() -> None:
    """Leave what the start has made out of collections of garbage, and collect seldom.

    Table entries are many and live long. Collections took a quarter of the time to write them.
    """
    gc.freeze()
    collect_seldom()
    gc.enable()


def _serve_grpc(device: Device, options: Options, address: str) -> tuple[grpc.Server, str]:
    """Serve P4Runtime, gNMI and management calls. Return the server and its address."""
    handlers = (
        _OnDemand("fanin.p4switch.Management", lambda: _management(device)),
        _OnDemand("gnmi.gNMI", lambda: _gnmi(device, options)),
    )
    credentials = options.tls.credentials() if options.tls else None
    service = P4RuntimeService(device, options.device_id, empty_config=options.empty_config)
    server, port = serve(service, address, *handlers, credentials=credentials)
    if not _is_loopback(address) and (options.tls is None or options.tls.client_ca is None):
        _log.warning(
            "anyone who can connect to %s may set the program; --grpc-mutual-tls requires client certificates",
            address,
        )
    return server, f"{address.rpartition(':')[0]}:{port}"


class _OnDemand(grpc.GenericRpcHandler):
    """Handler of a service that is loaded when it is first called, since most switches never need it."""

    def __init__(self, service: str, load: Callable[[], grpc.GenericRpcHandler]) -> None:
        self._prefix = f"/{service}/"
        self._load = load

    @cached_property
    def _loaded(self) -> grpc.GenericRpcHandler:
        return self._load()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the handler of a call; None if it is for another service."""
        return self._loaded.service(details) if details.method.startswith(self._prefix) else None


def _management(device: Device) -> grpc.GenericRpcHandler:
    from fanin.p4switch.management import service
    from fanin.p4switch.management.hashes import hash_calls
    from fanin.p4switch.management.links import link_calls
    from fanin.p4switch.trace.injection import inject_call
    from fanin.p4switch.trace.stream import trace_stream

    calls = link_calls(device) | hash_calls(lambda: device.engine) | inject_call(lambda: device.engine)
    return service.handler(calls, {"Trace": trace_stream(lambda: device.engine)})


def _gnmi(device: Device, options: Options) -> grpc.GenericRpcHandler:
    from fanin.p4switch.gnmi.ports import SwitchPorts
    from fanin.p4switch.gnmi.service import GnmiService

    return GnmiService(SwitchPorts(options.ports, device.counters, device.monitor)).handler()


def _serve_thrift(device: Device, options: Options) -> ThriftServer:
    """Serve BMv2's runtime interface."""
    # Imported here because most switches have no such clients.
    from fanin.p4switch.bmv2_runtime.server import serve_thrift

    assert options.thrift_port is not None
    return serve_thrift(device, options.device_id, options.thrift_port, options.notifications_address)


def _log_packets(device: Device, options: Options, thrift_port: int | None) -> PacketLog:
    """Log ports, the Thrift port and packets in the words of BMv2's log."""
    # Imported here because most switches are never traced.
    from fanin.p4switch.trace.bmv2_log import PacketLog

    lines = []
    if "D" in options.packet_levels:
        lines += [
            ("D", f"Adding interface {name} as port {number}") for number, name in options.ports.items()
        ]
    if thrift_port is not None:
        lines += [("I", f"Starting Thrift server on port {thrift_port}"), ("I", "Thrift server was started")]
    write_lines(lines)
    return PacketLog(lambda: device.engine, options.packet_levels, options.dumped_bytes)


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or address.startswith("unix:") or ip_address(host).is_loopback
    except ValueError:
        return False
