"""Aggregation protocols as folders: a P4 program, a Python file with its worker, plan and oracle, and a specification.

fanin's own protocol is one of them (protocols/fanin). docs/how-to/protocols.md describes a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fanin.controller.plan import PathChoice
from fanin.controller.planner import FUNCTIONS, Planner, planner_of
from fanin.native.python_file import Function, PythonFileError, functions
from fanin.workers.collective import Participant, Server
from fanin.workers.lease import Lease
from fanin.workers.protocol import MakeServer, MakeWorker
from fanin.workers.recovery import Recovery

Vector = NDArray[np.float32]

PROTOCOLS = Path(__file__).parents[1] / "protocols"
OURS = "fanin"
POOL = 1 << 16  # elements of a vector that are drawn one by one, because normally distributed draws are slow
_RUN = 64
SPARSE_BLOCK = 256  # elements of a vector that are 0 together, for the key `sparsity`

_SLAB = 1 << 13  # elements
_LONGEST_LOOP = 1.0  # seconds

PROGRAM_FILE, PYTHON_FILE, PAGE = "program.p4", "protocol.py", "README.md"
_REQUIRED = ("participant", "packet", "error_bound")
_OPTIONAL = (
    *(
        "program",
        "server",
        "shares_slots",
        "loopback",
        "exact",
        "exact_for",
        "exact_of_calls",
        "vector",
        "inputs",
        "sums",
    ),
    *("chunks", "invariants", "survives"),
)

# Faults of a network that a protocol may survive, in addition to loss; `survives()` returns some of them.
FAULTS = ("duplication", "reordering", "corruption", "restarts", "registers lost", "new leases", "strangers")


class ProtocolError(ValueError):
    """A folder that is not a protocol; the message names what is wrong, where, and what to do."""


class Packet(NamedTuple):
    """A full packet.

    Attributes:
        elements: Elements of a vector in a packet from a worker.
        payload: Its bytes of UDP payload.
        largest: Bytes of UDP payload of the largest packet on any link.
    """

    elements: int
    payload: int
    largest: int


@dataclass(frozen=True)
class Protocol:
    """An aggregation protocol. Its parts may come from different files, if a scenario replaces some.

    Attributes:
        name: Name of its folder.
        program: The P4 program of all switches.
        worker: The Python file with `participant`.
        controller: The Python file with functions that plan entries; None: fanin's own plan them.
        file: The Python file of the folder.
    """

    name: str
    program: Path
    worker: Path
    controller: Path | None
    file: Path

    @cached_property
    def _functions(self) -> dict[str, Function]:
        return functions(self.file, (*_REQUIRED, *_OPTIONAL))

    @property
    def ours(self) -> bool:
        """Return whether the workers are fanin's own."""
        return self.worker == PROTOCOLS / OURS / PYTHON_FILE

    @property
    def make_worker(self) -> MakeWorker:
        """Return the function that makes each worker from its lease and its timers."""
        return make_worker_of(self.worker)

    @property
    def make_server(self) -> MakeServer | None:
        """Return the function that makes the server of each lease; None if the protocol has no servers."""
        return _maker_of(self.file, "server", Server) if "server" in self._functions else None

    @property
    def unusable_in_jobs(self) -> str:
        """Return why jobs of a running network cannot use the protocol; empty if they can."""
        if self.make_server:
            return "it has a parameter server, which only the runs of scenarios start"
        if self.partial:
            return "its results may lack late workers"
        return "its results are not sums" if {"exact", "exact_of_calls"} & self._functions.keys() else ""

    @property
    def partial(self) -> bool:
        """Return whether results may lack workers, so that exact_for() decides what is right."""
        return "exact_for" in self._functions

    @property
    def remembers(self) -> bool:
        """Return whether results depend on earlier inputs, so that exact_of_calls() decides what is right."""
        return "exact_of_calls" in self._functions

    @property
    def shares_slots(self) -> bool:
        """Return whether all jobs use the same slots; otherwise each has its own."""
        return "shares_slots" in self._functions and bool(self._functions["shares_slots"]())

    def loopback(self, world: str) -> float | None:
        """Return how long a packet takes through a loopback port, in seconds; None if switches need none.

        Args:
            world: "virtual" or "live".

        Raises:
            PythonFileError: If the protocol does not return a positive number.
        """
        if "loopback" not in self._functions:
            return None
        made = self._functions["loopback"](world)
        if not isinstance(made, float) or not 0 < made <= _LONGEST_LOOP:
            raise PythonFileError(
                f"{self.file}: loopback() returns {made!r}, must return seconds above 0 and up to {_LONGEST_LOOP:g}"
            )
        return made

    def planner(self, paths: PathChoice = "ecmp") -> Planner:
        """Return the functions that plan the entries of switches; fanin's own replace missing ones."""
        return planner_of(self.controller, paths)

    def packet(self, values: int) -> Packet:
        """Return a full packet.

        Args:
            values: The key `values` of scenarios, 64 or 256 (fanin's own: 128 and 512, too), which a protocol may use
                or not.

        Raises:
            PythonFileError: If the protocol returns something else than docs/how-to/protocols.md describes.
        """
        made = self._functions["packet"](values)
        if not (
            isinstance(made, tuple)
            and len(made) in (2, 3)
            and all(isinstance(n, int) and n > 0 for n in made)
            and made[-1] >= made[1]
        ):
            raise PythonFileError(
                f"{self.file}: packet() returns {made!r}, must return positive integers: the elements in a packet from "
                "a worker, its UDP payload in bytes, and, if packets between switches are larger, the payload of these"
            )
        return Packet(made[0], made[1], made[-1])

    @property
    def draws_vectors(self) -> bool:
        """Return whether the protocol has a function of its own that draws vectors."""
        return "vector" in self._functions

    def vector(self, draw: np.random.Generator, elements: int, sparsity: float = 0.0) -> Vector:
        """Draw one worker's input vector, float32 [elements]; normally distributed unless the protocol draws others.

        Only the first POOL elements are drawn one by one. The others are runs of these, from positions that are drawn.

        Args:
            draw: The generator.
            elements: Length of the vector.
            sparsity: Share of its blocks of SPARSE_BLOCK elements that are 0, each drawn by itself.
        """
        if self.draws_vectors:
            drawn = self._checked("vector", self._functions["vector"](draw, elements), elements, np.float32)
        else:
            drawn = np.empty(elements, np.float32)
            draw.standard_normal(dtype=np.float32, out=drawn[:POOL])
            for start in range(POOL, elements, POOL):
                runs = np.lib.stride_tricks.sliding_window_view(drawn[:POOL], _RUN)
                part = drawn[start : start + POOL]
                part[:] = runs[draw.integers(len(runs), size=-(-len(part) // _RUN))].ravel()[: len(part)]
        if sparsity:
            zero = draw.random(-(-elements // SPARSE_BLOCK)) < sparsity
            drawn[np.repeat(zero, SPARSE_BLOCK)[:elements]] = 0
        return drawn

    def exact(self, inputs: Sequence[Vector]) -> NDArray[np.float64]:
        """Return the result that workers with these inputs should get, float64 [elements]: by default their sum."""
        if "exact" in self._functions:
            return self._checked("exact", self._functions["exact"](inputs), len(inputs[0]), np.float64)
        return exact_sum(inputs)

    def exact_of_calls(self, workers: int) -> Callable[[Sequence[Vector]], NDArray[np.float64]]:
        """Return a function that is called with the inputs of each all-reduce, in order, and returns what exact() does.

        The result may depend on earlier inputs, if workers remember what they did not send (error feedback).

        Args:
            workers: Number of workers.
        """
        if not self.remembers:
            return self.exact
        exact = self._functions["exact_of_calls"](workers)
        return lambda inputs: self._checked("exact_of_calls", exact(inputs), len(inputs[0]), np.float64)

    def exact_for(self, inputs: Sequence[Vector], output: Vector, values: int) -> NDArray[np.float64]:
        """Return the result that a worker should have got, float64 [elements], given what it got.

        It differs from exact() only if results may lack workers.

        Args:
            inputs: Each worker's vector, [elements].
            output: The worker's result, [elements].
            values: The key `values` of scenarios.
        """
        if not self.partial:
            return self.exact(inputs)
        found = self._functions["exact_for"](inputs, output, values)
        return self._checked("exact_for", found, len(inputs[0]), np.float64)

    def error_bound(self, inputs: Sequence[Vector], values: int, window: int) -> NDArray[np.float64]:
        """Return the largest distance from exact() that the protocol promises, float64 [elements].

        Args:
            inputs: Each worker's vector, [elements].
            values: The key `values` of scenarios.
            window: Slots of the lease.
        """
        bound = self._functions["error_bound"](inputs, values, window)
        return self._checked("error_bound", bound, len(inputs[0]), np.float64)

    def inputs(self, seed: int, job: int, work: Any) -> list[list[Vector]]:
        """Draw the inputs of a job of soak (assurance/soak/scenario.py has Work), [all-reduces][workers]."""
        if "inputs" in self._functions:
            return cast(list[list[Vector]], self._functions["inputs"](seed, job, work))
        draw = np.random.default_rng((seed, job))
        return [[self.vector(draw, elements) for _ in range(work.workers)] for elements in work.elements]

    def sums(self, values: int, window: int, workers: int) -> Any:
        """Return the oracle of soak for one lease, whose next(inputs) returns the next Expected result."""
        if "sums" in self._functions:
            return self._functions["sums"](values, window, workers)
        return _Sums(self, values, window, workers)

    def chunks(self, lengths: Sequence[int], values: int, window: int) -> int | None:
        """Return how many chunk numbers soak grants for all-reduces, one after the other.

        Args:
            lengths: Elements of each all-reduce.
            values: The key `values` of scenarios.
            window: Slots of the lease.

        Returns:
            The number. None: as many as fanin's own protocol needs.

        Raises:
            PythonFileError: If the protocol does not return a positive integer.
        """
        if "chunks" not in self._functions:
            return None
        made = self._functions["chunks"](lengths, values, window)
        if not isinstance(made, int) or made < 1:
            raise PythonFileError(f"{self.file}: chunks() returns {made!r}, must return a positive integer")
        return made

    @property
    def survives(self) -> frozenset[str]:
        """Return the faults that the protocol survives, of FAULTS; by default duplication and reordering.

        Raises:
            PythonFileError: If the protocol names a fault that is not one.
        """
        if "survives" not in self._functions:
            return frozenset({"duplication", "reordering"})
        found = frozenset(self._functions["survives"]())
        if unknown := sorted(map(str, found - set(FAULTS))):
            raise PythonFileError(
                f"{self.file}: survives() names {', '.join(unknown)}; soak has the faults {', '.join(FAULTS)}"
            )
        return found

    def invariants(self, run: Any) -> Iterable[str]:
        """Yield what is wrong after a run of soak, apart from results (assurance/soak/checks.py has SoakRun)."""
        return (
            cast(Iterable[str], self._functions["invariants"](run)) if "invariants" in self._functions else ()
        )

    def _checked(self, name: str, made: Any, elements: int, kind: type[np.floating[Any]]) -> NDArray[Any]:
        if not isinstance(made, np.ndarray) or made.shape != (elements,) or made.dtype != kind:
            what = f"{made.dtype} {list(made.shape)}" if isinstance(made, np.ndarray) else repr(made)
            raise PythonFileError(
                f"{self.file}: {name}() returns {what}, must return an array of {kind.__name__} [{elements}]"
            )
        return made


class Expected:
    """The result that all workers of a call must get, within a bound [elements].

    Args:
        exact_for: Returns the right result [elements] of a worker, given what it got.
        bound: The largest distance from it, [elements].
    """

    def __init__(
        self, exact_for: Callable[[Vector], NDArray[np.float64]], bound: NDArray[np.float64]
    ) -> None:
        self.length = len(bound)
        self._exact_for, self._bound = exact_for, bound

    def wrong(self, output: Vector) -> NDArray[np.bool_]:
        """Return flags [elements] for the elements of a result that are outside the bound."""
        wrong: NDArray[np.bool_] = ~(np.abs(output - self._exact_for(output)) <= self._bound)  # a NaN, too
        return wrong


class _Sums:
    """The oracle of soak for a protocol that has none of its own."""

    def __init__(self, protocol: Protocol, values: int, window: int, workers: int) -> None:
        self._protocol, self._values, self._window = protocol, values, window
        self._exact = protocol.exact_of_calls(workers)

    def next(self, inputs: Sequence[Vector]) -> Expected:
        """Return the expected result of the next call."""
        protocol, values, exact = self._protocol, self._values, self._exact(inputs)

        def exact_for(output: Vector) -> NDArray[np.float64]:
            return protocol.exact_for(inputs, output, values) if protocol.partial else exact

        return Expected(exact_for, protocol.error_bound(inputs, values, self._window))


def exact_sum(inputs: Sequence[Vector], *, magnitudes: bool = False) -> NDArray[np.float64]:
    """Return the sum in float64, [elements].

    Args:
        inputs: The vectors, float32 [elements] each.
        magnitudes: Whether to sum their magnitudes.
    """
    total = np.zeros(len(inputs[0]))
    for start in range(0, len(total), _SLAB):  # a slab of the sum stays in the cache
        part = total[start : start + _SLAB]
        for vector in inputs:
            values = vector[start : start + _SLAB]
            part += np.abs(values) if magnitudes else values
    return total


def built_in() -> list[str]:
    """Return the names of the protocols that come with fanin; fanin's own is the first."""
    found = sorted(path.parent.name for path in PROTOCOLS.glob(f"*/{PYTHON_FILE}"))
    return sorted(found, key=lambda name: name != OURS)


def folder_of(named: str, base: Path = Path()) -> Path:
    """Return the folder of a protocol, absolute.

    Args:
        named: A protocol that comes with fanin, or a path.
        base: The folder to which the path is relative.
    """
    return PROTOCOLS / named if named in built_in() else (base / named).resolve()


@cache
def load(folder: Path) -> Protocol:
    """Return the protocol in a folder.

    Raises:
        ProtocolError: If the folder lacks a part; the message lists all that are missing.
        PythonFileError: If its Python file cannot be loaded.
    """
    if not folder.is_dir():
        raise ProtocolError(
            f"{folder}: no such folder; give the folder of a protocol (fanin new --protocol makes one), or one of "
            f"those that come with fanin: {', '.join(built_in())}"
        )
    parts = {
        PYTHON_FILE: f"a Python file with {', '.join(f'{name}()' for name in _REQUIRED)}",
        PAGE: "the specification: packets, rules of switches and workers",
    }
    missing = [f"{name}, {what}" for name, what in parts.items() if not (folder / name).is_file()]
    file, found = folder / PYTHON_FILE, dict[str, Function]()
    if file.is_file():
        found = functions(file, (*_REQUIRED, *_OPTIONAL, *FUNCTIONS))
    program = Path(found["program"]()) if "program" in found else folder / PROGRAM_FILE
    if not program.is_file():
        missing.insert(
            0, f"{program if 'program' in found else PROGRAM_FILE}, the P4 program of the switches"
        )
    if missing:
        raise ProtocolError("\n  ".join([f"{folder}: is not a protocol; add", *missing]))
    if absent := [name for name in _REQUIRED if name not in found]:
        raise ProtocolError(
            f"{file}: does not define {', '.join(f'{name}()' for name in absent)}; add what docs/how-to/protocols.md "
            "describes"
        )
    planned = any(name in found for name in FUNCTIONS)
    return Protocol(folder.name, program, file, file if planned else None, file)


def protocol_of(
    named: str, program: Path | None = None, controller: Path | None = None, worker: Path | None = None
) -> Protocol:
    """Return a protocol, with those of its files replaced that are given.

    Args:
        named: A protocol that comes with fanin, or a path.
        program: Another P4 program.
        controller: Another file with functions that plan entries.
        worker: Another file with `participant`.

    Raises:
        ProtocolError: See load.
        PythonFileError: See load.
    """
    base = load(folder_of(named))
    return replace(
        base,
        program=program or base.program,
        controller=controller or base.controller,
        worker=worker or base.worker,
    )


@cache
def make_worker_of(file: Path) -> MakeWorker:
    """Return the function that makes each in-network worker: `participant(lease, recovery)` of a file.

    Raises:
        PythonFileError: If the file cannot be loaded or does not define the function. The function returned raises it
            if the result of participant() is no Participant.
    """
    return cast(MakeWorker, _maker_of(file, "participant", Participant))


def _maker_of(file: Path, name: str, kind: type) -> Callable[[Lease, Recovery], Any]:
    """Return a function of a file that makes something, with a check that it has all members of `kind`."""
    make = functions(file, (name,))[name]
    wanted = [member for member in vars(kind) if not member.startswith("_")]

    def checked(lease: Lease, recovery: Recovery) -> Any:
        made = make(lease, recovery)
        if missing := [member for member in wanted if not hasattr(made, member)]:
            raise PythonFileError(
                f"{file}: {name}() returns {made!r}, which lacks {', '.join(missing)}; see "
                f"fanin.workers.collective.{kind.__name__}"
            )
        return made

    return checked
