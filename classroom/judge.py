"""The part of a grader that runs inside a sandbox: it runs the tests of a lab on one submission.

Importing it takes longer than most tests. So one process imports it for all submissions, and forks for each:
`python -m fanin.classroom.judge FD` serves `Judges` at the other end of that socket. A forked process enters its
sandbox before it looks at the submission. All it has in memory are modules and the tests, which no file there has.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from fanin.classroom.bench import collect
from fanin.classroom.check import run_tests
from fanin.classroom.confine import ENVIRONMENT, Confinement, run_confined
from fanin.classroom.student import StudentPrograms
from fanin.testbed.sandbox import SandboxError

COMPILED = "/compiled"  # where a sandbox sees what was compiled before all submissions
END = "end"  # the last line of a judge that was not stopped
_READY = b"!"


class Judges:
    """The process that forks a judge for each submission."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._one_at_a_time = threading.Lock()

    def start(
        self,
        box: Confinement,
        folder: str,
        tests: str,
        seed: int,
        student: socket.socket,
        output: int,
        complaint: IO[str],
    ) -> int:
        """Start a judge, and return a handle of its process (pidfd_open).

        Args:
            box: Its sandbox.
            folder: Where the sandbox has the submission.
            tests: The text of the tests.
            seed: The seed of what they draw.
            student: The socket to the server of the student's programs, which is in another sandbox.
            output: The file to which it writes a line of JSON for each outcome, and END.
            complaint: The file to which it writes why there is no sandbox.

        Raises:
            SandboxError: The process that forks has ended.
        """
        request = {"box": asdict(box), "folder": folder, "tests": tests, "seed": seed}
        with os.fdopen(os.memfd_create("request"), "w+") as asked, self._one_at_a_time:
            json.dump(request, asked)
            asked.flush()
            files = [asked.fileno(), student.fileno(), output, complaint.fileno()]
            with suppress(ConnectionError):
                socket.send_fds(self._control, [_READY], files)
                _, handles, _, _ = socket.recv_fds(self._control, 1, 1)
                if handles:
                    return handles[0]
        raise SandboxError("the process that starts judges has ended")


@contextmanager
def judges(modules: Iterable[str]) -> Iterator[Judges]:
    """Start the process that forks judges, and end it afterwards, with all judges.

    It begins with the environment of a sandbox: what it has in memory, a submission could read if our C had a mistake.

    Args:
        modules: Modules that it imports first.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-P", "-m", __name__, str(theirs.fileno())]
        with subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            theirs.close()
            try:
                assert process.stdin is not None
                with process.stdin:
                    process.stdin.write(json.dumps([*modules]).encode())
                yield Judges(ours)
            finally:
                process.kill()


def _serve(control: socket.socket) -> None:
    gc.freeze()
    while True:
        message, files, _, _ = socket.recv_fds(control, 1, 4)
        if not message:
            return
        with suppress(ChildProcessError):  # those that have ended
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if child := os.fork():
            for file in files:
                os.close(file)
            handle = os.pidfd_open(child)
            socket.send_fds(control, [_READY], [handle])
            os.close(handle)
            continue
        control.close()
        _judge(*files)


def _judge(asked: int, student: int, output: int, complaint: int) -> None:
    """Judge a submission in a sandbox, and exit."""
    with os.fdopen(asked) as file:
        file.seek(0)
        request: dict[str, Any] = json.load(file)
    for descriptor, number in ((output, 1), (complaint, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)

    def run() -> None:
        shutil.copytree(COMPILED, Path(os.environ["XDG_CACHE_HOME"], "fanin"))
        tests = collect(request["tests"], "tests.py")
        students = StudentPrograms(Path(request["folder"]), socket.socket(fileno=student))
        folder, shared = Path(request["folder"]), Path(COMPILED)
        for outcome in run_tests(tests, folder, students, request["seed"], shared=shared):
            print(json.dumps(outcome.document()), flush=True)
        print(END, flush=True)

    run_confined(Confinement(**request["box"]), "the judge", run)


if __name__ == "__main__":
    for module in json.load(sys.stdin):
        with suppress(ImportError):
            importlib.import_module(module)
    _serve(socket.socket(fileno=int(sys.argv[1])))
