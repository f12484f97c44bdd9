"""Points whose tables replace plain all-reduces give the same on several cores as on one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import VirtualNetwork

JOBS = "arrival,workers,size,rounds\n0,4,100000,2\n0.00001,4,50000,1\n0.00002,8,200000,1\n"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ring", "in-network"])
@pytest.mark.parametrize(
    "table",
    [
        {"arrivals": {"trace": "jobs.csv"}},
        {"decoding": {"model": "llama-3-8b", "layers": 1, "memory_rate": "2 TB/s"}},
    ],
    ids=lambda table: next(iter(table)),
)
def test_a_table_gives_the_same(
    switch: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: str,
    table: dict[str, dict[str, Any]],
) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    topology = {"leaf_spine": {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s"}}
    settings = Settings.model_validate({"topology": topology, "algorithm": algorithm} | table).settled
    networks = []

    def on(cores: int, *arguments: Any, **options: Any) -> VirtualNetwork:
        networks.append(VirtualNetwork(*arguments, cores=cores, worth=0, **options))
        return networks[-1]

    one, two = (run_virtual(settings, switch, make_network=partial(on, cores)) for cores in (1, 2))
    assert one == two
    assert networks[1].barriers
