"""Traces of PyTorch's profiler (Kineto), in the JSON of Chrome's trace events.

A trace has the kernels of a GPU with their collectives (NCCL), or the operators of a CPU (Gloo, fanin). From either, a
rank is a chain of computing with calls next to it. A call begins when what it needs is computed. Computing waits for a
call that ends in a gap, unless the CPU launched the kernel behind the gap only later.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any, TextIO

from fanin.experiments.workloads.collective_names import operation_named, type_bytes
from fanin.experiments.workloads.json_events import JsonEvents
from fanin.experiments.workloads.trace import Node, RankTrace, TraceCall, TraceError
from fanin.native.text import printable
from fanin.workers.collective import Operation

_SHORTEST_WAIT = 50.0  # us; shorter gaps are never waits
_LATE = 0.05  # of a gap: a thread of Gloo may end a call so much later than the thread that waited goes on
_STEP = re.compile(r"ProfilerStep#(\d+)")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "privateuse1_runtime")
_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
_NOT_CALLS = {"init", "wait", "", "coalesced"}  # of record_param_comms, which are no collectives
_BARRIER_BYTES = 4
# Gloo's annotations, by operators. Gloo reduces and scatters by an all-reduce.
_GLOO = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "reduce_scatter": "all_reduce",
    "_reduce_scatter_base": "all_reduce",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
}
# Operators whose whole array is a list of lists of tensors, which has no sizes in a trace: they show a rank's part.
_PARTS = {"allgather", "reduce_scatter"}


@dataclass(slots=True)
class _Communication:
    """A collective of the trace; times are in microseconds.

    Attributes:
        name: Its name.
        ready: When what it needs was computed.
        end: When it ended; None if the trace does not tell.
        call: The call.
        launch: When the CPU launched it; None if unknown.
    """

    name: str
    ready: float
    end: float | None
    call: TraceCall
    launch: float | None = None


@dataclass(slots=True)
class _Events:
    """The events that are kept; times are in microseconds."""

    steps: list[tuple[float, float]] = field(default_factory=list)  # begin and end
    begins: array[float] = field(default_factory=lambda: array("d"))  # of operators
    ends: array[float] = field(default_factory=lambda: array("d"))
    threads: dict[str, int] = field(default_factory=dict)  # a number for each, as there are many operators
    operator_threads: array[int] = field(default_factory=lambda: array("l"))
    kernels: list[tuple[float, float, int | None]] = field(default_factory=list)  # begin, end, correlation
    launches: dict[int, tuple[float, Any]] = field(default_factory=dict)  # time and thread, by correlation
    nccl: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)  # kernels: line and event
    annotations: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)  # "nccl:…" of the CPU
    spans: list[Mapping[str, Any]] = field(default_factory=list)  # "gloo:…" on Gloo's threads, "fanin:…"
    calls: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)  # operators "c10d::…"


def read_kineto(text: TextIO, file: str, rank: int) -> RankTrace:
    """Read the trace of a rank.

    Args:
        text: The file.
        file: Its name, for messages.
        rank: The rank if the file does not state it.

    Raises:
        TraceError: If the file is not such a trace, or has what cannot be replayed.
    """
    reader = JsonEvents(text, file)
    events = _Events()
    for event in reader:
        if isinstance(event, dict):
            _keep(events, event, file, reader.line)
    info = reader.facts.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    groups = _Groups(info, file)
    notes: list[str] = []
    if events.nccl:
        communications = list(_of_gpu(events, groups, file))
        busy = [(begin, end) for begin, end, _ in events.kernels]
    else:
        communications = list(_of_cpu(events, groups, file, notes))
        busy = list(_computing(events))
    if not communications:
        raise TraceError(
            f"{file}: has no collective, neither kernels of NCCL nor operators c10d::…; record a training"
        )
    steps = sorted(events.steps)
    if not steps:
        notes.append("the trace has no ProfilerStep: all of it counts as one step")
        edges = [*(time for pair in busy for time in pair), *(one.ready for one in communications)]
        steps = [(min(edges), max(edges))]
    if any(one.call.send for one in communications) and info.get("rank") is None:
        raise TraceError(f"{file}: sends need the field distributedInfo.rank, which is missing")
    launched = {
        begin: events.launches[number][0]
        for begin, _, number in events.kernels
        if number is not None and number in events.launches
    }
    nodes = list(_chain(steps, _union(busy), communications, launched))
    measured = tuple((end - begin) / 1e6 for begin, end in steps)
    own = groups.own if groups.own is not None else rank
    return RankTrace(file, own, nodes, groups.world, measured, tuple(notes))


def _keep(events: _Events, event: Mapping[str, Any], file: str, line: int) -> None:
    """Sort an event into the lists of what is needed later."""
    if event.get("ph") != "X":
        return
    kind, name = event.get("cat"), event.get("name")
    kind = kind.lower() if isinstance(kind, str) else ""
    if not isinstance(name, str):
        raise TraceError(f"{file}:{line}: field 'name': is {_shown(name)}; an event has a text there")
    if kind == "user_annotation" and _STEP.fullmatch(name):
        events.steps.append(_times(event, file, line))
    elif kind == "user_annotation" and name.startswith("nccl:"):
        events.annotations.append((line, event))
    elif kind == "user_annotation" and name.startswith(("gloo:", "fanin:")):
        _times(event, file, line)
        events.spans.append(event)
    elif kind == "cpu_op" or kind == "operator":
        begin, end = _times(event, file, line)
        events.begins.append(begin)
        events.ends.append(end)
        thread = str(event.get("tid"))
        events.operator_threads.append(events.threads.setdefault(thread, len(events.threads)))
        if name.startswith("c10d::"):
            events.calls.append((line, event))
    elif kind in _KERNELS:
        begin, end = _times(event, file, line)
        if name.lower().startswith(("nccl", "void nccl")):
            events.nccl.append((line, event))
        else:
            events.kernels.append((begin, end, _correlation(event)))
    elif kind in _LAUNCHES and (number := _correlation(event)) is not None:
        events.launches[number] = _times(event, file, line)[0], event.get("tid")


def _times(event: Mapping[str, Any], file: str, line: int) -> tuple[float, float]:
    """Return when an event began and ended, in microseconds."""
    numbers = []
    for name in ("ts", "dur"):
        value = event.get(name)
        if name not in event:
            raise TraceError(f"{file}:{line}: field {name!r}: missing in {_shown(event.get('name'))}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise TraceError(
                f"{file}:{line}: field {name!r}: is {_shown(value)}, must be a number of microseconds"
            )
        numbers.append(float(value))
    if numbers[1] < 0:
        raise TraceError(f"{file}:{line}: field 'dur': is {numbers[1]:g}, must not be negative")
    return numbers[0], numbers[0] + numbers[1]


def _arguments(event: Mapping[str, Any]) -> Mapping[str, Any]:
    found = event.get("args")
    return found if isinstance(found, dict) else {}


def _correlation(event: Mapping[str, Any]) -> int | None:
    found = _arguments(event).get("correlation")
    return found if isinstance(found, int) else None


def _shown(value: Any) -> str:
    text = printable(repr(value))
    return text if len(text) <= 60 else f"{text[:60]}…"


class _Groups:
    """The process groups of a trace.

    Attributes:
        own: The rank of the trace; None if it does not state it.
        world: The number of ranks.
    """

    def __init__(self, info: Mapping[str, Any], file: str) -> None:
        self._file = file
        self.own: int | None = self._whole(info, "rank")
        self.world = self._whole(info, "world_size")
        self._ranks: dict[str, tuple[int, ...]] = {}
        self.several = isinstance(info.get("pg_count"), int) and info["pg_count"] > 1
        configured = info.get("pg_config")
        for group in configured if isinstance(configured, list) else []:
            ranks = group.get("ranks") if isinstance(group, dict) else None
            if isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks):
                self._ranks[str(group.get("pg_name"))] = tuple(ranks)

    def _whole(self, info: Mapping[str, Any], name: str) -> int | None:
        value = info.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise TraceError(
                f"{self._file}: field distributedInfo.{name}: is {_shown(value)}, must be a whole number"
            )
        return value

    def everyone(self, line: int, size: Any = None) -> tuple[int, ...]:
        """Return all ranks of the training."""
        world = self.world
        if world is None and isinstance(size, int) and size > 0:
            self.world = world = size
        if world is None:
            raise TraceError(
                f"{self._file}:{line}: needs the field distributedInfo.world_size, which is missing"
            )
        return tuple(range(world))

    def of(self, arguments: Mapping[str, Any], line: int) -> tuple[int, ...]:
        """Return the ranks of a collective from its arguments."""
        listed = arguments.get("Process Group Ranks")
        if isinstance(listed, str) and (ranks := re.fullmatch(r"\[([\d, ]*)\]", listed)) and ranks[1].strip():
            return tuple(int(rank) for rank in ranks[1].split(","))
        if isinstance(listed, list) and listed and all(isinstance(rank, int) for rank in listed):
            return tuple(listed)
        size, name = arguments.get("Group size"), arguments.get("Process Group Name")
        if name is not None and str(name) in self._ranks:
            return self._ranks[str(name)]
        everyone = self.everyone(line, size)
        if size is not None and size != len(everyone):
            raise TraceError(
                f"{self._file}:{line}: field 'Process Group Ranks': is {_shown(listed)}, so the {size} ranks of the "
                "group are unknown; record with a newer PyTorch"
            )
        return everyone


# -- NCCL on a GPU -----------------------------------------------------------------------------------------------------


def _of_gpu(events: _Events, groups: _Groups, file: str) -> Iterator[_Communication]:
    """Yield the collectives of a GPU's trace, in the order of their kernels."""
    launched = _Launched(events)
    annotations = sorted(
        ((*_times(one, file, line), line, one) for line, one in events.annotations), key=lambda x: x[:2]
    )
    starts = [one[0] for one in annotations]
    for line, event in sorted(events.nccl, key=lambda one: float(one[1]["ts"])):
        begin, end = _times(event, file, line)
        number = _correlation(event)
        launch = events.launches.get(number) if number is not None else None
        arguments = _arguments(event)
        if "Collective name" in arguments:
            call = _described_call(arguments, groups, file, line)
        else:
            found = None
            if launch is not None:
                at = bisect_right(starts, launch[0]) - 1
                # An annotation of the same thread that contains the launch.
                for place in range(at, max(-1, at - 16), -1):
                    if annotations[place][1] >= launch[0] and annotations[place][3].get("tid") == launch[1]:
                        found = annotations[place]
                        break
            if found is None:
                raise TraceError(
                    f"{file}:{line}: field 'Collective name': missing in {_shown(event['name'])}, and no annotation "
                    "nccl:… contains its launch; record with a newer PyTorch, or with record_shapes=True"
                )
            call = _annotated_call(found[3], groups, file, found[2])
        ready = begin if launch is None else min(begin, launched.ready(launch[0]))
        if call is not None:
            yield _Communication(event["name"], ready, end, call, None if launch is None else launch[0])


