"""The part of nnpy that scripts of courses use to receive digests over nanomsg. nnpy itself has to be compiled."""

from __future__ import annotations

import pynng

AF_SP = 1
SUB = 33
SUB_SUBSCRIBE = 1


class NNError(Exception):
    """Error of the connection."""


class Socket:
    """Subscriber of a switch's notifications."""

    def __init__(self, domain: int, protocol: int) -> None:
        if (domain, protocol) != (AF_SP, SUB):
            raise NNError("only Socket(AF_SP, SUB) is here: a subscriber")
        self._socket = pynng.Sub0()

    def connect(self, address: str) -> None:
        """Connect to an address such as ipc:///tmp/bmv2-0-notifications.ipc, now or as soon as something is there."""
        self._socket.dial(address, block=False)

    def setsockopt(self, level: int, option: int, value: str | bytes) -> None:
        """Subscribe to the messages that begin with the value."""
        if (level, option) != (SUB, SUB_SUBSCRIBE):
            raise NNError("only the option SUB_SUBSCRIBE is here")
        self._socket.subscribe(value)

    def recv(self) -> bytes:
        """Wait for the next message, and return it."""
        return bytes(self._socket.recv())

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
