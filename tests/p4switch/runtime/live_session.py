"""Two hosts behind one switch, in the network namespace that this is run in (the hosts have their own).

Arguments: a case and the BMv2 JSON files that it needs. Prints what it saw as JSON: null if this kernel cannot show it.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.library import LinkStatistics, PortStatistics
from fanin.p4switch.engine.links import Direction, LinkProperties
from fanin.p4switch.entries import ActionCall, Entry, EntryKey, Lpm
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import traced
from fanin.testbed.patience import setting
from fanin.testbed.superframes import carried

CPU_PORT = 255
TIMEOUT = 20.0 * setting()
SOL_UDP, UDP_SEGMENT = 17, 103
SOL_PACKET, PACKET_AUXDATA = 263, 8
CHUNK = 1040
libc = ctypes.CDLL(None, use_errno=True)


class Host:
    """A network namespace with one interface, which ends at a port of the switch."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.address, self.mac = f"10.0.{number}.1", f"02:00:00:00:00:0{number}"
        self.process = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()  # it is in its namespace
        port = f"s{number}"
        run(f"ip link add {port} type veth peer name eth0 netns {self.process.pid}")
        Path(f"/proc/sys/net/ipv6/conf/{port}/disable_ipv6").write_text("1")
        run(f"ip link set {port} up")
        self.run("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1")
        self.run(f"ip link set eth0 address {self.mac}")
        self.run(f"ip address add {self.address}/16 dev eth0")
        if not carried():  # the kernel takes them apart; those of TCP stay
            self.run("ethtool -K eth0 tx-udp-segmentation off")
        self.run("ip link set eth0 up")

    def checksum_errors(self) -> int:
        """UDP datagrams that its kernel has dropped for a wrong checksum."""
        names, values = (
            line.split()
            for line in Path(f"/proc/{self.process.pid}/net/snmp").read_text().splitlines()
            if line.startswith("Udp:")
        )
        return int(values[names.index("InCsumErrors")])

    def run(self, command: str) -> None:
        run(f"nsenter -t {self.process.pid} -n {command}")

    def socket(self, *kind: int) -> socket.socket:
        """A socket of this host."""
        here, there = Path("/proc/thread-self/ns/net"), Path(f"/proc/{self.process.pid}/ns/net")
        with here.open() as ours, there.open() as theirs:
            libc.setns(theirs.fileno(), 0)
            try:
                made = socket.socket(*kind)
            finally:
                libc.setns(ours.fileno(), 0)
        made.settimeout(TIMEOUT)
        return made


def run(command: str) -> None:
    subprocess.run(command.split(), check=True)


@contextmanager
def hosts() -> Iterator[tuple[Host, Host]]:
    made = []
    try:
        for number in (1, 2):
            made.append(Host(number))
        for host, other in (made, made[::-1]):
            host.run(f"ip neighbour add {other.address} lladdr {other.mac} dev eth0")
        yield made[0], made[1]
    finally:
        for host in made:
            host.process.kill()
            host.process.wait()


def forwarding(config: str) -> Engine:
    """A switch between the hosts, whichever program it runs."""
    switch = Engine.load(Path(config).read_bytes(), cpu_port=CPU_PORT)
    if "ingress.routes" in switch.program.tables:
        for number in (1, 2):
            call = ActionCall("ingress.forward", (0x020000000000 + number, number))
            switch.table("ingress.routes").insert(
                Entry(EntryKey((Lpm(0x0A000000 + (number << 8), 24),)), call)
            )
    return switch


def datagrams(one: Host, other: Host) -> list[Any]:
    """Return what the other host receives of superframes and single datagrams: how many, and a digest in order."""
    receiver, sender = (
        other.socket(socket.AF_INET, socket.SOCK_DGRAM),
        one.socket(socket.AF_INET, socket.SOCK_DGRAM),
    )
    receiver.bind((other.address, 4000))
    sender.bind((one.address, 52611))  # a port from which some of them have 0xFFFF as their checksum
    sender.connect((other.address, 4000))
    digest, count = hashlib.sha256(), 0
    for round_ in range(20):
        size = [CHUNK, 700, 1472, 8][round_ % 4]
        data = (
            b"".join((round_ << 16 | n).to_bytes(size, "big") for n in range(40)) + b"the rest"[: round_ % 8]
        )
        send_apart(sender, data, size)
        sender.send(b"single")
        while (message := receiver.recv(1 << 16)) != b"single":
            digest.update(len(message).to_bytes(2, "big") + message)
            count += 1
    return [count, digest.hexdigest()]


