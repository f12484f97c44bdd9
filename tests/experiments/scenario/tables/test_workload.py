"""The table workload fills in sizes, buckets and computing times, and refuses what it determines itself."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.models.prediction import predicted_training_step
from fanin.experiments.scenario.file import ScenarioError, load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.workload import Workload
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.workloads.neural_networks import gradient_buckets, neural_network_named
from fanin.experiments.workloads.trace import Node, RankTrace, TraceCall, joined
from fanin.p4switch.engine.engine import Engine
from fanin.workers.collective import Operation

NETWORK = """
[topology.leaf_spine]
spines = 1
leaves = 2
hosts_per_leaf = 4
rate = "100 Gb/s"
"""


def points(folder: Path, text: str) -> tuple[Settings, ...]:
    file = folder / "scenario.toml"
    file.write_text(f'name = "workload"\n{text}\n{NETWORK}')
    return load_scenario(file).points


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ScenarioError) as error:
        points(folder, text)
    return str(error.value)


def test_a_model_has_the_buckets_and_the_computing_times_of_its_layers(tmp_path: Path) -> None:
    (point,) = points(
        tmp_path,
        '[workload]\nmodel = "resnet-50"\nmicro_batch = 32\nflops = "100 TFLOP/s"\nutilization = 0.5',
    )
    network = neural_network_named("resnet-50")
    step = point.step
    assert step is not None
    assert point.size == 4 * network.parameters
    assert [(one.size // 4, one.ready) for one in step.buckets] == [
        (one.parameters, one.ready) for one in gradient_buckets(network, 2**18, 25 * 2**18)
    ]
    assert step.forward == pytest.approx(32 * network.forward_flop / 50e12)
    assert step.backward == pytest.approx(2 * step.forward)


def test_a_type_of_half_the_bytes_halves_buckets_and_vectors(tmp_path: Path) -> None:
    wide, narrow = points(tmp_path, '[workload]\nmodel = "bert-large"\ndtype = ["fp32", "bf16"]')
    assert wide.size is not None
    assert narrow.size is not None
    assert narrow.size == pytest.approx(wide.size / 2, rel=1e-6)
    assert wide.step is not None
    assert narrow.step is not None
    # Buckets have a size in bytes, so there are half as many.
    assert len(narrow.step.buckets) < len(wide.step.buckets)


def test_models_are_an_axis_with_a_column(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(f'name = "models"\n[workload]\nmodel = ["resnet-50", "bert-large"]\n{NETWORK}')
    scenario = load_scenario(file, ["workload_scale=0.5,0.1"])
    assert scenario.varied == ["workload_model", "workload_scale"]
    assert len(scenario.points) == 4


def test_a_cut_model_has_micro_batches_as_megatron_counts_them(tmp_path: Path) -> None:
    """8 workers with 2 x 2 of each copy: 2 copies. 64 samples in micro-batches of 4: 16, of each copy 8."""
    (point,) = points(
        tmp_path,
        "[workload]\nmodel = 'gpt-3-175b'\ndtype = 'bf16'\nglobal_batch = 64\nmicro_batch = 4\nscale = 0.0001\n"
        "[parallelism]\ntensor = 2\npipeline = 2",
    )
    cut, network = point.parallelism, neural_network_named("gpt-3-175b")
    assert cut is not None
    assert (cut.layers, cut.micro_batches, cut.micro_batches_each(8)) == (96, 16, 8)
    assert point.size == pytest.approx(2e-4 * network.parameters, rel=1e-6)
    assert cut.activations == pytest.approx(4 * 2048 * 12288 * 2 * 1e-4, abs=4)
    assert cut.forward == pytest.approx(4 * network.forward_flop / (0.4 * 989e12) * 1e-4)


def test_a_scaled_model_takes_the_predicted_time(tmp_path: Path, switch: Engine) -> None:
    (point,) = points(tmp_path, 'algorithm = "in-network"\n[workload]\nmodel = "resnet-50"\nscale = 0.02')
    measured = run_virtual(point, switch)
    predicted = predicted_training_step(point, 512)
    assert predicted is not None
    assert measured.violations == 0
    assert measured.step_seconds == pytest.approx(predicted, rel=0.1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[workload]\nmodel = "resnet"', "workload.model: is 'resnet'; no model has this name; did you mean"),
        (
            'values = 512\n[workload]\nmodel = "resnet-50"\ndtype = "bf16"',
            "workload.dtype: is 'bf16', whose bytes values = 512 halves again; set dtype = 'fp32'",
        ),
        ("[workload]", "workload.model: give either model or trace; models are resnet-50"),
        ('size = "4 MB"\n[workload]\nmodel = "resnet-50"', "size: follows from the workload; leave it out"),
        (
            '[workload]\nmodel = "resnet-50"\n[step]\nforward = "1 ms"',
            "step.forward: follows from the workload; leave it out",
        ),
        ('[workload]\nmodel = "llama-3-8b"', "workload.scale: each worker has 32.1 GB of gradients"),
        (
            '[workload]\nmodel = "llama-3-8b"\nscale = 0.01\n[parallelism]\ntensor = 2',
            "workload.global_batch: missing",
        ),
        (
            '[workload]\nmodel = "llama-3-8b"\nglobal_batch = 9\nmicro_batch = 2\nscale = 0.01\n[parallelism]',
            "workload.global_batch: is 9, must be a multiple of micro_batch = 2",
        ),
        (
            '[workload]\nmodel = "resnet-50"\nglobal_batch = 8\n[parallelism]\npipeline = 2',
            "parallelism: resnet-50 has no equal blocks to cut",
        ),
        (
            '[workload]\nmodel = "resnet-50"\nscale = 0',
            "workload.scale: is 0; input should be greater than 0",
        ),
        ('[workload]\nmodell = "resnet-50"', "workload.modell: unknown key"),
        (
            'world = "live"\n[workload]\nmodel = "resnet-50"',
            "workload: is virtual only; leave it out, or set world = 'virtual'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tmp_path, text)


def test_explicit_buckets_fit_the_vector_and_each_other() -> None:
    document: dict[str, Any] = {
        "topology": {"leaf_spine": {"spines": 1, "leaves": 1, "hosts_per_leaf": 2, "rate": "1 Gb/s"}},
        "size": "16 B",
        "step": {
            "forward": 0.1,
            "backward": 0.1,
            "buckets": [{"size": "12 B", "ready": 0.5}, {"size": "4 B", "ready": 1}],
        },
    }
    assert Settings.model_validate(document).step is not None
    with pytest.raises(ValueError, match="must be that of all"):
        Settings.model_validate(document | {"size": "20 B"})
    for changes, words in (
        ({"bucket": "4 B"}, "bucket: cannot be combined with buckets"),
        ({"buckets": document["step"]["buckets"][::-1]}, "not in the order in which they become ready"),
    ):
        with pytest.raises(ValueError, match=words):
            Settings.model_validate(document | {"step": document["step"] | changes})


@pytest.mark.parametrize(
    ("trees", "groups", "words"),
    [
        (1, 16, ""),
        (1, 17, "all-reduces of 17 groups, but switches sum for 16 at once; set"),
        (2, 9, "all-reduces of 9 groups, but switches sum for 8 at once along 2 trees each; set"),
    ],
)
@pytest.mark.parametrize("operation", ["all-reduce", "all-gather"])
def test_groups_that_sum_need_room_in_the_switches(
    trees: int, groups: int, words: str, operation: Operation
) -> None:
    nodes = [
        [Node("pair", call=TraceCall(operation, (rank - rank % 2, rank - rank % 2 + 1), 400))]
        for rank in range(2 * groups)
    ]
    trace = joined(RankTrace("trace", rank, own, len(nodes)) for rank, own in enumerate(nodes))
    workload = Workload(trace=("trace",))
    refused = words if operation == "all-reduce" else ""  # groups that do not sum use the hosts instead
    with pytest.raises(ValueError, match=refused) if refused else nullcontext():
        assert workload.of_trace({"trees": trees}, trace)["workers"] == len(nodes)
