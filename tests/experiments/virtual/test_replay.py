"""Replays take the times that computing and calls have, in their order, and every result is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.scenario.file import ScenarioError, load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual import replay
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.workloads.trace import Node, RankTrace, Trace, TraceCall, joined
from fanin.p4switch.engine.engine import Engine
from fanin.workers.wire import packet_dtype

TRACES = Path(__file__).parents[1] / "workloads" / "traces"
GLOO = [str(TRACES / f"gloo-rank{rank}.json.gz") for rank in (0, 1)]
DP = [str(TRACES / f"dp.{rank}.et") for rank in range(4)]

Run = Callable[..., Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, switch: Engine) -> Run:
    """Run nodes, the same on each rank or by rank, on hosts of one leaf with links of 1 Gb/s."""

    def run(nodes: Any, ranks: int = 4, algorithm: str = "ring", trees: int = 1, **workload: Any) -> Any:
        by_rank = nodes if isinstance(nodes[0], list) else [nodes] * ranks
        trace: Trace = joined(RankTrace("trace", rank, own, ranks) for rank, own in enumerate(by_rank))
        monkeypatch.setattr(replay, "load_trace", lambda _: trace)
        document = {
            "topology": {"leaf_spine": {"spines": 0, "leaves": 1, "hosts_per_leaf": ranks, "rate": "1 Gb/s"}},
            "algorithm": algorithm,
            "trees": trees,
            "size": f"{trace.largest} B",
            "workload": {"trace": ["trace"], **workload},
        }
        measured = run_virtual(Settings.model_validate(document).settled, switch)
        assert measured.violations == 0
        return measured

    return run


def computing(seconds: float, *after: int, **more: Any) -> Node:
    return Node("computing", after, seconds=seconds, **more)


def call(operation: Any, size: int, *after: int, ranks: int = 4, **more: Any) -> Node:
    return Node(operation, after, call=TraceCall(operation, tuple(range(ranks)), size), **more)


def test_computing_alone_takes_its_time(run: Run) -> None:
    measured = run([computing(1e-3), computing(2e-3), computing(3e-3, processor="cpu")])
    assert measured.step_seconds == pytest.approx(3e-3)
    assert measured.exposed_seconds == pytest.approx(0)


def test_ranks_that_compute_long_in_turns_and_do_not_wait_expose_nothing(run: Run) -> None:
    first, second = ((computing(a), computing(b, step=1)) for a, b in ((3e-3, 1e-3), (1e-3, 3e-3)))
    measured = run([[*first], [*second]])
    assert measured.step_seconds == pytest.approx(2e-3)
    assert measured.exposed_seconds == pytest.approx(0)


@pytest.mark.slow
def test_a_call_next_to_computing_is_hidden_and_one_behind_it_is_not(run: Run) -> None:
    alone = run([call("all-reduce", 100_000)]).step_seconds
    assert alone == pytest.approx(1.5 * 100_000 * 8 / 1e9, rel=0.25)
    hidden = run([call("all-reduce", 100_000), computing(0.01)])
    assert hidden.step_seconds == pytest.approx(0.01)
    behind = run([computing(0.01), call("all-reduce", 100_000, 0)])
    assert behind.step_seconds == pytest.approx(0.01 + alone, rel=0.01)
    assert behind.exposed_seconds == pytest.approx(alone, rel=0.01)
    awaited = run([call("all-reduce", 100_000), computing(0.01, 0)])
    assert awaited.step_seconds == pytest.approx(0.01 + alone, rel=0.01)


@pytest.mark.parametrize("algorithm", ["in-network", "ring", "double-binary-tree"])
def test_every_collective_gives_what_it_must(run: Run, algorithm: str) -> None:
    """Calls of all kinds follow each other in one group, of sizes that fit no packet."""
    names = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all")
    nodes = [
        call(name, 4 * (1000 + 37 * number), *([number - 1] if number else []))
        for number, name in enumerate(2 * names)
    ]
    measured = run(nodes, algorithm=algorithm)
    assert measured.max_abs_error <= measured.error_bound
    assert measured.workers_left == 4


FULL, EMPTY = packet_dtype(256).itemsize + 42, packet_dtype(0).itemsize + 42  # bytes of Ethernet frames
BETWEEN_FRAMES = 24  # bytes: preamble, checksum, gap


def moved_seconds(size: int, announced: int = 0, ranks: int = 4) -> float:
    """Return by hand how long the busiest direction of a rank's link of 1 Gb/s takes in a gather or a scatter.

    It carries the values of all other ranks' parts, and packets without values: one for each packet of the rank's own
    part, and those that announce exponents.
    """
    of_part = -(-size // ranks // 1024)
    full, empty = (ranks - 1) * of_part, of_part + announced
    return (full * (FULL + BETWEEN_FRAMES) + empty * (EMPTY + BETWEEN_FRAMES)) * 8 / 1e9


@pytest.mark.slow
def test_switches_gather_and_scatter_what_fsdp_calls(run: Run) -> None:
    """A step gathers two layers, computes, and scatters the gradients of both, each call after the one before."""
    sizes, seconds, window = (1_000_000, 2_000_000), 5e-3, 512
    nodes = [
        call("all-gather", sizes[0]),
        call("all-gather", sizes[1], 0),
        computing(seconds, 1),
        call("reduce-scatter", sizes[1], 2),
        call("reduce-scatter", sizes[0], 3),
    ]
    measured = run(nodes, algorithm="in-network")
    moved = sum(moved_seconds(size) + moved_seconds(size, announced=window) for size in sizes)
    assert seconds + moved < measured.step_seconds < seconds + 1.02 * moved
    # In a gather, a rank sends its own part and receives all others; in a scatter, the reverse.
    values = sum(2 * 4 * -(-size // 4 // 1024) * FULL for size in sizes)
    assert values < measured.wire_bytes_per_worker < 1.2 * values


def test_a_gather_in_the_network_sends_each_part_once(run: Run) -> None:
    nodes = [call("all-gather", 200_000)]
    network, ring = (run(nodes, algorithm=one).wire_bytes_per_worker for one in ("in-network", "ring"))
    # With four ranks: one part sent and three received, or three sent and three received.
    assert network == pytest.approx(ring * 4 / 6, rel=0.1)


def test_several_trees_only_sum(run: Run) -> None:
    nodes = [call("all-gather", 200_000), call("all-reduce", 200_000, 0)]
    alone = run(nodes[:1])
    both = run(nodes[:1], algorithm="in-network", trees=2)
    assert both.wire_bytes_per_worker == alone.wire_bytes_per_worker  # round the ring
    assert run(nodes, algorithm="in-network", trees=2).step_seconds > alone.step_seconds


def test_groups_for_which_switches_have_no_room_gather_between_hosts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for two groups: the pairs, which have all-reduces, although the other group comes first."""
    gather = call("all-gather", 200_000)
    pairs = [
        Node("pair", call=TraceCall("all-reduce", (0, 1) if rank < 2 else (2, 3), 200_000))
        for rank in range(4)
    ]

    def moved(ranks: list[list[Node]], algorithm: str = "in-network") -> float:
        return float(run(ranks, algorithm=algorithm).wire_bytes_per_worker)

    both, sums = [[gather, pair] for pair in pairs], moved([[pair] for pair in pairs])
    assert moved(both) == pytest.approx(sums + moved([[gather]] * 4), rel=0.01)
    monkeypatch.setattr(replay, "MOST_JOBS", 2)
    assert moved(both) == pytest.approx(sums + moved([[gather]] * 4, "ring"), rel=0.01)


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_groups_and_sends_go_their_own_ways(run: Run, algorithm: str) -> None:
    """Two pairs sum, then rank 0 sends to rank 3, and then all sum."""
    everyone = TraceCall("all-reduce", (0, 1, 2, 3), 8000)
    send = Node("send", (0,), call=TraceCall("broadcast", (0, 3), 4000, send=True))
    ranks = []
    for rank in range(4):
        pair = TraceCall("all-reduce", (0, 1) if rank < 2 else (2, 3), 4000)
        nodes = [Node("pair", call=pair)] + ([send] if rank in (0, 3) else [])
        ranks.append([*nodes, Node("all", (len(nodes) - 1,), call=everyone)])
    measured = run(ranks, algorithm=algorithm)
    assert measured.step_seconds > 0


