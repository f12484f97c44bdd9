"""The backend under `fanin launch`, as a user of PyTorch writes it."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import textwrap
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest

from tests.fanin import command
from tests.fanin.network import Up, launch

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

pytestmark = pytest.mark.torch
DOCS = Path(__file__).parents[2] / "docs"
CNN = DOCS / "how-to" / "torch" / "cnn.py"

OPERATIONS = Path(__file__).with_name("torch_operations.py")


def options(rank, size):
    return SimpleNamespace(
        group_rank=rank, group_size=size, global_ranks_in_group=[], timeout=timedelta(seconds=5)
    )


@pytest.mark.live
def test_a_network_learns_the_same_with_fanin_and_with_gloo_and_either_way_of_its_hook(up, tmp_path):
    curves = []
    for place, options in enumerate((["--backend", "gloo"], [], ["--backend", "gloo", "--hook"])):
        curve = tmp_path / f"{place}.csv"
        done = launch(up, CNN, "--steps", 8, "--curve", curve, *options)
        assert done.returncode == 0, done.stderr
        assert "2 ranks, parameters equal" in done.stdout
        with curve.open() as file:
            curves.append([(float(row["loss"]), float(row["accuracy"])) for row in csv.DictReader(file)])
    reference, *others = curves
    assert len(reference) == 8
    assert reference[-1][0] < reference[0][0]
    for curve in others:
        torch.testing.assert_close(torch.tensor(curve), torch.tensor(reference), atol=3e-3, rtol=1e-3)
    drawn = subprocess.run(
        [sys.executable, DOCS / "how-to" / "torch" / "curves.py", "0.csv", "1.csv", "2.csv"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.findall(r"^(\w+): loss within \d\.\de[-+]\d+ of 0's, accuracy", drawn.stdout, re.M) == [
        "1",
        "2",
    ]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.live
def test_buckets_go_out_and_come_back_within_the_backward_pass(up):
    done = launch(up, DOCS / "how-to" / "torch" / "overlap.py")
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"^\[0\] +[\d.]+ ms +(.*)$", done.stdout, re.M)
    at = {what: place for place, what in enumerate(lines)}
    buckets = [f"bucket {index} {end}" for index in range(6) for end in ("begins", "ends")]
    layers = [f"gradient of layer {layer}" for layer in range(6)]
    assert sorted(at) == sorted(["backward pass of step 2 begins", *buckets, *layers, "backward pass ends"])
    for index in range(6):  # a bucket for each layer, the last layer's first
        assert (
            at[f"gradient of layer {5 - index}"] < at[f"bucket {index} begins"] < at[f"bucket {index} ends"]
        )
    assert max(at.values()) == at["backward pass ends"]
    assert at["bucket 0 begins"] < at["gradient of layer 0"]  # while the pass goes on


@pytest.mark.live
def test_the_example_of_the_manual(up, script):
    [example] = re.findall(r"^```python\n(.*?)^```$", (DOCS / "how-to" / "torch.md").read_text(), re.M | re.S)
    looks = "print(model.module.bias.grad.item(), dist.get_backend())"
    done = launch(up, script(example + looks))
    assert sorted(done.stdout.splitlines()) == ["[0] 4.0 fanin", "[1] 4.0 fanin"], done.stderr


GROUPS = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("fanin")
rank = dist.get_rank()

def in_network(group):
    return hasattr(group, "getBackendName")

def check(group):
    ranks = dist.get_process_group_ranks(group)
    x = torch.full((20_000,), float(rank))
    dist.all_reduce(x, group=group)
    assert torch.allclose(x, torch.full_like(x, sum(ranks))), x
    parts = torch.empty(len(ranks))
    dist.all_gather_single(parts, torch.tensor([float(rank)]), group=group)
    assert parts.tolist() == ranks
    part = torch.empty(1)
    dist.reduce_scatter_single(part, torch.arange(float(len(ranks))), group=group)
    assert abs(part.item() - len(ranks) * dist.get_rank(group)) < 1e-5, part
    if rank == ranks[0]:
        dist.send(torch.tensor([7]), ranks[1], group=group)
    elif rank == ranks[1]:
        received = torch.empty(1, dtype=torch.int64)
        dist.recv(received, ranks[0], group=group)
        assert received.item() == 7
    dist.barrier(group=group)

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
rows = [mesh.get_group(name) for name in mesh.mesh_dim_names]
for group in rows:
    check(group)

three = [dist.new_group([0, 2, 3]) for _ in range(10)]
if rank != 1:
    for group in three:
        check(group)
    for group in three:
        dist.destroy_process_group(group)
again = dist.new_group([0, 2, 3])
if rank != 1:
    check(again)
if rank == 0:
    print([in_network(group) for group in rows], [in_network(group) for group in three], in_network(again))
"""


