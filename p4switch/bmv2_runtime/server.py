"""The Thrift server: BMv2's services on a port, as its command line tools and p4-utils expect them."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fanin.p4switch.bmv2_runtime.digests import DigestLists
from fanin.p4switch.p4runtime.device import Device

if TYPE_CHECKING:
    from fanin.p4switch.bmv2_runtime.connection import Services

_MOST_CONNECTIONS = 64


class ThriftServer(socketserver.ThreadingTCPServer):
    """Server of BMv2's services, with a thread for each connection.

    When a client connects and `_MOST_CONNECTIONS` are open, the one whose last request is the longest ago is closed.

    Args:
        address: The address to listen on. Port 0 is any free port.
        load: Makes the services for the port it listens on. It is called when the first client connects.

    Raises:
        OSError: If the address cannot be bound.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = _MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], load: Callable[[int], Services]) -> None:
        self._load = load
        self._services: Services | None = None
        self._loading = threading.Lock()
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

    @property
    def services(self) -> Services:
        """Return the services. They are loaded for the first client, since many switches never have one."""
        with self._loading:
            if self._services is None:
                self._services = self._load(self.port)
            return self._services

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
        """Serve requests until the connection ends."""
        self.server.services.serve(self.request, lambda: self.server.use(self.request))


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

    def load(bound: int) -> Services:
        from fanin.p4switch.bmv2_runtime.connection import Services  # not above: it takes 2 MB

        return Services(device, device_id, bound, notifications, digests)

    try:
        server = ThriftServer((host, port), load)
    except OSError as error:
        raise OSError(f"cannot listen on Thrift port {port}: {error.strerror}") from None
    if device.engine is not None:
        digests.follow(device.engine)
    server.at_end = digests.stop
    return server
