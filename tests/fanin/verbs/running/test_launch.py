"""`fanin launch`: a process on each host, its rank, output and end; and the examples of launch.md and calls.md."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from fanin.testbed.time_slices import SECONDS, current, restore, shorten
from tests.fanin.command import RUN, start
from tests.fanin.network import TIMEOUT, launch
from tests.testbed.conftest import NOBODY, as_nobody

ROOT = Path(__file__).parents[4]
live = pytest.mark.live

SAYS = """
import os, sys
names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT FANIN_HOST PYTHONUNBUFFERED"
names += " GLOO_SOCKET_IFNAME"
print(*(os.environ[name] for name in names.split()), *sys.argv[1:])
print("read", repr(sys.stdin.read()), file=sys.stderr)
"""
# Rank 0 has two children, of which one leaves its group. It tells rank 1 of them by a pipe; that one writes them down,
# and fails or stays.
FAILS = """
import os, subprocess, sys, time
pipe, told, then = sys.argv[1:]
if os.environ["RANK"] == "0":
    child, gone = (subprocess.Popen(["sleep", "1000"], start_new_session=leaves) for leaves in (False, True))
    with open(pipe, "w") as other:
        other.write(f"{os.getpid()} {child.pid} {gone.pid}")
    child.wait()
with open(pipe) as other, open(told, "w") as file:
    file.write(other.read())
if then == "fail":
    sys.exit(7)
print("ready")
time.sleep(1000)
"""
LEAVES = """
import fanin, numpy, sys
comm = fanin.init()
comm.barrier()
if comm.rank == 0:
    try:
        comm.allreduce(numpy.ones(3, numpy.float32))
    except RuntimeError as error:
        sys.exit(str(error))
"""

# Rank 1 is killed in the middle of a call.
DIES = """
import fanin, numpy as np, os, signal, threading
comm = fanin.init()
x = np.full(1_000_000, comm.rank + 1, np.float32)
{call}
print("as it should be")
if comm.rank:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    {call}
"""


# Rank 0 says what it has summed, and stays until it is told to go on.
STAYS = """
import fanin, numpy as np, os, sys
comm = fanin.init()
def total(factor):
    return float(comm.allreduce(np.full(1000, factor * (comm.rank + 1), np.float32)).mean())
def say(what):
    if comm.rank == 0:
        print(what)
say(f"{os.environ['FANIN_JOB']} {total(1)}")
if comm.rank == 0:
    sys.stdin.readline()
comm.barrier()
say(total(100))
"""


def running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@live
def test_each_process_knows_its_place_and_its_lines_begin_with_its_rank(up, script):
    done = launch(up, script(SAYS), "--rate", 5, "-n", 3, input="hello")
    assert done.returncode == 0, done.stderr
    told = "2 0 1 10.1.0.1 29500"
    assert sorted(done.stdout.splitlines()) == [
        f"[0] 0 {told} h1 1 h1-eth0 --rate 5 -n 3",
        f"[1] 1 {told} h2 1 h2-eth0 --rate 5 -n 3",
    ]
    assert sorted(done.stderr.splitlines()) == ["[0] read 'hello'", "[1] read ''"]


@live
def test_two_processes_on_each_host_know_their_places_and_sum(up, script):
    text = SAYS + "\nimport fanin, numpy as np"
    text += "\nprint(fanin.init().allreduce(np.full(3, int(os.environ['RANK']), np.float32)))"
    done = launch(up, "--per-host", 2, "-n", 4, script(text))
    assert done.returncode == 0, done.stderr
    places = [(0, 0, "h1"), (1, 1, "h1"), (2, 0, "h2"), (3, 1, "h2")]
    assert sorted(done.stdout.splitlines()) == sorted(
        line
        for rank, local, host in places
        for line in (
            f"[{rank}] {rank} 4 {local} 2 10.1.0.1 29500 {host} 1 {host}-eth0",
            f"[{rank}] [6. 6. 6.]",
        )
    )


@live
def test_processes_have_the_time_slices_of_the_network(up, script):
    done = launch(up, script("from fanin.testbed.time_slices import current; print(current())"))
    slices = {line.partition("] ")[2] for line in done.stdout.splitlines()}
    wanted = SECONDS if shorten() else current()
    restore()  # for the tests that follow in this process
    assert slices == {str(wanted)}


@live
def test_rank_0_can_listen_for_the_others_at_the_master_s_address(up, script):
    text = """
