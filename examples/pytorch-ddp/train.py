"""Train a small network with DistributedDataParallel, its gradients summed in the network."""

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("fanin")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(rank)  # other points on each rank; DistributedDataParallel copies the weights of rank 0
points = torch.rand(256, 2) * 2 - 1
inside = (points.norm(dim=1) < 0.8).float()

network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
model = DistributedDataParallel(network)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for _ in range(100):
    optimizer.zero_grad()
    loss = functional.binary_cross_entropy_with_logits(model(points).squeeze(1), inside)
    loss.backward()  # averages the gradients of all ranks
    optimizer.step()

checksum = sum(parameter.sum().item() for parameter in network.parameters())
right = ((network(points).squeeze(1) > 0) == inside.bool()).float().mean().item()
print(f"rank {rank} of {size}: {right:.0%} of its points right, sum of all weights {checksum:.6f}")
del model  # before the group that it uses
dist.destroy_process_group()
