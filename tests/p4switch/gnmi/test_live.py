"""gNMI of a switch process on live ports: real counters, links that go up and down, both ways."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.testbed.patience import setting


@pytest.mark.live
def test_a_live_switch(tmp_path):
    program = compile_once(Path(__file__).parents[1] / "p4runtime/switch.p4")
    info, blob = tmp_path / "switch.p4info.txtpb", tmp_path / "switch.json"
    info.write_text(text_format.MessageToString(program.p4info))
    blob.write_text(program.json_text())
    Engine.load(program.device_config())  # into the cache: finsy gives a switch 10 s to take a program
    session = Path(__file__).with_name("live_session.py")
    command = ["unshare", "-rn", sys.executable, "-m", f"tests.p4switch.gnmi.{session.stem}", info, blob]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=90 * setting(), check=False, cwd=session.parents[3]
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == {
        # octets, unicast and broadcast packets in; octets, packets and discards out: of ports 1 and 2
        "one pipeline": [[160, 1, 1, 0, 0, 0], [0, 0, 0, 100, 1, 0]],
        "another pipeline": [[320, 2, 2, 0, 0, 0], [0, 0, 0, 200, 2, 0]],
        "a lossy link": [0, 0, 0, 200, 2, 1],
        "ports": [[1, "s1", True], [2, "s2", True], [3, "s3", True]],
        "disabled": False,
        "last change": True,
        "forwarded again": 100,
        "at first": ["UP"] * 3,
        "then": [["s1", "DOWN"], ["s1", "UP"], ["s3", "DOWN"], ["s3", "UP"], ["s2", "NOT_PRESENT"]],
    }
