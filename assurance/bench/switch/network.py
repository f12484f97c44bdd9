"""The network of the benchmark: veth pairs s1–w1, s2–w2, … Frames that leave at a w are dropped at no cost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fanin.assurance.bench.switch.errors import SwitchBenchError
from fanin.testbed import sandbox


@contextmanager
def links(count: int) -> Iterator[tuple[list[str], list[str]]]:
    """Create pairs that are up, inside the sandbox; yields the switch's interfaces and the generator's."""
    assert sandbox.inside()
    near = [f"s{i}" for i in range(1, count + 1)]
    far = [f"w{i}" for i in range(1, count + 1)]
    try:
        for s, w in zip(near, far, strict=True):
            _batch("ip", f"link add {s} type veth peer name {w}\nlink set {s} up\nlink set {w} up\n")
        drop(far)
        yield near, far
    finally:
        _batch("ip", "".join(f"link del {s}\n" for s in near), force=True)


def drop(interfaces: Sequence[str]) -> None:
    """Let the kernel drop incoming frames after packet sockets have seen them. Any previous such rule is replaced."""
    bpf = "bytecode '1,6 0 0 2'"  # return TC_ACT_SHOT
    for name in interfaces:
        _batch("tc", f"qdisc del dev {name} clsact\n", force=True)
        _batch(
            "tc",
            f"qdisc add dev {name} clsact\nfilter add dev {name} ingress protocol all prio 1 bpf da {bpf}\n",
        )


def _batch(command: str, lines: str, *, force: bool = False) -> None:
    argv = [command, *(["-force"] if force else []), "-batch", "-"]
    done = subprocess.run(argv, input=lines, capture_output=True, text=True, check=False)
    if done.returncode and not force:
        raise SwitchBenchError(f"{command}: {done.stderr.strip()}")
