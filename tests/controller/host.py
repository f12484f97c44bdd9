"""The part of a host in the live test."""

import socket
import struct
import subprocess
import sys
from typing import NoReturn

from fanin.testbed.patience import setting

SECONDS = 1.0 * setting()
UPDATE_64 = struct.Struct(">BBIHbBI64i")
PORT = 0xBEE0


def udp_server(address: str) -> NoReturn:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 5000))
    print("ready", flush=True)
    while True:
        server.sendto(*server.recvfrom(2000))


def udp_client(address: str, count: str) -> None:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect((address, 5000))
    client.settimeout(SECONDS)
    for number in range(int(count)):
        client.send(b"%d" % number)
    heard = 0
    try:
        while heard < int(count):
            client.recv(2000)
            heard += 1
    except TimeoutError:
        pass
    print(heard)


def tcp_server(address: str) -> NoReturn:
    server = socket.create_server((address, 5000))
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        while data := connection.recv(65536):
            connection.sendall(data)


def tcp_client(address: str, kilobytes: str) -> None:
    client = socket.create_connection((address, 5000))
    heard = 0
    for _ in range(int(kilobytes)):
        client.sendall(bytes(1000))
        heard += len(client.recv(1000, socket.MSG_WAITALL)) // 1000
    print(heard)


def forget_gateway() -> None:
    """From now on the gateway has to answer for itself."""
    subprocess.run(["ip", "neighbour", "flush", "nud", "permanent"], check=True)


def contribute(address: str, gateway: str, lease: str, chunk: str, rank: str) -> None:
    worker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    worker.bind((address, PORT))
    worker.connect((gateway, PORT))
    worker.settimeout(SECONDS)
    values = [(int(rank) + 1) * (i - 32) for i in range(64)]
    worker.send(UPDATE_64.pack(0x01, int(lease), int(chunk), 0, int(rank), 0, 0, *values))
    try:
        kind, of_lease, of_chunk, _, exponent, _, _, *sums = UPDATE_64.unpack(worker.recv(2000))
    except TimeoutError:
        print("nothing")
        return
    print(kind, of_lease, of_chunk, exponent, sums == [10 * (i - 32) for i in range(64)])


globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
