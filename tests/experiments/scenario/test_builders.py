"""Networks of more tiers in a scenario: tables of their own, their keys on the command line and in results."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.experiments.scenario.file import ScenarioError, load_scenario
from fanin.experiments.scenario.settings import setting_columns
from fanin.topologies.shapes import fat_tree, servers

FAT_TREE = '[topology.fat_tree]\nk = 2\nhosts_per_leaf = 2\nrate = "1 Gb/s"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scenario.toml"


def written(file: Path, text: str) -> Path:
    file.write_text(f'name = "try"\nsize = "4 kB"\n{text}')
    return file


def test_a_table_is_the_function_of_its_name(file: Path) -> None:
    (point,) = load_scenario(written(file, FAT_TREE)).points
    assert point.network == fat_tree(k=2, hosts_per_leaf=2, rate=10**9)
    (point,) = load_scenario(written(file, "[topology.servers]\nleaves = 1\nspines = 0\n")).points
    assert point.network == servers(leaves=1, spines=0)


def test_a_topology_file_may_have_them_too(file: Path) -> None:
    (file.parent / "network.toml").write_text('[servers]\nservers_per_leaf = 1\nnic_rate = "1 Gb/s"\n')
    (point,) = load_scenario(written(file, 'topology = "network.toml"\n')).points
    assert point.network == servers(servers_per_leaf=1, nic_rate=10**9)


def test_links_have_properties_by_tier(file: Path) -> None:
    properties = 'core_properties = {delay = "2 ms"}\n'
    (point,) = load_scenario(written(file, f"{FAT_TREE}properties = {{loss = 0.01}}\n{properties}")).points
    expected = fat_tree(
        k=2, hosts_per_leaf=2, rate=10**9, properties={"loss": 0.01}, core_properties={"delay": 2e-3}
    )
    assert point.network == expected


def test_their_keys_have_the_tables_name_before_them_and_vary_by_themselves(file: Path) -> None:
    scenario = load_scenario(written(file, FAT_TREE), ["fat_tree_core_rate=1 Gb/s,2 Gb/s"])
    assert [point.network.tiers[2][0].name for point in scenario.points] == ["core1", "core1"]
    assert [setting_columns(p)["fat_tree_core_rate"] for p in scenario.points] == [10**9, 2 * 10**9]
    assert scenario.varied == ["fat_tree_core_rate"]
    assert setting_columns(scenario.points[0])["leaves"] is None  # leaf_spine's


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FAT_TREE + "pod = 2\n", "topology.fat_tree.pod: unknown key; did you mean 'pods'?"),
        (FAT_TREE + "cores = 0\n", "topology.fat_tree.cores: is 0, must be a whole number from 1 to 254"),
        (FAT_TREE + "[topology.servers]\n", "give one of leaf_spine, fat_tree, servers, or switches, hosts"),
        ("[topology.servers]\nhosts_per_server = 33\n", "topology: server1 would add up 33 children"),
    ],
)
def test_what_cannot_be_is_refused_by_name(file: Path, text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(written(file, text))
    assert words in str(caught.value)
