"""A controller of one's own: it decides what switches are told, and what is wrong with it is told with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fanin.controller.errors import ControllerError, ProgramMismatchError
from fanin.controller.planner import OURS, planner_of
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.user_files import program_of, program_of_network
from fanin.native.python_file import PythonFileError
from fanin.simulator.fabric import Cluster, load_switch
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.shapes import leaf_spine

LAST_SPINE = """
from dataclasses import replace

from fanin.controller import tree

def aggregation_tree(network, job):
    ours = tree.aggregation_tree(network, job)
    *leaves, root = ours.aggregators
    last = network.tiers[1][-1].name
    return replace(ours, aggregators=(*(replace(leaf, parent=last) for leaf in leaves), replace(root, switch=last)))
"""
NOT_FOR_H2 = """
from fanin.controller.errors import ControllerError
from fanin.controller.tree import aggregation_tree as ours

def aggregation_tree(network, job):
    if "h2" in job.hosts:
        raise ControllerError("h2 is left alone")
    return ours(network, job)
"""
SCENARIO = """
name = "try"
size = "4 kB"
controller = "mine.py"
[topology.leaf_spine]
spines = 2
leaves = 2
hosts_per_leaf = 2
"""


def controller(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text.lstrip())
    return path


def point(folder: Path, text: str, *changes: str) -> Settings:
    controller(folder, text)
    (folder / "try.toml").write_text(SCENARIO)
    (found,) = load_scenario(folder / "try.toml", changes).points
    return found


def test_it_chooses_the_tree_and_the_rest_is_ours(tmp_path: Path) -> None:
    planner = planner_of(controller(tmp_path, LAST_SPINE))
    network = leaf_spine(2, 2, 2)
    assert planner.plan_forwarding(network) == OURS.plan_forwarding(network)
    inputs = [[np.full(300, rank, np.float32) for rank in range(4)]]
    cluster = Cluster(ClusterSpec(topology=leaf_spine(2, 2, 2)), load_switch(), inputs, planner=planner)
    assert cluster.run(limit=1.0)
    events = "ingress.aggregation.events"
    done = {
        name: sum(engine.counter(events).read(i).packets for i in range(7))
        for name, engine in cluster.engines.items()
    }
    assert done["spine1"] == 0 < done["spine2"]
    assert all((station.outputs[0] == 6).all() for station in cluster.stations)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n\ndef plan_forwarding(network)\n", "mine.py:3: SyntaxError: expected ':'"),
        ("import nothing_of_this_name\n", "mine.py:1: ModuleNotFoundError: No module named"),
        ("x = 1\n", "mine.py: defines none of plan_forwarding(), aggregation_tree()"),
        ("plan_loss = 3\n", "mine.py: plan_loss is int, must be a function"),
        ("def plan_forwarding(network):\n    return {}[1]\n", "mine.py:2: KeyError: 1"),
        ("def plan_forwarding():\n    return {}\n", "mine.py:1: TypeError: plan_forwarding() takes 0"),
        (
            "def plan_forwarding(network):\n    pass\n",
            "mine.py: plan_forwarding() returns None, must return a mapping",
        ),
        (
            "def aggregation_tree(network, job):\n    return 3\n",
            "mine.py: aggregation_tree() returns 3, must return a",
        ),
        (
            "from fanin.controller.plan import SwitchPlan\n"
            "def plan_forwarding(network):\n    return {'s': SwitchPlan(())}\n",
            "mine.py: plan_forwarding() plans for s; there are leaf1, leaf2, spine1, spine2",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises((PythonFileError, ControllerError)) as error:
        program_of(point(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path))
    assert words in str(error.value)


def test_it_may_refuse_jobs_which_does_not_keep_a_network_from_being_up(tmp_path: Path) -> None:
    with pytest.raises(ControllerError, match="h2 is left alone"):
        program_of(point(tmp_path, NOT_FOR_H2))
    path = tmp_path / "mine.py"
    assert program_of_network(None, "embedded", leaf_spine(0, 1, 2), path)
    path = tmp_path / "other.py"
    path.write_text("def plan_aggregation(network, tree):\n    return 1 / 0\n")
    with pytest.raises(ControllerError, match=r"other\.py:2: ZeroDivisionError"):
        program_of_network(None, "embedded", leaf_spine(0, 1, 2), path)


def test_what_it_writes_has_to_be_in_the_program(tmp_path: Path) -> None:
    text = """
from fanin.controller.plan import SwitchPlan, TableEntry

def plan_forwarding(network):
    entry = TableEntry("ingress.mine", {"hdr.ipv4.source": network.leaves[0].ip}, "ingress.pass", {"to": 3})
    return {"leaf1": SwitchPlan((entry,))}
"""
    with pytest.raises(ProgramMismatchError) as error:
        program_of(point(tmp_path, text, "algorithm=ring"))
    assert f"lacks what the controller {tmp_path}/mine.py writes and reads" in str(error.value)
    assert (
        "table ingress.mine with the keys hdr.ipv4.source (exact) and the actions pass(to), for routes"
        in str(error.value)
    )
