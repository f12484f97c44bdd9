"""Network, switches, program and controller together: hosts reach each other, sums come back, all is counted."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from fanin.p4compiler import Compiled
from fanin.testbed.patience import setting

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def happened(fanin_p4: Compiled, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("program")
    (directory / "fanin.json").write_text(fanin_p4.json_text())
    (directory / "fanin.p4info.txtpb").write_text(text_format.MessageToString(fanin_p4.p4info))
    done = subprocess.run(
        [
            sys.executable,
            HERE / "live_aggregation.py",
            directory / "fanin.json",
            directory / "fanin.p4info.txtpb",
        ],
        capture_output=True,
        text=True,
        timeout=120 * setting(),
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


pytestmark = pytest.mark.live


def test_hosts_reach_each_other_in_a_rack_and_across_the_spines(happened: dict[str, Any]) -> None:
    assert happened["udp across"] == 20
    assert happened["tcp across"] == 1000
    assert happened["udp in the rack"] == 20


def test_what_crosses_is_counted_and_nothing_is_dropped(happened: dict[str, Any]) -> None:
    assert happened["leaf1 port 1"] == [True]
    assert sum(happened["across a spine"]) > 20
    assert happened["drops"] == 0


def test_a_leaf_answers_arp_for_itself(happened: dict[str, Any]) -> None:
    assert happened["udp after arp"] == 5


def test_every_worker_gets_the_sum_over_both_racks_and_the_largest_exponent(happened: dict[str, Any]) -> None:
    result_of_64_values, exponent = 17, 3
    expected = f"{result_of_64_values} {happened['of lease and chunk']} {exponent} True"
    assert happened["sums"] == [expected] * 4
    assert happened["completed"] == {"leaf1": 1, "leaf2": 1, "spine1": 1, "spine2": 0}


def test_without_a_lease_nobody_is_admitted(happened: dict[str, Any]) -> None:
    assert happened["sums without a lease"] == ["nothing"] * 4
    assert happened["not admitted"] == 2


def test_the_emulated_links_lose_what_they_are_told_to(happened: dict[str, Any]) -> None:
    assert 0 < happened["lossy"] < 200
    assert all(60 < lost < 140 for lost in happened["lost"][:1])