class _Launched:
    """The kernels that the CPU launched, and the times at which they were done."""

    def __init__(self, events: _Events) -> None:
        pairs = sorted(
            (events.launches[number][0], end)
            for _, end, number in events.kernels
            if number is not None and number in events.launches
        )
        self._times = [launch for launch, _ in pairs]
        self._done: list[float] = []
        latest = float("-inf")
        for _, end in pairs:
            latest = max(latest, end)
            self._done.append(latest)

    def ready(self, launch: float) -> float:
        """Return when a kernel that was launched at this time could begin."""
        before = bisect_right(self._times, launch)
        return max(launch, self._done[before - 1]) if before else launch


def _described_call(arguments: Mapping[str, Any], groups: _Groups, file: str, line: int) -> TraceCall | None:
    """Return the call that the arguments of a kernel describe; None if it is none."""
    name = arguments.get("Collective name")
    if not isinstance(name, str):
        raise TraceError(f"{file}:{line}: field 'Collective name': is {_shown(name)}, must be a text")
    if name in _NOT_CALLS:
        return None
    ranks = groups.of(arguments, line)
    counts = []
    for key in ("In msg nelems", "Out msg nelems"):
        count = arguments.get(key)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise TraceError(f"{file}:{line}: field {key!r}: is {_shown(count)}, must be a number of values")
        counts.append(count)
    kind = arguments.get("dtype")
    if not isinstance(kind, str):
        raise TraceError(f"{file}:{line}: field 'dtype': is {_shown(kind)}, must be a text")
    size = max(counts) * _checked(type_bytes, kind, file, line, "dtype")
    if name in ("send", "recv"):
        return _send(
            name, arguments.get("Dst Rank" if name == "send" else "Src Rank"), ranks, size, groups, file, line
        )
    operation = _checked(operation_named, name, file, line, "Collective name")
    return _call(operation, ranks, size)