# At leaf1, the group of all ranks has 128 or 496 slots. Each other group gets at most a quarter of those left over.
@pytest.mark.live
@pytest.mark.parametrize(("rate", "leases"), [("100 Mb/s", 8), ("1 Gb/s", 5)])
def test_groups_of_some_ranks_have_leases_as_long_as_there_are_slots_and_otherwise_gloo(
    script, tmp_path, rate, leases
):
    with Up(tmp_path, "--workers", "4", "--leaves", "2", "--spines", "1", "--rate", rate) as network:
        done = launch(network, script(GROUPS))
    assert done.returncode == 0, done.stderr
    leased = [True] * leases + [False] * (10 - leases)
    assert done.stdout.splitlines() == [f"[0] [True, True] {leased} True"]


AT_ONCE = """
import threading, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("fanin")
groups = [dist.group.WORLD, dist.new_group()]

def sum_up(group, times):
    for _ in range(times):
        x = torch.full((1000,), float(dist.get_rank()))
        dist.all_reduce(x, group=group)
        assert x[0] == 1, x

threads = [threading.Thread(target=sum_up, args=each) for each in zip(groups, (50, 70))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
with model.join(divide_by_initial_world_size=False):
    for step in range(3 - dist.get_rank()):
        model(torch.ones(2, 4)).sum().backward()
print("done")
"""

SMALLER = """
import os, torch.distributed as dist
if os.environ["RANK"] == "0":
    dist.init_process_group("fanin", rank=0, world_size=1)
"""


@pytest.mark.live
def test_groups_of_all_ranks_are_used_by_threads_of_their_own_and_uneven_inputs_end(script, tmp_path):
    with Up(tmp_path, "--workers", "2") as network:
        done = launch(network, script(AT_ONCE))
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ["[0] done", "[1] done"]
        refused = launch(network, script(SMALLER))
    assert "has started 2 processes" in refused.stderr


RECORDED = """
import sys, torch, torch.distributed as dist
dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
batches = [torch.ones(8, 100)] * 5
def train(batch):
    model(batch).sum().backward()
    dist.all_reduce(torch.ones(10))
    dist.all_gather([torch.empty(10)] * size, torch.ones(10))
    dist.reduce_scatter_tensor(torch.empty(10), torch.ones(10 * size))
    dist.broadcast(torch.ones(10), 0)
"""


@pytest.mark.live
@pytest.mark.parametrize("backend", ["gloo", "fanin"])
def test_a_training_that_is_recorded_as_the_manual_shows_can_be_imported(up, script, tmp_path, backend):
    [example] = re.findall(
        r"^```text\n(with torch.*?)^```$", (DOCS / "how-to" / "traces.md").read_text(), re.M | re.S
    )
    example = example.replace('f"rank', f'f"{tmp_path}/rank')
    done = launch(up, script(f"{RECORDED}\n{example}\ndist.barrier()"), backend)
    assert done.returncode == 0, done.stderr
    found = command.run("import", *(tmp_path / f"rank{rank}.json" for rank in (0, 1)), "--json")
    assert found.returncode == 0, found.stderr
    times, *operations = map(json.loads, found.stdout.splitlines())
    assert (times["ranks"], times["steps"], len(times["step_seconds"])) == (2, 3, 3)
    assert 0 < fmean(times["compute_seconds"]) <= fmean(times["step_seconds"])
    calls = {each["operation"]: (each["calls"], each["bytes"]) for each in operations}
    assert calls == {
        "all-reduce": (6, 3 * (4 * 10_100 + 40)),
        "all-gather": (3, 3 * 80),
        "reduce-scatter": (3, 3 * 80),
        "broadcast": (3, 3 * 40),
    }