import os, socket
at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    print(socket.create_server(at).accept()[0].recv(100, socket.MSG_WAITALL).decode())
else:
    while True:
        try:
            with socket.create_connection(at) as master:
                master.sendall(b"here is rank 1")
            break
        except ConnectionRefusedError:
            pass
"""
    done = launch(up, script(text))
    assert (done.returncode, done.stdout) == (0, "[0] here is rank 1\n"), done.stderr


@live
def test_any_command_on_the_first_hosts_only_and_its_output_in_files(up, tmp_path):
    done = launch(
        up, "-n", 1, "--output", tmp_path / "said", "sh", "-c", "echo $RANK of $WORLD_SIZE; echo no >&2"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {path.name: path.read_text() for path in (tmp_path / "said").iterdir()} == {
        "rank-0.out": "0 of 1\n",
        "rank-0.err": "no\n",
    }


@live
def test_the_first_failure_ends_all_and_children_too_and_is_the_exit_status(up, script, tmp_path):
    pipe, told = tmp_path / "pipe", tmp_path / "processes"
    os.mkfifo(pipe)
    done = launch(up, script(FAILS), pipe, told, "fail")
    assert done.returncode == 7
    assert "rank 1 on h2 failed: exit status 7" in done.stderr
    assert "rank 0 on h1 ended with the others: killed by SIGTERM" in done.stderr
    assert not any(map(running, map(int, told.read_text().split())))


@live
def test_two_programs_at_once_share_hosts_and_switches(up, script):
    path = script(STAYS)
    options = ("--job", "first", "--slots", "100")
    with up.fanin("launch", *options, path, stdin=subprocess.PIPE, stderr=None) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "[0] first 3.0\n"
        second = launch(up, path, input="\n")
        assert (second.returncode, second.stderr) == (0, "")
        assert re.fullmatch(r"\[0\] script\.py-\d+ 3\.0\n\[0\] 300\.0\n", second.stdout)
        first.stdin.write("\n")
        first.stdin.close()
        assert first.stdout.read() == "[0] 300.0\n"
    assert first.returncode == 0


@live
@pytest.mark.parametrize(
    ("options", "argument"),
    [((), ""), (("--min-workers", "1"), ""), (("--per-host", "2"), ""), ((), ", in_network='required'")],
)
def test_a_job_may_leave_slots_for_others(up, script, fanin, options, argument):
    path = script(f"""
import fanin
comm = fanin.init(slot_share=16{argument})
if not comm.rank:
    print(input())
