"""A leaf in a few lines of Python, for tests of the network around it.

    tiny_switch.py PORT ADDRESS@MAC@INTERFACE…

Answers on PORT as a P4Runtime server would, and hands every IPv4 packet to the interface of its destination.
"""

import select
import socket
import sys

ETH_P_ALL = 3
PACKET_OUTGOING = 4

grpc_port, *hosts = sys.argv[1:]
ports = {}
for host in hosts:
    address, mac, interface = host.split("@")
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    port.bind((interface, ETH_P_ALL))
    ports[socket.inet_aton(address)] = port, bytes.fromhex(mac.replace(":", ""))
print("tiny switch is up", flush=True)
server = socket.create_server(("127.0.0.1", int(grpc_port)))
while True:
    for readable in select.select([port for port, _ in ports.values()], [], [])[0]:
        frame, where = readable.recvfrom(2048)
        out = ports.get(frame[30:34])
        if where[2] != PACKET_OUTGOING and out is not None:
            out[0].send(out[1] + frame[:6] + frame[12:])
