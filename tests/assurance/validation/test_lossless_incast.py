"""An incast under priority flow control starves the link next to its receiver, as htsim has it, and only so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from fanin.assurance.validation.lossless_incast import (
    AS_HTSIM,
    BURST,
    INCASTS,
    Incast,
    Seen,
    Victim,
    run,
)
from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.p4switch.engine.engine import Engine
from fanin.workers.host_based.transport import PAYLOAD
from tests.sizes import sized

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[3] / "docs" / "explanation" / "validation-htsim.md"

# Sixteen hosts, eight of which send 150 packets of 7.2 us, whatever is marked.
SMALL = replace(
    AS_HTSIM,
    k=4,
    senders=8,
    size=150 * PAYLOAD,
    window=10,
    seeds=sized((2,), (0, 2)),
    htsim=None,
    congestion=Congestion(control="none"),
)


@pytest.mark.few(0)
@pytest.mark.long
def test_pauses_starve_the_neighbours_link_for_most_of_an_incast(switch: Engine) -> None:
    with_pauses, without = (run(replace(SMALL, pauses=pauses), switch).seen for pauses in (True, False))
    for paused, free in zip(with_pauses, without, strict=True):
        assert 0 < paused.sharing < SMALL.senders
        assert paused.sharing == free.sharing
        assert free.below_half <= 1
        assert paused.below_half >= 6
        assert fmean(paused.shares) < 1 / 2
        assert paused.under_used >= paused.below_half > 2 / 3 * paused.lasted


@pytest.mark.few(0)
def test_they_do_so_for_longer_where_congestion_is_estimated_from_none_and_each_round_adds_a_packet(
    switch: Engine,
) -> None:
    def below_half(congestion: Congestion) -> float:
        return run(replace(SMALL, congestion=congestion, seeds=(0,)), switch).ours[0]

    from_one = below_half(Congestion())
    from_none = below_half(Congestion(initial_alpha=0))
    always = below_half(Congestion(initial_alpha=0, increase="always"))
    assert from_one < from_none < always


def test_what_is_further_from_htsim_than_the_tolerance_does_not_agree() -> None:
    def found(incast: Incast, *milliseconds: tuple[int, int]) -> Victim:
        seen = (
            Seen(sharing=3, below_half=half, under_used=less, shares=(), lasted=17)
            for half, less in milliseconds
        )
        return Victim(incast, tuple(seen))

    incast = replace(BURST, htsim={3: (20.0, 40.0)})
    assert found(incast, (19, 41), (21, 38)).agrees
    assert not found(incast, (19, 41), (12, 41)).agrees
    assert not found(incast, (20, 40), (20, 60)).agrees
    assert found(SMALL, (0, 0)).agrees  # it has not been run there
    cells = ("16 hosts, 1 ms each", "17.0", "3.0", "20.0", "19.0", "-5%", "40.0", "38.0", "-5%")
    assert found(incast, (19, 38)).cells == cells
    assert found(replace(incast, htsim=None), (19, 38)).cells[3:] == ("", "19.0", "", "", "38.0", "")


@pytest.mark.few(0)
@pytest.mark.long
@pytest.mark.parametrize("incast", INCASTS, ids=lambda incast: incast.name)
def test_the_link_is_starved_as_long_as_htsim_says_and_the_document_shows_it(
    switch: Engine, incast: Incast
) -> None:
    found = run(incast, switch)
    assert found.agrees
    assert f"| {' | '.join(found.cells)} |" in DOCUMENT.read_text().splitlines()
