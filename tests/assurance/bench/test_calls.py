"""The benchmark of calls: what it makes of its workers' times, and that it runs and checks every sum."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from fanin.assurance.bench.allreduce_worker import Order
from fanin.assurance.bench.calls import added, case_of, repetitions
from fanin.assurance.bench.calls_worker import BARE, CALL, NOTHING, Calls
from fanin.testbed.patience import setting

SCRIPT = """
import json, pathlib, sys, tempfile
from dataclasses import asdict
from fanin.assurance.bench.allreduce_worker import Order
from fanin.assurance.bench.calls import measure, topology
from fanin.testbed.interrupt import run_until_interrupted
from fanin.temporary_network import own_network

with tempfile.TemporaryDirectory() as name:
    file = pathlib.Path(name, "network.toml")
    file.write_text(topology(2))
    with own_network(["--topology", str(file), "--logs", name]) as network:
        orders = [Order(250, 3), Order(100_000, 2)]
        cases = run_until_interrupted(measure(network, pathlib.Path(sys.executable), orders))
print(json.dumps([asdict(case) for case in cases]))
"""


def test_a_call_lasts_from_the_last_workers_call_to_the_last_workers_result() -> None:
    ranks = [
        {
            BARE: Calls(starts=[0.0], ends=[5.0], processor=[2.0], waits=[1.0]),
            CALL: Calls(starts=[10.0], ends=[17.0], processor=[3.0], waits=[2.0]),
            NOTHING: Calls(starts=[20.0], ends=[21.0], processor=[1.0], waits=[0.0]),
        },
        {
            BARE: Calls(starts=[1.0], ends=[4.0], processor=[1.0], waits=[1.0]),
            CALL: Calls(starts=[9.0], ends=[18.0], processor=[2.0], waits=[4.0]),
            NOTHING: Calls(starts=[25.0], ends=[26.0], processor=[1.0], waits=[0.0]),
        },
    ]
    measured = case_of(Order(256, 1), ranks).measured
    assert [one.whole.seconds for one in measured.values()] == [4.0, 8.0, 1.0]
    assert [one.own.seconds for one in measured.values()] == [3.0, 5.0, 1.0]
    assert [one.processor.seconds for one in measured.values()] == [1.5, 2.5, 1.0]
    more = [part.added and part.added.seconds for part in (measured[CALL].whole, measured[CALL].own)]
    assert more == [4.0, 2.0]
    assert measured[BARE].whole.added is measured[NOTHING].whole.added is None


def test_of_a_hundred_margins_about_95_have_the_median_within() -> None:
    draw = random.Random(1)
    hits = 0
    for _ in range(100):
        found = added([draw.expovariate(1.0) for _ in range(500)])
        hits += abs(found.seconds - 0.6931) <= found.margin
    assert 88 <= hits <= 100


def test_no_size_takes_much_longer_than_another() -> None:
    assert [repetitions(size) for size in (1 << 10, 10**6, 10**7, 10**9)] == [500, 500, 100, 20]


@pytest.mark.few(0)
@pytest.mark.live
def test_every_sum_of_every_way_is_checked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120 * setting(), check=False
    )
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)
    assert [(case["bytes"], case["workers"], case["repetitions"]) for case in cases] == [
        (1000, 2, 3),
        (400_000, 2, 2),
    ]
    for case in cases:
        assert {BARE, CALL} <= set(case["measured"])
        for one in case["measured"].values():
            assert one["wrong"] == 0
            assert all(one[part]["seconds"] > 0 for part in ("whole", "own", "processor"))