def send_apart(sender: socket.socket, data: bytes, size: int) -> None:
    """As datagrams of `size` bytes, the last one perhaps shorter; with one call where the kernel takes them apart."""
    try:
        sender.setsockopt(SOL_UDP, UDP_SEGMENT, size)
        sender.send(data)
    except OSError as error:
        if error.errno != errno.EIO:  # older kernels' word for a device that writes no checksums
            raise
        sender.setsockopt(SOL_UDP, UDP_SEGMENT, 0)
        for start in range(0, len(data), size):
            sender.send(data[start : start + size])
    sender.setsockopt(SOL_UDP, UDP_SEGMENT, 0)


def stream(one: Host, other: Host) -> str:
    """The digest of a TCP stream as the other host receives it."""
    listener, sender = (
        other.socket(socket.AF_INET, socket.SOCK_STREAM),
        one.socket(socket.AF_INET, socket.SOCK_STREAM),
    )
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((other.address, 4001))
    listener.listen()
    sender.connect((other.address, 4001))
    receiver, _ = listener.accept()
    receiver.settimeout(TIMEOUT)

    def send() -> None:
        for n in range(400):
            sender.sendall(n.to_bytes(4, "big") * 2500)
        sender.close()

    thread = threading.Thread(target=send)
    thread.start()
    digest = hashlib.sha256()
    while data := receiver.recv(1 << 16):
        digest.update(data)
    thread.join()
    receiver.close()
    listener.close()
    return digest.hexdigest()


def all_moved(switch: Engine) -> dict[int, PortStatistics]:
    """Counters once what came last has left, too: an acknowledgment, for which no host waits."""
    end = time.monotonic() + TIMEOUT
    while True:
        moved = switch.port_statistics()
        if moved[1].received == moved[2].sent + moved[2].dropped or time.monotonic() > end:
            return moved


def offload(one: Host, other: Host, *configs: str) -> dict[str, Any]:
    """Datagrams and a stream through each program: with superframes all the way, in only, and not at all."""
    seen: dict[str, Any] = {}
    for config in configs:
        results = []
        for mode in ("both", "in", "none"):
            for host in (one, other):
                host.run(f"ethtool -K eth0 tx {'off' if mode == 'none' else 'on'}")
            switch = forwarding(config)
            switch.start({1: "s1", 2: "s2"}, offload=mode == "both")
            results.append([datagrams(one, other), stream(one, other)])
            moved = all_moved(switch)
            switch.stop()
            seen[f"{Path(config).stem} {mode}"] = {
                "received in superframes": moved[1].received_frames < moved[1].received / 2,
                "sent in superframes": moved[2].sent_frames < moved[2].sent / 2,
                "none lost inside": moved[1].received == moved[2].sent + moved[2].dropped,
                "bytes as of single frames": moved[1].received_bytes == moved[2].sent_bytes
                or moved[2].dropped > 0,
            }
        seen[f"{Path(config).stem} same"] = all(r == results[0] for r in results)
    expected = hashlib.sha256()
    for n in range(400):
        expected.update(n.to_bytes(4, "big") * 2500)
    seen["intact"] = all(r[1] == expected.hexdigest() for r in results)
    return seen