@pytest.mark.live
def test_the_hook_that_compresses_sends_one_of_eleven_values(up, script):
    manual = (DOCS / "how-to" / "torch.md").read_text()
    [example] = re.findall(r"^```python\n(.*?)^```$", manual, re.M | re.S)
    hook = textwrap.dedent(re.findall(r"(^ {4}from fanin import TopK.*?)\n\n[^ ]", manual, re.M | re.S)[0])
    text = example.replace("model(torch.ones", f"{hook}\nmodel(torch.ones")
    looks = "print(sorted(float(g) for p in model.parameters() for g in p.grad.reshape(-1)))"
    done = launch(up, script(text + looks))
    values = [0.0] * 10 + [4.0]
    assert sorted(done.stdout.splitlines()) == [f"[0] {values}", f"[1] {values}"], done.stderr


@pytest.mark.live
@pytest.mark.parametrize("per_host", [1, 2])
def test_whatever_is_done_with_gloo_can_be_done_with_fanin(up, per_host):
    done = launch(up, "--per-host", per_host, OPERATIONS)
    assert done.returncode == 0, done.stderr
    uses = re.findall(r"^def (\w+)\(group: Group\)", OPERATIONS.read_text(), re.M)
    assert len(uses) == 21
    assert sorted(done.stdout.splitlines()) == sorted(
        f"[{rank}] same {use}" for rank in range(2 * per_host) for use in uses
    )


TRAINS = """
import hashlib, os, sys, torch, torch.distributed as dist
from pathlib import Path
from torch.nn.parallel import DistributedDataParallel
torch.use_deterministic_algorithms(True)
dist.init_process_group("fanin")
first, last, checkpoint = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(layers.parameters())
if first:
    model_state, optimizer_state = torch.load(checkpoint)
    layers.load_state_dict(model_state)
    optimizer.load_state_dict(optimizer_state)
model = DistributedDataParallel(layers)
for step in range(first, last):
    torch.manual_seed(100 * step + dist.get_rank())
    optimizer.zero_grad()
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
if dist.get_rank() == 0 and not first:
    torch.save((layers.state_dict(), optimizer.state_dict()), checkpoint)
bits = b"".join(each.detach().numpy().tobytes() for each in layers.parameters())
print("LOCAL", os.environ["LOCAL_RANK"], "weights", hashlib.sha256(bits).hexdigest())
dist.barrier()
del model
dist.destroy_process_group()
"""


def weights(done):
    """The weights that each of the ranks has in the end, as hashes; one, if all have the same."""
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"weights (\w+)", done.stdout))


def lose(up, share):
    for host in ("h1", "h2"):
        link = "link", "leaf1", host, "--set", f"loss={share}"
        assert not command.run(*link, environment=up.environment).returncode


@pytest.mark.live
def test_a_deterministic_run_continues_from_its_checkpoint_with_the_same_bits(up, script, tmp_path):
    train = script(TRAINS)
    uninterrupted = weights(launch(up, train, 0, 8, tmp_path / "whole"))
    weights(launch(up, train, 0, 4, tmp_path / "half"))
    assert weights(launch(up, train, 4, 8, tmp_path / "half")) == uninterrupted
    assert len(uninterrupted) == 1


@pytest.mark.live
def test_two_ranks_on_each_host_have_the_same_weights_whoever_starts_them_and_whatever_is_lost(
    up, script, tmp_path
):
    train = script(TRAINS)
    arguments = 0, 4, tmp_path / "checkpoint"
    launched = launch(up, "--per-host", 2, train, *arguments)
    assert sorted(re.findall(r"LOCAL (\d)", launched.stdout)) == ["0", "0", "1", "1"]
    torchrun = Path(sys.executable).with_name("torchrun")
    ranks = "--nproc_per_node 2 --nnodes $WORLD_SIZE --node_rank $RANK"
    master = "--master_addr $MASTER_ADDR --master_port $MASTER_PORT"
    start = f"{torchrun} {ranks} {master} {train} {' '.join(map(str, arguments))}"
    by_torchrun = launch(up, "--", "sh", "-c", start)
    lose(up, "2%")
    lossy = launch(up, "--per-host", 2, train, *arguments)
    lose(up, "0%")
    assert len(weights(launched)) == 1
    assert weights(launched) == weights(by_torchrun) == weights(lossy)