comm.barrier()
""")
    with up.fanin("launch", *options, path, stdin=subprocess.PIPE) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        deadline = time.monotonic() + TIMEOUT
        slots = None
        while slots is None and time.monotonic() < deadline:
            for found in fanin("jobs", "--json", **up.environment).stdout.splitlines():
                slots = json.loads(found)["slots"]
        assert slots == [0, 63]
        job.stdin.write("ends\n")
        job.stdin.close()
        assert job.stdout.read() == "[0] ends\n"
    assert job.returncode == 0


@live
def test_jobs_go_on_by_ring_where_they_are_refused_a_lease_or_lose_it(up, script, fanin):
    path = script(STAYS)
    options = ("--job", "first", "--slots", "1000")
    with up.fanin("launch", *options, path, stdin=subprocess.PIPE) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stderr is not None
        assert first.stdout.readline() == "[0] first 3.0\n"
        second = launch(up, "--job", "second", path, input="\n")
        assert (second.returncode, second.stdout) == (0, "[0] second 3.0\n[0] 300.0\n")
        assert second.stderr == (
            "[0] fanin: no lease: leaf1 has 24 of 1,024 slots free; the job needs 128; the hosts sum using the ring\n"
        )
        [job] = map(json.loads, fanin("jobs", "--json", **up.environment).stdout.splitlines())
        assert (job["name"], job["state"], job["hosts"]) == ("first", "in network", ["h1", "h2"])
        assert (job["slots"], job["switches"]) == ([0, 999], ["leaf1"])
        assert "0 to 999" in fanin("jobs", **up.environment).stdout
        assert fanin("jobs", "--revoke", "first", **up.environment).returncode == 0
        again = fanin("jobs", "--revoke", "first", **up.environment)
        assert (again.returncode, again.stderr) == (
            1,
            "fanin jobs: first has no lease: it is using the ring (its lease was revoked)\n",
        )
        first.stdin.write("\n")
        first.stdin.close()
        assert first.stdout.read() == "[0] 300.0\n"
        # Rank 0 has waited for this test, and on a busy machine rank 1 says so.
        said = [line for line in first.stderr if "] fanin: waiting for rank 0 (process" not in line]
        assert said == ["[0] fanin: its lease was revoked; the hosts sum using the ring\n"]
    assert first.returncode == 0
    assert fanin("jobs", **up.environment).stdout.startswith("No job is running on the network")


@live
def test_who_does_not_end_when_asked_to_is_killed(up, script, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + FAILS
    done = launch(up, script(deaf), tmp_path / "pipe", tmp_path / "processes", "fail")
    assert done.returncode == 7
    assert "rank 0 on h1 ended with the others: killed by SIGKILL" in done.stderr


@live
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_all_and_children_too(up, script, tmp_path, number, status):
    pipe, told = tmp_path / "pipe", tmp_path / "processes"
    os.mkfifo(pipe)
    launched = up.fanin("launch", script(FAILS), pipe, told, "stay")
    assert launched.stdout is not None
    assert launched.stdout.readline() == "[1] ready\n"
    launched.send_signal(number)
    launched.communicate(timeout=TIMEOUT)
    assert launched.returncode == status
    assert not any(map(running, map(int, told.read_text().split())))


@live
@pytest.mark.parametrize("length", [1, 1000])  # what Python keeps in its buffer, and what it writes at once
def test_a_reader_that_has_seen_enough_ends_all_without_a_word_of_python_s(up, script, length):
    text = f"while True: print('x' * {length}, flush=True)"
    environment = {**up.environment, "PYTHONUNBUFFERED": ""}
    with start("launch", script(text), environment=environment) as launched:
        assert launched.stdout is not None
        assert launched.stderr is not None
        launched.stdout.readline()
        launched.stdout.close()
        said = launched.stderr.read()
    assert launched.returncode == 128 + signal.SIGPIPE
    assert sorted(said.splitlines()) == [
        f"fanin launch: rank {rank} on h{rank + 1} ended with the others: killed by SIGTERM"
        for rank in (0, 1)
    ]


@live
def test_if_the_launcher_is_killed_so_are_the_processes(up, script):
    text = "import os, time; print(os.getpid()); time.sleep(1000)"
    launched = up.fanin("launch", script(text), stderr=None)
    assert launched.stdout is not None
    processes = [os.pidfd_open(int(launched.stdout.readline().split()[1])) for _ in range(2)]
    launched.kill()
    launched.communicate(timeout=TIMEOUT)
    for process in processes:
        assert select.select([process], [], [], TIMEOUT)[0]  # it has ended
        os.close(process)


@live
def test_the_examples_of_the_manual_print_what_it_says(up, script):
    manual = "".join((ROOT / "docs/how-to" / page).read_text() for page in ("launch.md", "calls.md"))
    blocks = re.findall(r"^```python\n(.*?)^```$", manual, re.M | re.S)
    done = launch(up, script("".join(blocks)))
    assert done.returncode == 0, done.stderr
    said = [line.removeprefix("[0] ") for line in done.stdout.splitlines() if line.startswith("[0] ")]
    assert said == re.findall(r"^print\(.*\)  # (.*)$", "".join(blocks), re.M)


# A library makes the call.
DIFFERS = """
import fanin, sched, numpy as np
comm, later = fanin.init(), sched.scheduler()
later.enter(0, 0, comm.allreduce, [np.ones(4 if comm.rank == 2 else 3, np.float32)])
later.run()
"""


@live
def test_only_the_rank_whose_call_differs_prints_a_traceback(up, script):
    file = script(DIFFERS)
    done = launch(up, "--per-host", 2, file)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [line for line in lines if "Traceback" in line] == ["[2] Traceback (most recent call last):"]
    why = "the workers make different calls. rank 2 ("
    for rank in (0, 1, 3):
        [line] = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert line.startswith(f"[{rank}] {file}:5: rank {rank} stopped: {why}")
    assert "fanin launch: rank 2 on h2 failed: exit status 1" in lines


# Rank 1 fails, and ends only when rank 0 has ended, which alone holds the pipe open for writing.
FAILS_AND_ENDS_LAST = """
import atexit, os, sys
import fanin, numpy as np
pipe = os.open(sys.argv[1], os.O_RDONLY if os.environ["RANK"] == "1" else os.O_RDWR)
comm = fanin.init()
if comm.rank == 1:
    atexit.register(os.read, pipe, 1)
