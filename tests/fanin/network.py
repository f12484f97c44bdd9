"""A network that is up for the time of a test."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer
from typing import Any, Self

from fanin.testbed.patience import setting
from tests.fanin import command

TIMEOUT = 60 * setting()  # seconds

SMALL = ("--workers", "2", "--leaves", "1", "--spines", "0")

SEND = "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'fanin was here', ('10.1.0.2', 5005))"


class Up:
    """A running `fanin up`, its captures in `folder`, for the time of a `with`.

    options: of its network, by default one leaf and two hosts.
    """

    def __init__(self, folder: Path, *options: str | Path) -> None:
        self.folder = folder
        self.environment = {"TMPDIR": str(folder)}
        files = ["--pcap", folder / "pcap", "--logs", folder / "logs"]
        self.process = self.fanin("up", *(options or SMALL), *files)
        assert self.process.stdout is not None
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if "fanin exec" in line:
                return
        raise AssertionError(self.process.stderr.read() if self.process.stderr else "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def fanin(self, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        """The command, started, which finds it."""
        return command.start(*arguments, environment=self.environment, **options)

    def start(self, host: str, script: str, *arguments: object) -> subprocess.Popen[str]:
        """A Python script on a host."""
        return self.fanin("exec", host, "--", sys.executable, "-c", script, *arguments)

    def end(self) -> str:
        """Ctrl-C; what it says."""
        self.process.send_signal(signal.SIGINT)
        output, errors = self.process.communicate(timeout=TIMEOUT)
        assert self.process.returncode == 130, errors
        return output


def said_by(up: Up, *, until: str) -> list[str]:
    """Lines of `fanin up`'s standard error, up to one with these words; if it does not come, the network is ended."""
    assert up.process.stderr is not None
    lines = []
    patience = Timer(TIMEOUT, up.process.terminate)
    patience.start()
    try:
        for line in up.process.stderr:
            lines.append(line.strip())
            print(line, end="")
            if until in line:
                return lines
    finally:
        patience.cancel()
    raise AssertionError(lines)


def launch(up: Up, *arguments: object, input: str | None = None) -> subprocess.CompletedProcess[str]:
    """`fanin launch` on it."""
    return command.run("launch", *arguments, environment=up.environment, input=input, timeout=TIMEOUT)