def refused(one: Host, other: Host, config: str) -> dict[str, Any] | None:
    """Return what a kernel before 6.2 makes of superframes in and out, and what the switch then does."""
    results = []
    one.run("ethtool -K eth0 tx-udp-segmentation off")
    for joins in (False, True):
        switch = forwarding(config)
        switch.start({1: "s1", 2: "s2"}, offload=joins)
        results.append([datagrams(one, other), stream(one, other)])
        moved = all_moved(switch)
        switch.stop()
    seen = {
        "same": results[0] == results[1],
        "none lost inside": moved[1].received == moved[2].sent + moved[2].dropped,
        "sent in superframes": moved[2].sent_frames < moved[2].sent / 2,  # of TCP
        "send errors": moved[2].send_errors,
    }
    switch = forwarding(config)
    switch.start({1: "s1", 2: "s2"}, offload=False)
    try:
        one.run("ethtool -K eth0 tx-udp-segmentation on")
    except subprocess.CalledProcessError:  # 5.10: superframes of UDP do not come as far as a veth pair
        switch.stop()
        return None
    receiver, sender = (host.socket(socket.AF_INET, socket.SOCK_DGRAM) for host in (other, one))
    receiver.bind((other.address, 4000))
    sender.connect((other.address, 4000))
    for data in (bytes(3 * CHUNK), b"single") * 2:
        sender.setsockopt(SOL_UDP, UDP_SEGMENT, CHUNK if len(data) > CHUNK else 0)
        sender.send(data)
    seen["behind superframes"] = [receiver.recv(1 << 16).decode() for _ in range(2)]
    run("ip link set s2 mtu 1000")
    for data in (bytes(1400), b"small"):
        sender.send(data)
    seen["behind one too large"] = receiver.recv(1 << 16).decode()
    sender.send(b"last")  # when it comes, all before is counted
    receiver.recv(1 << 16)
    moved = switch.port_statistics()
    seen["receive errors"] = moved[1].receive_errors
    seen["dropped, refused"] = [moved[2].dropped, moved[2].send_errors]
    switch.stop()
    return seen


def control(one: Host, other: Host, config: str) -> dict[str, Any]:
    """Packet-in, packet-out, table writes under traffic, and what is left when the switch has stopped."""
    before = open_files(), threading.active_count()
    switch = forwarding(config)
    arrived: list[bytes] = []
    came = threading.Event()

    def packet_in(packet: bytes) -> None:
        arrived.append(packet)
        came.set()

    switch.start({1: "s1", 2: "s2"}, packet_in)
    link = one.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    link.bind(("eth0", 3))
    up = b"\xff" * 6 + bytes(6) + b"\x12\x34" + b"up" * 30
    link.send(up)
    came.wait(TIMEOUT)
    down = bytes(12) + b"\x12\x34" + b"down" * 20
    switch.packet_out(down, CPU_PORT)
    received = wait_for(link, lambda p: p == down)
    tagged = bytes(12) + b"\x81\x00\x20\x05\x12\x34" + b"tagged" * 20
    far = other.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    far.bind(("eth0", 3))
    far.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    link.send(tagged)
    tag = wait_for_tag(far, tagged[:12] + tagged[16:])
    while_open = subprocess.run(
        ["tc", "filter", "show", "dev", "s1", "ingress"], capture_output=True, text=True
    )
    switch.stop()
    switch.stop()
    link.close()
    far.close()
    after = subprocess.run(["tc", "qdisc", "show", "dev", "s1"], capture_output=True, text=True)
    return {
        "packet in": arrived == [up],
        "packet out": received,
        "VLAN tag": tag,
        "host sees nothing": "bpf" in while_open.stdout,
        "clsact left": "clsact" in after.stdout,
        "left": [open_files() - before[0], threading.active_count() - before[1]],
    }


NUMBERS, SIZE = 40, 1000


class Numbered:
    """Superframes of numbered datagrams from one host to the other: the link sees all of one at the same time."""

    def __init__(self, one: Host, other: Host) -> None:
        self.receiver = other.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.receiver.bind((other.address, 4000))
        self.receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self.sender = one.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 2)  # ECN-capable
        self.sender.setsockopt(SOL_UDP, UDP_SEGMENT, SIZE)
        self.sender.connect((other.address, 4000))

    def send(self) -> float:
        """When it was sent."""
        data = b"".join(n.to_bytes(2, "big").ljust(SIZE, b"-") for n in range(NUMBERS))
        before = time.monotonic()
        self.sender.send(data)
        return before

    def receive(self, count: int) -> list[tuple[int, int]]:
        """Return each datagram's number and congestion mark; what is not numbered is not counted."""
        seen = []
        while len(seen) < count:
            data, [(_, _, tos)], _, _ = self.receiver.recvmsg(2000, 64)
            assert data[2:] == b"-" * (SIZE - 2)
            seen.append((int.from_bytes(data[:2], "big"), int(tos[0] & 3 == 3)))
        return seen

    def close(self) -> None:
        self.receiver.close()
        self.sender.close()


