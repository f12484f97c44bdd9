"""Compressed all-reduces in soak; and rules of compression broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.assurance.soak.generate import draw_scenario
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Work
from fanin.experiments.models.compressed_sums import compressed_sum
from fanin.p4switch.engine.engine import Engine
from fanin.topologies.link import LinkProperties
from fanin.workers.values.compression import Compressor, Rounded, TopK, decompressed, sum_of

WITHIN = 200  # seeds, in which a mutant must be caught
COMPRESSORS = (TopK(0.1), TopK(1.0), Rounded(8), Rounded(4))


@pytest.mark.slow
@given(st.sampled_from(COMPRESSORS), st.integers(1, 4), st.integers(1, 700), st.integers(0, 2**32 - 1))
def test_the_oracle_has_the_sum_of_what_each_compression_leaves(
    compressor: Compressor, workers: int, elements: int, seed: int
) -> None:
    vectors = list(np.random.default_rng(seed).standard_normal((workers, elements), dtype=np.float32))
    total, certain = compressed_sum(compressor, vectors)
    added = np.zeros(elements, np.float32)
    for x in vectors:
        added += decompressed(compressor, x)
    assert (total == added)[certain].all()


def test_the_oracle_is_not_certain_which_of_equal_values_are_kept() -> None:
    x = np.array([1, 3, -2, 2, 0.5, 0], np.float32)
    total, certain = compressed_sum(TopK(1 / 3), [x])
    assert certain.tolist() == [True, True, False, False, True, True]
    assert total[certain].tolist() == [0, 3, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_compressed_sums_are_right_on_links_that_lose_and_reorder(
    switch: Engine, compressor: Compressor
) -> None:
    links = LinkProperties(delay=2e-6, loss=0.05, duplication=0.05, reordering=0.1, displacement=2e-4)
    work = Work((2, 2), elements=(3000, 1), algorithm="ring", compression=compressor)
    assert not run_scenario(Scenario(0, (work,), links=links), switch).violations


def compressed_works() -> list[Scenario]:
    scenarios = map(draw_scenario, range(WITHIN))
    return [scenario for scenario in scenarios if any(work.compression for work in scenario.works)]


@pytest.mark.slow
def test_scenarios_have_every_compression() -> None:
    found = {work.compression for scenario in compressed_works() for work in scenario.works}
    assert {Rounded(8), Rounded(4)} < found
    assert len({one.density for one in found if isinstance(one, TopK)}) == 4


def backwards(compression: Any, gathered: NDArray[np.uint8], workers: int, elements: int) -> Any:
    """Added in another order."""
    return sum_of(compression, gathered.reshape(workers, -1)[::-1].reshape(-1), workers, elements)


def smallest(compressor: TopK, x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The smallest values, not the largest."""
    places = np.sort(np.argsort(np.abs(x))[: compressor._count(x.size)])
    return np.concatenate([places.astype(np.uint32).view(np.uint8), x[places].view(np.uint8)])


rounded = Rounded.packed


def cut_off(compressor: Rounded, x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Codes that are rounded towards 0."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "rint", np.trunc)
        return rounded(compressor, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        ("fanin.workers.host_based.exchange", "sum_of", backwards),
        ("fanin.workers.values.compression.TopK", "packed", smallest),
        ("fanin.workers.values.compression.Rounded", "packed", cut_off),
    ],
)
def test_a_mutant_of_compression_is_caught(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, owner: str, name: str, broken: Any
) -> None:
    monkeypatch.setattr(f"{owner}.{name}", broken)
    assert any(run_scenario(scenario, switch).violations for scenario in compressed_works())
