"""A switch process with two veth ports, driven by finsy, in the network namespace that this is run in.

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

ETH_P_ALL = 3
TIMEOUT = 20
NEAR, FAR, CONTROLLER = 0x0A, 0x0B, 0x0C


def frame(destination: int, payload: bytes) -> bytes:
    return destination.to_bytes(6, "big") + NEAR.to_bytes(6, "big") + b"\x88\xb5" + payload


def make_port(number: int) -> socket.socket:
    """A veth pair, s<number> for the switch; the socket of its other end."""
    host, port = f"h{number}", f"s{number}"
    subprocess.run(["ip", "link", "add", host, "type", "veth", "peer", "name", port], check=True)
    for interface in (host, port):
        Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1")
        subprocess.run(["ip", "link", "set", interface, "up"], check=True)
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    link.bind((host, 0))
    link.settimeout(TIMEOUT)
    return link


def host(destination: int, action: fy.Action) -> fy.P4TableEntry:
    return fy.P4TableEntry("hosts", match=fy.Match(destination=destination), action=action)


async def drive(
    address: str, files: list[Path], near: socket.socket, far: socket.socket
) -> dict[str, object]:
    seen: dict[str, object] = {}
    p4info, p4blob = files
    options = fy.SwitchOptions(p4info=p4info, p4blob=p4blob, device_id=1, p4force=True)

    async def counts(entity: object) -> list[int]:
        return [found.data.packet_count async for found in switch.read(entity)]

    async with fy.Switch("s1", address, options) as switch:
        entries = [
            host(FAR, fy.Action("forward", port=2)),
            host(CONTROLLER, fy.Action("to_controller", reason=5)),
        ]
        await switch.insert(entries)
        near.send(frame(FAR, b"forwarded"))
        seen["forwarded"] = far.recv(2000)[14:].decode()

        incoming = asyncio.ensure_future(anext(switch.read_packets()))
        await asyncio.sleep(0)
        near.send(frame(CONTROLLER, b"packet in"))
        packet = await asyncio.wait_for(incoming, TIMEOUT)
        seen["packet in"] = [packet.payload[14:].decode(), packet["ingress_port"], packet["reason"]]

        await switch.write([fy.P4PacketOut(frame(FAR, b"packet out"), egress_port=2, pad=0)])
        seen["packet out"] = far.recv(2000)[14:].decode()

        seen["arrivals"] = await counts(fy.P4CounterEntry("arrivals", index=1))
        seen["hits"] = await counts(fy.P4DirectCounterEntry("host_hits"))
        cells = [found.data async for found in switch.read(fy.P4RegisterEntry("last_type", index=1))]
        seen["last type"] = cells

    async with fy.Switch("s1", address, options) as switch:
        seen["arrivals after a new pipeline"] = await counts(fy.P4CounterEntry("arrivals", index=1))
        await switch.insert(entries)
        near.send(frame(FAR, b"forwarded again"))
        seen["forwarded by the new pipeline"] = far.recv(2000)[14:].decode()
    return seen


def main() -> None:
    files = [Path(name) for name in sys.argv[1:]]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    near, far = make_port(1), make_port(2)
    general = ["--no-p4", "-i", "1@s1", "-i", "2@s2", "--device-id", "1"]
    target = ["--grpc-server-addr", "127.0.0.1:0", "--cpu-port", "255"]
    command = [sys.executable, "-m", "fanin.p4switch", *general, "--", *target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
            seen: dict[str, object] = {"ports": ready["ports"]}
            seen |= asyncio.run(drive(ready["grpc"], files, near, far))
            process.send_signal(signal.SIGTERM)
            seen["exit status"] = process.wait(TIMEOUT)
        finally:
            process.kill()
    print(json.dumps(seen))


main()
