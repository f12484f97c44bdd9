"""`fanin play`: what it prints, whom it answers, and what is left after Ctrl-C."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import connect

from fanin.classroom.confine import require_sandboxes
from fanin.testbed.patience import setting
from fanin.testbed.process_stats import process_stats
from fanin.testbed.sandbox import SandboxError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
FIREWALL = ROOT / "examples" / "own-program" / "firewall.p4"


@pytest.fixture
def played(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command with the options of the test's parameter, and the address that it prints."""
    try:
        require_sandboxes()
    except SandboxError as error:
        pytest.skip(f"no sandboxes: {error}")
    command = [sys.executable, "-m", "fanin", "play", "--port", "0", *request.param]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def below(process: int) -> set[int]:
    """Return the processes that a process has started, and that these have started."""
    parents = {pid: int(fields[1]) for pid, fields in process_stats()}
    found = {process}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


@pytest.mark.parametrize("played", [[str(FIREWALL)]], indirect=True)
def test_the_users_program_comes_first_and_nothing_is_left_after_ctrl_c(
    played: tuple[subprocess.Popen[str], str],
) -> None:
    process, url = played
    assert url.startswith("http://127.0.0.1:")
    assert url.endswith("/play/")
    with urllib.request.urlopen(f"{url}programs") as answer:
        first = json.load(answer)[0]
    assert (first["name"], first["title"]) == ("own", "firewall.p4")
    with urllib.request.urlopen(f"{url}programs/own") as answer:
        program = json.load(answer)
    assert program["files"][program["main"]] == FIREWALL.read_text()
    address = url.replace("http", "ws") + "session"
    with connect(address, origin=url.removesuffix("/play/"), max_size=None) as page:  # type: ignore[arg-type]
        request = {"files": program["files"], "main": program["main"]}
        page.send(json.dumps({"do": "load", "stf": program["stf"], **request}))
        scenario = json.loads(page.recv(timeout=60 * setting()))["scenario"]
        page.send(json.dumps({"do": "run", "scenario": scenario, **request}))
        ran = json.loads(page.recv(timeout=60 * setting()))
        assert [len(packet["outputs"]) for packet in ran["packets"]] == [1, 0, 0, 1]
        started = [os.pidfd_open(each) for each in below(process.pid)]
        assert len(started) >= 2  # the sandbox, and the process in it
        process.send_signal(signal.SIGINT)
        assert process.wait(60 * setting()) == 0
        for each in started:
            assert select.select([each], [], [], 60 * setting())[0], "a process goes on"
            os.close(each)


@pytest.mark.few(0)
@pytest.mark.parametrize("played", [["--address", "0.0.0.0"]], indirect=True)
def test_from_other_machines_a_token_is_needed(played: tuple[subprocess.Popen[str], str]) -> None:
    _, url = played
    here, _, token = url.partition("?token=")
    here = f"http://127.0.0.1:{here.split(':')[2]}"
    assert len(token) > 20
    assert (status(here), status(f"{here}?token=wrong")) == (403, 403)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(f"{here}?token={token}") as answer:
        assert answer.url == here  # the token is no longer in the address
    with opener.open(f"{here}programs") as answer:
        assert answer.status == 200


def test_only_p4_programs_are_opened() -> None:
    command = [sys.executable, "-m", "fanin", "play", "README.md"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr == "fanin play: README.md: is no P4 program: name a file that ends in .p4\n"


def test_without_sandboxes_only_this_machine_may_call() -> None:
    command = [sys.executable, "-m", "fanin", "play", "--no-sandbox", "--address", "0.0.0.0"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr == (
        "fanin play: --no-sandbox needs a loopback address such as 127.0.0.1, not 0.0.0.0\n"
    )
