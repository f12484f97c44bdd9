"""`fanin jobs`: the jobs on a running network, and their leases."""

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
        typer.Option(metavar="NAME", help="Job whose lease, or place in the queue, to revoke"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each job")] = False,
    supervisor: Network = None,
) -> None:
    """List the jobs on a running network, or revoke a lease.

    For each job you see its hosts, slots and switches, or what it waits for. A job whose lease is revoked falls back to
    a ring between its hosts, unless it requires a lease.

    Examples:
        fanin jobs
        fanin jobs --revoke second
    """
    with failing("jobs", NetworkError):
        network = find_network(supervisor=supervisor)

        from fanin.testbed.job_service_client import (
            JobServiceClient,
        )  # gRPC takes long to import, and an error above needs none

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
        say("No job is running on the network; start one with: fanin launch train.py")


def _show(found: list[dict[str, Any]]) -> None:
    from fanin.table import new_table, print_table

    table = new_table(["job", "state", "hosts", "switches"], "for", "lease", "slots")
    for job in found:
        state = f"{job['state']}, number {job['place']}" if job["place"] else job["state"]
        if job["why"]:
            state = f"{state}: {job['why']}"
        lease, slots = job["lease"], job["slots"]
        table.add_row(
            job["name"],
            state,
            " ".join(job["hosts"]),
            " ".join(job["switches"]),
            str(timedelta(seconds=int(time.time() - job["since"]))),
            "" if lease is None else str(lease),
            "" if slots is None else f"{slots[0]} to {slots[1]}",
        )
    print_table(table)