def links(one: Host, other: Host, config: str) -> dict[str, Any]:
    """One superframe over a link of each kind: what arrives, in which order, and what the switch says of it."""
    out = {
        "loss": LinkProperties(loss=0.3, seed=5),
        "corruption": LinkProperties(corruption=0.3, seed=5),
        "duplication": LinkProperties(duplication=0.3, delay=1e-3, seed=5),
        "reordering": LinkProperties(reordering=0.5, displacement=5e-3, seed=5),
        "queue": LinkProperties(rate=1e7, queue_bytes=20_000),
        "ecn": LinkProperties(rate=1e7, ecn_bytes=20_000),
        "delay": LinkProperties(delay=20e-3),
    }
    seen: dict[str, Any] = {}
    for direction, port in ((Direction.EGRESS, 2), (Direction.INGRESS, 1)):
        for name, properties in out.items():
            switch = forwarding(config)
            switch.start({1: "s1", 2: "s2"}, links={(port, direction): properties})
            numbered = Numbered(one, other)
            refused = other.checksum_errors()
            sent = numbered.send()
            expected = NUMBERS + link_at(switch, port, direction, offered=NUMBERS).duplicated
            before = link_at(switch, port, direction, offered=NUMBERS)
            expected -= before.lost + before.queue_dropped
            arrived = numbered.receive(expected - before.corrupted)
            after = link_at(switch, port, direction, sent=expected)
            frames = switch.port_statistics()[2]
            # Nothing held, nothing more to come: the switch can start anew with other properties.
            switch.set_link(port, direction, LinkProperties())
            numbered.send()
            again = numbered.receive(NUMBERS)
            seen[f"{name} {direction}"] = {
                "numbers": [number for number, _ in arrived],
                "marked": [number for number, marked in arrived if marked],
                "counted": [after.lost, after.duplicated, after.reordered, after.queue_dropped, after.marked],
                "corrupted": after.corrupted,
                "refused by the host": other.checksum_errors() - refused,
                "held": after.held,
                "in time": name != "delay" or time.monotonic() - sent >= properties.delay,
                "in superframes": frames.sent_frames < frames.sent / 2,
                "changed": again == [(n, 0) for n in range(NUMBERS)],
            }
            numbered.close()
            switch.stop()
    return seen


def queueing(one: Host, other: Host, config: str) -> dict[str, Any]:
    """Return the queueing metadata of one superframe's packets: without a link, and with one."""
    seen = {}
    for name, properties in (
        ("no link", None),
        ("link", LinkProperties(rate=1e7)),
        ("queue", LinkProperties(rate=1e7, queue_bytes=20_000, delay=1e-3)),
    ):
        switch = forwarding(config)
        switch.start({1: "s1", 2: "s2"}, links={(2, Direction.EGRESS): properties} if properties else {})
        numbered = Numbered(one, other)
        numbered.send()
        count = 19 if name == "queue" else NUMBERS
        packets = [numbered.receiver.recv(2000) for _ in range(count)]
        seen[name] = [struct.unpack_from(">HIIII", packet) for packet in packets]
        numbered.close()
        found = switch.link_statistics(2, Direction.EGRESS)
        if found is not None:
            seen[f"{name} counts"] = [found.offered, found.sent, found.queue_dropped, found.held]
        switch.stop()
    return seen


def priorities(one: Host, other: Host, config: str) -> list[int]:
    """The numbers of one superframe's packets in the order in which they leave by a slow link."""
    switch = forwarding(config)
    switch.set_priority_queues(8)
    switch.start({1: "s1", 2: "s2"}, links={(2, Direction.EGRESS): LinkProperties(rate=1e7)})
    numbered = Numbered(one, other)
    numbered.send()
    found = [struct.unpack_from(">H", numbered.receiver.recv(2000))[0] for _ in range(NUMBERS)]
    numbered.close()
    switch.stop()
    return found


