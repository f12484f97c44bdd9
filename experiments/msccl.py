"""Reads all-reduce algorithms in MSCCL's XML, as msccl-tools writes it.

An algorithm has a program for each GPU: thread blocks with a connection to one GPU each way, and steps in them. The
steps are those of MSCCL's interpreter: s (send), r (receive), rcs, rrc, rrs, rrcs (receive, reduce, copy, send), cpy,
re, nop. The names are MSCCL's, https://github.com/microsoft/msccl.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from pathlib import Path
from xml.etree import ElementTree

from fanin.native.files import read_bytes
from fanin.workers.host_based.pieces import Plan, Schedule, bounds, cut

_MOST_BYTES = 64 << 20
_RECEIVES = {"r", "rcs", "rrc", "rrs", "rrcs"}
_SENDS = {"s", "rcs", "rrs", "rrcs"}
_REDUCES = {"rrc", "rrs", "rrcs"}


class MscclError(ValueError):
    """An algorithm that cannot be read or carried out; the message names the file, GPU and step."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a thread block.

    Attributes:
        kind: MSCCL's type of the step.
        chunks: The chunks that it sends or receives.
        send: The GPU to which its thread block sends; -1: none.
        receive: The GPU from which its thread block receives; -1: none.
        channel: The channel of the thread block's connections.
        awaits: Thread block and step that come before it; None if there is none.
    """

    kind: str
    chunks: range
    send: int
    receive: int
    channel: int
    awaits: tuple[int, int] | None


@dataclass(frozen=True)
class _Algorithm:
    path: Path
    chunks: int
    programs: list[list[_Step]]  # by GPU, in an order that all dependences allow

    def schedule(self, rank: int, workers: int, size: int, chunk: int) -> Schedule:
        """Return a rank's schedule.

        A piece waits for the latest one before it that was received into the same chunk.

        Raises:
            MscclError: If the algorithm is one for another number of workers.
        """
        if workers != len(self.programs):
            raise MscclError(
                f"{self.path}: is an algorithm for {len(self.programs)} GPUs, and there are {workers} workers"
            )
        plan, edges = Plan(), bounds(size, self.chunks)
        latest: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}  # by chunk and piece of it
        numbers: defaultdict[tuple[str, int, int], int] = defaultdict(int)
        for step in self.programs[rank]:
            received = sent = 0
            if step.kind in _RECEIVES:
                received = numbers["receive", step.receive, step.channel]
                numbers["receive", step.receive, step.channel] += 1
            if step.kind in _SENDS:
                sent = numbers["send", step.send, step.channel]
                numbers["send", step.send, step.channel] += 1
            for place in step.chunks:
                for i, span in enumerate(cut(edges[place], edges[place + 1], chunk)):
                    if step.kind in _RECEIVES:
                        name = received, step.channel, place, i
                        before = latest.get((place, i))
                        plan.receive(step.receive, name, span, before, reduce=step.kind in _REDUCES)
                        latest[place, i] = step.receive, name
                    if step.kind in _SENDS:
                        plan.send(step.send, (sent, step.channel, place, i), span, latest.get((place, i)))
        return plan.schedule()


@lru_cache
def _read(path: Path) -> _Algorithm:
    try:
        root = ElementTree.fromstring(read_bytes(path, _MOST_BYTES))
    except OSError as error:
        raise MscclError(f"{path}: cannot be read: {error.strerror}") from None
    except ElementTree.ParseError as error:
        raise MscclError(f"{path}: is not XML: {error}") from None
    if root.tag != "algo" or root.get("coll") != "allreduce":
        raise MscclError(
            f'{path}: is not an all-reduce of MSCCL; it must begin with <algo … coll="allreduce">'
        )
    chunks = _number(path, root, "nchunksperloop", "algo")
    gpus = root.findall("gpu")
    programs: dict[int, list[_Step]] = {}
    for gpu in gpus:
        number = _number(path, gpu, "id", "gpu")
        programs[number] = list(_ordered(path, number, _blocks(path, gpu, number, chunks)))
    if sorted(programs) != list(range(_number(path, root, "ngpus", "algo"))) or len(gpus) != len(programs):
        raise MscclError(
            f"{path}: ngpus is {root.get('ngpus')}, and there are programs for {sorted(programs)}"
        )
    return _Algorithm(path, chunks, [programs[number] for number in sorted(programs)])


def read_msccl(path: Path) -> Callable[[int, int, int, int], Schedule]:
    """Return the function that makes each rank's schedule: of rank, workers, elements and the largest piece.

    Raises:
        MscclError: If the file is not an all-reduce that fanin can carry out.
    """
    return _read(path).schedule


def _blocks(path: Path, gpu: ElementTree.Element, number: int, chunks: int) -> dict[int, list[_Step]]:
    blocks: dict[int, list[_Step]] = {}
    for block in gpu.findall("tb"):
        where = f"gpu {number}, tb {block.get('id')}"
        send, receive, channel = (_number(path, block, name, where) for name in ("send", "recv", "chan"))
        steps = sorted(block.findall("step"), key=lambda step: _number(path, step, "s", where))
        blocks[_number(path, block, "id", where)] = [
            _step(path, step, f"{where}, step {step.get('s')}", chunks, (send, receive, channel))
            for step in steps
        ]
    return blocks


def _step(
    path: Path, step: ElementTree.Element, where: str, chunks: int, ends: tuple[int, int, int]
) -> _Step:
    kind = step.get("type", "")
    awaited = _number(path, step, "depid", where), _number(path, step, "deps", where)
    awaits = None if awaited[0] < 0 else awaited
    if kind == "nop":
        return _Step(kind, range(0), *ends, awaits)
    places = {
        name: (step.get(f"{name}buf"), _number(path, step, f"{name}off", where)) for name in ("src", "dst")
    }
    count = _number(path, step, "cnt", where)
    # Steps that send have their place in src, steps that receive in dst; those that do both, in both.
    used = [places["src"]] * (kind not in ("r", "rcs")) + [places["dst"]] * (kind != "s")
    if kind not in _RECEIVES | _SENDS | {"cpy"}:
        known = "s, r, rcs, rrc, rrs, rrcs, cpy and nop"
        raise MscclError(
            f"{path}: {where}: steps of type {kind!r} cannot be carried out; those of {known} can"
        )
    if any(buffer not in ("i", "o") for buffer, _ in used):
        raise MscclError(
            f"{path}: {where}: uses a scratch buffer; only algorithms in place can be carried out "
            "(msccl-tools: inplace, and no scratch)"
        )
    if len({offset for _, offset in used}) > 1:
        raise MscclError(
            f"{path}: {where}: moves a chunk to another place, from {used[0][1]} to {used[1][1]}"
        )
    first = used[0][1]
    if not 0 <= first <= first + count <= chunks:
        raise MscclError(
            f"{path}: {where}: there are chunks 0 to {chunks - 1}, not {first} to {first + count - 1}"
        )
    for kinds, end, name in ((_SENDS, ends[0], "send"), (_RECEIVES, ends[1], "recv")):
        if kind in kinds and end < 0:
            raise MscclError(f"{path}: {where}: is of type {kind!r}, and its tb has no {name}")
    moved = range(0) if kind == "cpy" else range(first, first + count)  # input and output are one vector
    return _Step(kind, moved, *ends, awaits)


def _ordered(path: Path, gpu: int, blocks: dict[int, list[_Step]]) -> Iterator[_Step]:
    """Yield a GPU's steps, each after the one before it in its thread block and after the one that it awaits."""
    following: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    missing: dict[tuple[int, int], int] = {}
    for block, steps in blocks.items():
        for number, step in enumerate(steps):
            before = [(block, number - 1)] * (number > 0) + [step.awaits] * (step.awaits is not None)
            missing[block, number] = len(before)
            for each in before:
                assert each is not None
                following[each].append((block, number))
    if unknown := following.keys() - missing.keys():
        block, number = min(unknown)
        raise MscclError(
            f"{path}: gpu {gpu}: a step awaits step {number} of tb {block}, which does not exist"
        )
    ready = [(number, block) for (block, number), count in missing.items() if not count]
    heapify(ready)
    done = 0
    while ready:
        number, block = heappop(ready)
        done += 1
        yield blocks[block][number]
        for then in following[block, number]:
            missing[then] -= 1
            if not missing[then]:
                heappush(ready, (then[1], then[0]))
    if done < len(missing):
        raise MscclError(f"{path}: gpu {gpu}: steps await one another in a circle")


def _number(path: Path, element: ElementTree.Element, name: str, where: str) -> int:
    text = element.get(name, "")
    try:
        return int(text)
    except ValueError:
        raise MscclError(f"{path}: {where}: {name} must be a number, not {text!r}") from None
