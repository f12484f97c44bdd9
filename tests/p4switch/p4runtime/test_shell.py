"""p4runtime-shell works on the switch. It pins an old protobuf, so it lives in a virtual environment of its own."""

import json
import subprocess
from pathlib import Path

import pytest
from google.protobuf import text_format

from fanin import shell_environment


@pytest.mark.slow
@pytest.mark.skipif(
    not shell_environment.ready(),
    reason="p4runtime-shell is not set up; the first `fanin shell` does it, and `make test`",
)
def test_a_session(address, program, tmp_path):
    info, blob = tmp_path / "switch.p4info.txtpb", tmp_path / "switch.json"
    info.write_text(text_format.MessageToString(program.p4info))
    blob.write_bytes(program.device_config)
    command = [shell_environment.python(), Path(__file__).with_name("shell_session.py"), address, info, blob]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout.splitlines()[-1])
    assert "ALREADY_EXISTS" in seen.pop("twice")
    assert seen == {
        "entries": {"hosts": 1, "routes": 1, "acl": 1, "well_known": 1},
        "after delete": 0,
        "counter": [0, 0, 11, *[0] * 13],
        "direct counter": [0],
        "groups": [2],
        "packet": (bytes(14) + b"payload").hex(),
        "version": "1.5.0",
    }
