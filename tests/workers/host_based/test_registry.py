"""An algorithm from outside takes part in everything that names algorithms; unknown names are refused with a list."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.workers.host_based.algorithms.registry import algorithm_named, algorithm_names, register
from fanin.workers.host_based.algorithms.ring import Ring
from fanin.workers.host_based.participant import Group
from fanin.workers.host_based.tcp import TcpAllReduce, TcpConfig
from fanin.workers.host_based.udp import UdpAllReduce, UdpGroupConfig
from fanin.workers.recovery import Recovery
from tests.workers.host_based.chain import Chain, registered
from tests.workers.loopback import free_tcp_addresses, free_udp_addresses

WORKERS = 4


@pytest.fixture
def chain() -> Iterator[str]:
    with registered() as name:
        yield name


def _on_every_rank(do: Callable[[int], NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(do, range(WORKERS)))


@pytest.mark.parametrize("transport", ["selective-repeat", "go-back-n", "tcp"])
@pytest.mark.parametrize("size", [1, 777, 100_000])
def test_an_algorithm_from_outside_sums_in_its_order(chain: str, transport: Any, size: int) -> None:
    draw = np.random.default_rng(size)
    inputs = [draw.standard_normal(size, np.float32) * np.float32(10.0**rank) for rank in range(WORKERS)]
    tcp, udp = free_tcp_addresses(WORKERS), free_udp_addresses(WORKERS)

    def summed(rank: int) -> NDArray[np.float32]:
        if transport == "tcp":
            with TcpAllReduce(TcpConfig(rank, tcp, chain, connect_timeout=20.0, give_up=20.0)) as over_tcp:
                return over_tcp.all_reduce(inputs[rank])
        group = Group(rank, WORKERS, chain, transport, window=64)
        with UdpAllReduce(UdpGroupConfig(group, udp, recovery=Recovery(give_up=20.0))) as over_udp:
            return over_udp.all_reduce(inputs[rank])

    expected = algorithm_named(chain).float32_sum(inputs)
    assert all((result == expected).all() for result in _on_every_rank(summed))
    if size == 100_000:
        assert (expected != Ring().float32_sum(inputs)).any(), "the order of additions makes no difference"


def test_a_registered_name_cannot_be_taken_again(chain: str) -> None:
    class InNetwork(Chain):
        name = "in-network"

    for taken in (Chain(), Ring(), InNetwork()):
        with pytest.raises(ValueError, match=f"an algorithm called '{taken.name}' already"):
            register(taken)
    assert algorithm_names().count(chain) == 1


def test_an_unknown_algorithm_is_refused_with_a_list_of_those_there_are() -> None:
    there = "choose one of ring, halving-doubling, double-binary-tree, parameter-server$"
    for refused in (
        lambda: algorithm_named("rign"),
        lambda: Group(0, 2, "rign"),
        lambda: TcpConfig(0, free_tcp_addresses(1), "rign"),
    ):
        with pytest.raises(ValueError, match=f"'rign' is no all-reduce algorithm between hosts; {there}"):
            refused()


PACKAGES = ("workers", "simulator", "testbed", "experiments", "classroom", "fanin/verbs")
ROOT = Path(__file__).parents[3]


def _texts(node: ast.expr) -> Iterator[str]:
    """The texts in an expression that stands for an algorithm's name, or for several."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            for part in parts:
                yield from _texts(part)
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_texts(body), *_texts(orelse))


def _names(node: ast.AST) -> Iterator[str]:
    """The texts that a piece of code takes for names: algorithm="…", x.algorithm == "…", algorithm: Algorithm = "…"."""
    match node:
        case ast.keyword(arg="algorithm", value=value):
            yield from _texts(value)
        case ast.AnnAssign(target=ast.Name(id="algorithm"), value=ast.expr() as value):
            yield from _texts(value)
        case ast.Compare(left=left, comparators=others):
            sides = (left, *others)
            if any(getattr(side, "attr", getattr(side, "id", "")) == "algorithm" for side in sides):
                for side in sides:
                    yield from _texts(side)


@pytest.mark.slow
def test_every_name_in_the_code_is_that_of_an_algorithm() -> None:
    """Names are texts, since algorithms register themselves: mypy does not find one that is misspelt."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = [
        name for file in files for node in ast.walk(ast.parse(file.read_text())) for name in _names(node)
    ]
    assert len(found) > 40
    assert set(found) <= set(algorithm_names())
