"""Sums in random networks are, to the bit, those that the protocol's page prescribes, computed from that page alone.

The rules are those of docs/reference/protocol.md ("Quantization"). Nothing of fanin computes what is expected.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Fabric
from fanin.simulator.job_spec import JobSpec
from fanin.topologies.shapes import leaf_spine
from tests.sizes import sized

pytestmark = pytest.mark.slow


def exponent(block: list[float], workers: int, bits: int) -> int:
    largest = max(abs(x) for x in block)
    if not largest:
        return -128
    found = math.frexp(largest)[1]
    return found + (largest > math.ldexp(1 - workers / 2**bits, found))


def expected(vectors: list[NDArray[np.float32]], values: int) -> NDArray[np.float32]:
    workers, found = len(vectors), []
    bits = 16 if values in (128, 512) else 32
    for first in range(0, len(vectors[0]), values):
        blocks = [[float(x) for x in vector[first : first + values]] for vector in vectors]
        largest = max(exponent(block, workers, bits) for block in blocks)
        scale = (2 ** (bits - 1) - 1) / (workers * 2.0**largest)
        for contributions in zip(*blocks, strict=True):
            total = sum(round(x * scale) for x in contributions)  # integers of any size, rounded to even
            found.append(0.0 if largest == -128 else total * (1 / scale))
    return np.array(found, np.float64).astype(np.float32)


@settings(max_examples=sized(6, 200))
@given(
    racks=st.integers(1, 3),
    hosts=st.integers(1, 3),
    window=st.integers(1, 24),
    values=st.sampled_from((64, 128, 256, 512)),
    elements=st.integers(1, 3000),
    faults=st.fixed_dictionaries(
        {
            "loss": st.sampled_from((0.0, 0.02, 0.1)),
            "duplication": st.sampled_from((0.0, 0.05)),
            "reordering": st.sampled_from((0.0, 0.1)),
        }
    ),
    spread=st.integers(0, 60),
    seed=st.integers(0, 2**31),
)
def test_every_worker_gets_the_sum_that_the_page_prescribes(
    switch: Engine,
    racks: int,
    hosts: int,
    window: int,
    values: int,
    elements: int,
    faults: dict[str, float],
    spread: int,
    seed: int,
) -> None:
    late = {"displacement": 2e-5} if faults["reordering"] else {}
    topology = leaf_spine(2, max(racks, 2), hosts, rate=10**10, properties={"delay": 1e-6, **faults, **late})
    members = tuple(host.name for host in topology.ranked_hosts)
    draw = np.random.default_rng(seed)
    magnitudes = np.exp2(draw.integers(-spread, spread + 1, elements)).astype(np.float32)
    vectors = [draw.standard_normal(elements, dtype=np.float32) * magnitudes for _ in members]
    fabric = Fabric(topology, switch, seed=seed)
    job = fabric.start(JobSpec(hosts=members, window=window, values=values), [vectors])
    assert fabric.run(limit=30.0)
    right = expected(vectors, values).tobytes()
    assert [station.outputs[0].tobytes() == right for station in job.stations] == [True] * len(members)
