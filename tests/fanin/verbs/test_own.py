"""Files of one's own on the command line."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments.results.files import read_rows
from fanin.experiments.scenario.file import ScenarioError, load_network, load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.topologies.shapes import leaf_spine
from tests.experiments.scenario.programs import copy_of_p4src
from tests.fanin.conftest import Fanin
from tests.fanin.network import Up

pytestmark = pytest.mark.slow

SCENARIO = """
name = "try"
size = "4 kB"
[topology.leaf_spine]
spines = 0
leaves = 1
hosts_per_leaf = 2
rate = "10 Gb/s"
"""


def invoke(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    return done.exit_code, done.output


def test_a_program_runs_from_whatever_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = copy_of_p4src(tmp_path / "a, b")  # a comma separates values of --set
    file = tmp_path / "scenarios" / "try.toml"
    file.parent.mkdir()
    file.write_text(SCENARIO)
    monkeypatch.chdir(program.parent)
    results = tmp_path / "results"
    status, said = invoke("run", file, "--program", program.name, "--results", results)
    assert status == 0, said
    (row,) = read_rows(results)
    assert (row["program"], row["violations"]) == (str(program), 0)
    monkeypatch.chdir(tmp_path)
    status, said = invoke("rerun", results)
    assert (status, "same" in said) == (0, True), said


@pytest.mark.few(1)
@pytest.mark.parametrize("verb", ["run", "sweep", "soak"])
def test_a_program_that_lacks_something_ends_the_command_before_it_begins(tmp_path: Path, verb: str) -> None:
    program = copy_of_p4src(
        tmp_path / "mine",
        ("fanin.p4", "table receivers", "table addresses"),
        ("fanin.p4", "receivers.apply()", "addresses.apply()"),
    )
    file = tmp_path / "try.toml"
    file.write_text(SCENARIO)
    results = tmp_path / "results"
    what = [] if verb == "soak" else [file]
    status, said = invoke(verb, *what, "--program", program, "--results", results)
    assert status == 1
    assert f"fanin {verb}: {program} lacks what the controller writes and reads:\n" in said
    assert "table egress.receivers with the keys" in said
    assert not list(results.glob("results.*"))


def topology_of_the_docs(folder: Path) -> Path:
    lines = (Path(__file__).parents[3] / "docs" / "reference" / "links.md").read_text().splitlines()
    begin = lines.index("    [leaf_spine]")
    block = takewhile(lambda line: line.startswith("    "), lines[begin:])
    path = folder / "network.toml"
    path.write_text("\n".join(line.strip() for line in block) + "\n")
    return path


def test_a_topology_file_is_the_same_for_up_for_scenarios_and_as_arguments(tmp_path: Path) -> None:
    wanted = leaf_spine(
        rate=10**8,
        properties={"delay": 1e-3, "loss": 0.01},
        uplink_properties={"delay": 5e-3, "burst": {"begin": 0.01, "end": 0.3}},
    )
    path = topology_of_the_docs(tmp_path)
    assert load_network(path).network == wanted
    scenario = tmp_path / "try.toml"
    scenario.write_text('name = "try"\nsize = "4 kB"\ntopology = "network.toml"\n')
    (point,) = load_scenario(scenario).points
    assert point.network == wanted
    assert Settings.model_validate(point.model_dump(mode="json")) == point


@pytest.mark.parametrize("verb", ["up", "demo"])
@pytest.mark.parametrize("option", ["--rate=1 Gb/s", "--workers=8", "--no-offload"])
def test_a_topology_file_leaves_no_room_for_options_that_say_the_same(
    tmp_path: Path, verb: str, option: str
) -> None:
    status, said = invoke(verb, "--topology", topology_of_the_docs(tmp_path), option)
    assert status == 2
    assert "sets this already" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[leaf_spine]\nleafs = 2\n", "leaf_spine.leafs: unknown key; did you mean 'leaves'?"),
        (
            "[leaf_spine]\nproperties = {los = 1}\n",
            "leaf_spine.properties.los: unknown key; did you mean 'loss'?",
        ),
        ("[leaf_spine]\nleaves = 300\n", "leaf_spine.leaves: is 300, must be a whole number from 1 to 254"),
        ("[leaf_spine\n", "cannot be read"),
        ("", "give one of leaf_spine, fat_tree, servers, or switches, hosts and links"),
    ],
)
def test_what_is_wrong_with_a_topology_file_is_told(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "network.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as error:
        load_network(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.few(0)
@pytest.mark.live
def test_the_topology_of_the_docs_is_up_with_its_delays(tmp_path: Path, fanin: Fanin) -> None:
    path = topology_of_the_docs(tmp_path)
    path.write_text(path.read_text() + "spines = 1\nhosts_per_leaf = 1\n")  # as much as a small machine likes
    with Up(tmp_path, "--topology", path) as network:
        assert "spine1" in network.said
        links = fanin("link", "leaf1", **network.environment).stdout
        assert "burst=1%/30%/100%, delay=5 ms, rate=100 Mb/s" in links, links
        done = fanin("allreduce", "--sizes", "4 kB", "--json", **network.environment)
        assert done.returncode == 0, done.stderr
        # Up and down again each crosses a link of 1 ms and one of 5 ms; the first in two round trips.
        (measured,) = map(json.loads, done.stdout.splitlines())
        assert min(measured["seconds"]) >= 0.012
        network.end()
