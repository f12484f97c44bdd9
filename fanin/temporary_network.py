"""A network for one command: a `fanin up` that ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fanin.testbed.patience import setting
from fanin.testbed.running import JOB_SERVICE, RunningNetwork, running_networks
from fanin.testbed.sandbox import END_SECONDS
from fanin.topologies.errors import NetworkError

# The command that starts fanin as a separate process.
FANIN = (
    sys.executable,
    "-P",
    "-c",
    "import sys; sys.argv[0] = 'fanin'; from fanin.__main__ import main; main()",
)
# The same, with the id of its parent as first argument: the parent may be killed before setpriv asks for a signal then.
_FANIN_OF_PARENT = (
    *FANIN[:-1],
    f"import os, sys; int(sys.argv.pop(1)) == os.getppid() or sys.exit(); {FANIN[-1]}",
)
_LOOK_SECONDS = 0.1


@contextmanager
def own_network(options: Sequence[str]) -> Iterator[RunningNetwork]:
    """Run a network for as long as the context lasts. It also ends if this process is killed.

    Args:
        options: Options of fanin up.

    Yields:
        The network, once jobs can begin on it.

    Raises:
        NetworkError: If the network does not start.
    """
    # It inherits the mask, until it can end on SIGINT: Python may drop it while it starts.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "INT", "--", *_FANIN_OF_PARENT, str(os.getpid()), "up", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # a terminal's Ctrl-C must reach it through this process, after the programs
    )
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        while (network := _network_of(process.pid)) is None:
            try:
                status = process.wait(_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            raise NetworkError(f"the network did not start: fanin up ended with exit status {status}")
        yield network
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(2 * END_SECONDS * setting())
        except subprocess.TimeoutExpired:  # past its own limit: it was stopped
            process.kill()
            process.wait()


def _network_of(supervisor: int) -> RunningNetwork | None:
    """Return the network of this process, or None while jobs cannot begin on it."""
    for network in running_networks():
        if network.run.supervisor == supervisor and (network.run.folder / JOB_SERVICE).exists():
            return network
    return None
