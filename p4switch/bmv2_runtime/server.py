"""The Thrift server: BMv2's services on a port, as its command line tools and p4-utils expect them."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.TMultiplexedProcessor import TMultiplexedProcessor
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from fanin.p4switch.bmv2_runtime.digests import DigestLists
from fanin.p4switch.bmv2_runtime.interface import (
    SIMPLE_PRE,
    SIMPLE_PRE_LAG,
    SIMPLE_SWITCH,
    STANDARD,
    BmConfig,
)
from fanin.p4switch.bmv2_runtime.replication import Replication
from fanin.p4switch.bmv2_runtime.simple_switch import SimpleSwitch
from fanin.p4switch.bmv2_runtime.standard import Standard
from fanin.p4switch.bmv2_runtime.types import Processor, Service
from fanin.p4switch.p4runtime.device import Device

_LONGEST_TEXT = 256 << 20  # bytes: a program as JSON
_LONGEST_LIST = 1 << 24
_MOST_CONNECTIONS = 64

_log = logging.getLogger(__name__)


class ThriftServer(socketserver.ThreadingTCPServer):
    """Server of several services, with a thread for each connection.

    When a client connects and `_MOST_CONNECTIONS` are open, the one whose last request is the longest ago is closed.

    Args:
        address: The address to listen on. Port 0 is any free port.
        handlers: The object that carries out the methods of each service.
        lock: Held while a method runs.

    Raises:
        OSError: If the address cannot be bound.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = _MOST_CONNECTIONS

    def __init__(
        self, address: tuple[str, int], handlers: Mapping[Service, object], lock: threading.Lock
    ) -> None:
        self.processor = TMultiplexedProcessor()
        for service, handler in handlers.items():
            self.processor.registerProcessor(service.name, Processor(service, handler, lock))
        self.at_end: Callable[[], None] = lambda: None
        # The open connections, the one that was used last at the end.
        self._connections: dict[socket.socket, None] = {}
        self._counting = threading.Lock()
        super().__init__(address, _Connection)
        threading.Thread(target=self.serve_forever, name="thrift", daemon=True).start()

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and close the one that was not used for longest if there are too many."""
        with self._counting:
            if len(self._connections) >= _MOST_CONNECTIONS:
                spare = next(iter(self._connections))
                del self._connections[spare]
                with suppress(OSError):  # its client has closed it
                    spare.shutdown(socket.SHUT_RDWR)
            self._connections[request] = None
        super().process_request(request, client_address)

    def use(self, connection: socket.socket) -> None:
        """Note that a connection has sent a request."""
        with self._counting:
            if connection in self._connections:
                del self._connections[connection]
                self._connections[connection] = None

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._counting:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def stop(self) -> None:
        """Accept no more connections, and call `at_end`."""
        self.shutdown()
        self.server_close()
        self.at_end()


class _Connection(socketserver.BaseRequestHandler):
    """Connection of a client, which may send requests to any of the services."""

    server: ThriftServer

    def handle(self) -> None:
        """Serve requests until the client closes the connection or sends something that is none."""
        transport = TSocket()
        transport.setHandle(self.request)
        protocol: Any = TBinaryProtocol(
            TBufferedTransport(transport),
            string_length_limit=_LONGEST_TEXT,
            container_length_limit=_LONGEST_LIST,
        )
        try:
            while True:
                self.server.processor.process(protocol, protocol)
                self.server.use(self.request)
        except (TException, OSError, EOFError) as error:
            _log.debug("a Thrift connection ended: %s", error)


def serve_thrift(
    device: Device, device_id: int, port: int, notifications: str, host: str = "127.0.0.1"
) -> ThriftServer:
    """Serve all of BMv2's services for a switch.

    Args:
        device: The switch.
        device_id: Its id.
        port: The port. 0 is any free port.
        notifications: The nanomsg address of digests.
        host: The address to listen on.

    Raises:
        OSError: If the address or that of notifications cannot be used.
    """
    digests = DigestLists(notifications, device_id)
    replication = Replication(device)
    info = BmConfig(device_id, port, notifications)
    handlers = {
        STANDARD: Standard(device, info, replication, digests),
        SIMPLE_PRE: replication,
        SIMPLE_PRE_LAG: replication,
        SIMPLE_SWITCH: SimpleSwitch(device, replication),
    }
    try:
        server = ThriftServer((host, port), handlers, device.lock)
    except OSError as error:
        raise OSError(f"cannot listen on Thrift port {port}: {error.strerror}") from None
    info.thrift_port = server.port
    if device.engine is not None:
        digests.follow(device.engine)
    server.at_end = digests.stop
    return server
