"""One slot of the compiled program under every interleaving of send, duplicate, reorder and lose.

A packet once sent may arrive at any later time and any number of times, until it is lost: that is every interleaving,
and more than a network can do. The state of the world is then what the switches' registers hold, which chunk each
worker waits for, and which packets switches have sent; all states that can be reached are visited. (Only all of the
latter are lost at a time: losing some is the same as not waiting for them, until the rest is lost too.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from experiments.virtual import load_switch
from p4switch.engine import Engine
from tests.experiments.test_soak import PROGRAM_MUTANTS, mutant
from tests.p4src.switch_under_test import BASE, RESULT, Message, SwitchUnderTest

CELLS = (2 * BASE, 2)  # of the slot: the first, and how many
PARENT = 9  # the port

Registers = tuple[tuple[int, ...], ...]
Sent = tuple[str, Message]  # to whom


class WrongSumError(AssertionError):
    pass


@dataclass
class CompiledSwitch:
    """The compiled program as a function of its state; children and parent by name."""

    engine: Engine
    children: tuple[str, ...]
    parent: str | None = None
    known: dict[tuple[Registers, str, Message], tuple[Registers, tuple[Sent, ...]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.switch = SwitchUnderTest(self.engine)
        self.members = dict(
            zip(self.children, self.switch.join(len(self.children), root=self.parent is None), strict=True)
        )
        self.receivers = {member.port: name for name, member in self.members.items()}
        if self.parent:
            self.receivers[PARENT] = self.parent
        # Packets of 64 values leave the other blocks alone, and nothing is drawn.
        self.registers = [
            name
            for name in self.engine.program.registers
            if not any(part in name for part in ("block_1", "block_2", "block_3", "drawn"))
        ]
        self.fresh = self._read()

    def step(self, state: Registers, sender: str, message: Message) -> tuple[Registers, tuple[Sent, ...]]:
        key = state, sender, message
        if key not in self.known:
            self._write(state)
            if sender == self.parent:
                sent = self.switch.send_from_parent(message)
            else:
                sent = self.switch.send(self.members[sender], message)
            self.known[key] = self._read(), tuple((self.receivers[port], out) for port, out in sent)
        return self.known[key]

    def _read(self) -> Registers:
        return tuple(tuple(self.engine.register_read(name, *CELLS)) for name in self.registers)

    def _write(self, state: Registers) -> None:
        for name, cells, now in zip(self.registers, state, self._read(), strict=True):
            for i, value in enumerate(cells):
                if value != now[i]:
                    self.engine.register_write(name, CELLS[0] + i, value)


@dataclass(frozen=True)
class State:
    registers: tuple[Registers, ...]
    awaited: tuple[int, ...]  # the chunk that each worker has sent last, or how many there are
    sent: frozenset[tuple[str, str, Message]]  # by a switch, and to whom


@dataclass
class World:
    """`switches` by name, the workers w0, w1, … below them, and as many chunks for each."""

    switches: dict[str, CompiledSwitch]
    chunks: int

    def __post_init__(self) -> None:
        self.leaf_of = {
            child: name
            for name, switch in self.switches.items()
            for child in switch.children
            if child.startswith("w")
        }
        self.workers = sorted(self.leaf_of)
        self.order = list(self.switches)

    def update(self, worker: int, chunk: int) -> Message:
        return Message(contribution(worker, chunk), chunk=chunk, version=chunk & 1, exponents=(worker, 0))

    def start(self) -> State:
        fresh = tuple(switch.fresh for switch in self.switches.values())
        return State(fresh, (0,) * len(self.workers), frozenset())

    def finished(self, state: State) -> bool:
        return all(chunk == self.chunks for chunk in state.awaited)

    def next_states(self, state: State) -> Iterator[State]:
        """After any one arrival; and after the loss, for good, of all that switches have sent."""
        yield State(state.registers, state.awaited, frozenset())
        for worker, awaited in enumerate(state.awaited):
            for chunk in range(min(awaited + 1, self.chunks)):
                name = f"w{worker}"
                yield self._to_switch(state, name, self.leaf_of[name], self.update(worker, chunk))
        for sender, receiver, message in state.sent:
            if receiver in self.switches:
                yield self._to_switch(state, sender, receiver, message)
            else:
                yield self._to_worker(state, int(receiver[1:]), message)

    def _to_switch(self, state: State, sender: str, name: str, message: Message) -> State:
        i = self.order.index(name)
        registers, sent = self.switches[name].step(state.registers[i], sender, message)
        return self._tidied(
            (*state.registers[:i], registers, *state.registers[i + 1 :]),
            state.awaited,
            state.sent | {(name, to, out) for to, out in sent},
        )

    def _to_worker(self, state: State, worker: int, message: Message) -> State:
        if message.chunk != state.awaited[worker]:
            return state
        right = [contribution(w, message.chunk) for w in range(len(self.workers))]
        expected = tuple(map(sum, zip(*right, strict=True)))
        if message.type != RESULT or message.values != expected or message.exponents[0] != len(right) - 1:
            raise WrongSumError(f"w{worker}, chunk {message.chunk}: {message}")
        awaited = (*state.awaited[:worker], message.chunk + 1, *state.awaited[worker + 1 :])
        return self._tidied(state.registers, awaited, state.sent)

    def _tidied(
        self,
        registers: tuple[Registers, ...],
        awaited: tuple[int, ...],
        sent: frozenset[tuple[str, str, Message]],
    ) -> State:
        """Results that their worker has had are ignored for ever."""
        kept = (
            (sender, to, message)
            for sender, to, message in sent
            if to in self.switches or message.chunk >= awaited[int(to[1:])]
        )
        return State(registers, awaited, frozenset(kept))


def contribution(worker: int, chunk: int) -> tuple[int, ...]:
    """Any wrong choice or number of contributions gives another sum."""
    return tuple((-1) ** j * (100 ** (worker + 1) * (chunk + 1) + j) for j in range(64))


def explore(world: World) -> dict[State, list[State]]:
    """Every state that can be reached, and from which others."""
    start = world.start()
    before: dict[State, list[State]] = {start: []}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        for after in world.next_states(state):
            if after not in before:
                before[after] = []
                waiting.append(after)
            before[after].append(state)
    return before


def cannot_finish(world: World, before: dict[State, list[State]]) -> int:
    """States from which no sequence of arrivals leads to the end."""
    waiting = [state for state in before if world.finished(state)]
    can = set(waiting)
    while waiting:
        for state in before[waiting.pop()]:
            if state not in can:
                can.add(state)
                waiting.append(state)
    return len(before) - len(can)


def one_switch(engine: Engine, workers: int, chunks: int) -> World:
    return World({"root": CompiledSwitch(engine, tuple(f"w{i}" for i in range(workers)))}, chunks)


def tree(engine: Engine, racks: tuple[int, ...], chunks: int) -> World:
    names = iter(f"w{i}" for i in range(sum(racks)))
    leaves = {
        f"leaf{i}": CompiledSwitch(engine.another(), tuple(next(names) for _ in range(size)), "root")
        for i, size in enumerate(racks)
    }
    return World({**leaves, "root": CompiledSwitch(engine.another(), tuple(leaves))}, chunks)


@pytest.fixture(scope="module")
def program() -> Engine:
    return load_switch()


@pytest.mark.parametrize(("workers", "chunks"), [(1, 8), (2, 8), (3, 8)])
def test_one_switch_gives_right_sums_only_and_can_always_finish(
    program: Engine, workers: int, chunks: int
) -> None:
    world = one_switch(program.another(), workers, chunks)
    states = explore(world)
    assert any(world.finished(state) for state in states)
    assert cannot_finish(world, states) == 0


@pytest.mark.parametrize(("racks", "chunks"), [((1, 1), 5), ((2, 1), 4), ((2, 2), 3)])
def test_so_does_a_tree_of_switches(program: Engine, racks: tuple[int, ...], chunks: int) -> None:
    world = tree(program, racks, chunks)
    states = explore(world)
    assert any(world.finished(state) for state in states)
    assert cannot_finish(world, states) == 0


def test_every_rule_is_met_on_the_way(program: Engine) -> None:
    world = tree(program, (2, 1), 3)
    explore(world)
    leaf = world.switches["leaf0"].switch
    assert set(leaf.events()) == {
        *("NEW_CHUNK", "ADDED", "COMPLETED", "RESULT_DOWN", "SERVED_AGAIN", "SENT_UP_AGAIN"),
    }
    assert {"OLD_CHUNK", "DUPLICATE", "STALE_RESULT"} == set(leaf.drops())


def test_without_the_chunk_tag_a_sum_is_wrong(tmp_path: Path) -> None:
    world = one_switch(mutant(tmp_path / "p4src", *PROGRAM_MUTANTS["no chunk tag"]), 2, 4)
    with pytest.raises(WrongSumError):
        explore(world)


@pytest.mark.parametrize("name", ["no re-serve", "partial sum not sent up again"])
def test_without_an_answer_to_retransmissions_there_are_states_that_cannot_finish(
    tmp_path: Path, name: str
) -> None:
    """What was lost is asked for in vain."""
    world = tree(mutant(tmp_path / "p4src", *PROGRAM_MUTANTS[name]), (2, 1), 3)
    assert cannot_finish(world, explore(world)) > 0