def test_steps_end_one_after_another(run: Run) -> None:
    nodes = [computing(1e-3), call("all-reduce", 4000, 0), computing(3e-3, 1, step=1)]
    measured = run(nodes)
    first, second = measured.seconds
    assert first > 1e-3
    assert second == pytest.approx(3e-3)


@pytest.mark.slow
def test_a_scale_shortens_bytes_and_computing(run: Run) -> None:
    nodes = [computing(0.01), call("all-reduce", 1_000_000, 0)]
    full, tenth = run(nodes).step_seconds, run(nodes, scale=0.1).step_seconds
    assert tenth == pytest.approx(full / 10, rel=0.1)


def test_operations_take_the_time_of_the_processor(run: Run) -> None:
    measured = run([Node("gemm", flop=10**9)], flops="1 TFLOP/s", utilization=0.5)
    assert measured.step_seconds == pytest.approx(2e-3)


def settings(
    folder: Path, files: list[str], text: str = "", hosts: int = 2, rate: str = "1 Gb/s"
) -> Settings:
    file = folder / "scenario.toml"
    file.write_text(
        f'name = "replay"\n{text}\n[workload]\ntrace = {files}\n'
        f'[topology.leaf_spine]\nspines = 1\nleaves = 2\nhosts_per_leaf = {hosts}\nrate = "{rate}"\n'
    )
    (point,) = load_scenario(file).points
    return point


