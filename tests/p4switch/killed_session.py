"""Run by test_cli.py in a network namespace of its own: a switch is killed, and what it leaves is told as JSON.

Arguments: when it is killed (`idle`, `traffic`: while packets come and are held; `push`: while the compiler runs for a
controller's program), its program, another one with its P4Info, and an empty folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc
from google.protobuf import text_format

from fanin.native.cache import LOOKED

PR_SET_CHILD_SUBREAPER = 36
SLOW_COMPILER = """#!/bin/sh
case "$*" in *-shared*)
    if [ -p {0}/go ]; then echo > {0}/started; cat {0}/go > {0}/gone; rm {0}/gone; fi
esac
exec cc "$@"
"""


def clsact() -> bool:
    said = subprocess.run(["tc", "qdisc"], capture_output=True, text=True, check=True)
    return "clsact" in said.stdout


def flood(count: int) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind(("h1", 0))
        for _ in range(count):
            sender.send(b"\xff" * 12 + b"\x12\x34" + bytes(500))


def push(address: str, program: str) -> tuple[Any, ...]:
    """Sets a program as a controller would; the switch will not live to answer. The calls have to be kept."""
    channel = grpc.insecure_channel(address)
    stub: Any = p4r_grpc.P4RuntimeStub(channel)
    election, requests = p4r.Uint128(low=1), queue.SimpleQueue[Any]()
    requests.put(p4r.StreamMessageRequest(arbitration={"device_id": 0, "election_id": election}))
    stream = stub.StreamChannel(iter(requests.get, None))
    next(stream)
    config = p4r.ForwardingPipelineConfig(p4_device_config=Path(program).read_bytes())
    text_format.Parse(Path(program).with_suffix(".p4info.txtpb").read_text(), config.p4info)
    answer = stub.SetForwardingPipelineConfig.future(
        p4r.SetForwardingPipelineConfigRequest(
            device_id=0, election_id=election, action="VERIFY_AND_COMMIT", config=config
        )
    )
    return channel, stream, answer


def main(when: str, program: str, other: str, folder: Path) -> None:
    for name in ("cache", "temporary"):
        (folder / name).mkdir()
    compiler = folder / "cc"
    compiler.write_text(SLOW_COMPILER.format(folder))
    compiler.chmod(0o755)
    environment = os.environ | {"TMPDIR": str(folder / "temporary")}
    if when == "push":
        environment |= {"XDG_CACHE_HOME": str(folder / "cache"), "CC": str(compiler)}
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # what the switch leaves running becomes ours
    for number in (1, 2):
        subprocess.run(
            ["ip", "link", "add", f"s{number}", "type", "veth", "peer", "name", f"h{number}"], check=True
        )
        for end in "sh":
            subprocess.run(["ip", "link", "set", f"{end}{number}", "up"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    ports = ["-i", "1@s1", "-i", "2@s2", "--link", "2:delay=10s"]
    command = [
        sys.executable,
        "-m",
        "fanin.p4switch",
        program,
        *ports,
        "--",
        "--grpc-server-addr",
        "127.0.0.1:0",
    ]
    switch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert switch.stdout is not None
    address = switch.stdout.readline().split()[2].removeprefix("grpc=")
    before = clsact()
    if when == "push":
        for fifo in ("go", "started"):
            os.mkfifo(folder / fifo)
        calls = push(address, other)
        (folder / "started").read_text()
        assert not calls[-1].done()
    flooding = threading.Thread(target=flood, args=(5000 if when == "traffic" else 0,))
    flooding.start()
    os.kill(switch.pid, signal.SIGKILL)
    switch.wait()
    if when == "push":
        (folder / "go").write_text("")
    flooding.join()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break  # nobody is left
    left = {
        "clsact": [before, clsact()],
        "temporary": [path.name for path in (folder / "temporary").iterdir()],
        "cache": sorted(path.suffix for path in (folder / "cache").glob("*/*") if path.name != LOOKED),
    }
    print(json.dumps(left), flush=True)
    os._exit(0)  # without waiting for threads of gRPC


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
