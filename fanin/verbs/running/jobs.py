"""`fanin jobs`: the jobs of a network that is up; or one of them loses its lease."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Annotated, Any

import typer

from fanin.cli_errors import failing
from fanin.options import Network
from fanin.output import say
from fanin.testbed.running import find_network
from fanin.topologies.errors import NetworkError


def jobs(
    revoke: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="take this job's lease, or its place in the queue, away"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="a line of JSON for each job")] = False,
    supervisor: Network = None,
) -> None:
    """List the jobs of a network that is up: hosts, slots, switches, and those that wait; or revoke a lease.

    A job whose lease is revoked goes on by ring between its hosts, unless it has said that it insists on one.
    """
    with failing("jobs", NetworkError):
        network = find_network(supervisor=supervisor)

        from fanin.testbed.job_service_client import (
            JobServiceClient,
        )  # gRPC, for which an error above need not wait

        service = JobServiceClient(network.run)
        if revoke is not None:
            service.revoke(revoke)
            return
        found = service.list()
    if as_json:
        for job in found:
            say(json.dumps(job))
    elif found:
        _show(found)
    else:
        say("No job is on the network; start one with: fanin launch train.py")


def _show(found: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from fanin.console import wide

    table = Table("job", "state", "for", "hosts", "lease", "slots", "switches", box=None)
    for job in found:
        state = f"{job['state']}, number {job['place']}" if job["place"] else job["state"]
        if job["why"]:
            state = f"{state}: {job['why']}"
        lease, slots = job["lease"], job["slots"]
        table.add_row(
            escape(job["name"]),
            escape(state),
            str(timedelta(seconds=int(time.time() - job["since"]))),
            " ".join(job["hosts"]),
            "" if lease is None else str(lease),
            "" if slots is None else f"{slots[0]} to {slots[1]}",
            " ".join(job["switches"]),
        )
    wide.print(table)
