"""Digests over P4Runtime: gathered into lists, sent, and kept from being sent again until they are acknowledged.

P4Runtime specification, "DigestEntry" and "DigestList". Time comes from the caller: nanoseconds of any clock.
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
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r

_LONGEST_LIST = 1000


@dataclass(slots=True)
class _DigestList:
    """One digest: its values' type, its config if it is enabled, what waits to be sent, what is not acknowledged."""

    id: int
    type: DataType
    config: p4r.DigestEntry.Config | None = None
    lists: int = 0
    waiting: dict[tuple[int, ...], None] = field(default_factory=dict)
    since: int = 0  # when the first of them came
    sent: dict[int, tuple[int, frozenset[tuple[int, ...]]]] = field(default_factory=dict)


class Digests(DynamicKind[p4r.DigestEntry]):
    """All digests of a pipeline. Thread-safe: the data plane's digests come on another thread than requests."""

    field = "digest_entry"

    def __init__(self, objects: PipelineObjects) -> None:
        self._lock = threading.Lock()
        self._digests: dict[int, _DigestList] = {}
        self._by_name: dict[str, _DigestList] = {}
        p4info = objects.p4info
        programmed = [digest.name for digest in objects.engine.program.digests.values()]
        given = [digest.preamble.name for digest in p4info.digests]
        others = [name for name in programmed if name not in given]  # P4Info calls unnamed types otherwise
        for info in p4info.digests:
            name = info.preamble.name if info.preamble.name in programmed else next(iter(others), "")
            if name in others:
                others.remove(name)
            what = f"digest {info.preamble.name}"
            values = data_type(info.type_spec, p4info.type_info, objects.translations, what)
            digest = _DigestList(info.preamble.id, values)
            self._digests[digest.id] = self._by_name[name] = digest

    def p4_id(self, message: p4r.DigestEntry) -> int:
        """The digest's."""
        return message.digest_id

    # Requests

    def insert(self, message: p4r.DigestEntry) -> None:
        """Enables a digest."""
        with self._lock:
            digest = self._find(message)
            if digest.config is not None:
                raise P4RuntimeError(
                    grpc.StatusCode.ALREADY_EXISTS, f"digest {digest.id:#x} is enabled already"
                )
            self._configure(digest, message)

    def modify(self, message: p4r.DigestEntry) -> None:
        """Gives an enabled digest another config."""
        with self._lock:
            self._configure(self._enabled(message), message)

    def delete(self, message: p4r.DigestEntry) -> None:
        """Disables a digest."""
        with self._lock:
            digest = self._enabled(message)
            digest.config = None
            digest.waiting.clear()
            digest.sent.clear()

    def read(self, query: p4r.DigestEntry) -> Iterator[p4r.DigestEntry]:
        """The config of one digest, NOT_FOUND if it is not enabled; or of all that are, where the id is 0."""
        with self._lock:
            if query.digest_id:
                chosen = [self._enabled(query)]
            else:
                chosen = [d for d in self._digests.values() if d.config is not None]
            yield from [p4r.DigestEntry(digest_id=d.id, config=d.config) for d in chosen]

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, p4r.DigestEntry]]:
        """Those that are enabled."""
        for message in self.read(p4r.DigestEntry()):
            yield p4r.Update.INSERT, message

    def acknowledge(self, message: p4r.DigestListAck) -> None:
        """Forgets a list that the controller has: its digests may be sent again. Unknown lists are skipped."""
        with self._lock:
            self._find(message).sent.pop(message.list_id, None)

    # The data plane

    def collect(self, digests: Iterable[Digest], now: int, epoch: int) -> list[p4r.DigestList]:
        """Takes in what has come from the data plane; the lists to be sent now. `epoch`: nanoseconds since 1970."""
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
                # Without a delay every digest goes in a list of its own.
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
        """When `collect` has to be called at the latest; None: not before a digest comes."""
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
                raise unimplemented(f"digest {digest.id:#x}: its P4Info has other fields than the program's")
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
        if message.digest_id not in self._digests:
            raise invalid(f"the pipeline has no digest with the id {message.digest_id:#x}")
        return self._digests[message.digest_id]

    def _enabled(self, message: p4r.DigestEntry) -> _DigestList:
        digest = self._find(message)
        if digest.config is None:
            raise not_found(f"digest {digest.id:#x} is not enabled: INSERT it")
        return digest

    def _configure(self, digest: _DigestList, message: p4r.DigestEntry) -> None:
        config = message.config
        if config.max_timeout_ns < 0 or config.max_list_size < 0 or config.ack_timeout_ns < 0:
            raise invalid(f"digest {digest.id:#x}: neither timeouts nor the list's size can be negative")
        copy = p4r.DigestEntry.Config()
        copy.CopyFrom(config)
        digest.config = copy
