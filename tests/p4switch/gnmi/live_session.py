"""A switch process with three veth ports, seen by finsy, in the network namespace that this is run in.

Arguments: the P4Info text file, the BMv2 JSON file. Prints what it saw as JSON.
"""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import finsy as fy

from fanin.p4switch.management.service import ManagementClient
from fanin.p4switch.ports.interfaces import read_interface
from fanin.testbed.patience import setting

ETH_P_ALL = 3
TIMEOUT = 20 * setting()
NEAR, FAR, THIRD, EVERYONE = 0x0A, 0x0B, 0x0C, 0xFFFFFFFFFFFF
COUNTERS = ("in-octets", "in-unicast-pkts", "in-broadcast-pkts", "out-octets", "out-pkts", "out-discards")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", "link", *arguments], check=True)


def make_port(number: int) -> socket.socket:
    """A veth pair, s<number> for the switch; the socket of its other end."""
    ip("add", f"h{number}", "type", "veth", "peer", "name", f"s{number}")
    for interface in (f"h{number}", f"s{number}"):
        Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1")
        ip("set", interface, "up")
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    link.bind((f"h{number}", 0))
    link.settimeout(TIMEOUT)
    return link


def frame(destination: int, length: int) -> bytes:
    return (destination.to_bytes(6, "big") + NEAR.to_bytes(6, "big") + b"\x88\xb5").ljust(length, b".")


def leaf(port: int, path: str) -> fy.GNMIPath:
    return fy.GNMIPath(f"interfaces/interface[name=s{port}]/{path}")


async def counters(client: fy.GNMIClient, port: int) -> list[int]:
    return [
        update.value
        for update in await client.get(leaf(port, "state/counters"))
        if update.path.last in COUNTERS
    ]


async def drive(
    address: str, files: list[Path], near: socket.socket, far: socket.socket, third: socket.socket
) -> object:
    seen: dict[str, object] = {}
    p4info, p4blob = files
    options = fy.SwitchOptions(p4info=p4info, p4blob=p4blob, device_id=1, p4force=True)
    entries = [
        fy.P4TableEntry("hosts", match=fy.Match(destination=host), action=fy.Action("forward", port=port))
        for host, port in ((FAR, 2), (THIRD, 3))
    ]
    for step in "one pipeline", "another pipeline":
        async with fy.Switch("s1", address, options) as switch:
            await switch.insert(entries)
            near.send(frame(EVERYONE, 60))
            near.send(frame(FAR, 100))
            far.recv(2000)
            assert switch.gnmi_client is not None
            seen[step] = [await counters(switch.gnmi_client, port) for port in (1, 2)]

    with ManagementClient(address) as management:
        lossy = {"port": 2, "direction": "egress", "properties": {"loss": 1}}
        management.call("SetLink", lossy)
    near.send(frame(FAR, 100))
    near.send(frame(THIRD, 100))
    third.recv(2000)

    async with fy.Switch("s1", address, fy.SwitchOptions(device_id=1)) as switch:
        client = switch.gnmi_client
        assert client is not None
        seen["a lossy link"] = await counters(client, 2)
        seen["ports"] = [[port.id, port.name, port.up] for port in switch.ports]
        changes = client.subscribe()
        changes.on_change(fy.GNMIPath("interfaces/interface[name=*]/state/oper-status"))
        seen["at first"] = [update.value async for update in changes.synchronize()]
        updates = changes.updates()

        async def told() -> list[str]:
            update = await asyncio.wait_for(anext(updates), TIMEOUT)
            return [update.path["name"], update.value]

        (before,) = await client.get(leaf(1, "state/last-change"))
        ip("set", "h1", "down")
        happened = [await told()]
        (after,) = await client.get(leaf(1, "state/last-change"))
        seen["last change"] = before.timestamp < after.value < after.timestamp
        ip("set", "h1", "up")
        happened.append(await told())
        await client.set(update=[(leaf(3, "config/enabled"), False)])
        happened.append(await told())
        interface = read_interface("s3")
        assert interface is not None
        seen["disabled"] = interface.up
        await client.set(delete=[leaf(3, "config/enabled")])
        happened.append(await told())
        near.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # forgets that its interface was down
        near.send(frame(THIRD, 100))
        seen["forwarded again"] = len(third.recv(2000))
        ip("del", "h2")
        happened.append(await told())
        seen["then"] = happened
        changes.cancel()
    return seen


def main() -> None:
    files = [Path(name) for name in sys.argv[1:]]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hosts = [make_port(number) for number in (1, 2, 3)]
    general = ["--no-p4", "-i", "1@s1", "-i", "2@s2", "-i", "3@s3", "--device-id", "1"]
    command = [sys.executable, "-m", "fanin.p4switch", *general, "--", "--grpc-server-addr", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
            seen = asyncio.run(drive(ready["grpc"], files, *hosts))
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT) == 0
        finally:
            process.kill()
    print(json.dumps(seen))


main()
