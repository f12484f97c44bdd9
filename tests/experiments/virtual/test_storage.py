"""File servers in virtual time: steps that wait for their data, and checkpoints that take turns."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fanin.experiments.results.measured import Row, row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

GIGABIT = 125e6  # bytes per second
WIRE = (1024 + 66 + 24) / 1024  # bytes on the wire of a byte that is read
SHAPE = {"spines": 0, "leaves": 1, "hosts_per_leaf": 7, "rate": "100 Gb/s"}


def settings(storage: dict[str, Any], server: int = 100, **rest: Any) -> Settings:
    """A point whose file server, h7, has a link of so many Gb/s."""
    slow = [{"link": ["h7", "leaf1"], "rate": f"{server} Gb/s"}]
    said: dict[str, Any] = {
        "topology": {"leaf_spine": SHAPE, "overrides": slow},
        "size": "4 kB",
        "workers": 4,
        "repetitions": 4,
        "step": {"forward": "100 us", "backward": "200 us"},
        "storage": storage,
    }
    return Settings.model_validate(said | rest).settled


def run(switch: Engine, storage: dict[str, Any], server: int = 100, **rest: Any) -> Row:
    point = settings(storage, server, **rest)
    found = row(point, run_virtual(point, switch))
    assert found["violations"] == 0
    return found


@pytest.mark.slow
@pytest.mark.few(3)
@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
@pytest.mark.parametrize("prefetch", [0, 1, 2])
@pytest.mark.parametrize("server", [5, 40])
def test_a_step_takes_what_the_model_predicts(
    algorithm: str, prefetch: int, server: int, switch: Engine
) -> None:
    """With 5 Gb/s the server is too slow for four workers, and with 40 it is not."""
    found = run(switch, {"batch": "100 kB", "prefetch": prefetch}, server, algorithm=algorithm)
    assert found["step_seconds"] == pytest.approx(found["predicted_step_seconds"], rel=0.05)
    assert (found["data_wait_seconds"] > 0) == (prefetch == 0 or server == 5)
    assert (found["fed_workers"] < 4) == (server == 5)
    assert found["checkpoint_seconds"] is None


@pytest.mark.slow
def test_a_worker_asks_for_no_more_than_it_needs(switch: Engine) -> None:
    """The server's link has carried four batches of each worker, and little else."""
    point = settings({"batch": "100 kB", "prefetch": 8})
    found = run_virtual(point, switch)
    assert found.usage
    (link,) = (one for one in found.usage.links if (one.near, one.far) == ("h7", "leaf1"))
    assert link.wire_bytes == pytest.approx(4 * 4 * 100e3 * WIRE, rel=0.02)


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("writers", [1, 2, None])
def test_a_checkpoint_takes_what_the_model_predicts(writers: int | None, switch: Engine) -> None:
    found = run(switch, {"checkpoint": "100 kB", "every": 2, "writers": writers}, 200)
    assert found["checkpoint_seconds"] == pytest.approx(found["predicted_checkpoint_seconds"], rel=0.1)
    at_once = writers or 4
    sending = 4 * 100e3 * WIRE / GIGABIT / min(200, 100 * at_once)
    assert found["checkpoint_seconds"] > sending
    assert (found["data_wait_seconds"], found["read_seconds"]) == (None, None)


@pytest.mark.slow
def test_several_servers_share_the_workers(switch: Engine) -> None:
    one, two = (run(switch, {"batch": "100 kB", "prefetch": 0, "servers": n}, 100) for n in (1, 2))
    assert two["read_seconds"] < 0.7 * one["read_seconds"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"storage": {}}, "batch: give batch, such as '1 MB', or checkpoint, or both"),
        ({"step": None}, "storage: needs a table step, whose steps wait for their data; add it"),
        ({"repetitions": 1}, "repetitions: storage needs at least 2 steps"),
        ({"workers": 7}, "storage: needs a host that is not a worker, and there are 0; set workers"),
        ({"traffic": {"pattern": "permutation", "size": "1 kB"}}, "traffic: cannot be combined with storage"),
        ({"world": "live"}, "storage: is virtual only"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(changes.pop("storage", {"batch": "1 kB"}), **changes)
    assert problem in str(refused.value)


def test_keys_without_effect_make_no_further_points() -> None:
    assert settings({"batch": "1 kB", "writers": 1}) == settings({"batch": "1 kB", "every": 2})
    assert settings({"checkpoint": "1 kB", "prefetch": 2}) == settings({"checkpoint": "1 kB"})