def _annotated_call(event: Mapping[str, Any], groups: _Groups, file: str, line: int) -> TraceCall:
    """Return the call that an annotation such as nccl:all_reduce describes by the shapes of its inputs."""
    name, arguments = event["name"].partition(":")[2], _arguments(event)
    operation = _checked(operation_named, name, file, line, "name")
    everyone = groups.everyone(line)
    size = _input_bytes(arguments, file, line)
    if operation == "all-gather":  # its input is the part of one rank
        size *= len(everyone)
    return _call(operation, everyone, size)


def _call(operation: Operation, ranks: tuple[int, ...], size: int) -> TraceCall:
    return TraceCall(operation, tuple(sorted(ranks)), max(size, _BARRIER_BYTES))


def _send(
    name: str, peer: Any, ranks: Sequence[int], size: int, groups: _Groups, file: str, line: int
) -> TraceCall:
    key = "Dst Rank" if name == "send" else "Src Rank"
    if isinstance(peer, str) and peer.isdigit():
        peer = int(peer)
    if isinstance(peer, bool) or not isinstance(peer, int) or not 0 <= peer < len(ranks):
        raise TraceError(
            f"{file}:{line}: field {key!r}: is {_shown(peer)}, must be a rank of the group of {name}"
        )
    if groups.own is None:
        raise TraceError(f"{file}:{line}: needs the field distributedInfo.rank, which is missing")
    pair = (groups.own, ranks[peer]) if name == "send" else (ranks[peer], groups.own)
    return TraceCall("broadcast", pair, max(size, _BARRIER_BYTES), send=True)