@pytest.mark.few(0)
def test_a_recorded_training_has_the_predicted_time_next_to_the_measured_one(
    tmp_path: Path, switch: Engine
) -> None:
    fast = run_virtual(settings(tmp_path, GLOO, "workers = 2", rate="10 Gb/s"), switch)
    slow = run_virtual(settings(tmp_path, GLOO, "workers = 2", rate="500 Mb/s"), switch)
    assert fast.trace_step_seconds == slow.trace_step_seconds
    assert fast.step_seconds is not None
    assert slow.step_seconds is not None
    assert fast.trace_step_seconds is not None
    assert fast.step_seconds < slow.step_seconds
    assert fast.step_seconds <= fast.trace_step_seconds
    assert fast.violations == slow.violations == 0
    assert len(fast.seconds) == 3


@pytest.mark.few(0)
@pytest.mark.slow
def test_a_trace_of_chakra_runs_on_as_many_hosts_as_it_has_ranks(tmp_path: Path, switch: Engine) -> None:
    point = settings(tmp_path, DP, hosts=4)
    assert len(point.members) == 4
    assert point.size == 2_000_000
    measured = run_virtual(point, switch)
    assert measured.violations == 0
    assert measured.trace_step_seconds is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workers = 3", "workers: are 3, but the trace has 2 ranks; leave workers out"),
        ('size = "4 MB"', "size: follows from the workload; leave it out"),
        ("repetitions = 2", "repetitions: cannot be combined with workload.trace"),
        ('lateness = "1 ms"', "lateness: cannot be combined with workload.trace"),
        ("[parallelism]\ntensor = 2\nforward = 0\nbackward = 0", "parallelism: cannot be combined with"),
    ],
)
def test_what_does_not_fit_a_trace_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as error:
        settings(tmp_path, GLOO, text)
    assert words in str(error.value)


def test_a_missing_trace_and_keys_of_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"none.json: cannot be read: No such file"):
        settings(tmp_path, ["none.json"])
    file = tmp_path / "scenario.toml"
    file.write_text('name = "x"\n[workload]\ntrace = "a.json"\ndtype = "bf16"\n[topology.leaf_spine]\n')
    with pytest.raises(ScenarioError, match=r"workload.dtype: belongs to a model"):
        load_scenario(file)
