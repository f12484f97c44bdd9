"""Captures of the ports, in the files that BMv2 would write."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.p4compiler import compile_once
from fanin.p4switch.ports.capture import open_captures
from fanin.testbed.patience import setting
from tests.p4switch.ports.capture_session import PACKETS

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
struct headers_t {}
struct metadata_t {}
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply {} }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { standard.egress_spec = 3 - standard.ingress_port; }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply {} }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""


@pytest.mark.live
def test_each_port_has_a_file_of_what_came_in_and_one_of_what_went_out(tmp_path: Path) -> None:
    source, program, folder = tmp_path / "cross.p4", tmp_path / "cross.json", tmp_path / "pcaps"
    source.write_text(PROGRAM)
    program.write_bytes(compile_once(source).device_config())
    folder.mkdir()
    command = [
        "unshare",
        "-rn",
        sys.executable,
        "-m",
        "tests.p4switch.ports.capture_session",
        program,
        folder,
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=90 * setting(),
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    packets = [packet.hex() for packet in PACKETS]
    assert json.loads(done.stdout) == {
        "s1_in.pcap": packets,
        "s1_out.pcap": [],
        "s2_in.pcap": [],
        "s2_out.pcap": packets,
    }


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing/s1_in\.pcap"):
        open_captures(tmp_path / "missing", {1: "s1"})
