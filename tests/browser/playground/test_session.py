"""Sessions: what a hostile program reaches, and that it costs nobody else anything."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fanin.browser.playground.session import BusyError, Session, Sessions
from fanin.classroom.confine import require_sandboxes
from fanin.testbed.sandbox import SandboxError

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("playground")]

PROGRAM = (
    Path(__file__).parents[3] / "browser" / "playground" / "programs" / "copies" / "copies.p4"
).read_text()
# Each macro stands for ten of the one before: ten billion words.
BOMB = "#define M0 x\n" + "".join(f"#define M{n} {f'M{n - 1} ' * 10}\n" for n in range(1, 11)) + "M10\n"

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _sandboxes() -> None:
    try:
        require_sandboxes()
    except SandboxError as error:
        pytest.skip(f"no sandboxes: {error}")


async def ask(session: Session, program: str = PROGRAM, **request: Any) -> Json:
    files = {"files": {"program.p4": program}, "main": "program.p4"}
    found = json.loads(await session.ask(json.dumps({"do": "check", **files, **request})))
    assert isinstance(found, dict)
    return found


@asynccontextmanager
async def two_sessions(sessions: Sessions) -> AsyncIterator[tuple[Session, Session]]:
    async with sessions.prepared(), sessions.session() as one, sessions.session() as other:
        yield one, other


def test_a_program_that_takes_all_it_can_costs_only_its_own_session() -> None:
    async def attack() -> None:
        sessions = Sessions(2, confined=True, memory_bytes=280 << 20)
        async with two_sessions(sessions) as (attacker, student):
            attacked, answered = await asyncio.gather(ask(attacker, BOMB), ask(student))
            assert "limit" in attacked["error"]
            assert "program" in answered
            assert "program" in await ask(attacker)  # once more, with another program
            # A third page finds no place, and takes none from the others.
            with pytest.raises(BusyError, match="2 pages are open"):
                async with sessions.session():
                    pass
            assert "program" in await ask(student)

    asyncio.run(attack())


def test_a_request_that_takes_too_long_is_stopped_and_the_next_one_answered() -> None:
    async def attack() -> None:
        sessions = Sessions(1, confined=True)
        async with sessions.prepared():
            async with sessions.session() as session:
                sessions.seconds = 0.001  # not even a process starts so soon
                assert await ask(session) == {"error": "stopped: this took longer than 0.001 s"}
                sessions.seconds = 60.0
                assert "program" in await ask(session)
                assert json.loads(await session.ask("[" * 100_000)) == {"error": "this is no request"}
                assert "error" in json.loads(await session.ask('{"do": "check"}'))
            async with sessions.session() as following:  # the place is free again
                assert "program" in await ask(following)

    asyncio.run(attack())


# What a session's process would do if its program took it over.
HOSTILE = """
import json, os, pathlib, signal, socket
done = {}
def attempt(name, act):
    try: done[name] = repr(act())
    except OSError as error: done[name] = type(error).__name__
attempt("read /etc/passwd", lambda: open("/etc/passwd").read()[:10])
attempt("read the user's files", lambda: open(SECRET).read())
attempt("write beside", lambda: open(SECRET + ".more", "w"))
attempt("write to fanin", lambda: open(FANIN, "a"))
attempt("call the server", lambda: socket.create_connection(("127.0.0.1", PORT), 2))
attempt("stop a process", lambda: os.kill(OTHER, signal.SIGKILL))
print(json.dumps({"others": [each for each in os.listdir("/tmp") if each not in FANIN.split("/")], **done}))
"""


def test_a_session_sees_no_files_no_network_and_no_other_processes(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the user")
    sessions = Sessions(2, confined=True)

    async def attack() -> Json:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        async with server, sessions.prepared():
            place = tmp_path / "place"
            place.mkdir()
            command, environment = sessions.command(0, place)
            values = {
                "SECRET": str(secret),
                "FANIN": str(Path(__file__).parents[3] / "browser" / "server.py"),
                "PORT": server.sockets[0].getsockname()[1],
            }
            with subprocess.Popen(["sleep", "600"]) as other:
                values["OTHER"] = other.pid
                script = "".join(f"{name} = {value!r}\n" for name, value in values.items()) + HOSTILE
                run = [*command[: command.index("-m", 3)], "-c", script]
                made = await asyncio.create_subprocess_exec(*run, env=environment, stdout=subprocess.PIPE)
                output, _ = await made.communicate()
                assert other.poll() is None
                other.kill()
            found = json.loads(output)
            assert isinstance(found, dict)
            return found

    found = asyncio.run(attack())
    # An ordinary user would meet the read-only mount first, root's sandbox the owner of the file.
    assert found.pop("write to fanin") in ("OSError", "PermissionError")
    assert found == {
        "others": [],
        "read /etc/passwd": "FileNotFoundError",
        "read the user's files": "FileNotFoundError",
        "write beside": "FileNotFoundError",
        "call the server": "OSError",
        "stop a process": "ProcessLookupError",
    }
    assert sorted(each.name for each in tmp_path.iterdir()) == ["place", "secret"]