def traced_queue(one: Host, other: Host, config: str) -> dict[str, int]:
    """How many traces tell of a packet that waits in a queue, that leaves it, or for which it is full."""
    switch = forwarding(config)
    properties = LinkProperties(rate=1e7, queue_bytes=20_000, delay=1e-3)
    switch.start({1: "s1", 2: "s2"}, links={(2, Direction.EGRESS): properties})
    numbered = Numbered(one, other)
    with traced(switch, "port=1") as tracer:
        numbered.send()
        for _ in range(19):
            numbered.receiver.recv(2000)
        told = [as_text(trace) for trace in tracer.packets()]
    numbered.close()
    switch.stop()
    said = (
        "waits for port 2",
        "out of the queue of port 2 after",
        "the queue of port 2 is full",
        "1 packet out",
    )
    return {words: sum(words in text for text in told) for words in said}


def link_at(switch: Engine, port: int, direction: Direction, **wanted: int) -> LinkStatistics:
    """Return a link's counts once they are as wanted."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        found = switch.link_statistics(port, direction)
        assert found is not None
        if all(getattr(found, name) == count for name, count in wanted.items()):
            return found
    raise AssertionError(f"{wanted}: {[(n, getattr(found, n)) for n, _ in found._fields_]}")


def late(one: Host, other: Host, config: str) -> list[int]:
    """How many packets are late, and by how much, of a switch that is kept from running while they come."""
    switch = forwarding(config)
    switch.start({1: "s1", 2: "s2"}, links={(2, Direction.EGRESS): LinkProperties(delay=1e-3)})
    numbered = Numbered(one, other)
    with switch.lock, socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as arrived:
        arrived.bind(("s1", 0))
        numbered.send()
        wait_for(arrived, lambda frame: len(frame) > SIZE)
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
    numbered.receive(NUMBERS)
    found = link_at(switch, 2, Direction.EGRESS, sent=NUMBERS)
    numbered.close()
    switch.stop()
    return [found.late, found.lateness_most]


def urgent(one: Host, other: Host, config: str) -> bool:
    """Return whether the forwarding thread precedes those that compute, once it has an emulated link to serve."""
    switch = forwarding(config)
    switch.start({1: "s1", 2: "s2"}, links={(2, Direction.EGRESS): LinkProperties(delay=1e-3)})
    [thread] = [t.native_id for t in threading.enumerate() if t.name == "p4switch forwarding"]
    assert thread is not None
    assert os.sched_getscheduler(thread) == os.SCHED_OTHER
    numbered = Numbered(one, other)
    end = time.monotonic() + TIMEOUT
    while (policy := os.sched_getscheduler(thread)) != os.SCHED_FIFO and time.monotonic() < end:
        numbered.send()
        numbered.receive(NUMBERS)
    numbered.close()
    switch.stop()
    return policy == os.SCHED_FIFO


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def wait_for(link: socket.socket, wanted: Callable[[bytes], bool]) -> bool:
    while not wanted(link.recv(1 << 16)):
        pass
    return True


def wait_for_tag(link: socket.socket, wanted: bytes) -> int:
    """The tag that the kernel took out of that frame."""
    while True:
        frame, control_data, _, _ = link.recvmsg(1 << 16, 64)
        if frame == wanted:
            [(_, _, auxiliary)] = control_data
            return struct.unpack("=IIIHHHH", auxiliary)[5]  # tpacket_auxdata.tp_vlan_tci


AT_ONE_TIME = {
    "links",
    "queueing",
    "traced",
    "late",
}  # cases whose packets have to come together, in a superframe


def main() -> None:
    case, *configs = sys.argv[1:]
    if case in AT_ONE_TIME and not carried():
        print(json.dumps(None))
        return
    with hosts() as (one, other):
        print(
            json.dumps(
                {
                    "offload": offload,
                    "refused": refused,
                    "control": control,
                    "links": links,
                    "queueing": queueing,
                    "priorities": priorities,
                    "traced": traced_queue,
                    "late": late,
                    "urgent": urgent,
                }[case](one, other, *configs)
            )
        )


if __name__ == "__main__":
    main()
