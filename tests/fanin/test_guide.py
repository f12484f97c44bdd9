"""Every command of docs/how-to/own.md runs, one after the other, in the folder that the first one makes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.experiments.results.files import read_rows
from tests.fanin.command import run, start
from tests.fanin.network import Up, said_by

pytestmark = pytest.mark.slow

FANIN = Path(__file__).parents[2]
GUIDE = (FANIN / "docs" / "how-to" / "own.md").read_text()
COMMANDS = re.findall(r"^    fanin (.*?)(?: +#.*)?$", GUIDE, flags=re.M)
LIVE = [command for command in COMMANDS if command.startswith(("up ", "tables ")) or "world=live" in command]
COMPARED = [command for command in COMMANDS if "--results" in command]
RUN_ELSEWHERE = ["new mine", "run scenario.toml", *COMPARED]  # the second: test_new.py


def fanin(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"TMPDIR": str(folder.parent), "COLUMNS": "200", "NO_COLOR": "1"}
    return run(*shlex.split(command), environment={"PYTHONPATH": str(FANIN), **environment}, cwd=folder)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("guide")
    assert COMMANDS[0] == "new mine"
    assert fanin(COMMANDS[0], parent).returncode == 0
    (parent / "mine" / "other.py").write_text("from fanin.workers.protocol import Worker as participant\n")
    assert "    from fanin.workers.protocol import Worker as participant\n" in GUIDE
    return parent / "mine"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command not in (*LIVE, *RUN_ELSEWHERE)]
)
def test_a_command_runs(mine: Path, command: str) -> None:
    done = fanin(command, mine)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_guide_has_one_change_goes_as_it_says(mine: Path) -> None:
    stf = (mine / "program.stf").read_text()
    (mine / "changed.stf").write_text(stf.replace("mark(dscp:46)", "mark(dscp:10)"))
    done = fanin("stf program.p4 changed.stf", mine)
    assert done.returncode == 1
    assert "4528" in done.stdout
    program = (mine / "program.p4").read_text()
    (mine / "changed.p4").write_text(program.replace("receivers", "addresses"))
    said = fanin("run scenario.toml --program changed.p4", mine).stderr
    first, table, *_ = said.splitlines()
    assert (
        first == f"fanin run: {mine}/changed.p4 lacks what the controller {mine}/control.py writes and reads:"
    )
    assert table.strip().startswith(
        "table egress.receivers with the keys hdr.switchml.lease (8 bits, exact), meta.member"
    )


@pytest.mark.few(0)
def test_the_worker_that_sends_twice_sends_more_and_waits_for_less(mine: Path) -> None:
    for command in COMPARED:
        done = fanin(f"{command} --set seed=1", mine)
        assert done.returncode == 0, done.stderr
    twice, ours = (
        {row["loss"]: row for row in read_rows(mine / "results" / name)} for name in ("twice", "ours")
    )
    assert twice[0]["wire_bytes_per_worker"] > 1.4 * ours[0]["wire_bytes_per_worker"]
    assert twice[0.01]["retransmissions"] < ours[0.01]["retransmissions"]


# What another client does: its own program on leaf1, with a higher election id than our controller's.
# On a machine ten times slower the program is not taken within 10 s, upon which finsy tries again, for ever.
CLIENT = """
import asyncio, os, sys
import finsy as fy
import finsy.p4client

finsy.p4client._DEFAULT_RPC_TIMEOUT *= float(os.environ.get("FANIN_PATIENCE", "1"))

async def main():
    options = fy.SwitchOptions(
        p4info=Path("program.p4info.txtpb"), p4blob=Path("program.json"), device_id=1, initial_election_id=5000
    )
    async with fy.Switch("leaf1", "127.0.0.1:9559", options) as switch:
        entry = fy.P4TableEntry(
            "ingress.marking",
            match=fy.Match(**{"hdr.ipv4.source": "10.9.9.9"}),
            action=fy.Action("ingress.mark", dscp=7),
        )
        await switch.insert([entry])
        print("inserted", switch.is_primary, flush=True)
        sys.stdin.read()

from pathlib import Path
asyncio.run(main())
"""


@pytest.mark.few(0)
@pytest.mark.live
def test_up_has_the_marks_and_another_client_takes_a_switch_over(mine: Path) -> None:
    up, tables, _ = LIVE
    fanin("compile program.p4", mine)
    files = (mine / word if (mine / word).is_file() else word for word in shlex.split(up)[1:])
    with Up(mine.parent, *files) as network:
        done = fanin(tables, mine)
        assert done.returncode == 0, done.stderr
        assert "ingress.marking" in done.stdout
        client = start(
            *("exec", "leaf1", "--", sys.executable, "-c", CLIENT),
            environment={"PYTHONPATH": str(FANIN), **network.environment},
            cwd=mine,
            stdin=subprocess.PIPE,
            stderr=None,
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "inserted True\n"
        assert "10.9.9.9" in fanin(tables, mine).stdout
        said_by(network, until="fanin up: leaf1 obeys another P4Runtime client now, with election id 5000")
        client.communicate("")
        # And when it has gone, whoever joins has the switch as before.
        done = fanin("allreduce --sizes '4 kB' --repetitions 1", mine)
        assert done.returncode == 0, done.stderr
        network.end()


@pytest.mark.few(0)
@pytest.mark.live
def test_the_live_scenario_runs(mine: Path) -> None:
    done = fanin(LIVE[-1], mine)
    assert done.returncode == 0, done.stdout + done.stderr
