"""One slot of the compiled program in every history; see assurance/soak/search.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fanin.assurance.soak.search import Grant, Model, SearchWrongSumError, State, World, explore, stuck
from fanin.controller.tree import rests_on
from fanin.p4switch.engine.engine import Engine
from fanin.workers import wire
from tests.sizes import sized

pytestmark = pytest.mark.slow


def search(engine: Engine, racks: tuple[int, ...], *grants: Grant, **may: Any) -> tuple[World, list[State]]:
    """The world, and its states that cannot finish."""
    world = World(Model(racks, grants, **may), engine)
    states = explore(world)
    assert any(world.finished(state) for state in states)
    return world, stuck(world, states)


# -- loss, duplication and reordering


@pytest.mark.parametrize(
    ("racks", "chunks"), [((1,), 8), ((2,), 8), ((3,), 8), ((1, 1), 8), ((2, 1), 5), ((2, 2), 4)]
)
def test_sums_are_right_and_every_state_can_finish(
    switch: Engine, racks: tuple[int, ...], chunks: int
) -> None:
    assert search(switch, racks, Grant(chunks=chunks))[1] == []


def test_every_rule_is_met_on_the_way(switch: Engine) -> None:
    world, _ = search(switch, (2, 1), Grant(chunks=3))
    assert world.events() == {
        *("NEW_CHUNK", "ADDED", "COMPLETED", "RESULT_DOWN", "SERVED_AGAIN", "SENT_UP_AGAIN"),
    }
    assert world.drops() == {"OLD_CHUNK", "DUPLICATE", "STALE_RESULT"}


# -- workers that make different calls


@pytest.mark.parametrize("racks", [(2,), (1, 1), (2, 1)])
@pytest.mark.parametrize("may", [{}, {"registers_lost": True}])
def test_calls_that_differ_are_never_summed(
    switch: Engine, racks: tuple[int, ...], may: dict[str, bool]
) -> None:
    world = World(Model(racks, (Grant(chunks=2),), ahead=1, **may), switch)
    assert not any(world.finished(state) for state in explore(world))
    assert "MISMATCH" in world.drops()


def test_they_are_where_the_switch_does_not_tell_them_apart(mutant: Callable[[str], Engine]) -> None:
    with pytest.raises(SearchWrongSumError):
        explore(World(Model((2,), (Grant(chunks=2),), ahead=1), mutant("calls not told apart")))


# -- chunks that have an owner

# Small letters: the chunks are of a scatter.
GATHERS = [((2,), "GT"), ((3,), "TGT"), ((1, 1), "GT"), ((2, 1), "TTG"), ((2, 1), "GTT"), ((2, 2), "TGTT")]
SCATTERS = [((2,), "tg"), ((3,), "ggt"), ((1, 1), "tg"), ((2, 1), "ggt"), ((2, 1), "gtg"), ((2, 2), "gggt")]
OF_NOBODY = [((2,), "gg"), ((1, 1), "tt")]


def search_owned(
    engine: Engine, racks: tuple[int, ...], types: str, chunks: int, **may: bool
) -> tuple[World, list[State]]:
    letters = {"G": wire.GIVE, "T": wire.TAKE}
    of_all = tuple(letters[each] for each in types.upper())
    return search(engine, racks, Grant(chunks=chunks), types=of_all, scatter=types.islower(), **may)


@pytest.mark.few(2)
@pytest.mark.parametrize("may", [{}, {"registers_lost": True}], ids=["", "registers lost"])
@pytest.mark.parametrize(("racks", "types"), [*GATHERS, *SCATTERS, *OF_NOBODY])
def test_takers_get_the_sum_of_what_is_given_and_givers_learn_that_it_is_complete(
    switch: Engine, racks: tuple[int, ...], types: str, may: dict[str, bool]
) -> None:
    world, states = search_owned(switch, racks, types, 1 if may and len(types) > 2 else 3, **may)
    if may:
        assert_one_with_several_children_lost_it(world, states)
    else:
        assert states == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "racks", "types", "may"),
    [
        ("an update without values overwrites the sum", (2,), "GT", {}),
        ("an update without values begins with what the cell held", (2,), "GT", {}),
        ("all children alike if one takes", (2, 1), "GTT", {}),
        ("a result that lacks the sum below instead of it", (2, 1), "gtg", {}),
        ("a result added to an incomplete sum", (2, 1), "gtg", {"registers_lost": True}),
        ("a result added to an incomplete sum", (2, 1), "GTT", {"registers_lost": True}),
    ],
)
def test_mutants_of_these_rules_make_sums_wrong(
    mutant: Callable[[str], Engine], name: str, racks: tuple[int, ...], types: str, may: dict[str, bool]
) -> None:
    with pytest.raises(SearchWrongSumError):
        search_owned(mutant(name), racks, types, 1 if may else 4, **may)


# -- lost registers


def assert_one_with_several_children_lost_it(world: World, states: list[State]) -> None:
    """A result that some worker, or a leaf, has had and nobody sends for again; another worker waits for it."""
    tree = world._tree(world.model.grants[-1]).aggregators
    stopped = set()
    for state in states:
        holders = world.holders(state, world.waited_for(state))
        assert holders
        forgot = {name for name in world.lost(state) if rests_on(tree, name)} - holders
        assert forgot
        stopped |= forgot
    assert stopped == {name for name in world.switches if rests_on(tree, name)}


@pytest.mark.long
@pytest.mark.parametrize(("racks", "chunks"), [((2,), 6), ((3,), 4), ((1, 1), sized(2, 3)), ((2, 1), 1)])
def test_lost_registers_make_no_sum_wrong_and_stop_a_job_only_where_a_switch_with_several_children_lost_them(
    switch: Engine, racks: tuple[int, ...], chunks: int
) -> None:
    world, states = search(switch, racks, Grant(chunks=chunks), registers_lost=True)
    assert states
    assert_one_with_several_children_lost_it(world, states)


@pytest.mark.parametrize("racks", [(2,), (1, 1)])
def test_neither_does_a_restart_in_which_the_tables_are_lost_too(
    switch: Engine, racks: tuple[int, ...]
) -> None:
    assert_one_with_several_children_lost_it(*search(switch, racks, Grant(chunks=2), restarts=True))


# -- a second grant, while packets and workers of the first are still there

FIRST = Grant(1, 2, 2)
SECONDS = {
    "same lease, later chunks": Grant(1, 4, 2),
    "same lease, earlier chunks": Grant(1, 0, 2),
    "other lease, same chunks": Grant(2, 2, 2),
    "other lease, earlier chunks": Grant(2, 1, 2),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("second", SECONDS)
@pytest.mark.parametrize("racks", [(2,), (1, 1)])
def test_a_second_grant_gets_its_own_sums_and_can_always_finish(
    switch: Engine, racks: tuple[int, ...], second: str
) -> None:
    """The controller installs it switch by switch; workers begin when the first one's entries are gone."""
    assert search(switch, racks, FIRST, SECONDS[second])[1] == []


