"""A network of three tiers for real: hosts reach each other across, and sums come back from the core, with loss too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fanin.testbed.patience import setting

pytestmark = pytest.mark.live

SCRIPT = """
import asyncio, json, pathlib, subprocess, sys
from fanin.testbed.sandbox import enter
enter()
from fanin.controller.controller import Controller
from fanin.controller.jobs.ledger import Ledger
from fanin.controller.telemetry import Event
from fanin.experiments.live.run import LiveNetwork
from fanin.experiments.scenario.compilers import compile_program
from fanin.controller.requirements import PROGRAM
from fanin.experiments.scenario.settings import Settings
from fanin.testbed.mininet_net import MininetNetwork
from fanin.testbed.switch_processes import P4Switch

folder, host_script = pathlib.Path(sys.argv[1]), sys.argv[2]
topology = {"fat_tree": {"k": 2, "hosts_per_leaf": 2}}
work = {"world": "live", "topology": topology, "size": "200 kB", "repetitions": 3}
points = {
    "all": Settings.model_validate(work),
    "lossy": Settings.model_validate(work | {"links": {"loss": 0.02}}),
    "racks of one": Settings.model_validate(work | {"hosts": ["h4", "h1"]}),
    "one rack": Settings.model_validate(work | {"hosts": ["h3", "h4"]}),
}
network = points["all"].network
program = compile_program(PROGRAM, "embedded")

def echo(client, server, count):
    address = network.host(server).ip
    def start(name, kind, *arguments):
        argv = [sys.executable, host_script, kind, str(address), *arguments]
        return built.host_popen(name, argv, stdout=subprocess.PIPE, text=True)
    serving = start(server, "udp-server")
    serving.stdout.readline()
    heard = start(client, "udp-client", str(count)).communicate()[0]
    serving.kill()
    return int(heard)

async def run():
    made = (program.p4info, program.device_config, Ledger(folder / "leases.json"), built.patience)
    async with Controller(network, *made) as controller:
        happened = {"across": echo("h1", "h4", 20), "points": {}}
        happened["dropped"] = sum(c.packets for s in (await controller.counts()).values() for c in s.drops.values())
        live = LiveNetwork(built, controller, folder, folder)
        for name, settings in points.items():
            before = await controller.counts()
            measured = await live.run(settings, lambda step, awaited: None)
            after = await controller.counts()
            happened["points"][name] = {
                "violations": measured.violations,
                "max_abs_error": measured.max_abs_error,
                "error_bound": measured.error_bound,
                "retransmissions": measured.retransmissions,
                "added up by": sorted(s for s in after if (after[s] - before[s]).events[Event.COMPLETED].packets),
            }
        return happened

with MininetNetwork(network, P4Switch(), folder / "logs") as built:
    happened = asyncio.run(run())
print(json.dumps(happened))
"""


@pytest.fixture(scope="module")
def happened(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    host = Path(__file__).parents[2] / "controller" / "host.py"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("trees")), str(host)],
        capture_output=True,
        text=True,
        timeout=120 * setting(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def test_hosts_reach_each_other_across_the_core(happened: dict[str, Any]) -> None:
    assert happened["across"] == 20
    assert happened["dropped"] == 0


def test_every_sum_is_within_its_bound(happened: dict[str, Any]) -> None:
    for point in happened["points"].values():
        assert point["violations"] == 0
        assert 0 < point["max_abs_error"] <= point["error_bound"]


def test_what_is_lost_is_sent_again(happened: dict[str, Any]) -> None:
    assert happened["points"]["lossy"]["retransmissions"] > 0


@pytest.mark.parametrize(
    ("point", "switches"),
    [
        ("all", ["core1", "leaf1", "leaf2", "spine1", "spine2"]),
        ("racks of one", ["core1", "leaf1", "leaf2", "spine1", "spine2"]),
        ("one rack", ["leaf2"]),
    ],
)
def test_each_switch_up_to_the_root_adds_up(
    happened: dict[str, Any], point: str, switches: list[str]
) -> None:
    assert happened["points"][point]["added up by"] == switches
