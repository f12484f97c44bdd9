"""Digests over P4Runtime: collected into lists, sent, and not sent again until they are acknowledged.

P4Runtime specification, "DigestEntry" and "DigestList". The caller passes the time, in nanoseconds of any clock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import grpc

from fanin.p4switch.entries import Digest
from fanin.p4switch.p4runtime.codec.data import DataType, data_type
from fanin.p4switch.p4runtime.entities.kind import DynamicKind
from fanin.p4switch.p4runtime.errors import P4RuntimeError, invalid, not_found, unimplemented
from fanin.p4switch.p4runtime.objects import ById, PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r

_LONGEST_LIST = 1000


@dataclass(slots=True)
class _DigestList:
    """Digest: the type of its values, its config if it is enabled, the values to send, and the unacknowledged lists."""

    id: int
    type: DataType
    config: p4r.DigestEntry.Config | None = None
    lists: int = 0
    waiting: dict[tuple[int, ...], None] = field(default_factory=dict)
    since: int = 0  # when the first of them came
    sent: dict[int, tuple[int, frozenset[tuple[int, ...]]]] = field(default_factory=dict)


class Digests(DynamicKind[p4r.DigestEntry]):
    """All digests of a pipeline. Thread-safe, because digests and requests arrive on different threads."""

    field = "digest_entry"
    id_field = "digest_id"

    def __init__(self, objects: PipelineObjects) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[str, _DigestList] = {}
        described = []
        p4info = objects.p4info
        programmed = [digest.name for digest in objects.engine.program.digests.values()]
        given = [digest.preamble.name for digest in p4info.digests]
        # P4Info has other names for unnamed types
        others = [name for name in programmed if name not in given]
        for info in p4info.digests:
            name = info.preamble.name if info.preamble.name in programmed else next(iter(others), "")
            if name in others:
                others.remove(name)
            what = f"digest {info.preamble.name}"
            values = data_type(info.type_spec, p4info.type_info, objects.translations, what)
            digest = _DigestList(info.preamble.id, values)
            described.append((info.preamble, digest))
            self._by_name[name] = digest
        self._digests = ById("digest", described)

    # Requests

    def insert(self, message: p4r.DigestEntry) -> None:
        """Enable a digest."""
        with self._lock:
            digest = self._find(message)
            if digest.config is not None:
                raise P4RuntimeError(grpc.StatusCode.ALREADY_EXISTS, f"digest {digest.id} is enabled already")
            self._configure(digest, message)

    def modify(self, message: p4r.DigestEntry) -> None:
        """Replace the config of an enabled digest."""
        with self._lock:
            self._configure(self._enabled(message), message)

    def delete(self, message: p4r.DigestEntry) -> None:
        """Disable a digest."""
        with self._lock:
            digest = self._enabled(message)
            digest.config = None
            digest.waiting.clear()
            digest.sent.clear()

    def read(self, query: p4r.DigestEntry) -> Iterator[p4r.DigestEntry]:
        """Yield the config of one digest, or raise NOT_FOUND if it is disabled; yield all enabled if the id is 0."""
        with self._lock:
            if query.digest_id:
                chosen = [self._enabled(query)]
            else:
                chosen = [d for d in self._digests.values() if d.config is not None]
            yield from [p4r.DigestEntry(digest_id=d.id, config=d.config) for d in chosen]

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, p4r.DigestEntry]]:
        """Yield the enabled digests."""
        for message in self.read(p4r.DigestEntry()):
            yield p4r.Update.INSERT, message

    def acknowledge(self, message: p4r.DigestListAck) -> None:
        """Forget an acknowledged list, so that equal digests are reported from now on. Unknown lists are ignored."""
        with self._lock:
            self._find(message).sent.pop(message.list_id, None)

    # The data plane

    def collect(self, digests: Iterable[Digest], now: int, epoch: int) -> list[p4r.DigestList]:
        """Add digests from the data plane, and return the lists to send now.

        Args:
            digests: The new digests.
            now: The time in nanoseconds, for deadlines.
            epoch: The time in nanoseconds since 1970, for the lists.
        """
        with self._lock:
            lists: list[p4r.DigestList] = []
            for arrived in digests:
                digest = self._by_name.get(arrived.name)
                if digest is None or digest.config is None:
                    continue
                self._expire(digest, now)
                known = arrived.values in digest.waiting or any(
                    arrived.values in s for _, s in digest.sent.values()
                )
                if known:
                    continue
                if not digest.waiting:
                    digest.since = now
                digest.waiting[arrived.values] = None
                # Without a delay every digest is sent in its own list.
                longest = (
                    (digest.config.max_list_size or _LONGEST_LIST) if digest.config.max_timeout_ns else 1
                )
                if len(digest.waiting) >= longest:
                    lists.append(self._flush(digest, now, epoch))
            for digest in self._digests.values():
                if digest.waiting and digest.config and now - digest.since >= digest.config.max_timeout_ns:
                    lists.append(self._flush(digest, now, epoch))
            return lists

    def deadline(self) -> int | None:
        """Return the time when `collect` must be called at the latest; None means when a digest arrives."""
        with self._lock:
            return min(
                (d.since + d.config.max_timeout_ns for d in self._digests.values() if d.waiting and d.config),
                default=None,
            )

    def _flush(self, digest: _DigestList, now: int, epoch: int) -> p4r.DigestList:
        digest.lists += 1
        message = p4r.DigestList(digest_id=digest.id, list_id=digest.lists, timestamp=epoch)
        for values in digest.waiting:
            if len(values) != digest.type.size:
                raise unimplemented(f"digest {digest.id}: its P4Info has other fields than the program's")
            message.data.append(digest.type.encode(iter(values)))
        if digest.config is not None and digest.config.ack_timeout_ns > 0:
            digest.sent[digest.lists] = now, frozenset(digest.waiting)
        digest.waiting.clear()
        return message

    def _expire(self, digest: _DigestList, now: int) -> None:
        assert digest.config is not None
        timeout = digest.config.ack_timeout_ns
        digest.sent = {n: (at, values) for n, (at, values) in digest.sent.items() if now - at < timeout}

    def _find(self, message: p4r.DigestEntry | p4r.DigestListAck) -> _DigestList:
        return self._digests.find(message.digest_id)

    def _enabled(self, message: p4r.DigestEntry) -> _DigestList:
        digest = self._find(message)
        if digest.config is None:
            raise not_found(f"digest {digest.id} is not enabled: INSERT it")
        return digest

    def _configure(self, digest: _DigestList, message: p4r.DigestEntry) -> None:
        config = message.config
        if config.max_timeout_ns < 0 or config.max_list_size < 0 or config.ack_timeout_ns < 0:
            raise invalid(f"digest {digest.id}: neither timeouts nor the list's size can be negative")
        copy = p4r.DigestEntry.Config()
        copy.CopyFrom(config)
        digest.config = copy