def _checked(function: Any, value: str, file: str, line: int, key: str) -> Any:
    try:
        return function(value)
    except ValueError as error:
        raise TraceError(f"{file}:{line}: field {key!r}: {error}") from None


# -- Gloo on a CPU -----------------------------------------------------------------------------------------------------


def _of_cpu(events: _Events, groups: _Groups, file: str, notes: list[str]) -> Iterator[_Communication]:
    """Yield the collectives of a CPU's trace, in the order of their operators."""
    if events.calls and groups.several:
        raise TraceError(
            f"{file}: field distributedInfo.pg_count: has several groups, and operators c10d::… do not name theirs; "
            "fanin reads such traces of NCCL only"
        )
    done = sorted(events.spans, key=lambda one: float(one["ts"]))
    used = [False] * len(done)
    for line, event in sorted(events.calls, key=lambda one: float(one[1]["ts"])):
        begin, _ = _times(event, file, line)
        name, arguments = event["name"], _arguments(event)
        plain = name.removeprefix("c10d::").rstrip("_")
        everyone = groups.everyone(line)
        end, kind = None, None
        for place, other in enumerate(done):
            if used[place] or float(other["ts"]) < begin or other["name"] not in _spans(plain):
                continue
            theirs = _arguments(other)
            # Gloo ends calls in any order, and records their sizes; fanin ends them in the order in which they begin.
            if other["name"].startswith("gloo:") and not _same_array(arguments, theirs):
                continue
            used[place], end, kind = True, float(other["ts"]) + float(other["dur"]), theirs
            break
        if plain == "barrier":
            call = _call("all-reduce", everyone, 0)
        else:
            size = _array_bytes(arguments, kind, file, line, notes) * (
                len(everyone) if plain in _PARTS else 1
            )
            if plain in ("send", "recv"):
                inputs = arguments.get("Concrete Inputs")
                peer = inputs[2] if isinstance(inputs, list) and len(inputs) > 2 else None
                call = _send(plain, peer, everyone, size, groups, file, line)
            else:
                call = _call(_checked(operation_named, name, file, line, "name"), everyone, size)
        yield _Communication(name, begin, end, call)


def _spans(plain: str) -> tuple[str, str]:
    """Return the annotations of Gloo and of fanin that last until a call has ended."""
    return f"gloo:{_GLOO.get(plain, plain)}", f"fanin:{plain}"


