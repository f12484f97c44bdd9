"""Hosts with flows have the same history in C as in Python, byte for byte, and a mistake in the C shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.p4switch.engine.engine import Engine
from fanin.simulator import compiled as loop
from fanin.simulator import flows, network
from fanin.workers.host_based.engine import compiled as engine
from fanin.workers.host_based.engine import flows as flows_in_c
from tests.simulator.event_loop import random_flows
from tests.simulator.event_loop.mutants import Mutant, library_with
from tests.simulator.event_loop.random_flows import Ran
from tests.sizes import sized

pytestmark = pytest.mark.slow


def in_python(switch: Engine, seed: int) -> Ran:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flows, "in_c", lambda *_: False)
        return random_flows.run(switch, seed)


@pytest.mark.long
def test_flows_in_c_have_the_same_history(switch: Engine) -> None:
    retransmissions = marks = 0
    for seed in range(sized(12, 200)):
        ours, theirs = random_flows.run(switch, seed), in_python(switch, seed)
        assert ours == theirs, seed
        assert ours.finished, seed
        retransmissions += ours.retransmissions
        marks += ours.marks
    assert retransmissions
    assert marks


def test_windows_that_c_runs_at_once_are_those_that_python_runs(switch: Engine) -> None:
    for seed in range(sized(6, 100)):
        observed, alone = (random_flows.run(switch, seed, observed=which) for which in (True, False))
        assert observed.facts[1:] == alone.facts[1:], seed


MUTANTS = {
    "a window that never shrinks": Mutant(
        "congestion.c", "    if (congested && base", "    if (false && base", 3
    ),
    "a rate that never falls": Mutant("congestion.c", "d->rate * (1 - d->alpha / 2)", "d->rate", 2),
    "a timeout that does not back off": Mutant("sender.c", "least(out->backoff + 1, MAX_BACKOFF)", "0", 1),
    "Karn's algorithm left out": Mutant("sender.c", "found->last <= out->measured_from", "false", 1),
    "a threshold of reordering too many": Mutant(
        "sender.c", ">= s->settings->packet_threshold", "> s->settings->packet_threshold", 6
    ),
    "a bitmap without its last packet": Mutant(
        "receiver.c", "in->newest - in->expected : 0", "in->newest - in->expected - 1 : 0", 6
    ),
    "a packet kept twice": Mutant("receiver.c", " || place->there) {", ") {", 28),
    "a second request for the same packet": Mutant(
        "receiver.c", "if (in->asked_for != in->expected) {", "if (true) {", 2
    ),
    "marks not counted": Mutant("receiver.c", "in->marked += datagrams->marked[i];", "", 0),
    "a flow that begins early": Mutant("flows.c", "if (end->facts->start > now)", "if (false)", 0),
    "acknowledgements in any order": Mutant("flows.c", "if (h->answering_count > 1)", "if (false)", 3),
    "acknowledgements behind data": Mutant(
        "card.c", "while (card->first && (", "while (!card->in_turn && card->first && (", 0
    ),
    "turns of nine packets": Mutant("card.c", "TURN = 8", "TURN = 9", 0),
    "checksums not verified": Mutant(
        "card.c", "    return !load16(frame + UDP_CHECKSUM) ||", "    return true ||", 1
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mistake_in_c_is_found(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mutant: Mutant
) -> None:
    monkeypatch.setenv("P4SWITCH_CFLAGS", "-Og")
    of = loop if mutant.file == "card.c" else engine
    changed = library_with(mutant, of.FOLDER, of.library, tmp_path)
    monkeypatch.setattr(network if of is loop else flows_in_c, "library", lambda: changed)
    assert random_flows.run(switch, mutant.seed) != in_python(switch, mutant.seed)
