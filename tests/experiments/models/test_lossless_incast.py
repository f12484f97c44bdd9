"""An incast under priority flow control starves the link next to its receiver, as htsim has it, and only so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.models.lossless_incast import (
    AS_HTSIM,
    HTSIM_BELOW_HALF,
    INCASTS,
    TOLERANCE,
    Incast,
    Victim,
    run,
)
from experiments.scenario.congestion import Congestion
from p4switch.engine.engine import Engine
from tests.sizes import sized
from workers.host_based.transport import PAYLOAD

DOCUMENT = Path(__file__).parents[3] / "docs" / "validation.md"

# Sixteen hosts, eight of which send 150 packets of 7.2 us, whatever is marked.
SMALL = replace(
    AS_HTSIM,
    k=4,
    senders=8,
    size=150 * PAYLOAD,
    seeds=(0, 2),
    htsim=None,
    congestion=Congestion(control="none"),
)


def test_pauses_starve_the_neighbours_link_for_most_of_an_incast(switch: Engine) -> None:
    paused, free = (run(replace(SMALL, pauses=pauses), switch) for pauses in (True, False))
    assert paused.below_half >= 6
    assert free.below_half <= 1
    assert paused.share is not None
    assert paused.share < 1 / 2
    assert paused.under_used >= paused.below_half
    assert paused.below_half > 2 / 3 * paused.lasted


def test_what_is_further_from_htsim_than_the_tolerance_does_not_agree() -> None:
    def after(milliseconds: float, incast: Incast = AS_HTSIM) -> Victim:
        return Victim(
            incast, below_half=milliseconds, each=(), share=0.1, under_used=milliseconds, lasted=milliseconds
        )

    nearest, furthest = HTSIM_BELOW_HALF * (1 - TOLERANCE), HTSIM_BELOW_HALF * (1 + TOLERANCE)
    assert [after(found).agrees for found in (nearest - 1, nearest, furthest, furthest + 1)] == [
        False,
        True,
        True,
        False,
    ]
    assert after(1, SMALL).agrees  # nobody has recorded it
    assert after(18).cells == ("htsim's, packet by packet", "18", "24", "18", "-25%", "10%", "18")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("incast", INCASTS[: sized(1, len(INCASTS))], ids=lambda incast: incast.name)
def test_the_link_is_starved_as_long_as_htsim_says_and_the_document_shows_it(
    switch: Engine, incast: Incast
) -> None:
    found = run(incast, switch)
    assert found.agrees
    assert f"| {' | '.join(found.cells)} |" in DOCUMENT.read_text().splitlines()