def _same_array(call: Mapping[str, Any], span: Mapping[str, Any]) -> bool:
    """Return whether a span of Gloo has the array of a call, or one of the arrays of a call with two."""
    dims, size = call.get("Input Dims"), _values(span.get("Input Dims"))
    if size == _values(_first(dims)):
        return True
    return size > 0 and isinstance(dims, list) and size in map(_values, dims)


def _computing(events: _Events) -> Iterator[tuple[float, float]]:
    """Yield when operators of a CPU compute.

    An operator that makes a call, such as a step of autograd, may wait for it. Therefore only what it contains counts.
    What Gloo's own threads copy is part of the call.
    """
    names = {str(span.get("tid")) for span in events.spans if span["name"].startswith("gloo:")}
    names -= {str(call.get("tid")) for _, call in events.calls}
    own = {events.threads.get(name) for name in names}
    calls = sorted((float(one["ts"]), float(one["ts"]) + float(one["dur"])) for _, one in events.calls)
    for begin, end, thread in zip(events.begins, events.ends, events.operator_threads, strict=True):
        first = bisect_left(calls, (begin, 0.0))
        inside = calls[first : first + 2]
        if thread not in own and not any(one != (begin, end) and one[1] <= end for one in inside):
            yield begin, end


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _values(dims: Any) -> int:
    """Return the number of values of tensors with these dimensions, in lists of any depth."""
    if not isinstance(dims, list):
        return 0
    if dims and all(isinstance(one, int) and not isinstance(one, bool) for one in dims):
        return prod(dims)
    return sum(_values(one) for one in dims)


def _array_bytes(
    arguments: Mapping[str, Any], other: Mapping[str, Any] | None, file: str, line: int, notes: list[str]
) -> int:
    """Return the bytes of the largest argument of an operator, which is a rank's whole array."""
    dims, kinds = arguments.get("Input Dims"), arguments.get("Input type")
    if not isinstance(dims, list) or not isinstance(kinds, list):
        raise TraceError(f"{file}:{line}: field 'Input Dims': missing; record with record_shapes=True")
    counts = [_values(one) for one in dims]
    place = max(range(len(counts)), key=counts.__getitem__, default=-1)
    if place < 0 or counts[place] <= 0:
        raise TraceError(
            f"{file}:{line}: field 'Input Dims': is {_shown(dims)}, must have the shape of a tensor"
        )
    kind = kinds[place] if place < len(kinds) else None
    if kind == "TensorList":
        theirs = other.get("Input type") if other else None
        kind = _first(theirs)
        if not isinstance(kind, str):
            kind = "float"
            note = "the trace has no types of tensors in lists: they count as float32"
            if note not in notes:
                notes.append(note)
    if not isinstance(kind, str):
        raise TraceError(
            f"{file}:{line}: field 'Input type': is {_shown(kind)}, must be the type of a tensor"
        )
    return int(counts[place] * _checked(type_bytes, kind, file, line, "Input type"))


def _input_bytes(arguments: Mapping[str, Any], file: str, line: int) -> int:
    dims, kinds = arguments.get("Input Dims"), arguments.get("Input type")
    if (
        not isinstance(dims, list)
        or not isinstance(kinds, list)
        or not kinds
        or not isinstance(kinds[0], str)
    ):
        raise TraceError(f"{file}:{line}: field 'Input Dims': missing; record with record_shapes=True")
    return int(_values(dims) * _checked(type_bytes, kinds[0], file, line, "Input type"))


# -- the chain of a rank -----------------------------------------------------------------------------------------------


