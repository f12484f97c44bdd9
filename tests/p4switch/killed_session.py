"""Run by test_cli.py in a network namespace: a switch is killed; prints whether its port had and has a clsact."""

import os
import signal
import subprocess
import sys
import time


def clsact() -> bool:
    said = subprocess.run(["tc", "qdisc", "show", "dev", "s1"], capture_output=True, text=True, check=True)
    return "clsact" in said.stdout


subprocess.run(["ip", "link", "add", "s1", "type", "veth", "peer", "name", "h1"], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
command = [
    sys.executable,
    "-m",
    "p4switch",
    sys.argv[1],
    "-i",
    "1@s1",
    "--",
    "--grpc-server-addr",
    "127.0.0.1:0",
]
switch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
assert switch.stdout is not None
switch.stdout.readline()
before = clsact()
os.kill(switch.pid, signal.SIGKILL)
switch.wait()
deadline = time.monotonic() + 20
while clsact() and time.monotonic() < deadline:
    pass
print(before, clsact())
