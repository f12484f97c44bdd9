"""Record a training with PyTorch's profiler, one trace for each rank.

    python -m torch.distributed.run --nproc_per_node 2 tests/experiments/workloads/record_training.py FOLDER

needs PyTorch. It writes FOLDER/gloo-rankN.json.gz, which tests/experiments/workloads/traces has of PyTorch 2.13. The
options choose another training, backend, or number of steps.
"""

from __future__ import annotations

import argparse
import gzip
import os
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

WIDTHS = (256, 1024, 1024, 10)
WORDS, MODEL, HEADS, BLOCKS, CONTEXT = 512, 256, 4, 2, 32  # of the transformer

Step = Callable[[], None]


def perceptron() -> Step:
    """Return a step of fully connected layers with DistributedDataParallel."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(WIDTHS):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    return _step(model, torch.randn(64, WIDTHS[0]), torch.randint(0, WIDTHS[-1], (64,)))


def cnn() -> Step:
    """Return a step of a convolutional network with DistributedDataParallel."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((3, 32, 64, 128)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 512), nn.ReLU(), nn.Linear(512, 10))
    model = DistributedDataParallel(network, bucket_cap_mb=1)
    return _step(model, torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,)))


class _Transformer(nn.Module):
    """A language model: words, blocks of attention, and the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, MODEL)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(MODEL, HEADS, 4 * MODEL, dropout=0.0, batch_first=True)
            for _ in range(BLOCKS)
        )
        self.next = nn.Linear(MODEL, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.next(x).flatten(0, 1)


def transformer() -> Step:
    """Return a step of a transformer with FSDP2, which shards each block and the rest."""
    model = _Transformer()
    mesh = distributed.init_device_mesh("cpu", (distributed.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    words = torch.randint(0, WORDS, (4, CONTEXT + 1))
    return _step(model, words[:, :-1], words[:, 1:].flatten())


def _step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


TRAININGS = {"perceptron": perceptron, "cnn": cnn, "transformer": transformer}


def record(folder: Path, training: str, backend: str, steps: int) -> None:
    """Train for some steps, and record the last ones.

    Args:
        folder: Where the trace of this rank is written.
        training: A name of TRAININGS.
        backend: gloo or fanin.
        steps: Number of steps in the trace.
    """
    distributed.init_process_group(backend)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = TRAININGS[training]()

    def write(profiler: profile) -> None:
        with tempfile.TemporaryDirectory() as place:
            plain = Path(place, "trace.json")
            profiler.export_chrome_trace(str(plain))
            with gzip.GzipFile(folder / f"{backend}-rank{os.environ['RANK']}.json.gz", "wb", mtime=0) as file:
                file.write(plain.read_bytes())

    for _ in range(3):
        step()
    plan = schedule(wait=0, warmup=1, active=steps, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True, on_trace_ready=write
    ) as profiler:
        for _ in range(1 + steps):
            step()
            profiler.step()
    del step  # the model must be released before its group
    distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record a training with PyTorch's profiler")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--training", choices=TRAININGS, default="perceptron")
    parser.add_argument("--backend", choices=("gloo", "fanin"), default="gloo")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    record(arguments.folder, arguments.training, arguments.backend, arguments.steps)
