"""`fanin shell`: p4runtime-shell on a switch of a running network."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from fanin import shell_environment
from fanin.cli_errors import failing
from fanin.native.cache import CacheError
from fanin.options import Network, SwitchName
from fanin.output import say
from fanin.testbed.running import find_switch
from fanin.topologies.errors import NetworkError

_ONLY_LOOK = 1  # below the controller's election id


def shell(
    switch: SwitchName,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Only read, and leave control of the switch to its controller")
    ] = False,
    supervisor: Network = None,
) -> None:
    """Open p4runtime-shell on a running switch.

    The shell has the P4Info of the switch's program. The first call installs p4runtime-shell into the user's cache,
    which needs the package index.

    Examples:
        fanin shell leaf1
        fanin shell leaf1 --read-only
    """
    with failing("shell", NetworkError, CacheError, shell_environment.SetUpError):
        client = find_switch(switch, supervisor)
        if not shell_environment.ready():
            say("installing p4runtime-shell …", err=True)
        shell_environment.set_up()
        # Higher than the controller's, which takes a higher one when it needs the switch again.
        election = _ONLY_LOOK if read_only else int(time.time())
        argv = [
            *(str(shell_environment.python()), "-m", "p4runtime_sh"),
            *("--grpc-addr", client.address, "--device-id", str(client.device_id)),
            *("--election-id", f"0,{election}"),
        ]
        command = client.inside(argv)
    os.execvp(command[0], command)