def _union(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the times that any of the intervals covers."""
    found: list[list[float]] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([begin, end])
    return [(begin, end) for begin, end in found]


def _chain(
    steps: Sequence[tuple[float, float]],
    busy: Sequence[tuple[float, float]],
    communications: Sequence[_Communication],
    launched: Mapping[float, float],
) -> Iterator[Node]:
    """Yield the nodes of a rank: computing without the waits, and the calls next to it.

    Everything between the first step's begin and the last one's end counts as computing, except waits. Each step ends
    with all of its calls.

    Args:
        steps: The begin and the end of each step.
        busy: When something computes.
        communications: The collectives.
        launched: When the CPU launched the kernels that begin at certain times.
    """
    count, last = 0, -1  # nodes so far, and the number of the last one that computes
    ordered = sorted(communications, key=lambda one: (one.ready, one.end or one.ready))
    begins = [begin for begin, _ in steps]
    of_step: list[list[_Communication]] = [[] for _ in steps]
    for one in ordered:
        at = bisect_right(begins, one.ready if one.launch is None else one.launch) - 1
        if at >= 0:
            of_step[at].append(one)
    for number, (begin, end) in enumerate(steps):
        own = of_step[number]
        later = [one for one in own if one.end is not None and one.end > end]
        limit = max([end, *(one.end for one in later if one.end is not None)])
        gaps = [(left, right) for left, right in _gaps(busy, begin, limit) if right - left >= _SHORTEST_WAIT]
        waits = _waits(own, gaps, launched)
        points = sorted(
            {begin, end, *(min(max(one.ready, begin), end) for one in own), *_edges(waits, begin, end)}
        )
        numbers: dict[int, int] = {}  # nodes of calls, by their identity
        awaited: set[int] = set()
        for left, right in zip([begin, *points], points, strict=False):
            wait = next((one for one in waits if one[0] <= left and right <= one[1] and right > left), None)
            if right > left and wait is None:
                after = tuple(sorted({last, *(numbers[one] for one in awaited if one in numbers)} - {-1}))
                yield Node("computing", after, number, (right - left) / 1e6)
                last, count, awaited = count, count + 1, set()
            if wait is not None:
                awaited |= {id(one) for one in wait[2]}
            for one in own:
                if id(one) not in numbers and min(max(one.ready, begin), end) <= right:
                    after = tuple(
                        sorted({last, *(numbers[each] for each in awaited if each in numbers)} - {-1})
                    )
                    yield Node(one.name, after, number, call=one.call)
                    numbers[id(one)], count = count, count + 1
        yield Node("end of the step", tuple(sorted({last, *numbers.values()} - {-1})), number)
        last, count = count, count + 1


def _edges(waits: Sequence[tuple[float, float, Any]], begin: float, end: float) -> Iterator[float]:
    for left, right, _ in waits:
        yield min(max(left, begin), end)
        yield min(max(right, begin), end)


def _gaps(busy: Sequence[tuple[float, float]], begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield the times between `begin` and `end` in which nothing computes."""
    at = begin
    for left, right in busy:
        if right <= begin:
            continue
        if left >= end:
            break
        if left > at:
            yield at, left
        at = max(at, right)
    if at < end:
        yield at, end


def _waits(
    own: Sequence[_Communication], gaps: Sequence[tuple[float, float]], launched: Mapping[float, float]
) -> list[tuple[float, float, list[_Communication]]]:
    """Return the waits of a step: their begin, their end, and the calls that they wait for.

    A gap waits for each call that is under way and ends in it. A call whose end is unknown ends with the first gap. One
    that Gloo ends shortly after a gap ends with this gap, unless it ends in the next one.
    """
    found = []
    open_ended = [one for one in own if one.end is None]
    for left, right in gaps:
        queued = launched.get(right, left)  # when what follows the gap was ready to begin
        here = [one for one in own if one.end is not None and max(left, queued) < one.end <= right]
        here += [one for one in own if _ends_late(one, left, right, gaps)]
        unknown = [one for one in open_ended if one.ready < right - _SHORTEST_WAIT]
        open_ended = [one for one in open_ended if one not in unknown]
        if not here and not unknown:
            continue
        begins = max(left, min(one.ready for one in [*here, *unknown]))
        ends = right if unknown else min(right, max(one.end for one in here if one.end is not None))
        if ends > begins:
            found.append((begins, ends, [*here, *unknown]))
    return found


def _ends_late(one: _Communication, left: float, right: float, gaps: Sequence[tuple[float, float]]) -> bool:
    """Return whether a thread of Gloo has recorded the end of a call only after the gap that waited for it."""
    if one.end is None or one.launch is not None or not right < one.end:
        return False
    soon = one.end - right <= _LATE * (right - max(left, one.ready))
    return soon and not any(begin < one.end <= end for begin, end in gaps)
