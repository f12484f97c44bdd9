"""Processes of our Python programs that start immediately: forked from a process that has already imported them.

A network is many processes of a few programs, and imports are most of what each does until it is ready. One process
imports for all, and forks on demand: twice, so that the grandchild, which has lost its parent, becomes a child of the
sandbox's process 1. That is the process that asked for it, and it can wait for it as for any other child.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

from fanin.native import libc
from fanin.testbed import sandbox
from fanin.testbed.patience import await_process
from fanin.topologies.errors import NetworkError

# `start` recognizes our programs by this command: Python with these options, then a module that has a main().
_PYTHON = (sys.executable, "-P", "-m")
_MORE = "PRELOADED"  # attribute of a module: more modules to import in advance
_MAX_ANSWER = 100
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
# `ps` reads a command line where the preloader's was, so this makes room for a longer one.
_ROOM = " " * 8192

_T = TypeVar("_T")


class Forked:
    """A child of this process that another has forked, with the part of subprocess.Popen's interface that is needed."""

    stderr = None

    def __init__(
        self, args: Sequence[str], pid: int, stdin: IO[bytes] | None, stdout: IO[bytes] | None
    ) -> None:
        self.args = args
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None
        self._handle = os.pidfd_open(pid)
        self._one_at_a_time = threading.Lock()

    def __del__(self) -> None:
        os.close(self._handle)

    def poll(self) -> int | None:
        """Return its status if it has ended; for a signal, its negative number."""
        with self._one_at_a_time:
            if self.returncode is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its status.

        Raises:
            subprocess.TimeoutExpired: It has not ended within `timeout` seconds.
        """
        end = select.poll()
        end.register(self._handle, select.POLLIN)
        end.poll(None if timeout is None else timeout * 1000)
        if (status := self.poll()) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[Any] | Forked


class _Preloader:
    """The process that forks: started when it is first needed, and again if it has ended."""

    def __init__(self) -> None:
        self._asked: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._one_at_a_time = threading.Lock()

    def fork(self, files: Sequence[int]) -> int:
        """Return the number of a process that it has forked.

        Args:
            files: File descriptors: of the request, and those that become 0, 1 and 2.

        Raises:
            OSError: No process can be forked.
        """
        with self._one_at_a_time:
            for _ in range(2):
                if self._asked is None:
                    self._asked = self._start()
                assert self._process is not None
                # A preloader that is stuck, for instance stopped, is replaced like one that has ended.
                with contextlib.suppress(ConnectionError, NetworkError):
                    socket.send_fds(self._asked, [b"!"], files)
                    if await_process(self._process.pid, self._asked.fileno()) and (
                        answer := self._asked.recv(_MAX_ANSWER)
                    ):
                        pid, error = json.loads(answer)
                        if error:
                            raise OSError(error, os.strerror(error))
                        return int(pid)
                self._asked.close()
                self._asked = None
        raise OSError(errno.ECHILD, "the process that starts ours has ended twice, or did not answer")

    def _start(self) -> socket.socket:
        if self._process is not None:
            self._process.kill()  # it may be stopped
            self._process.wait()
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = self._forker(its)
        return ours

    def _forker(self, its: socket.socket) -> subprocess.Popen[bytes]:
        """Start the process, with its end of the socket."""
        return subprocess.Popen(
            [*_PYTHON, __name__, str(its.fileno()), _ROOM],
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            # A process that forks must have only one thread; gRPC's C core prints between our own messages.
            env={**os.environ, **ONE_THREAD, "GRPC_VERBOSITY": "NONE"},
            start_new_session=True,  # a terminal's Ctrl-C does not reach it
        )


_preloader = _Preloader()


def start(
    argv: Sequence[str], host: int | None = None, env: Mapping[str, str] | None = None, **options: Any
) -> Process:
    """Start `argv` in a session of its own.

    Args:
        argv: The command. One of our programs is forked from the preloader.
        host: A process in whose network and mount namespaces it runs.
        env: Its environment. None takes this process's.
        options: Options of subprocess.Popen. For our programs, only stdin, stdout and stderr.

    Raises:
        OSError: It cannot be started.
    """
    if tuple(argv[:3]) == _PYTHON and sandbox.inside():
        return _fork(argv, host, os.environ if env is None else env, **options)
    into = [] if host is None else ["mnexec", "-a", str(host)]
    return subprocess.Popen([*into, *argv], env=env, start_new_session=True, **options)


async def ended(process: Process) -> int:
    """Wait for the end of a process that `start` has started, and return its status."""
    if process.poll() is None:
        handle = os.pidfd_open(process.pid)
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(handle, end.set)
        try:
            await end.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
    return process.wait()


def _fork(
    argv: Sequence[str],
    host: int | None,
    environment: Mapping[str, str],
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
) -> Forked:
    assert stderr != subprocess.PIPE  # not supported by Forked
    request = {"argv": argv, "host": host, "environment": dict(environment)}
    ours: list[IO[bytes] | None] = []
    with contextlib.ExitStack() as its_ends, contextlib.ExitStack() as our_ends:
        # A file, since an environment may be longer than a message of the socket.
        asked = its_ends.enter_context(os.fdopen(os.memfd_create("request"), "w+"))
        json.dump(request, asked)
        asked.flush()
        files = [asked.fileno()]
        for number, (wanted, mode) in enumerate(((stdin, "wb"), (stdout, "rb"), (stderr, "rb"))):
            end = None
            if wanted == subprocess.PIPE:
                reader, writer = os.pipe()
                wanted, kept = (reader, writer) if mode == "wb" else (writer, reader)
                its_ends.callback(os.close, wanted)
                end = our_ends.enter_context(os.fdopen(kept, mode))
            elif wanted == subprocess.DEVNULL:
                wanted = os.open(os.devnull, os.O_RDWR)
                its_ends.callback(os.close, wanted)
            elif wanted is None:
                wanted = number
            files.append(wanted if isinstance(wanted, int) else wanted.fileno())
            ours.append(end)
        pid = _preloader.fork(files)
        our_ends.pop_all()
    return Forked(argv, pid, ours[0], ours[1])


def main() -> None:
    """Run what is requested at the socket, in a process that is forked for it."""
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)  # so that this process ends without a traceback
    forked = serve(socket.socket(fileno=int(sys.argv[1])), lambda request: _imported(request["argv"][3]))
    if forked is None:
        return
    signal.signal(signal.SIGINT, handler)
    request, program = forked
    if request["host"] is not None:
        _enter(request["host"])
    run(program)


def serve(
    asked: socket.socket, prepare: Callable[[Mapping[str, Any]], _T]
) -> tuple[Mapping[str, Any], _T] | None:
    """Fork for the process at the other end of the socket, until it is gone.

    Returns:
        In a forked process, the request and what `prepare` made of it before the fork. The process looks as if it had
        been started with the request. In this process None, once the other end is gone.
    """
    while True:
        try:
            message, files, _, _ = socket.recv_fds(asked, 1, 4)
        except ConnectionResetError:  # the other end is gone, without having read the last answer
            return None
        if not message:
            return None
        with os.fdopen(files.pop(0)) as file_of_request:
            file_of_request.seek(0)
            request = json.load(file_of_request)
        prepared = prepare(request)
        gc.freeze()
        try:
            answer = (_forked_twice(), 0)
        except OSError as error:
            answer = (-1, error.errno or 0)
        if answer[0] == 0:
            asked.close()
            break
        for file in files:
            os.close(file)
        with contextlib.suppress(BrokenPipeError):  # the other end is gone: the next message will be empty
            asked.send(json.dumps(answer).encode())
    _become(request["argv"], files, request["environment"])
    return request, prepared


def run(program: Callable[[], int | None]) -> NoReturn:
    """Run a program and exit as it does, in a process that was forked for it.

    When Python exits, it frees what was imported, most of which such a process would have to copy first. This is
    skipped, unless there is an error to report.
    """
    try:
        sys.exit(program())
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        status = ended.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _imported(name: str) -> Callable[[], int]:
    """Return what `python -m name` runs."""
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):  # a package
        module = importlib.import_module(f"{name}.__main__")
    for more in getattr(module, _MORE, ()):
        importlib.import_module(more)
    main: Callable[[], int] = module.main
    return main


def _forked_twice() -> int:
    """Fork a process in its own session whose parent has ended.

    Returns:
        The number of the process, or 0 in that process itself.

    Raises:
        OSError: There are too many processes, or there is too little memory.
    """
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as told:
        with os.fdopen(writer, "wb", buffering=0) as tell:
            child = os.fork()
            if child == 0:
                status = 0
                try:
                    middle = os.getpid()
                    if os.fork() == 0:
                        os.setsid()  # before others know it: they may end all processes of its session
                        _end_with_adopter(middle)
                        tell.write(str(os.getpid()).encode())
                        return 0
                except OSError as error:
                    status = error.errno or 1
                os._exit(status)
        _, status = os.waitpid(child, 0)
        number = os.waitstatus_to_exitcode(status)
        pid = told.read()
    if number or not pid:  # a process that was killed at once has written nothing
        number = number or errno.ESRCH
        raise OSError(number, os.strerror(number))
    return int(pid)


def _end_with_adopter(parent: int) -> None:
    """Have this process killed when the process ends that adopts it after the end of `parent`.

    In a sandbox the kernel does that. Tests start processes outside of one.
    """
    with contextlib.suppress(ProcessLookupError):  # the parent has ended
        handle = os.pidfd_open(parent)
        ends = select.poll()
        ends.register(handle, select.POLLIN)
        ends.poll()
        os.close(handle)
    libc.call("prctl", libc.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _become(argv: Sequence[str], files: Sequence[int], environment: Mapping[str, str]) -> None:
    """Turn this process into one as if it had been started with these."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = list(argv[3:])
    libc.set_command_line(argv)


def _enter(host: int) -> None:
    """Enter the network and mount namespaces of a process. The current folder stays."""
    here = Path.cwd()
    for namespace in [os.open(f"/proc/{host}/ns/{kind}", os.O_RDONLY) for kind in ("net", "mnt")]:
        libc.call("setns", namespace, 0, of=f"the namespaces of process {host}")
        os.close(namespace)
    os.chdir(here)


if __name__ == "__main__":
    main()
