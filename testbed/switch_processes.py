"""Switches as processes: their commands, when they are ready, and what they printed before they died."""

import contextlib
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, Protocol

from fanin.native import libc
from fanin.testbed.patience import VARIABLE, Restarts, Starting, computed_seconds
from fanin.testbed.preloaded import Process, start
from fanin.topologies.emulation import EmulatedLink
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Switch

FIRST_THRIFT_PORT = 9090

_POLL_SECONDS = 0.01
_LOOK_SECONDS = 1.0
_STOP_SECONDS = 3.0
_LOG_LINES = 20
_LOG_BYTES = 4096
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h


class SwitchLauncher(Protocol):
    """The program that runs as a switch.

    Attributes:
        engine: Its name in the option --switch.
        offload: Whether it handles frames whose checksum or segmentation the kernel has left for later.
    """

    engine: str
    offload: bool

    def command(
        self, switch: Switch, ports: Mapping[int, str], links: Sequence[EmulatedLink] = ()
    ) -> Sequence[str]:
        """Return the command line for `switch` with an interface for each port, at which it emulates `links`.

        Raises:
            NetworkError: It cannot emulate them.
        """


class P4Switch:
    """Runs `p4switch` without a program, which the controller loads."""

    engine = "embedded"
    offload = True

    def command(
        self, switch: Switch, ports: Mapping[int, str], links: Sequence[EmulatedLink] = ()
    ) -> Sequence[str]:
        """Return the command line for `switch` with an interface for each port, at which it emulates `links`."""
        emulated = [word for link in links for word in ("--link", link.option)]
        return [
            sys.executable,
            "-P",
            "-m",
            "fanin.p4switch",
            *emulated,
            *_simple_switch_options(switch, ports),
        ]


class Bmv2:
    """Runs BMv2's `simple_switch_grpc`, or another command, instead of p4switch."""

    engine = "bmv2"
    offload = False

    def __init__(self, command: Sequence[str] = ("simple_switch_grpc",)) -> None:
        self._command = command

    def command(
        self, switch: Switch, ports: Mapping[int, str], links: Sequence[EmulatedLink] = ()
    ) -> Sequence[str]:
        """Return the command line for `switch` with an interface for each port.

        Raises:
            NetworkError: There are links to emulate.
        """
        if links:
            properties = ", ".join(name for name in links[0].properties if name != "rate")
            raise NetworkError(
                f"BMv2 emulates no links, but {switch.name}'s link to {links[0].neighbour} has {properties}: "
                "use the embedded switch, or give links only a rate"
            )
        thrift = ("--thrift-port", str(FIRST_THRIFT_PORT + switch.device_id)) if self._has_thrift else ()
        return [*self._command, *thrift, *_simple_switch_options(switch, ports)]

    @cached_property
    def _has_thrift(self) -> bool:
        """Return whether it was built with Thrift: if so, it always opens a port; if not, it refuses the option."""
        done = subprocess.run([*self._command, "--help"], capture_output=True, text=True, check=False)
        return "--thrift-port" in done.stdout


def _simple_switch_options(switch: Switch, ports: Mapping[int, str]) -> list[str]:
    interfaces = [word for port, interface in ports.items() for word in ("-i", f"{port}@{interface}")]
    address = f"127.0.0.1:{switch.grpc_port}"
    return [
        *("--no-p4", *interfaces, "--device-id", str(switch.device_id)),
        *("--", "--grpc-server-addr", address, "--cpu-port", "255", "--drop-port", "511"),
    ]


class SwitchProcess:
    """The process of one switch, with its output in a file."""

    def __init__(self, switch: Switch, command: Sequence[str], log: Path) -> None:
        self.switch = switch
        self._command = command
        self._log = log
        self._process: Process | None = None
        self._starting: Starting | None = None
        self._restarts = Restarts()

    def start(self) -> None:
        """Start the process.

        Raises:
            NetworkError: Its command cannot be run.
        """
        self._starting = Starting(time.monotonic())
        with self._log.open("wb" if self._process is None else "ab") as log:
            try:
                _reserve(log)
                # In a session of its own, where a terminal's Ctrl-C does not reach it: this process ends it.
                self._process = start(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            except OSError as error:
                raise NetworkError(f"{self.switch.name} does not start: {error}") from None

    def wait_ready(self, awaited: Callable[[str], None] = lambda _: None) -> None:
        """Return when the switch accepts connections on its P4Runtime port; `awaited` is called with its progress.

        Raises:
            NetworkError: It has ended, or is stuck.
        """
        look = time.monotonic() + _LOOK_SECONDS
        while True:
            self.check()
            with (
                contextlib.suppress(ConnectionError, TimeoutError),
                socket.create_connection(("127.0.0.1", self.switch.grpc_port), _LOOK_SECONDS),
            ):
                return
            if (now := time.monotonic()) >= look:
                look = now + _LOOK_SECONDS
                self._check_start(now, awaited)
            time.sleep(_POLL_SECONDS)

    def _check_start(self, now: float, awaited: Callable[[str], None]) -> None:
        assert self._process is not None
        assert self._starting is not None
        (computed,) = computed_seconds([self._process.pid])
        so_far = f"{computed:.0f} s of processor time so far"
        if self._starting.stuck(now, computed):
            raise NetworkError(
                f"{self.switch.name} does not answer on port {self.switch.grpc_port} ({so_far}; {VARIABLE} stretches "
                f"time limits){self._last_words()}"
            )
        awaited(f"{self.switch.name} to start, {so_far}")

    def check(self) -> None:
        """Check that the process is running.

        Raises:
            NetworkError: It is not. The message includes the end of its log.
        """
        if self._process is None:
            raise NetworkError(f"{self.switch.name} has not been started")
        if (status := self._process.poll()) is not None:
            how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
            raise NetworkError(
                f"{self.switch.name} has ended with {how}{self._last_words()}{memory_limit_hint()}"
            )

    def start_again(self) -> str:
        """Restart the process if it has ended, without waiting until it is ready.

        Returns:
            How it had ended, or nothing.

        Raises:
            NetworkError: It has ended too often.
        """
        try:
            self.check()
        except NetworkError as ended:
            self._restarts.count(str(ended))
            self.stop()  # ends its children
            self.start()
            return str(ended)
        return ""

    def processor_seconds(self) -> float:
        """Return the processor time of all its threads so far, in seconds.

        Raises:
            NetworkError: It is not running.
        """
        self.check()
        assert self._process is not None
        threads = Path("/proc", str(self._process.pid), "task")
        nanoseconds = 0
        for thread in threads.iterdir():
            with contextlib.suppress(OSError):  # the thread has just ended
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
        return nanoseconds / 1e9

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """End it and its children, by force if necessary. Idempotent."""
        if self._process is None:
            return
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return f"; {self._log} ends with:\n  " + "\n  ".join(lines) if lines else f"; {self._log} is empty"


def _reserve(log: IO[bytes]) -> None:
    """Have room on the disk for the first lines, without which a switch would end and could not log why.

    Raises:
        OSError: the disk is full; its filename is the log's.
    """
    try:
        libc.call("fallocate", log.fileno(), _KEEP_SIZE, log.tell(), _LOG_BYTES, of=str(log.name))
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # not all file systems can
            raise


def memory_limit_hint() -> str:
    """Return a hint if a limit of its address space may have ended a process without a message."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return (
        f"\na process may use {limit >> 20:,} MiB of addresses here; if that is too few: ulimit -v unlimited"
    )
