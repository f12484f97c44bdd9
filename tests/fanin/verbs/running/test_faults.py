"""Switches that die, lose their tables, and are cut off below jobs that run: sums are right, or somebody is told."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from fanin.testbed.runs import Run, command_line
from fanin.topologies.shapes import leaf_spine
from tests.fanin.command import run
from tests.fanin.network import SMALL, TIMEOUT, Up, said_by

pytestmark = pytest.mark.live

# All-reduces, each compared with the exact sum, until there is a file; says the longest time from one to the next.
STEADY = """
import sys, time, pathlib, numpy, fanin
comm = fanin.init(timeout=60, in_network=sys.argv[1])
n, last, longest = 0, time.monotonic(), 0.0
while True:
    x = numpy.arange(50_000, dtype=numpy.int32) * (comm.rank + 1) + n
    x[0] = pathlib.Path(sys.argv[2]).exists()
    total = comm.allreduce(x)
    ranks = comm.size * (comm.size + 1) // 2
    assert (total[1:] == numpy.arange(1, 50_000) * ranks + n * comm.size).all(), "a wrong sum"
    longest, last = max(longest, time.monotonic() - last), time.monotonic()
    n += 1
    if n == 20 and comm.rank == 0:
        print("begun", flush=True)
    if n >= 20:
        time.sleep(0.1)  # as if to compute: the machine is others', too
    if total[0]:
        break
print(f"done, longest {longest:.2f} s", flush=True)
"""

# Another client that takes a switch over, deletes all its entries, and goes.
WIPE = """
import queue, sys, grpc
from finsy.proto import p4r, p4r_grpc, U128
with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
    stub, device, election = p4r_grpc.P4RuntimeStub(channel), int(sys.argv[2]), U128.encode(5000)
    update = p4r.MasterArbitrationUpdate(device_id=device, election_id=election)
    requests = queue.SimpleQueue()
    requests.put(p4r.StreamMessageRequest(arbitration=update))
    stream = stub.StreamChannel(iter(requests.get, None), timeout=60)
    next(stream)
    wanted = p4r.ReadRequest(device_id=device, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
    parts = stub.Read(wanted, timeout=60)
    found = [entity for part in parts for entity in part.entities if not entity.table_entry.is_const]
    deletions = [p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in found]
    stub.Write(p4r.WriteRequest(device_id=device, election_id=election, updates=deletions), timeout=60)
    requests.put(None)
    print(len(found))
"""


class Job:
    """`fanin launch` of STEADY on `up`, whose sums have begun."""

    def __init__(self, up: Up, folder: Path, in_network: str, name: str = "steady") -> None:
        script, self._stop = folder / f"{name}.py", folder / f"{name}.stop"
        self._stop.unlink(missing_ok=True)
        script.write_text(STEADY)
        self.process = up.fanin("launch", script, in_network, self._stop)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "[0] begun\n"

    def end(self) -> tuple[str, str]:
        """Its last sums; what it says then, on both ways."""
        self._stop.touch()
        output, errors = self.process.communicate(timeout=TIMEOUT)
        assert self.process.returncode == 0, errors
        print(output)
        return output, errors


def switch_process(up: Up, device_id: int) -> int:
    """The process that is this switch."""
    [folder] = up.folder.glob("fanin-run-*")
    [process] = [
        process
        for process in Run(folder).processes
        if {"fanin.p4switch", "--device-id"} <= set(words := command_line(process))
        and words[words.index("--device-id") + 1] == str(device_id)
    ]
    return process


def controller_process(up: Up) -> int:
    """The process that is the controller."""
    [process] = controller_processes(up)
    return process


def controller_processes(up: Up) -> list[int]:
    """Return the controller and its standby, which has started later."""
    [folder] = up.folder.glob("fanin-run-*")
    found = [
        process
        for process in Run(folder).processes
        if "fanin.testbed.control.controller_main" in command_line(process)
    ]
    # Behind the command's name, which may have anything in it, comes the third field (proc_pid_stat(5)).
    return sorted(
        found,
        key=lambda process: int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]),
    )


def fanin(up: Up, *arguments: str) -> str:
    """Return what the command prints."""
    done = run(*arguments, environment=up.environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def switches_of_the_job(up: Up) -> list[str]:
    """Return the switches of the only job; the root is last."""
    [job] = fanin(up, "jobs", "--json").splitlines()
    found: list[str] = json.loads(job)["switches"]
    return found


def set_link(up: Up, switch: str, neighbour: str, state: str) -> None:
    """Takes the switch's end of the link down, or up."""
    port = leaf_spine(spines=2, leaves=2, hosts_per_leaf=1).port_towards(switch, neighbour)
    fanin(up, "exec", switch, "--", "ip", "link", "set", f"{switch}-eth{port}", state)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory):
    with Up(tmp_path_factory.mktemp("up"), *SMALL) as network:
        yield network


def test_tables_that_another_client_wipes_are_put_back_and_sums_go_on_in_the_network(up, tmp_path):
    job = Job(up, tmp_path, "required")
    wiped = int(fanin(up, "exec", "leaf1", "--", sys.executable, "-c", WIPE, "9559", "1"))
    assert wiped > 0
    said = said_by(up, until="all entries are installed again")
    assert f"leaf1 had lost {wiped} of" in said[-1]
    assert "registers" not in said[-1]
    output, errors = job.end()
    assert "ring" not in errors
    assert "done" in output


