"""Lessons run in a small size, and what each of them is about is to be seen there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise, product
from math import ceil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments.models.circuits import circuit_rate, fat_tree_price
from fanin.experiments.models.cost import Job, costs, idle_share
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.shipped import lessons, scenario_file
from tests.fanin.verbs.lesson_runs import run_lesson
from tests.sizes import sized

ROOT = Path(__file__).parents[3]
NAMES = sorted(lessons())

# Changes of a lesson's small size, in which its point is seen as well; `make test-long` makes none.
SMALLER = {
    "depth": ["size=4 kB"],
    "overlap": ["step_bucket=1 MB,128 kB,8 kB"],
    "oversubscription": ["hosts_per_leaf=4", "oversubscription=1,4"],
    "scaling": ["leaves=2", "hosts_per_leaf=8"],
    "volume": ["coalescing=200 ns"],
}

Rows = list[Row]


def one(rows: Rows, **said: object) -> Row:
    """The only row with these values."""
    (row,) = (row for row in rows if all(row[name] == value for name, value in said.items()))
    return row


def seconds(rows: Rows, **said: object) -> float:
    """Its time."""
    median: float = one(rows, **said)["median_seconds"]
    return median


def scaling(rows: Rows) -> None:
    assert seconds(rows, algorithm="in-network", workers=2) == seconds(
        rows, algorithm="in-network", workers=8
    )
    assert seconds(rows, algorithm="ring", workers=8) > 3 * seconds(rows, algorithm="ring", workers=2)


def loss(rows: Rows) -> None:
    assert all((row["retransmissions"] > 0) == (row["loss"] > 0) for row in rows)
    back, repeat = (one(rows, loss=0.003, transport=name) for name in ("go-back-n", "selective-repeat"))
    assert back["retransmissions"] > 10 * repeat["retransmissions"]


def ecmp(rows: Rows) -> None:
    hashed, sprayed, adaptive = (
        seconds(rows, algorithm="ring", paths=paths) for paths in ("ecmp", "spray", "adaptive")
    )
    assert hashed > 1.4 * max(sprayed, adaptive)
    in_network = {row["median_seconds"] for row in rows if row["algorithm"] == "in-network"}
    assert max(in_network) < min(sprayed, adaptive)


def oversubscription(rows: Rows) -> None:
    in_network = {row["median_seconds"] for row in rows if row["algorithm"] == "in-network"}
    assert max(in_network) == pytest.approx(min(in_network), rel=0.01)
    ratios = sorted({row["oversubscription"] for row in rows})
    ring = [seconds(rows, algorithm="ring", placement="spread", oversubscription=n) for n in ratios]
    assert ring[1] > 1.5 * ring[0]


def volume(rows: Rows) -> None:
    """Shares of time are those of the closed forms in full size, but for headers."""
    file = scenario_file("lesson:volume")
    lesson = load_scenario(file).frame.lesson
    assert lesson is not None
    compute = load_scenario(file, lesson.small).frame.compute
    assert compute is not None
    for row in rows:
        job = Job.model_validate(
            {
                "parameters": "175G",
                "dtype": "fp32" if row["size"] == 2_000_000 else "bf16",
                "compute": "2 s",
                "gpus": (64,),
                "nics": row["rate"] // 50_000_000_000,
                "algorithm": (row["algorithm"],),
            }
        )
        (expected,) = costs(job)
        share = idle_share(compute, row["median_seconds"])
        assert expected.idle_share < share < expected.idle_share + 0.08


def window(rows: Rows) -> None:
    """Little's law: a window for each round trip, of which there are four links up and down, and a host's look."""
    for delay, trip in ((1e-6, 8.4e-6), (10e-6, 44.4e-6)):
        for packets in (16, 32):
            expected = (
                1 + ceil(391 / packets)
            ) * trip  # 400 kB in packets of 1,024 bytes, and exponents ahead
            assert seconds(rows, delay=delay, window=packets) == pytest.approx(expected, rel=0.02)
    assert seconds(rows, delay=1e-6, window=512) < 0.06e-3


def placement(rows: Rows) -> None:
    in_order, in_turn = "h1 h2 h3 h4 h17 h18 h19 h20", "h1 h17 h2 h18 h3 h19 h4 h20"
    assert seconds(rows, hosts=in_order, algorithm="in-network") == seconds(
        rows, hosts=in_turn, algorithm="in-network"
    )
    assert seconds(rows, hosts=in_turn, algorithm="ring") > 1.3 * seconds(
        rows, hosts=in_order, algorithm="ring"
    )


def depth(rows: Rows) -> None:
    """A tier is two links and two packets more, twice: for exponents and for values."""
    times = [
        row["median_seconds"] for row in rows if (row["algorithm"], row["size"]) == ("in-network", 4_000)
    ]
    steps = [after - before for before, after in pairwise(times)]
    assert len(steps) == 3
    assert steps == pytest.approx([2 * 2.1e-6] * 3, rel=0.05)
    between = [row["median_seconds"] for row in rows if (row["algorithm"], row["size"]) == ("ring", 4_000)]
    assert between == sorted(between)
    assert between[-1] - between[0] > 3 * (times[-1] - times[0])


def straggler(rows: Rows) -> None:
    late = [one(rows, workers=n, lateness=1e-3, algorithm="in-network")["wait_seconds"] for n in (2, 16)]
    assert late[0] == pytest.approx(0.5e-3, rel=0.5)
    assert late[1] == pytest.approx(sum(1e-3 / n for n in range(2, 17)), rel=0.3)
    for row in rows:  # from the last worker's call on nothing has changed
        prompt = seconds(rows, workers=row["workers"], lateness=0, algorithm=row["algorithm"])
        assert row["median_seconds"] == pytest.approx(prompt, rel=0.02)


def degraded(rows: Rows) -> None:
    for algorithm in ("in-network", "ring"):
        healthy, slow, lossy = (
            one(rows, topology=name, algorithm=algorithm) for name in ("healthy", "slow link", "lossy link")
        )
        assert slow["median_seconds"] > 2 * healthy["median_seconds"]
        assert lossy["median_seconds"] > healthy["median_seconds"]
        assert (healthy["link_lost"], slow["link_lost"]) == (0, 0)
        assert lossy["link_lost"] > 0


def small_vectors(rows: Rows) -> None:
    alone, ring = (seconds(rows, workers=2, size=256_000, algorithm=name) for name in ("in-network", "ring"))
    assert ring < alone
    for algorithm in ("in-network", "ring"):
        assert seconds(rows, workers=8, size=1_000, algorithm=algorithm) < 0.1e-3


def incast(rows: Rows) -> None:
    for row in rows:
        overflows = row["algorithm"] == "parameter-server" and row["queue_bytes"] == 50_000
        assert (row["link_queue_drops"] > 0) == overflows
    repeat, back = (
        one(rows, queue_bytes=50_000, transport=name) for name in ("selective-repeat", "go-back-n")
    )
    assert repeat["retransmissions"] == repeat["link_queue_drops"]
    assert back["retransmissions"] > back["link_queue_drops"]


def pfc(rows: Rows) -> None:
    paused, dropping = 50_000, 40_000_000  # bytes
    for algorithm in ("in-network", "ring"):
        alone = seconds(rows, algorithm=algorithm, traffic_window=8, xoff_bytes=dropping)
        behind = seconds(rows, algorithm=algorithm, traffic_window=256, xoff_bytes=paused)
        assert behind > 1.4 * alone
        assert seconds(rows, algorithm=algorithm, traffic_window=256, xoff_bytes=dropping) < 1.1 * alone
    assert all(row["link_pauses"] == 0 for row in rows if row["xoff_bytes"] == dropping)
    assert all(row["link_queue_drops"] == 0 for row in rows if row["xoff_bytes"] == paused)


def deadlock(rows: Rows) -> None:
    ring = "leaf1 → spine1, spine1 → leaf2, leaf2 → spine2, spine2 → leaf3, leaf3 → spine3, spine3 → leaf1"
    for row in rows:
        clockwise, crowded = row["controller"].endswith("clockwise.py"), row["window"] == 128
        stands = clockwise and crowded and row["watchdog_action"] == "alert"
        assert (row["error"] is not None) == stands
        if stands:
            assert row["error"].startswith("DeadlockError")
            assert ring in row["error"]
        else:
            assert (row["link_storms"] > 0) == (clockwise and crowded)
            assert (row["link_watchdog_drops"] > 0) == (
                row["link_storms"] > 0 and row["watchdog_action"] == "drop"
            )


def checkpoint(rows: Rows) -> None:
    small, large = 1, 500_000  # bytes
    paused, dropping = 50_000, 40_000_000
    alone, beside, stopped = (
        seconds(rows, algorithm="in-network", traffic_size=size, xoff_bytes=xoff)
        for size, xoff in ((small, dropping), (large, dropping), (large, paused))
    )
    assert alone < beside < stopped / 1.5


def compression(rows: Rows) -> None:
    def faster(kind: str, workers: int) -> float:
        whole, sent = (
            seconds(rows, algorithm="ring", compression_kind=one, workers=workers) for one in ("none", kind)
        )
        return whole / sent

    assert faster("top-k", 2) > faster("4-bit", 2) > faster("8-bit", 2) > 1
    assert faster("8-bit", 16) < 1 < faster("top-k", 16)


def ecn(rows: Rows) -> None:
    short, long = 5_000, 1_000_000  # bytes
    alone = one(rows, congestion_control="none", ecn_bytes=short)
    for control in ("dctcp", "dcqcn-paper"):
        reacting = one(rows, congestion_control=control, ecn_bytes=short)
        assert reacting["median_seconds"] > 1.3 * alone["median_seconds"]
        assert reacting["traffic_p50_seconds"] < 0.8 * alone["traffic_p50_seconds"]
        late = one(rows, congestion_control=control, ecn_bytes=long)
        assert late["median_seconds"] == pytest.approx(alone["median_seconds"], rel=0.05)


def parallelism(rows: Rows) -> None:
    server, shared, alone = (
        "h1 h2 h3 h4 h5 h6 h7 h8",
        "h1 h2 h9 h10 h17 h18 h25 h26",
        "h1 h9 h17 h25 h33 h41 h49 h57",
    )
    for collective in ("all-reduce", "all-gather", "all-to-all", "broadcast"):
        inside = seconds(rows, collective=collective, hosts=server)
        assert all(seconds(rows, collective=collective, hosts=one) > 1.4 * inside for one in (shared, alone))
    assert seconds(rows, collective="all-to-all", hosts=shared) > 1.3 * seconds(
        rows, collective="all-to-all", hosts=alone
    )
    assert seconds(rows, collective="all-gather", hosts=shared) < seconds(
        rows, collective="all-gather", hosts=alone
    )


def rails(rows: Rows) -> None:
    def gain(**said: object) -> float:
        """Return by how much eight network cards are faster than one."""
        one_card, eight = (seconds(rows, servers_nics_per_server=cards, **said) for cards in (1, 8))
        return one_card / eight

    assert gain(algorithm="in-network", trees=1) == pytest.approx(1.0, rel=0.01)
    assert gain(algorithm="in-network", trees=8) > 3
    assert gain(algorithm="ring", paths="ecmp") < 1.1
    assert 1.1 < gain(algorithm="ring", paths="adaptive") < gain(algorithm="in-network", trees=8)


def pipeline(rows: Rows) -> None:
    def idle(algorithm: str, stages: int, bucket: int) -> float:
        said = {"parallelism_pipeline": stages, "parallelism_bucket": bucket}
        share: float = one(rows, algorithm=algorithm, **said)["gpu_idle_share"]
        return share

    in_network, ring, stages = (
        idle(algorithm, cut, 1_000_000) for algorithm, cut in (("in-network", 1), ("ring", 1), ("ring", 8))
    )
    assert 1.4 * in_network < stages < ring / 1.1
    for algorithm, after in (("in-network", in_network), ("ring", ring)):
        assert idle(algorithm, 1, 100_000) < after / 1.4
    assert idle("ring", 8, 100_000) == stages  # nobody sums anything


def noisy_neighbour(rows: Rows) -> None:
    for algorithm in ("in-network", "ring"):
        quiet, busy, first = (
            one(rows, algorithm=algorithm, traffic_load=load, priority=priority)
            for load, priority in ((0.01, 0), (0.4, 0), (0.4, 1))
        )
        assert busy["p95_seconds"] > quiet["p95_seconds"]
        assert busy["traffic_flows"] > quiet["traffic_flows"]
        assert first["p95_seconds"] < 1.02 * quiet["median_seconds"]
        assert first["traffic_p99_seconds"] > busy["traffic_p99_seconds"]


def overlap(rows: Rows) -> None:
    buckets = sorted({row["step_bucket"] for row in rows})
    for algorithm in ("in-network", "ring"):
        tiny, part, whole = (one(rows, algorithm=algorithm, step_bucket=size) for size in buckets)
        assert part["exposed_seconds"] < min(whole["exposed_seconds"], tiny["exposed_seconds"])
        assert part["gpu_idle_share"] < min(whole["gpu_idle_share"], tiny["gpu_idle_share"])


def quantization(rows: Rows) -> None:
    assert all(0 < row["max_abs_error"] <= row["error_bound"] for row in rows)
    integers = one(rows, workers=16, algorithm="in-network", values=256)
    assert integers["max_abs_error"] < one(rows, workers=16, algorithm="ring")["max_abs_error"]


def sixteen_bits(rows: Rows) -> None:
    assert all(0 < row["max_abs_error"] <= row["error_bound"] for row in rows)
    for workers in (2, 16):
        whole, half = (one(rows, workers=workers, algorithm="in-network", values=n) for n in (256, 512))
        assert half["median_seconds"] < 0.65 * whole["median_seconds"]
        assert half["max_abs_error"] > 1000 * whole["max_abs_error"]
        # A sum of n normal values is often around 3 sqrt(n), and bfloat16 keeps 8 bits of it.
        assert half["max_abs_error"] < 3 * workers**0.5 / 2**8


def reordering(rows: Rows) -> None:
    for row in rows:
        wrong = row["program"].endswith("untagged.p4") and row["displacement"] > 50e-6
        assert (row["violations"] > 0) == wrong


def two_jobs(rows: Rows) -> None:
    """With few slots neither notices the other; with enough they share the uplink."""
    alone, beside = ({w: one(rows, window=w, other_job_repetitions=n) for w in (16, 256)} for n in (0, 3))
    assert beside[16]["median_seconds"] == pytest.approx(alone[16]["median_seconds"], rel=0.01)
    assert beside[256]["median_seconds"] > 1.4 * alone[256]["median_seconds"]
    assert beside[256]["other_job_seconds"] > 1.4 * alone[256]["median_seconds"]


def failures(rows: Rows) -> None:
    def lost(size: int, writing: str, interval: float) -> float:
        share: float = one(rows, traffic_size=size, failures_writing=writing, failures_interval=interval)[
            "lost_share"
        ]
        return share

    short, long = 63_000, 252_000  # bytes of a checkpoint
    assert lost(short, "blocking", 240) < 0.8 * lost(short, "blocking", 60)
    assert lost(long, "blocking", 60) > 1.5 * lost(short, "blocking", 60)
    assert lost(long, "background", 60) == pytest.approx(lost(short, "background", 60), abs=0.003)
    for row in rows:
        assert row["lost_share"] == pytest.approx(row["predicted_lost_share"], abs=0.005)


def roofline(rows: Rows) -> None:
    def speed(algorithm: str, samples: int) -> float:
        speed: float = one(rows, algorithm=algorithm, workload_micro_batch=samples)["achieved_flops"]
        return speed

    assert speed("in-network", 1) > 1.6 * speed("ring", 1)
    assert speed("in-network", 256) == pytest.approx(speed("ring", 256), rel=0.05)
    assert all(row["achieved_flops"] < row["roofline_flops"] for row in rows)


def tuner(rows: Rows) -> None:
    """In-network aggregation is fastest, and the model chooses it; its predictions are less good than its choices."""
    small, large = 4_000, 256_000  # bytes
    for size, ratio in product((small, large), (1, 4)):
        there = [row for row in rows if (row["size"], row["oversubscription"]) == (size, ratio)]
        assert min(there, key=lambda row: row["median_seconds"])["algorithm"] == "in-network"
        chosen = [row for row in there if row["candidates"]]
        assert {row["algorithm"] for row in chosen} == {"in-network"}
        between = {row["algorithm"]: row for row in there if row["paths"] == "ecmp"}
        for row in chosen:
            predicted = dict(zip(row["candidates"], row["candidate_seconds"], strict=True))
            off = [seconds / between[name]["median_seconds"] for name, seconds in predicted.items()]
            assert max(off) < 1.5
            assert min(off) > 0.4


def decoding(rows: Rows) -> None:
    def tokens(algorithm: str, gigabits: int, workers: int) -> float:
        found: float = one(rows, algorithm=algorithm, rate=gigabits * 10**9, workers=workers)[
            "tokens_per_second"
        ]
        return found

    def speedup(algorithm: str, gigabits: int) -> float:
        """Return how many times as fast as two workers eight are."""
        return tokens(algorithm, gigabits, 8) / tokens(algorithm, gigabits, 2)

    assert speedup("in-network", 3600) > 3.7
    assert speedup("ring", 3600) < 3.4
    assert speedup("ring", 400) < 1.7
    assert tokens("parameter-server", 400, 8) > 2 * tokens("ring", 400, 8)
    assert tokens("in-network", 400, 8) > 1.05 * tokens("parameter-server", 400, 8)


def serving(rows: Rows) -> None:
    def there(fan_out: int, load: float, connections: str) -> Row:
        said = {"serving_fan_out": fan_out, "serving_load": load, "serving_connections": connections}
        return one(rows, **said)

    for fan_out, connections in product((1, 8), ("reused", "new")):
        quiet, busy = (there(fan_out, load, connections) for load in (0.2, 0.6))
        assert busy["mean_request_seconds"] > 1.4 * quiet["mean_request_seconds"]
        assert busy["gpu_idle_share"] < quiet["gpu_idle_share"] - 0.3
    for load in (0.2, 0.6):
        single, eight = (there(fan_out, load, "reused")["mean_request_seconds"] for fan_out in (1, 8))
        assert eight > 1.7 * single
        for fan_out in (1, 8):
            reused, new = (there(fan_out, load, kind)["mean_request_seconds"] for kind in ("reused", "new"))
            assert new - reused == pytest.approx(56e-6, rel=0.1)
    for row in rows:
        little = row["requests_per_second"] * row["mean_request_seconds"]
        assert row["requests_in_progress"] == pytest.approx(little, rel=0.1)


def storage(rows: Rows) -> None:
    def step(workers: int, prefetch: int, **said: object) -> Row:
        return one(rows, workers=workers, algorithm="in-network", storage_prefetch=prefetch, **said)

    read_only = {"storage_checkpoint": 0}
    assert all((step(n, 0, **read_only)["data_wait_seconds"] > 0) for n in (4, 20))
    assert step(4, 1, **read_only)["data_wait_seconds"] == 0
    assert step(20, 1, **read_only)["data_wait_seconds"] > 50e-6
    assert 4 < step(4, 1, **read_only)["fed_workers"] < 20
    for row in rows:
        if not row["storage_checkpoint"]:
            assert row["step_seconds"] == pytest.approx(row["predicted_step_seconds"], rel=0.1)
    in_turn, at_once = (step(20, 1, storage_writers=n) for n in (1, 20))
    assert in_turn["max_seconds"] > 2 * at_once["max_seconds"]
    assert in_turn["storage_retransmissions"] == 0
    assert at_once["storage_retransmissions"] > 100
    assert at_once["checkpoint_seconds"] > 3 * at_once["predicted_checkpoint_seconds"]


def transports(rows: Rows) -> None:
    off = 40_000_000  # bytes: a pause never comes

    def ring(transport: str, loss: float, pfc: int = off) -> Row:
        return one(rows, algorithm="ring", transport=transport, loss=loss, xoff_bytes=pfc)

    for loss in (0, 0.001):
        tcp, back, repeat = (ring(name, loss) for name in ("tcp", "go-back-n", "selective-repeat"))
        assert tcp["median_seconds"] > 1.4 * max(back["median_seconds"], repeat["median_seconds"])
        assert tcp["link_queue_drops"] == 0  # the incast: it begins with ten packets
        assert back["link_queue_drops"] > repeat["link_queue_drops"] > 0
    assert (
        ring("go-back-n", 0.001)["retransmissions"] > 10 * ring("selective-repeat", 0.001)["retransmissions"]
    )
    for name in ("go-back-n", "selective-repeat"):
        paused = ring(name, 0, 10_000)
        assert paused["link_queue_drops"] == 0 < paused["link_pauses"]
        assert paused["traffic_p99_seconds"] < 0.5 * ring(name, 0)["traffic_p99_seconds"]
    in_network = {
        row["xoff_bytes"]: row for row in rows if row["algorithm"] == "in-network" and not row["loss"]
    }
    assert len(in_network) == 2
    assert in_network[off]["median_seconds"] < 0.5 * ring("selective-repeat", 0)["median_seconds"]


def circuits(rows: Rows) -> None:
    def over(algorithm: str, size: int, change: float | None) -> float:
        return seconds(rows, algorithm=algorithm, size=size, reconfiguration=change)

    rings = {over("ring", 4_000, change) for change in (1e-6, 1e-5, 1e-4)}
    assert max(rings) == pytest.approx(min(rings), rel=0.01)  # it never changes its circuits
    halving = [over("halving-doubling", 4_000, change) for change in (1e-6, 1e-5, 1e-4)]
    assert halving[2] - halving[1] == pytest.approx(6 * 90e-6, rel=0.05)
    assert halving[0] < min(rings) < halving[2]
    assert over("ring", 256_000, 1e-4) < over("ring", 256_000, None)  # twice the rate
    for row in rows:
        if row["reconfiguration"] is not None:
            assert row["median_seconds"] == pytest.approx(row["closed_form_seconds"], rel=0.15)
    # The same price.
    assert {row["rate"] for row in rows if row["reconfiguration"] is not None} == {200 * 10**9}
    assert circuit_rate(fat_tree_price(3, 1.0)) == pytest.approx(2.0)


def data_centres(rows: Rows) -> None:
    def seconds_to_target(algorithm: str, alone: int, delay: float) -> float:
        found: float = one(rows, algorithm=algorithm, local_steps=alone, uplink_delay=delay)["target_seconds"]
        return found

    for algorithm in ("in-network", "parameter-server", "ring"):
        assert seconds_to_target(algorithm, 1, 25e-3) > 1.3 * seconds_to_target(algorithm, 4, 25e-3)
    assert seconds_to_target("ring", 1, 25e-3) > 2 * seconds_to_target("in-network", 1, 25e-3)
    by_steps = [{row["accuracy"] for row in rows if row["local_steps"] == n} for n in (1, 4)]
    assert all(max(found) - min(found) < 0.02 for found in by_steps)  # whoever adds up the models


POINTS: dict[str, Callable[[Rows], None]] = {
    "checkpoint": checkpoint,
    "data-centres": data_centres,
    "decoding": decoding,
    "serving": serving,
    "circuits": circuits,
    "storage": storage,
    "transports": transports,
    "failures": failures,
    "roofline": roofline,
    "compression": compression,
    "degraded": degraded,
    "depth": depth,
    "ecmp": ecmp,
    "ecn": ecn,
    "incast": incast,
    "loss": loss,
    "deadlock": deadlock,
    "noisy-neighbour": noisy_neighbour,
    "overlap": overlap,
    "oversubscription": oversubscription,
    "placement": placement,
    "quantization": quantization,
    "rails": rails,
    "reordering": reordering,
    "scaling": scaling,
    "sixteen-bits": sixteen_bits,
    "small-vectors": small_vectors,
    "straggler": straggler,
    "parallelism": parallelism,
    "pfc": pfc,
    "pipeline": pipeline,
    "tuner": tuner,
    "two-jobs": two_jobs,
    "volume": volume,
    "window": window,
}


def test_the_closing_text_is_that_of_the_size_that_was_run() -> None:
    lesson = lessons()["loss"]
    assert "about half as long as the ring" in lesson.shown([])
    assert "about a quarter of the ring's time" in lesson.shown(lesson.small)
    changed = lesson.shown([*lesson.small, "loss=0.1"])
    assert changed == f"With the lesson's own settings, without --set:\n{lesson.shown([])}"


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in SMALLER)) for name in sorted(POINTS)]
)
def test_its_point_is_seen(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = sized(SMALLER.get(name, []), [])
    arguments = ["--small", *(f"--set={change}" for change in changes)]
    output, rows = run_lesson(name, arguments, tmp_path, monkeypatch)
    folder = tmp_path / "results" / f"lesson-{name}"
    assert (folder / f"lesson-{name}.png").stat().st_size > 0
    lesson = lessons()[name]
    assert lesson.shown([*lesson.small, *changes]) in output
    assert f"docs/tutorials/lessons/{name}.md" in output
    assert "idle for this share of" in output
    # What the lesson is about is in the table, not only in the figure.
    shown = {
        "failures": "lost",
        "roofline": "roofline",
        "data-centres": "to target s",
        "decoding": "tokens/s",
    }.get(name, "median ms")
    headers = [line for line, below in pairwise(output.splitlines()) if below.startswith("─")]
    assert any(shown in line for line in headers)
    assert "4,096 GPUs" in output
    POINTS[name](rows)


def test_each_lesson_has_its_point_and_its_page_with_a_figure() -> None:
    assert {*NAMES} == {*POINTS}
    index = (ROOT / "docs" / "tutorials" / "lessons.md").read_text()
    for name in POINTS:
        page = (ROOT / "docs" / "tutorials" / "lessons" / f"{name}.md").read_text()
        (comment,) = re.findall(rf"^    fanin lesson run {name}( +#.*)?$", page, re.M)
        assert not comment or f"# about {lessons()[name].seconds} s on two cores" in comment
        assert re.search(rf"!\[.+\]\({name}\.png\)", page)
        assert "## Why" in page
        assert "## What to change" in page
        assert (ROOT / "docs" / "tutorials" / "lessons" / f"{name}.png").exists()
        assert f"(lessons/{name}.md)" in index


def test_they_are_listed() -> None:
    done = CliRunner().invoke(app, ["lesson", "list"], terminal_width=200)
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines() if line[:1].islower()][1:] == NAMES
    listed = CliRunner().invoke(app, ["lesson", "list", "--json"]).output.splitlines()
    assert [json.loads(line) for line in listed] == [
        {"lesson": name, "title": lesson.title, "seconds": lesson.seconds}
        for name, lesson in lessons().items()
    ]


def test_one_that_is_none_is_answered_with_those_there_are() -> None:
    done = CliRunner().invoke(app, ["lesson", "run", "none"])
    assert done.exit_code == 2
    assert "lesson:window" in done.output


THEATRES = [name for name, lesson in lessons().items() if lesson.theatre]


@pytest.mark.parametrize("name", THEATRES)
def test_a_theatre_has_few_points_and_few_hosts(name: str) -> None:
    points = load_scenario(scenario_file(f"lesson:{name}"), lessons()[name].theatre).points
    assert 2 <= len(points) <= 4
    assert all(len(point.network.hosts) <= 16 for point in points)


def test_a_lesson_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.setattr("webbrowser.open", opened.append)
    words = ["lesson", "run", "loss", "--theatre", "--set", "size=4 kB", "--results", str(tmp_path)]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "400"})
    path = tmp_path / "theatre.html"
    assert (done.exit_code, done.output) == (0, f"wrote {path}; open it in a browser\n")
    assert opened == [path.as_uri()]
    assert [*tmp_path.iterdir()] == [path]  # and nothing else was run


def test_a_lesson_without_a_theatre_names_those_that_have_one(tmp_path: Path) -> None:
    words = ["lesson", "run", "parallelism", "--theatre", "--results", str(tmp_path)]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "400"})
    assert done.exit_code == 2
    assert f"parallelism has no theatre; these lessons have one: {', '.join(THEATRES)}" in done.output