RESTARTED = """
import os, signal, sys, torch, torch.distributed as dist
from pathlib import Path
from torch.nn.parallel import DistributedDataParallel
torch.use_deterministic_algorithms(True)
dist.init_process_group("fanin")
rank, restarts, kept = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"]), Path(sys.argv[1])
torch.manual_seed(0)
layer = torch.nn.Linear(8, 4)
first = 0
if kept.exists():
    first, state = torch.load(kept)
    layer.load_state_dict(state)
model = DistributedDataParallel(layer)
for step in range(first, 8):
    if sys.argv[2:] == ["dies"] and step == 5 and rank == 1 and not restarts:
        os.kill(os.getpid(), signal.SIGKILL)
    torch.manual_seed(100 * step + rank)
    model.zero_grad()
    model(torch.randn(6, 8)).square().mean().backward()
    with torch.no_grad():
        for each in layer.parameters():
            each -= 0.1 * each.grad
    if step % 4 == 3:
        if rank == 0:
            torch.save((step + 1, layer.state_dict()), kept)
        dist.barrier()
bits = b"".join(each.detach().numpy().tobytes() for each in layer.parameters())
print("restarts", restarts, "weights", bits.hex())
dist.barrier()
del model
dist.destroy_process_group()
"""


@pytest.mark.live
def test_torchrun_starts_the_ranks_again_after_one_is_killed_and_they_end_with_the_same_bits(
    up, script, tmp_path
):
    def run(*arguments):
        torchrun = Path(sys.executable).with_name("torchrun")
        ranks = "--nproc_per_node 1 --nnodes $WORLD_SIZE --node_rank $RANK --max-restarts 2"
        master = "--master_addr $MASTER_ADDR --master_port $MASTER_PORT"
        start = f"exec {torchrun} {ranks} {master} {script(RESTARTED)} {' '.join(map(str, arguments))}"
        return launch(up, "--", "sh", "-c", start)

    uninterrupted = run(tmp_path / "whole")
    killed = run(tmp_path / "killed", "dies")
    assert "exitcode: -9" in killed.stderr
    assert re.findall(r"restarts (\d)", uninterrupted.stdout) == ["0", "0"]
    assert re.findall(r"restarts (\d)", killed.stdout) == ["1", "1"]
    assert weights(killed) == weights(uninterrupted)
    jobs = command.run("jobs", environment=up.environment)
    assert jobs.stdout.startswith("No job is running"), jobs.stdout


@pytest.mark.parametrize(("rank", "size"), [(0, 1), (0, 2), (1, 3)])
def test_a_first_group_that_is_not_the_launch_is_refused(monkeypatch, rank, size):
    import fanin
    from fanin.torch import _create

    monkeypatch.setattr(fanin, "init", lambda **_: SimpleNamespace(rank=1, size=2))
    with pytest.raises(
        ValueError, match=rf"started 2 processes, .* rank 1, but .* rank {rank} of {size}: leave"
    ):
        _create(options(rank, size), None)


@pytest.mark.parametrize(
    "first", ["import torch", "import fanin", "import fanin.torch", "import fanin, torch"]
)
def test_the_backend_is_known_whatever_is_imported_first(first):
    looks = "print(torch.distributed.is_backend_available('fanin'), 'fanin.workers' in sys.modules)"
    text = f"{first}; import sys, torch; {looks}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_who_was_not_launched_is_told_how_to_be(monkeypatch):
    from fanin.torch import _create
    from fanin.workers import JoinError

    for name in ("WORLD_SIZE", "FANIN_HOST", "FANIN_JOB_SERVICE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(JoinError, match="Start this program with `fanin launch`"):
        _create(options(0, 1), None)
