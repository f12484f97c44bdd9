"""A program of one's own: it runs in the place of ours, or all that it lacks is told before anything is started."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from fanin.controller.errors import ProgramMismatchError
from fanin.controller.requirements import PROGRAM
from fanin.experiments.results.files import Journal
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.compilers import compile_program
from fanin.experiments.scenario.file import ScenarioError, load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tools import ToolError
from fanin.experiments.scenario.user_files import program_of, program_of_network
from fanin.experiments.sweep import run_points
from fanin.topologies.shapes import leaf_spine
from tests.experiments.scenario.programs import copy_of_p4src
from tests.experiments.watch import Watch

SCENARIO = """
name = "try"
size = "20 kB"
program = "mine/fanin.p4"
[topology.leaf_spine]
spines = 0
leaves = 1
hosts_per_leaf = 2
rate = "10 Gb/s"
"""


def scenario(folder: Path, *changes: str) -> Settings:
    (folder / "try.toml").write_text(SCENARIO)
    (point,) = load_scenario(folder / "try.toml", changes).points
    return point


def lacks(point: Settings) -> list[str]:
    with pytest.raises(ProgramMismatchError) as error:
        program_of(point)
    first, *lines, last = str(error.value).splitlines()
    assert first == f"{point.program} lacks what the controller writes and reads:"
    assert str(PROGRAM) in last
    return [line.strip() for line in lines]


@pytest.mark.slow
def test_ours_lacks_nothing_in_either_world_with_and_without_leases(tmp_path: Path) -> None:
    copy_of_p4src(tmp_path / "mine")
    for change in (["world=live", "loss=0.1"], ["algorithm=ring"], ["spines=2", "leaves=2"]):
        assert program_of(scenario(tmp_path, *change))


@pytest.mark.slow
def test_all_that_two_tables_lack_is_told_at_once(tmp_path: Path) -> None:
    copy_of_p4src(
        tmp_path / "mine",
        ("forwarding.p4", "table switches", "table other_switches"),
        ("forwarding.p4", "switches.apply()", "other_switches.apply()"),
        ("fanin.p4", "table receivers", "table addresses"),
        ("fanin.p4", "receivers.apply()", "addresses.apply()"),
    )
    point = scenario(tmp_path)
    assert lacks(point) == [
        "table ingress.forwarding.switches with the keys hdr.ipv4.source (32 bits, exact) and the actions forged(), "
        "for routes",
        "table egress.receivers with the keys hdr.switchml.lease (8 bits, exact), meta.member (16 bits, exact) and the "
        "actions send_to(source_mac: 48 bits, source: 32 bits, source_port: 16 bits, destination_mac: 48 bits, "
        "destination: 32 bits, destination_port: 16 bits), for leases",
    ]
    # Without leases nobody writes the second.
    assert len(lacks(point.model_copy(update={"algorithm": "ring"}))) == 1
    with pytest.raises(ProgramMismatchError, match=r"egress\.receivers"):
        program_of_network(point.program, "embedded", leaf_spine(0, 1, 2))


@pytest.mark.slow
def test_a_parameter_a_key_and_a_counter_of_another_size_are_told(tmp_path: Path) -> None:
    copy_of_p4src(
        tmp_path / "mine",
        ("forwarding.p4", "action forward(mac_t mac, bit<9> port)", "action forward(mac_t mac, bit<8> port)"),
        ("forwarding.p4", "forward(mac, port);", "forward(mac, (bit<8>)port);"),
        ("forwarding.p4", "egress_spec = port;", "egress_spec = (bit<9>)port;"),
        ("forwarding.p4", "hdr.ipv4.destination: lpm", "hdr.ipv4.destination: exact"),
        (
            "fanin.p4",
            "counter(REASONS, CounterType.packets_and_bytes) drops",
            "counter(3, CounterType.bytes) drops",
        ),
    )
    key, forward, drops = lacks(scenario(tmp_path))
    assert key == (
        "key hdr.ipv4.destination (32 bits, lpm) of table ingress.forwarding.ipv4_lpm, for routes; "
        "its hdr.ipv4.destination is exact, 32 bits"
    )
    assert forward == (
        "action forward(mac: 48 bits, port: 9 bits) in table ingress.forwarding.ipv4_lpm, for routes; "
        "its parameters are (mac: 48 bits, port: 8 bits)"
    )
    assert drops == "counter ingress.drops with 19 cells, for results; it has 3"


def test_a_program_that_is_not_there_is_told_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=f"program: {tmp_path}/mine/fanin.p4 does not exist"):
        scenario(tmp_path)
    path = copy_of_p4src(tmp_path / "mine")
    point = scenario(tmp_path)
    path.rename(tmp_path / "gone.p4")
    with pytest.raises(ToolError, match="cannot be read: No such file"):
        program_of(point)


@pytest.mark.few(0)
@pytest.mark.slow
def test_rows_tell_the_program_and_a_change_of_it_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_of_p4src(tmp_path / "mine")
    point, journal = scenario(tmp_path, f"program={json.dumps(str(path))}"), Journal(tmp_path / "results")

    def run() -> tuple[Row, int]:
        # As a new process does, for a program is compiled once in each.
        monkeypatch.setattr("fanin.experiments.scenario.user_files._compiled", cache(compile_program))
        watch = Watch()
        (row,) = run_points([point], journal, tmp_path / "logs", watch)
        return row, len(watch.rows)

    first, measured = run()
    assert (first["error"], first["violations"], first["program"], measured) == (None, 0, str(path), 1)
    assert Settings.model_validate_json(str(first["settings"])) == point
    assert run() == (json.loads(json.dumps(first)), 0)
    # From now on no packet finds its way.
    copy_of_p4src(tmp_path / "mine", ("fanin.p4", "meta.lost == 1", "meta.lost == 0"))
    second, measured = run()
    assert measured == 1
    assert second["program_sha256"] != first["program_sha256"]
    assert "StallError" in str(second["error"])
