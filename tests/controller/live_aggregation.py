"""Everything together on a live network; prints JSON of what happened.

    live_aggregation.py PROGRAM.json P4INFO

Traffic of the hosts is in host.py, whose output each step collects.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from fanin.testbed import sandbox

sandbox.enter()

from finsy.proto import p4i  # noqa: E402
from google.protobuf import text_format  # noqa: E402

from fanin.controller.controller import Controller, Grant  # noqa: E402
from fanin.controller.jobs.ledger import Ledger  # noqa: E402
from fanin.controller.telemetry import Event, Reason  # noqa: E402
from fanin.testbed.mininet_net import MininetNetwork  # noqa: E402
from fanin.testbed.switch_processes import P4Switch  # noqa: E402
from fanin.topologies.shapes import leaf_spine  # noqa: E402

HOST = Path(__file__).with_name("host.py")
topology = leaf_spine(spines=2, leaves=2, hosts_per_leaf=2)
device_config = Path(sys.argv[1]).read_bytes()
p4info = text_format.Parse(Path(sys.argv[2]).read_text(), p4i.P4Info())
happened: dict[str, object] = {}


def start(host: str, *arguments: object) -> subprocess.Popen[str]:
    argv = [sys.executable, str(HOST), *map(str, arguments)]
    return network.host_popen(host, argv, stdout=subprocess.PIPE, text=True)


def echo(kind: str, client: str, server: str, count: int) -> int:
    """How many of `count` messages came back from `server`."""
    address = topology.host(server).ip
    serving = start(server, f"{kind}-server", address)
    assert serving.stdout is not None
    serving.stdout.readline()
    heard = start(client, f"{kind}-client", address, count).communicate()[0]
    serving.kill()
    return int(heard)


def contributions(lease: Grant, chunk: int) -> list[str]:
    """Return the result at each host of the lease when all contribute this one of its chunks, with their own ranks."""
    running, job = [], lease.tree.job
    for name in job.hosts:
        host = topology.host(name)
        number = job.first_chunk + chunk
        running.append(start(name, "contribute", host.ip, host.gateway, lease.id, number, host.rank))
    return [process.communicate()[0].strip() for process in running]


async def run(ledger: Ledger) -> None:
    async with Controller(topology, p4info, device_config, ledger, network.patience) as controller:
        before = await controller.counts()
        happened["udp across"] = echo("udp", "h1", "h4", 20)
        happened["tcp across"] = echo("tcp", "h1", "h4", 1000)
        happened["udp in the rack"] = echo("udp", "h3", "h4", 20)
        forwarded = {name: counted - before[name] for name, counted in (await controller.counts()).items()}
        happened["leaf1 port 1"] = [forwarded["leaf1"].ports[1].received.packets > 40]
        happened["drops"] = sum(c.packets for f in forwarded.values() for c in f.drops.values())
        happened["across a spine"] = [forwarded[s].ports[1].received.packets for s in ("spine1", "spine2")]

        start("h1", "forget-gateway").wait()
        happened["udp after arp"] = echo("udp", "h1", "h2", 5)

        lease = await controller.grant([host.name for host in topology.hosts], slots=16)
        happened["sums"] = contributions(lease, chunk=0)
        happened["of lease and chunk"] = f"{lease.id} {lease.tree.job.first_chunk}"
        counts = await controller.counts()
        happened["completed"] = {
            name: counted.events[Event.COMPLETED].packets for name, counted in counts.items()
        }
        await lease.withdraw()
        happened["sums without a lease"] = contributions(lease, chunk=1)
        counts = await controller.counts()
        happened["not admitted"] = counts["leaf1"].drops[Reason.NOT_ADMITTED].packets

        await controller.set_loss(0.5, seed=1)
        happened["lossy"] = echo("udp", "h1", "h2", 200)
        lost = (await controller.counts())["leaf1"]
        happened["lost"] = [lost.ports[1].lost_in.packets, lost.ports[2].lost_out.packets]


with tempfile.TemporaryDirectory() as logs, MininetNetwork(topology, P4Switch(), Path(logs)) as network:
    asyncio.run(run(Ledger(Path(logs, "leases.json"))))
print(json.dumps(happened))
