"""Folders of protocols: what is missing or wrong in one is reported with its place before anything starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fanin.controller.requirements import PROGRAM
from fanin.experiments.protocol import (
    FAULTS,
    OURS,
    SPARSE_BLOCK,
    ProtocolError,
    built_in,
    folder_of,
    load,
    protocol_of,
)
from fanin.experiments.scenario.file import ScenarioError, load_scenario
from fanin.native.python_file import PythonFileError
from fanin.workers.lease import Lease
from fanin.workers.protocol import Worker
from fanin.workers.recovery import Recovery

WHOLE = """
import numpy as np
from fanin.workers.protocol import Worker as participant

def packet(values):
    return values, 4 * values

def error_bound(inputs, values, window):
    return np.zeros(len(inputs[0]))
"""
SCENARIO = """
name = "try"
size = "4 kB"
protocol = "mine"
[topology.leaf_spine]
spines = 0
leaves = 1
hosts_per_leaf = 2
"""
INPUTS = [np.ones(3, np.float32)] * 2


def made(folder: Path, python: str = WHOLE, *without: str) -> Path:
    mine = folder / "mine"
    mine.mkdir()
    files = {"program.p4": "", "protocol.py": python, "README.md": "# mine"}
    for name, text in files.items():
        if name not in without:
            (mine / name).write_text(text)
    return mine


def test_ours_is_the_first_and_its_parts_are_ours() -> None:
    ours = protocol_of(OURS)
    assert built_in()[0] == OURS
    assert (ours.program, ours.controller, ours.ours) == (PROGRAM, None, True)
    assert isinstance(ours.make_worker(Lease(1, 0, 2, 4), Recovery()), Worker)
    assert ours.packet(256) == (256, 1038, 1038)
    assert ours.survives == set(FAULTS)


@pytest.mark.parametrize("name", built_in())
def test_every_one_that_comes_with_fanin_has_all_parts(name: str) -> None:
    protocol = protocol_of(name)
    elements, payload, largest = protocol.packet(256)
    assert 0 < payload <= largest <= 1472  # in one Ethernet frame
    inputs = [protocol.vector(np.random.default_rng(rank), elements) for rank in range(3)]
    assert protocol.exact(inputs).shape == protocol.error_bound(inputs, 256, 4).shape == (elements,)
    text = (folder_of(name) / "README.md").read_text()
    assert name == OURS or {"## Packets", "## Workers", "## Switches", "## Faults"} <= set(text.splitlines())


def test_the_files_of_a_scenario_replace_parts(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("from fanin.workers.protocol import Worker as participant")
    majority = protocol_of("majority")
    mixed = protocol_of("majority", worker=other)
    assert (mixed.worker, mixed.program, mixed.controller) == (other, majority.program, majority.controller)


def test_all_missing_parts_are_named_at_once(tmp_path: Path) -> None:
    folder = made(tmp_path, WHOLE, "program.p4", "README.md")
    with pytest.raises(ProtocolError) as error:
        load(folder)
    first, *rest = str(error.value).splitlines()
    assert first == f"{folder}: is not a protocol; add"
    assert [line.split(",")[0].strip() for line in rest] == ["program.p4", "README.md"]


def test_missing_functions_are_named(tmp_path: Path) -> None:
    folder = made(tmp_path, WHOLE.replace("def packet", "def frame").replace("participant", "worker"))
    with pytest.raises(ProtocolError, match=r"protocol\.py: does not define participant\(\), packet\(\)"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("exakt", "exact"),
        ("exact_of_call", "exact_of_calls"),
        ("invariant", "invariants"),
        ("packets", "packet"),
        ("plan_agregation", "plan_aggregation"),
    ],
)
def test_a_function_whose_name_is_nearly_that_of_a_part_is_refused(
    tmp_path: Path, name: str, meant: str
) -> None:
    text = (
        WHOLE.replace("def packet(", "def packets(")
        if meant == "packet"
        else f"{WHOLE}\ndef {name}(inputs):\n    pass\n"
    )
    words = rf"protocol\.py:\d+: fanin does not call {name}\(\); did you mean {meant}\(\)\? .* call it _{name}\(\)$"
    with pytest.raises(PythonFileError, match=words):
        load(made(tmp_path, text))


def test_functions_of_ones_own_need_no_underscore(tmp_path: Path) -> None:
    own = "from statistics import mean as vectors\ndef exact_sum(inputs):\n    pass\ndef vectors_of(rank):\n    pass\n"
    load(made(tmp_path, WHOLE + own))


def test_a_folder_that_does_not_exist_is_reported_in_the_scenario_with_the_names_there_are(
    tmp_path: Path,
) -> None:
    (tmp_path / "try.toml").write_text(SCENARIO)
    with pytest.raises(
        ScenarioError,
        match=r"protocol: .*mine: no such folder; .*: fanin, a2tp, atp, canary, esa, majority, omnireduce, switchml",
    ):
        load_scenario(tmp_path / "try.toml")


def test_an_error_in_its_file_is_reported_with_the_line(tmp_path: Path) -> None:
    made(tmp_path, WHOLE + "\n1 / 0\n")
    (tmp_path / "try.toml").write_text(SCENARIO)
    with pytest.raises(ScenarioError, match=r"protocol: .*protocol\.py:11: ZeroDivisionError"):
        load_scenario(tmp_path / "try.toml")


@pytest.mark.parametrize(
    ("function", "call", "words"),
    [
        (
            "def packet(values): return 256",
            lambda p: p.packet(64),
            "packet.. returns 256, must return positive",
        ),
        (
            "def packet(values): return 256, 9, 8",
            lambda p: p.packet(64),
            "returns .256, 9, 8., must return positive",
        ),
        (
            "def error_bound(inputs, values, window): return 0.5",
            lambda p: p.error_bound(INPUTS, 64, 4),
            r"error_bound.. returns 0.5, must return an array of float64 \[3\]",
        ),
        (
            "def exact(inputs): return inputs[0]",
            lambda p: p.exact(INPUTS),
            r"exact.. returns float32 \[3\], must return an array of float64 \[3\]",
        ),
        (
            "def vector(draw, elements): return draw.random(elements)",
            lambda p: p.vector(np.random.default_rng(1), 3),
            r"vector.. returns float64 \[3\], must return an array of float32 \[3\]",
        ),
        (
            "def chunks(lengths, values, window): return 0",
            lambda p: p.chunks([3], 64, 4),
            "chunks.. returns 0, must return a positive integer",
        ),
        (
            "def survives(): return ['fire']",
            lambda p: p.survives,
            "survives.. names fire; soak has the faults",
        ),
        ("def exact(inputs): return inputs[2]", lambda p: p.exact(INPUTS), r"protocol\.py:11: IndexError"),
    ],
)
def test_what_a_function_returns_is_checked(tmp_path: Path, function: str, call: object, words: str) -> None:
    protocol = load(made(tmp_path, f"{WHOLE}\n{function}\n"))
    with pytest.raises(PythonFileError, match=words):
        call(protocol)  # type: ignore[operator]


@pytest.mark.parametrize("name", built_in())
def test_blocks_of_a_sparse_vector_are_zero(name: str) -> None:
    protocol, elements = protocol_of(name), 1000 * SPARSE_BLOCK - 5
    zero = protocol.vector(np.random.default_rng(1), elements, 0.9) == 0
    blocks = np.append(zero, [True] * 5).reshape(-1, SPARSE_BLOCK)
    assert 850 < np.count_nonzero(blocks.all(axis=1)) < 950
    assert not zero[~np.repeat(blocks.all(axis=1), SPARSE_BLOCK)[:elements]].any()
    dense = protocol.vector(np.random.default_rng(1), elements)
    assert np.array_equal(dense, protocol.vector(np.random.default_rng(1), elements, 0.0))


def test_a_training_has_no_sparsity(tmp_path: Path) -> None:
    (tmp_path / "try.toml").write_text(
        'name = "try"\nworld = "live"\nsparsity = 0.5\n[training]\nepochs = 1\n'
        "[topology.leaf_spine]\nspines = 0\nleaves = 1\nhosts_per_leaf = 2\n"
    )
    with pytest.raises(ScenarioError, match="sparsity: is that of random vectors"):
        load_scenario(tmp_path / "try.toml")
