"""Record a training with DistributedDataParallel over Gloo, as PyTorch's profiler writes it.

    python -m torch.distributed.run --nproc_per_node 2 tests/experiments/workloads/record_gloo.py FOLDER

needs PyTorch. It writes FOLDER/gloo-rankN.json.gz, which tests/experiments/workloads/traces has of PyTorch 2.13.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 3
WIDTHS = (256, 1024, 1024, 10)


def record(folder: Path) -> None:
    distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(WIDTHS):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(64, WIDTHS[0]), torch.randint(0, WIDTHS[-1], (64,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    def write(profiler: profile) -> None:
        with tempfile.TemporaryDirectory() as place:
            plain = Path(place, "trace.json")
            profiler.export_chrome_trace(str(plain))
            with gzip.GzipFile(folder / f"gloo-rank{os.environ['RANK']}.json.gz", "wb", mtime=0) as file:
                file.write(plain.read_bytes())

    for _ in range(3):
        step()
    plan = schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True, on_trace_ready=write
    ) as profiler:
        for _ in range(1 + STEPS):
            step()
            profiler.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    record(Path(sys.argv[1]))