@pytest.mark.parametrize("second", SECONDS)
@pytest.mark.parametrize("may", ["registers_lost", "restarts"])
def test_so_it_does_where_a_switch_loses_its_state(switch: Engine, may: str, second: str) -> None:
    world, states = search(switch, (2,), FIRST, SECONDS[second], **{may: True})
    assert_one_with_several_children_lost_it(world, states)


def test_workers_that_begin_while_an_older_lease_is_installed_may_be_held_up_by_its_packets(
    switch: Engine,
) -> None:
    """No sum is wrong; but an old worker takes the cell away, with a result that somebody has missed."""
    assert search(switch, (2,), FIRST, SECONDS["other lease, same chunks"], overlap=True)[1]


# -- mutants


def test_without_the_chunk_tag_a_sum_is_wrong(mutant: Callable[[str], Engine]) -> None:
    with pytest.raises(SearchWrongSumError):
        search(mutant("no chunk tag"), (2,), Grant(chunks=4))


def test_what_is_added_to_a_stored_result_makes_it_wrong_once_registers_are_lost(
    mutant: Callable[[str], Engine],
) -> None:
    program = mutant("added to a stored result")
    with pytest.raises(SearchWrongSumError):
        search(program, (2, 1), Grant(chunks=1), registers_lost=True)


def test_a_lease_used_again_for_the_same_chunks_gives_the_first_jobs_sums(switch: Engine) -> None:
    with pytest.raises(SearchWrongSumError):
        search(switch, (2,), Grant(1, 0, 2), Grant(1, 0, 2))


@pytest.mark.parametrize("name", ["no re-serve", "partial sum not sent up again"])
def test_without_an_answer_to_retransmissions_there_are_states_that_cannot_finish(
    mutant: Callable[[str], Engine], name: str
) -> None:
    """Nobody answers a worker that asks for what was lost."""
    assert search(mutant(name), (2, 1), Grant(chunks=3))[1]


def test_where_an_incomplete_chunk_is_kept_a_late_duplicate_stops_the_job_once_registers_are_lost(
    mutant: Callable[[str], Engine],
) -> None:
    """Nobody retransmits the rest of chunk k - 2W. So a newer chunk takes the cell whatever it holds."""
    program = mutant("incomplete chunks kept")
    world, states = search(program, (2,), Grant(1, 1, 3), registers_lost=True)
    with pytest.raises(AssertionError):
        assert_one_with_several_children_lost_it(world, states)
