"""Execution traces of MLCommons Chakra: a file for each rank, with nodes that depend on each other (chakra.proto)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError

from fanin.experiments.workloads import chakra_pb2
from fanin.experiments.workloads.trace import Node, RankTrace, TraceCall, TraceError, in_order
from fanin.native.text import printable
from fanin.workers.collective import Operation

_LONGEST = 1 << 26  # bytes of a node
_LONGEST_VARINT = 10  # bytes
_BARRIER_BYTES = 4

_OPERATIONS: Mapping[int, Operation] = {
    chakra_pb2.ALL_REDUCE: "all-reduce",
    chakra_pb2.ALL_GATHER: "all-gather",
    chakra_pb2.BROADCAST: "broadcast",
    chakra_pb2.ALL_TO_ALL: "all-to-all",
    chakra_pb2.REDUCE_SCATTER: "reduce-scatter",
    chakra_pb2.REDUCE_SCATTER_BLOCK: "reduce-scatter",
    chakra_pb2.BARRIER: "all-reduce",
}

Groups = Mapping[str, tuple[int, ...]]  # ranks by the name of a process group


class ChakraFile:
    """A file whose nodes have been read, but whose collectives do not know their ranks yet.

    Args:
        data: The file.
        file: Its name, for messages.
        rank: The rank.

    Attributes:
        groups: Names of the process groups that its collectives name.

    Raises:
        TraceError: If the file is not such a trace, or has what cannot be replayed.
    """

    def __init__(self, data: BinaryIO, file: str, rank: int) -> None:
        self.file, self.rank = file, rank
        self._nodes: dict[int, Any] = {}
        self._attributes: dict[int, dict[str, Any]] = {}
        for number, record in enumerate(_records(data, file)):
            if number == 0:
                _parsed(chakra_pb2.Metadata(), record, file, 0)
                continue
            node = _parsed(chakra_pb2.Node(), record, file, number)
            if node.id in self._nodes:
                raise TraceError(
                    f"{file}: node {node.id} ({printable(node.name)}): field 'id': is there twice"
                )
            self._nodes[node.id] = node
            self._attributes[node.id] = {one.name: _value(one) for one in node.attr}
        if not self._nodes:
            raise TraceError(f"{file}: has no node")
        self.groups = {
            str(attributes["pg_name"])
            for attributes in self._attributes.values()
            if attributes.get("pg_name")
        }

    def trace(self, world: int, groups: Groups) -> RankTrace:
        """Return the trace of the rank.

        Args:
            world: Number of ranks.
            groups: The ranks of each process group.
        """
        nodes = {number: self._node(number, world, groups) for number in self._nodes}
        return RankTrace(self.file, self.rank, in_order(self.file, nodes), world, self._measured())

    def _measured(self) -> tuple[float, ...]:
        """Return the measured time; nothing if the nodes have no times of their beginning."""
        timed = [node for node in self._nodes.values() if node.start_time_micros]
        if len(timed) < 2:
            return ()
        begin = min(node.start_time_micros for node in timed)
        return ((max(node.start_time_micros + node.duration_micros for node in timed) - begin) / 1e6,)

    def _node(self, number: int, world: int, groups: Groups) -> Node:
        node, attributes = self._nodes[number], self._attributes[number]
        after = tuple(
            node.data_deps
        )  # ctrl_deps name the caller, for which Chakra's own feeder does not wait either
        on_cpu = bool(attributes.get("is_cpu_op", False))
        call = None
        if node.type == chakra_pb2.COLLECTIVE and not (on_cpu and "comm_size" not in attributes):
            call = self._collective(number, world, groups)
        elif node.type in (chakra_pb2.SEND, chakra_pb2.RECEIVE):
            call = self._send(number, world)
        elif node.type == chakra_pb2.INVALID:
            raise self._error(number, "type", "is INVALID_NODE, or missing")
        if call is not None:
            return Node(node.name, after, call=call)
        flop = 0 if node.duration_micros else self._whole(number, "num_ops", 0)
        seconds = node.duration_micros / 1e6
        return Node(node.name, after, 0, seconds, flop, "cpu" if on_cpu else "gpu")

    def _collective(self, number: int, world: int, groups: Groups) -> TraceCall:
        attributes = self._attributes[number]
        kind = self._whole(number, "comm_type")
        if kind not in _OPERATIONS:
            names = ", ".join(chakra_pb2.CollectiveType.Name(one) for one in _OPERATIONS)
            name = (
                chakra_pb2.CollectiveType.Name(kind) if kind in chakra_pb2.CollectiveType.values() else kind
            )
            raise self._error(number, "comm_type", f"is {name}, an unknown collective; fanin replays {names}")
        if False in (attributes.get("involved_dim") or ()):
            raise self._error(
                number,
                "involved_dim",
                "names a part of a topology, whose ranks are unknown; use pg_name instead",
            )
        group = str(attributes.get("pg_name") or "")
        ranks = groups.get(group, tuple(range(world)))
        operation = _OPERATIONS[kind]
        size = _BARRIER_BYTES if kind == chakra_pb2.BARRIER else self._whole(number, "comm_size")
        if operation == "all-gather":  # its size is that of a rank's part
            size *= len(ranks)
        return TraceCall(operation, ranks, max(size, _BARRIER_BYTES))

    def _send(self, number: int, world: int) -> TraceCall:
        sends = self._nodes[number].type == chakra_pb2.SEND
        key, own = ("comm_dst", "comm_src") if sends else ("comm_src", "comm_dst")
        peer, me = self._whole(number, key), self._whole(number, own, self.rank)
        if not 0 <= peer < world or peer == self.rank:
            raise self._error(number, key, f"is {peer}, must be another of the {world} ranks")
        if me != self.rank:
            raise self._error(number, own, f"is {me}, but this is the file of rank {self.rank}")
        size = self._whole(number, "comm_size")
        return TraceCall(
            "broadcast", (me, peer) if sends else (peer, me), max(size, _BARRIER_BYTES), send=True
        )

    def _whole(self, number: int, key: str, default: int | None = None) -> int:
        """Return an attribute that is a whole number."""
        value = self._attributes[number].get(key, default)
        if value is None:
            raise self._error(number, key, "missing")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._error(
                number, key, f"is {printable(repr(value))}, must be a whole number of 0 or more"
            )
        return value

    def _error(self, number: int, key: str, problem: str) -> TraceError:
        name = printable(self._nodes[number].name)
        return TraceError(f"{self.file}: node {number} ({name}): field {key!r}: {problem}")


def _value(attribute: Any) -> Any:
    kind = attribute.WhichOneof("value")
    if kind is None:
        return None
    value = getattr(attribute, kind)
    return list(value.values) if kind == "bool_list" else value


def _parsed(message: Any, record: bytes, file: str, number: int) -> Any:
    try:
        message.ParseFromString(record)
    except (DecodeError, UnicodeDecodeError):
        raise _broken(file, number, f"is no Chakra {type(message).__name__}") from None
    return message


def _broken(file: str, number: int, problem: str) -> TraceError:
    """Return the error for a record. Whatever is no other format is read as Chakra, so the first may be anything."""
    if number:
        return TraceError(f"{file}: record {number}: {problem}; is this an .et file?")
    return TraceError(
        f"{file}: is no trace that fanin reads; give a JSON file of PyTorch's profiler, an execution trace of Chakra "
        f"(.et), a log of NCCL, or the output of nccl-tests (read as Chakra, its first record {problem})"
    )


def _records(data: BinaryIO, file: str) -> Iterator[bytes]:
    """Yield the messages of a file, each of which has its length before it."""
    number = 0
    while (size := _varint(data, file, number)) is not None:
        if size > _LONGEST:
            raise _broken(file, number, f"has {size:,} bytes, too many for a node")
        record = data.read(size)
        if len(record) < size:
            raise _broken(
                file, number, f"ends after {len(record):,} of {size:,} bytes, as if the file were truncated"
            )
        yield record
        number += 1


def _varint(data: BinaryIO, file: str, number: int) -> int | None:
    """Return the length before a message; None at the end of the file."""
    value = 0
    for place in range(_LONGEST_VARINT):
        byte = data.read(1)
        if not byte:
            if place:
                raise _broken(file, number, "ends within its length, as if the file were truncated")
            return None
        value |= (byte[0] & 0x7F) << 7 * place
        if byte[0] < 0x80:
            return value
    raise _broken(file, number, "has no length")
