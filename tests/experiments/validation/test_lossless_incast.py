"""An incast under priority flow control starves the link next to its receiver, as htsim has it, and only so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.scenario.tables.congestion import Congestion
from experiments.validation.lossless_incast import (
    AS_HTSIM,
    BURST,
    INCASTS,
    TOLERANCE,
    Incast,
    Victim,
    run,
)
from p4switch.engine.engine import Engine
from tests.sizes import sized
from workers.host_based.transport import PAYLOAD

pytestmark = pytest.mark.slow

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
    def found(incast: Incast, below_half: float, under_used: float) -> Victim:
        return Victim(incast, below_half=below_half, each=(), share=0.1, under_used=under_used, lasted=24)

    htsim = AS_HTSIM.htsim
    assert htsim is not None
    near, far = 1 - TOLERANCE + 0.01, 1 + TOLERANCE + 0.01
    assert found(AS_HTSIM, near * htsim.below_half, near * htsim.under_used).agrees
    assert not found(AS_HTSIM, htsim.below_half, far * htsim.under_used).agrees
    assert not found(AS_HTSIM, far * htsim.below_half, htsim.under_used).agrees
    assert found(BURST, 0, 17).agrees  # which is shown, and not judged
    assert found(SMALL, 0, 0).agrees  # it has not been run there
    assert found(BURST, 1, 17).cells == ("16 hosts, 1 ms each", "24", "8.5", "1", "-88%", "15.5", "17")


@pytest.mark.long
@pytest.mark.parametrize("incast", INCASTS[: sized(0, len(INCASTS))], ids=lambda incast: incast.name)
def test_the_link_is_starved_as_long_as_htsim_says_and_the_document_shows_it(
    switch: Engine, incast: Incast
) -> None:
    found = run(incast, switch)
    assert found.agrees
    assert f"| {' | '.join(found.cells)} |" in DOCUMENT.read_text().splitlines()
