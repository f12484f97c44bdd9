"""A convolutional network learns scikit-learn's handwritten digits, data-parallel, as a user of PyTorch writes it.

fanin launch docs/how-to/torch/cnn.py --backend fanin --curve fanin.csv
"""

import argparse
import csv
import gc
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="fanin", help="of torch.distributed: fanin or gloo")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--hook", action="store_true", help="gradients by fanin's hook, whatever the backend")
parser.add_argument("--curve", type=Path, help="file for rank 0's loss and accuracy, by step")
options = parser.parse_args()

dist.init_process_group(options.backend)
rank, size = dist.get_rank(), dist.get_world_size()

images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
images = images.float().reshape(-1, 1, 8, 8) / 16
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
images, labels = images[order], labels[order]
test_images, test_labels = images[:360], labels[:360]
train_images, train_labels = images[360:], labels[360:]

torch.manual_seed(1)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(32 * 4 * 4, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
parallel = DistributedDataParallel(model)
if options.hook:
    from fanin.torch import allreduce_hook

    parallel.register_comm_hook(None, allreduce_hook)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.03, momentum=0.9)

batches = torch.Generator().manual_seed(2)  # the same on all ranks, of which each takes its part
curve = []
for step in range(options.steps):
    batch = torch.randint(len(train_labels), (128,), generator=batches)[rank::size]
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(parallel(train_images[batch]), train_labels[batch])
    loss.backward()
    optimizer.step()

    mean = loss.detach()
    dist.all_reduce(mean)
    with torch.no_grad():
        right = (model(test_images).argmax(1) == test_labels).float().mean()
    curve.append((step, mean.item() / size, right.item()))

weights = nn.utils.parameters_to_vector(model.parameters()).detach()
everywhere = [torch.empty_like(weights) for _ in range(size)]
dist.all_gather(everywhere, weights)
if rank == 0:
    alike = all(torch.equal(weights, other) for other in everywhere)
    print(f"{options.backend}: {size} ranks, parameters {'equal' if alike else 'DIFFERENT'}")
    print(f"loss {curve[-1][1]:.4f}, accuracy {curve[-1][2]:.1%} after {options.steps} steps")
    if options.curve:
        with options.curve.open("w", newline="") as file:
            csv.writer(file).writerows([("step", "loss", "accuracy"), *curve])
# Gloo's threads end with its group, which the model keeps: where Python ends before them, PyTorch aborts (its pull
# request 179291).
dist.barrier()
del parallel
gc.collect()
dist.destroy_process_group()