comm.allreduce(np.ones(3, np.float32 if comm.rank == 0 else object))
"""


@live
def test_the_rank_that_has_failed_is_reported_even_if_others_end_before_it(up, script, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    file = script(FAILS_AND_ENDS_LAST)
    done = launch(up, file, tmp_path / "pipe")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [line for line in lines if "Traceback" in line] == ["[1] Traceback (most recent call last):"]
    assert "fanin launch: rank 1 on h2 failed: exit status 1" in lines
    assert "fanin launch: rank 0 on h1 ended with the others: exit status 1" in lines


@live
def test_who_waits_for_a_rank_that_has_ended_is_told_which(up, script):
    done = launch(up, script(LEAVES))
    assert done.returncode == 1
    assert re.search(
        r"^\[0\] rank 1 \(process \d+ on h2\) ended while others wait: rank 0 of 2", done.stderr, re.M
    )


@live
@pytest.mark.parametrize("call", ["comm.allreduce(x)", "comm.allgather(x)"])
def test_a_rank_that_is_killed_is_named_and_is_the_exit_status(up, script, call):
    done = launch(up, script(DIES.format(call=call)))
    assert done.returncode == 128 + signal.SIGKILL
    assert "fanin launch: rank 1 on h2 failed: killed by SIGKILL\n" in done.stderr
    assert set(done.stdout.splitlines()) == {"[0] as it should be", "[1] as it should be"}


@live
def test_those_who_are_left_go_on(up, script):
    text = """
import fanin, numpy as np, os, signal
comm = fanin.init()
for call in range(20):
    if call == 10 and comm.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    x = comm.allreduce(np.full(100_000, comm.rank + 1, np.float32))
print(comm.rank, comm.size, x.mean())
"""
    done = launch(up, "--min-workers", 1, script(text))
    # Its value, whose rank is 0 by then, is still that of rank 1 in the call that is done again.
    assert (done.returncode, done.stdout) == (0, "[1] 0 1 1.0\n"), done.stderr
    assert "fanin launch: rank 0 on h1 failed: killed by SIGKILL; the others continue\n" in done.stderr
    assert re.search(
        r"^\[1\] fanin: rank 0 \(process \d+ on h1\) ended; 1 of 2 workers continue$", done.stderr, re.M
    )


@live
def test_the_others_begin_without_one_that_ends_before_it_has_joined(up, script):
    text = """
import fanin, numpy as np, os, sys
if os.environ["RANK"] == "0":
    sys.exit(3)