def test_a_job_whose_root_is_killed_goes_on_by_ring_and_the_next_one_in_the_network(up, tmp_path):
    job = Job(up, tmp_path, "preferred")
    os.kill(switch_process(up, 1), signal.SIGKILL)
    said = said_by(up, until="all entries are installed again")
    # A slow machine may have said before that it does not answer.
    assert any(line.startswith("fanin up: leaf1 has ended with signal SIGKILL") for line in said)
    assert "and what its registers held" in said[-1]
    output, errors = job.end()
    assert "leaf1, which adds up for it, has restarted; the hosts sum using the ring" in errors
    assert "done" in output
    _, errors = Job(up, tmp_path, "required").end()
    assert errors == ""


def test_all_reduces_do_not_notice_that_the_controller_is_killed_and_the_next_job_gets_its_lease(
    up, tmp_path
):
    job = Job(up, tmp_path, "required")
    os.kill(controller_process(up), signal.SIGKILL)
    said_by(up, until="the controller has ended with signal SIGKILL")
    said_by(up, until="it is started again")
    other = Job(up, tmp_path, "required", name="other")
    for each in (job, other):
        _, errors = each.end()
        assert errors == ""
    assert up.process.stderr is not None
    assert not select.select([up.process.stderr], [], [], 0)[0]


def test_a_job_is_over_and_another_begins_while_there_is_no_controller(up, tmp_path):
    job = Job(up, tmp_path, "required")
    controller = controller_process(up)
    os.kill(controller, signal.SIGSTOP)
    job.end()
    os.kill(controller, signal.SIGKILL)
    _, errors = Job(up, tmp_path, "required").end()
    assert errors == ""
    said_by(up, until="it is started again")


def test_the_standby_takes_over_while_jobs_run_and_in_the_middle_of_a_grant(tmp_path):
    with Up(tmp_path, *SMALL, "--standby") as network, ThreadPoolExecutor() as threads:
        said_by(network, until="a standby for the controller is ready")
        job = Job(network, tmp_path, "required")
        controller, standby = controller_processes(network)
        os.kill(controller, signal.SIGKILL)
        said_by(network, until="the standby takes over")
        said_by(network, until="a standby for the controller is ready")
        os.kill(standby, signal.SIGSTOP)
        starting = threads.submit(Job, network, tmp_path, "required", "other")
        while '"queued"' not in fanin(network, "jobs", "--json"):
            pass
        with suppress(ProcessLookupError):  # a slow machine, where it was ended already for being silent
            os.kill(standby, signal.SIGKILL)
        for each in (starting.result(), job):
            _, errors = each.end()
            assert errors == ""
        said_by(network, until="the standby takes over")


@pytest.mark.few(0)
def test_a_switch_that_ends_again_and_again_ends_the_network_and_is_named(tmp_path):
    with Up(tmp_path, *SMALL) as network:
        for _ in range(3):
            os.kill(switch_process(network, 1), signal.SIGKILL)
            said_by(network, until="all entries are installed again")
        os.kill(switch_process(network, 1), signal.SIGKILL)
        _, errors = network.process.communicate(timeout=TIMEOUT)
        assert network.process.returncode == 1
        assert "leaf1 has ended with signal SIGKILL" in errors
        assert "it was started again 3 times within 60 s, and has ended each time" in errors
        assert not list(tmp_path.glob("fanin-run-*"))


@pytest.mark.few(0)
def test_a_link_that_fails_hands_its_job_to_the_ring_and_the_next_one_gets_another_tree(tmp_path):
    with Up(tmp_path, "--workers", "2", "--leaves", "2", "--spines", "2") as network:
        job = Job(network, tmp_path, "preferred")
        [*_, root] = switches_of_the_job(network)
        set_link(network, "leaf1", root, "down")
        said_by(network, until=f"the link between leaf1 and {root} is down")
        _, errors = job.end()
        assert f"the link between leaf1 and {root} is down; the hosts sum using the ring" in errors
        for _ in range(2):  # the roots take turns
            job = Job(network, tmp_path, "required")
            assert {*switches_of_the_job(network)} == {"leaf1", "leaf2", "spine1", "spine2"} - {root}
            assert job.end()[1] == ""
        job = Job(network, tmp_path, "required")
        [*_, other] = switches_of_the_job(network)
        set_link(network, "leaf1", other, "down")
        said_by(network, until=f"the link between leaf1 and {other} is down")
        _, errors = job.process.communicate(timeout=TIMEOUT)
        assert job.process.returncode != 0
        assert f"the job has lost its lease: the link between leaf1 and {other} is down" in errors
        for spine in (root, other):
            set_link(network, "leaf1", spine, "up")
            said_by(network, until=f"the link between leaf1 and {spine} is up again")
        assert Job(network, tmp_path, "required").end()[1] == ""
        network.end()


def test_a_job_goes_on_in_the_network_when_a_leaf_below_its_root_is_killed(tmp_path):
    with Up(tmp_path, "--workers", "2", "--leaves", "2", "--spines", "1") as network:
        job = Job(network, tmp_path, "required")
        os.kill(switch_process(network, 2), signal.SIGKILL)
        said_by(network, until="leaf2 had lost")
        job.end()
        network.end()
