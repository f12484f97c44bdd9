"""A process that runs a student's Python: it forks one more for each program that a test starts.

The judge and the student's code share no memory. They exchange lines of JSON, in which bytes are `{"hex": …}`.
`python -m fanin.classroom.student_server FOLDER FD` serves requests for programs on the socket with that number.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from fanin.native import libc

LONGEST_MESSAGE = 4 << 20


def encode(value: Any) -> Any:
    """Return a value as JSON has it: bytes as `{"hex": …}`, tuples as lists.

    Raises:
        TypeError: JSON has no such value.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return {"hex": bytes(value).hex()}
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    if isinstance(value, dict):
        return {str(key): encode(each) for key, each in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "tolist"):  # of numpy
        return encode(value.tolist())
    raise TypeError(
        f"a {type(value).__name__} cannot be handed over; use numbers, text, bytes, lists and dicts"
    )


def decode(value: Any) -> Any:
    """Return what `encode` was given, with lists for tuples."""
    if isinstance(value, list):
        return [decode(each) for each in value]
    if isinstance(value, dict):
        return (
            bytes.fromhex(value["hex"])
            if value.keys() == {"hex"}
            else {key: decode(v) for key, v in value.items()}
        )
    return value


def _end_with_parent() -> None:
    """Let this process be killed when its parent ends, however that ends: a student's endless loop would outlive it."""
    libc.call("prctl", libc.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _serve(folder: Path, control: socket.socket) -> None:
    _end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    while name := control.recv(4096):
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            _end_with_parent()
            control.close()
            ours.close()
            _run(folder / name.decode(), theirs)
            os._exit(0)
        socket.send_fds(control, [b"!"], [ours.fileno()])
        ours.close()
        theirs.close()


def _run(file: Path, connection: socket.socket) -> None:
    """Answer calls of the functions in a file, or of the methods of the object that was made last."""
    target: Any = None
    with connection.makefile("rwb") as stream:
        for line in stream:
            name, arguments = json.loads(line)
            try:
                if target is None:
                    target = _module(file)
                if name.startswith("new "):
                    target = getattr(target, name[4:])(*decode(arguments))
                    answer: dict[str, Any] = {"value": None}
                else:
                    found = getattr(target, name)
                    answer = {"value": encode(found(*decode(arguments)) if callable(found) else found)}
            except BaseException as error:  # also SystemExit: the test reports what the student's code raised
                answer = {"error": _explained(file, error)}
            stream.write(json.dumps(answer).encode() + b"\n")
            stream.flush()


def _module(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _explained(file: Path, error: BaseException) -> str:
    """Return the error with the lines of the student's files that led to it."""
    where = [
        f"{Path(frame.filename).name}:{frame.lineno}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).parent == file.parent
    ]
    if isinstance(error, SyntaxError):
        where.append(f"{file.name}:{error.lineno}: {(error.text or '').strip()}")
    return "\n".join([f"{type(error).__name__}: {error}", *where[-5:]])


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    sys.dont_write_bytecode = True  # the student's folder is for the student's files
    os.dup2(2, 1)  # what students print for themselves is no answer
    _serve(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
