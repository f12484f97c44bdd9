"""BMv2's services, and the connections over which clients of Thrift call them."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
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
from fanin.p4switch.bmv2_runtime.types import Processor
from fanin.p4switch.p4runtime.device import Device

_LONGEST_TEXT = 256 << 20  # bytes: a program as JSON
_LONGEST_LIST = 1 << 24

_log = logging.getLogger(__name__)


class Services:
    """All of BMv2's services for a switch.

    Args:
        device: The switch.
        device_id: Its id.
        port: The Thrift port.
        notifications: The nanomsg address of digests.
        digests: The digests that are sent from there.
    """

    def __init__(
        self, device: Device, device_id: int, port: int, notifications: str, digests: DigestLists
    ) -> None:
        replication = Replication(device)
        info = BmConfig(device_id, port, notifications)
        self._processor = TMultiplexedProcessor()
        for service, handler in (
            (STANDARD, Standard(device, info, replication, digests)),
            (SIMPLE_PRE, replication),
            (SIMPLE_PRE_LAG, replication),
            (SIMPLE_SWITCH, SimpleSwitch(device, replication)),
        ):
            self._processor.registerProcessor(service.name, Processor(service, handler, device.lock))

    def serve(self, connection: socket.socket, served: Callable[[], None]) -> None:
        """Carry out requests until the client closes the connection or sends something that is none.

        Args:
            connection: The client's connection.
            served: Called after each request.
        """
        transport = TSocket()
        transport.setHandle(connection)
        protocol: Any = TBinaryProtocol(
            TBufferedTransport(transport),
            string_length_limit=_LONGEST_TEXT,
            container_length_limit=_LONGEST_LIST,
        )
        try:
            while True:
                self._processor.process(protocol, protocol)
                served()
        except (TException, OSError, EOFError) as error:
            _log.debug("a Thrift connection ended: %s", error)
