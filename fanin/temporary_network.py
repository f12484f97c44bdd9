"""A network for as long as something of ours needs one: a `fanin up` of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fanin.testbed.patience import setting
from fanin.testbed.running import JOB_SERVICE, RunningNetwork, running_networks
from fanin.testbed.sandbox import END_SECONDS
from fanin.topologies.errors import NetworkError

# What starts fanin as a process of its own.
FANIN = (
    sys.executable,
    "-P",
    "-c",
    "import sys; sys.argv[0] = 'fanin'; from fanin.cli import main; main()",
)
_LOOK_SECONDS = 0.1


@contextmanager
def own_network(options: Sequence[str]) -> Iterator[RunningNetwork]:
    """With these options of fanin up. It ends when we do, however that is.

    Raises:
        NetworkError: it does not come up.
    """
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "INT", "--", *FANIN, "up", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # so that a terminal's Ctrl-C reaches it from us, after the programs
    )
    try:
        while (network := _network_of(process.pid)) is None:
            try:
                status = process.wait(_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            raise NetworkError(f"there is no network to run on: fanin up ended with exit status {status}")
        yield network
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(2 * END_SECONDS * setting())
        except subprocess.TimeoutExpired:  # not even the limit of its own: it was stopped
            process.kill()
            process.wait()


def _network_of(supervisor: int) -> RunningNetwork | None:
    """The network of this process, once jobs can begin on it."""
    for network in running_networks():
        if network.run.supervisor == supervisor and (network.run.folder / JOB_SERVICE).exists():
            return network
    return None
