"""Digests for BMv2's subscribers: messages over nanomsg, and samples that are not sent again until acknowledged."""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.wakeup import WakeUp

_Sample = tuple[int, ...]

# Topic, device, context, list, buffer, number of samples: learning.h of p4lang/behavioral-model.
_HEADER = struct.Struct("<4sQIiQI")
_TOPIC = b"LEA|"
_DEFAULT_SIZE = 1  # samples in a message
_DEFAULT_TIMEOUT = 1000  # milliseconds

_log = logging.getLogger(__name__)


class NotificationError(OSError):
    """Address that notifications cannot be sent from. The message names it."""


@dataclass(slots=True)
class _List:
    """Digest: the bytes of its fields, its settings, the samples to send, and those that are not acknowledged."""

    id: int
    sizes: tuple[int, ...]
    most: int = _DEFAULT_SIZE
    timeout: int = _DEFAULT_TIMEOUT
    buffer: int = 0
    waiting: dict[_Sample, None] = field(default_factory=dict)
    since: float = 0.0
    sent: dict[int, list[_Sample]] = field(default_factory=dict)


class DigestLists:
    """Digests of the program that runs, sent from `address` to all subscribers.

    The address is opened as soon as a program has digests.
    """

    def __init__(self, address: str, device_id: int) -> None:
        self.address = address
        self._device_id = device_id
        self._lock = threading.Lock()
        self._lists: dict[int, _List] = {}
        self._by_name: dict[str, _List] = {}
        self._engine: Engine | None = None
        self._wakeup = WakeUp()
        self._publisher: _Publisher | None = None
        self._stopping = False

    def follow(self, engine: Engine) -> None:
        """Send the digests of this engine from now on.

        Raises:
            NotificationError: If the address cannot be opened.
        """
        with self._lock:
            self._lists = {}
            self._by_name = {}
            for kept in engine.program.digests.values():
                fields = (f for f in kept.fields if isinstance(f, Field))
                sizes = tuple((engine.program.field_type(f).width + 7) // 8 for f in fields)
                self._lists[kept.id] = self._by_name[kept.name] = _List(kept.id, sizes)
            self._engine = engine
        if not self._lists:
            return
        if self._publisher is None:
            self._publisher = _Publisher(self.address)
            threading.Thread(target=self._run, name="digests", daemon=True).start()
        engine.keep_digests(self._wakeup.event)

    def acknowledge(self, list_id: int, buffer_id: int, samples: Sequence[int] | None) -> None:
        """Forget samples of a message, so that equal ones count as new; None means all.

        Raises:
            KeyError: If there is no such list.
        """
        with self._lock:
            sent = self._lists[list_id].sent
            if samples is None:
                sent.pop(buffer_id, None)
            else:
                gone = set(samples)
                kept = [s for place, s in enumerate(sent.get(buffer_id, ())) if place not in gone]
                sent[buffer_id] = kept

    def set_timeout(self, list_id: int, milliseconds: int) -> None:
        """Set how long samples wait for others.

        Raises:
            KeyError: If there is no such list.
        """
        with self._lock:
            self._lists[list_id].timeout = milliseconds
        self._wakeup.set()

    def set_size(self, list_id: int, samples: int) -> None:
        """Set how many samples a message has at most.

        Raises:
            KeyError: If there is no such list.
        """
        with self._lock:
            self._lists[list_id].most = max(1, samples)
        self._wakeup.set()

    def reset(self) -> None:
        """Forget all samples."""
        with self._lock:
            for each in self._lists.values():
                each.waiting.clear()
                each.sent.clear()

    def stop(self) -> None:
        """Stop sending."""
        if self._engine is not None:
            self._engine.keep_digests(None)
        self._stopping = True
        self._wakeup.set()
        if self._publisher is not None:
            self._publisher.close()

    def _run(self) -> None:
        while not self._stopping:
            self._wakeup.wait(self._longest_sleep())
            try:
                self._collect()
            except Exception:
                _log.exception("digests were not sent")

    def _longest_sleep(self) -> float | None:
        with self._lock:
            ends = [each.since + each.timeout / 1000 for each in self._lists.values() if each.waiting]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _collect(self) -> None:
        assert self._engine is not None
        now = time.monotonic()
        messages: list[bytes] = []
        arrived = self._engine.digests()
        with self._lock:
            for digest in arrived:
                each = self._by_name[digest.name]
                if digest.values in each.waiting or any(digest.values in s for s in each.sent.values()):
                    continue
                if not each.waiting:
                    each.since = now
                each.waiting[digest.values] = None
                if len(each.waiting) >= each.most:
                    messages.append(self._message(each))
            messages += [
                self._message(each)
                for each in self._lists.values()
                if each.waiting
                and (len(each.waiting) >= each.most or now >= each.since + each.timeout / 1000)
            ]
        assert self._publisher is not None
        for message in messages:
            self._publisher.send(message)

    def _message(self, each: _List) -> bytes:
        """Return a message of the samples that wait, which are then sent but not acknowledged."""
        samples, each.waiting = list(each.waiting), {}
        number, each.buffer = each.buffer, each.buffer + 1
        each.sent[number] = samples
        body = b"".join(
            value.to_bytes(size, "big")
            for sample in samples
            for value, size in zip(sample, each.sizes, strict=True)
        )
        return _HEADER.pack(_TOPIC, self._device_id, 0, each.id, number, len(samples)) + body


class _Publisher:
    """Socket to all subscribers, of the nanomsg protocol PUB/SUB."""

    def __init__(self, address: str) -> None:
        import pynng  # not above: it takes long to load, and few programs have digests

        self._socket = pynng.Pub0()
        try:
            self._socket.listen(address)
        except pynng.NNGException as error:
            self._socket.close()
            raise NotificationError(f"cannot send notifications from {address}: {error}") from None

    def send(self, message: bytes) -> None:
        """Send a message to whoever subscribes now."""
        self._socket.send(message)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