comm = fanin.init()
print(comm.rank, comm.size, comm.allreduce(np.full(1000, 2, np.float32)).mean())
"""
    done = launch(up, "--min-workers", 1, script(text))
    assert (done.returncode, done.stdout) == (0, "[1] 0 1 2.0\n"), done.stderr
    assert "fanin launch: rank 0 on h1 failed: exit status 3; the others continue\n" in done.stderr


@live
def test_one_that_is_killed_is_started_again_and_joins_the_others(fanin, script, tmp_path):
    """The example of docs/reference/python-api.md, with a worker that kills itself, once."""
    manual = (ROOT / "docs/reference/python-api.md").read_text().partition("This is `train.py`:\n\n")[2]
    text = textwrap.dedent(manual[: manual.index("\n\n`fanin launch")])
    dies = f"""
    if comm.rank == 1 and step == 50 and not os.path.exists({str(tmp_path / "died")!r}):
        open({str(tmp_path / "died")!r}, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 60:  # those who stay wait here for it
        while comm.size < 3:
            if comm.regroup():
                comm.broadcast(np.array(step), root=0)
                comm.broadcast(weights, root=0)
    weights +="""
    text = "import os, signal\n" + text.replace("\n    weights +=", dies)
    shape = "--workers 3 --leaves 1 --spines 0 --logs " + str(tmp_path / "logs")
    options = ("--min-workers", "2", "--restarts", "1")
    done = fanin("launch", "--up", shape, *options, str(script(text)), TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    everybody = [f"[{rank}] {now} 3 [100. 100. 100. 100.]" for rank, now in ((0, 0), (2, 1), (1, 2))]
    assert sorted(done.stdout.splitlines()) == sorted(everybody)
    assert "rank 1 on h2 failed: killed by SIGKILL; it is started again (1 of 1)\n" in done.stderr
    assert "using the ring" not in done.stderr
    assert re.search(r"^\[0\] fanin: process \d+ on h2 has joined; 3 workers continue$", done.stderr, re.M)


@live
def test_one_that_fails_again_and_again_is_started_as_often_as_was_said(up, tmp_path):
    argv = ("sh", "-c", "echo again; exit 3")
    done = launch(up, "-n", 1, "--min-workers", 1, "--restarts", 2, "-o", tmp_path, *argv)
    assert done.returncode == 3
    assert (tmp_path / "rank-0.out").read_text() == "again\n" * 3
    started = [
        f"fanin launch: rank 0 on h1 failed: exit status 3; it is started again ({n} of 2)" for n in (1, 2)
    ]
    assert done.stderr.splitlines() == [*started, "fanin launch: rank 0 on h1 failed: exit status 3"]


@live
def test_more_processes_than_hosts_are_refused(up):
    done = launch(up, "-n", 3, "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        "the network has 2 hosts, too few for 3 processes; --up '--workers 4' starts a larger one"
        in done.stderr
    )


@live
def test_a_network_is_made_for_it_and_goes_with_it(fanin, script, tmp_path):
    shape = "--workers 2 --leaves 1 --spines 0 --logs " + str(tmp_path / "logs")
    text = "import fanin, numpy, sys; comm = fanin.init(); comm.barrier(); sys.exit(5 * comm.rank)"
    done = fanin("launch", "--up", shape, str(script(text)), TMPDIR=str(tmp_path))
    assert done.returncode == 5, done.stderr
    assert not list(tmp_path.glob("fanin-run-*"))


@live
def test_an_ordinary_user_launches_as_well():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        text = "import fanin, numpy; print(fanin.init().allreduce(numpy.ones(2, numpy.float32)))"
        (folder / "script.py").write_text(text)
        paths = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
        own = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), name)
        shape = "--workers 2 --leaves 1 --spines 0"
        done = subprocess.run(
            [*as_nobody(RUN), "launch", "--up", shape, "script.py"],
            cwd=folder,
            env={**os.environ, **own, "PYTHONPATH": paths, "P4SWITCH_CFLAGS": "-Og"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert sorted(done.stdout.splitlines()) == ["[0] [2. 2.]", "[1] [2. 2.]"], done.stderr
        assert done.returncode == 0
        assert not list(folder.glob("fanin-run-*"))


@pytest.mark.slow
def test_what_cannot_be_launched_is_said(fanin, tmp_path):
    for arguments, says in (
        (("nowhere.py",), "nowhere.py: no such file in"),
        (("--up", "--logs '", "true"), "No closing quotation"),
        (("--up", "", "--network", "1", "true"), "either --up"),
        (("-n", "2", "--min-workers", "3", "true"), "3 is more than --workers 2"),
        (("--restarts", "1", "true"), "give --min-workers as well"),
        (("-n", "0", "true"), "greater than or equal to 1"),
    ):
        done = fanin("launch", *arguments, TMPDIR=str(tmp_path))
        assert done.returncode == 2
        assert says in " ".join(done.stderr.replace("│", "").split())


def test_a_program_that_was_not_launched_is_told_how_to(monkeypatch):
    import fanin
    from fanin.workers import JoinError

    for name in ("WORLD_SIZE", "FANIN_HOST", "FANIN_JOB_SERVICE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(JoinError, match="Start this program with `fanin launch`"):
        fanin.init()


@pytest.mark.parametrize(
    ("how", "function", "given"),
    [
        (
            "preferred",
            "join_or_ring",
            ((2, 7), {"slot_share": None, "non_finite": "raise", "deterministic": False}),
        ),
        (
            "required",
            "join",
            (
                (2,),
                {
                    "slot_share": None,
                    "timeout": 7,
                    "give_up": 7,
                    "non_finite": "raise",
                    "deterministic": False,
                },
            ),
        ),
    ],
)
def test_a_process_is_in_one_job_of_as_many_as_were_launched(monkeypatch, how, function, given):
    import fanin
    from fanin.workers.job import membership
    from fanin.workers.job.calls import Calls

    class Place:
        rank, workers = 1, 2
        calls = Calls(lambda _: None, rank)

        def close(self) -> None:
            pass

    joined = []

    def join(*arguments, **settings):
        joined.append((arguments, settings))
        return Place()

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(membership, function, join)
    monkeypatch.setattr(fanin, "_communicator", None)
    comm = fanin.init(timeout=7, in_network=how)
    assert (comm.rank, comm.size) == (1, 2)
    assert fanin.init() is comm
    assert joined == [given]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("fanin", {"numpy", "fanin.workers", "typer"}),
        ("fanin.verbs.running.execute", {"numpy"}),
        ("fanin.testbed.launch", {"numpy"}),
    ],
)
def test_what_starts_programs_imports_nothing_heavy(module: str, heavy: set[str]) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not heavy & set(loaded.split())
