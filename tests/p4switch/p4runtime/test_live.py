"""A switch process on a live network: command line, ports, pipeline, packets, and its end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

from fanin.testbed.patience import setting


@pytest.mark.live
def test_a_live_switch(program, tmp_path):
    info, blob = tmp_path / "switch.p4info.txtpb", tmp_path / "switch.json"
    info.write_text(text_format.MessageToString(program.p4info))
    blob.write_bytes(program.device_config)
    session = Path(__file__).with_name("live_session.py")
    command = ["unshare", "-rn", sys.executable, session, info, blob]
    result = subprocess.run(command, capture_output=True, text=True, timeout=90 * setting(), check=False)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "ports": "1@s1,2@s2",
        "forwarded": "forwarded",
        "packet in": ["packet in", 1, 5],
        "packet out": "packet out",
        "arrivals": [2],
        "hits": [1, 1],
        "last type": [0x88B5],
        "arrivals after a new pipeline": [0],
        "forwarded by the new pipeline": "forwarded again",
        "exit status": 0,
    }
