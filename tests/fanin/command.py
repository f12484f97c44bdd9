"""`fanin` as a process that starts at once: forked from one that has imported the command line already."""

from __future__ import annotations

import atexit
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fanin.cli import VERBS, load, main
from fanin.native.collector import collect_seldom
from fanin.testbed import preloaded
from fanin.testbed.patience import setting
from tests.preloading import adopting, hang_up

ROOT = Path(__file__).parents[2]

# What `python -c` runs where a process of its own is needed: by another user, on a terminal, with options of Python's.
RUN = "import sys; from fanin.cli import main; sys.argv[0] = 'fanin'; main()"
_SERVE = "from tests.fanin.command import serve; serve()"
_READ_BY_PYTHON = re.compile("LD_|PYTHON(?!PATH)")  # variables, before anything is imported
# What verbs import when they are called, but for what starts threads, and what looks at variables: fanin.console.
_MORE = (
    "fanin.testbed.job_service_client",
    "fanin.controller.telemetry",
    "fanin.assurance.bench.joined",
    "fanin.testbed.monitoring.why",
    "fanin.testbed.interrupt",
    "fanin.testbed.launch",
    "fanin.experiments.scenario.file",
    "fanin.p4switch.stf.run",
    "typer.rich_utils",
)


class _Server(preloaded._Preloader):
    """The process that forks. It is in our group, as what it forks: that is what a terminal's Ctrl-C is for."""

    def _forker(self, its: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(its.fileno()), preloaded._ROOM],
            cwd=ROOT,
            env=os.environ | preloaded.ONE_THREAD,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
        )


_server = _Server()
atexit.register(hang_up, _server)


class _Forked(subprocess.Popen[str]):
    """A child of ours that the server has forked."""

    def _execute_child(
        self,
        args: list[str],
        _executable: None,
        _preexec_fn: None,
        _close_fds: bool,
        _pass_fds: tuple[()],
        cwd: Path | None,
        env: Mapping[str, str],
        _startupinfo: None,
        _creationflags: int,
        _shell: bool,
        *pipes_and_more: Any,
    ) -> None:
        pipes: list[int] = [*pipes_and_more[:6]]  # of 0, 1 and 2, to read from and to write to
        theirs = (pipes[0], pipes[3], pipes[5])
        request = {"argv": args, "folder": str(cwd or Path.cwd()), "nice": os.nice(0), "environment": env}
        # A file: an environment may be longer than what a socket takes at once.
        with os.fdopen(os.memfd_create("request"), "w+") as asked, adopting():
            json.dump(request, asked)
            asked.flush()
            files = [number if pipe == -1 else pipe for number, pipe in enumerate(theirs)]
            self.pid = _server.fork([asked.fileno(), *files])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def start(
    *arguments: object, environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[str]:
    """`fanin` with these arguments.

    environment: beside ours. options: subprocess.Popen's cwd, stdin, stdout and stderr; the last two are pipes.
    """
    more = environment or {}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    kind = subprocess.Popen if any(map(_READ_BY_PYTHON.match, more)) else _Forked
    return kind([sys.executable, "-c", RUN, *map(str, arguments)], env={**os.environ, **more}, **options)


def run(
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input: str | None = None,
    timeout: float = 600 * setting(),
) -> subprocess.CompletedProcess[str]:
    """Return what `fanin` prints with these arguments; `environment` is added to ours."""
    stdin = None if input is None else subprocess.PIPE
    with start(*arguments, environment=environment, cwd=cwd, stdin=stdin) as process:
        try:
            output, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def serve() -> None:
    """Fork for whoever is at the other end of the socket, until nobody is; what it has forked runs `fanin`."""
    collect_seldom()
    asked = socket.socket(fileno=int(sys.argv[1]))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.path.insert(1, str(ROOT))
    for verb in VERBS.keys() - {"doctor"}:  # which imports fanin.console
        load(verb)
    for module in _MORE:
        importlib.import_module(module)
    with patch.object(os, "setsid"):  # they stay in our session
        forked = preloaded.serve(asked, lambda _: None)
    if forked is None:
        sys.exit()
    request, _ = forked
    argv = request["argv"]
    sys.orig_argv, sys.argv = argv, ["-c", *argv[3:]]
    os.chdir(request["folder"])
    os.nice(request["nice"] - os.nice(0))
    # Anew, since they know of their files whether they have a position, and whether they are terminals.
    for name, mode, buffering in (("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1)):
        old = getattr(sys, name)
        how = {"encoding": old.encoding, "errors": old.errors, "closefd": False}
        setattr(sys, name, os.fdopen(old.fileno(), mode, buffering, **how))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sys.argv[0] = "fanin"
    preloaded.run(main)
