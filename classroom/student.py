"""A student's Python, seen from a test: functions and objects in another process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fanin.classroom.story import ExpectationError, Problem
from fanin.classroom.student_server import LONGEST_MESSAGE, decode, encode
from fanin.testbed.patience import setting

CALL_SECONDS = 5.0  # in which a call of the student's code must return
SECONDS_AFTER_A_HANG = 1.0  # the same, once a call of this student has not returned


class StudentProgram:
    """One of the student's Python files, in a process of its own."""

    def __init__(self, name: str, connection: socket.socket, owner: StudentPrograms) -> None:
        self.name = name
        self._connection = connection
        self._owner = owner
        self._received = b""

    def new(self, kind: str, *arguments: Any) -> None:
        """Make an object of a class; later calls are of its methods.

        Raises:
            ExpectationError: The class is missing, or raises an error.
        """
        self._ask(f"new {kind}", arguments)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the file, or a method of the object, or get the value of that name.

        Raises:
            ExpectationError: It is missing, raises an error, or does not return.
        """
        return self._ask(name, arguments)

    def close(self) -> None:
        """End the process."""
        self._connection.close()

    def _ask(self, name: str, arguments: tuple[Any, ...]) -> Any:
        what = f"{self.name}: {name.removeprefix('new ')}()"
        seconds = self._owner.seconds
        end = time.monotonic() + seconds * setting()
        self._connection.settimeout(seconds * setting())
        try:
            self._connection.sendall(json.dumps([name, encode(arguments)]).encode() + b"\n")
            answer = json.loads(self._line(end))
            if "error" in answer:
                raise ExpectationError(Problem(f"{what} raised an error:\n{answer['error']}", broken=True))
            return decode(answer["value"])
        except TimeoutError:
            self._owner.seconds = SECONDS_AFTER_A_HANG
            raise ExpectationError(
                Problem(f"{what} did not return within {seconds:g} s", broken=True)
            ) from None
        except OSError:
            raise ExpectationError(Problem(f"{what}: its process ended", broken=True)) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            # Only a program that writes to the judge's socket itself gets here.
            raise ExpectationError(Problem(f"{what}: its answer cannot be read")) from None

    def _line(self, end: float) -> bytes:
        while b"\n" not in self._received:
            # For each part what is left: a program could write a byte again and again.
            self._connection.settimeout(max(end - time.monotonic(), 0.001))
            more = self._connection.recv(1 << 16)
            if not more:
                raise ConnectionError
            self._received += more
            if len(self._received) > LONGEST_MESSAGE:
                raise ValueError("too long")
        line, _, self._received = self._received.partition(b"\n")
        return line


class StudentPrograms:
    """Starts the programs of one student.

    Attributes:
        seconds: Seconds in which a call must return.
    """

    def __init__(self, folder: Path, control: socket.socket) -> None:
        self.seconds = CALL_SECONDS
        self._folder = folder
        self._control = control
        control.settimeout(CALL_SECONDS * setting())

    def start(self, name: str) -> StudentProgram:
        """Start one of the student's Python files in a process of its own.

        Raises:
            ExpectationError: There is no such file, or no process for it.
        """
        if not (self._folder / name).is_file():
            raise ExpectationError(Problem(f"{name} is missing from {self._folder}", broken=True))
        try:
            self._control.sendall(name.encode())
            _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        except OSError:
            descriptors = []
        if not descriptors:
            raise ExpectationError(
                Problem(f"{name}: its processes have ended, and no further one can be started")
            )
        return StudentProgram(name, socket.socket(fileno=descriptors[0]), self)


@contextmanager
def student_programs(folder: Path) -> Iterator[StudentPrograms]:
    """Start a server for the student's programs, and end all of their processes afterwards."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [
            sys.executable,
            "-P",
            "-m",
            "fanin.classroom.student_server",
            str(folder),
            str(theirs.fileno()),
        ]
        with subprocess.Popen(
            command, pass_fds=[theirs.fileno()], start_new_session=True, stdin=subprocess.DEVNULL
        ) as server:
            theirs.close()
            try:
                yield StudentPrograms(folder, ours)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGKILL)
