"""docs/explanation/generated-c.md shows what the switch really makes of the aggregation program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from fanin.controller.entry_files import Entries, NamedEntry
from fanin.experiments.scenario.compilers import compile_program
from fanin.experiments.tracing import trace
from fanin.p4switch.codegen.translate import translate
from fanin.p4switch.reader import read_program
from fanin.p4switch.trace.text import as_text

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "explanation" / "generated-c.md").read_text()
# Assembly depends on the processor.
BLOCKS = [b for b in re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL) if b[0] != "asm"]


@pytest.fixture(scope="module")
def config() -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)  # lines of the program are named as in the page
        return compile_program(Path("p4src/fanin.p4"), "embedded").device_config


@pytest.fixture(scope="module")
def shown(config: bytes) -> dict[str, str]:
    """Return the texts that each kind of block is taken from."""
    program = read_program(config)
    [_, second] = trace(config, WORKERS, [update(1), update(2)])
    return {"c": translate(program), "traced": translate(program, traced=True), "text": as_text(second)}


def worker(member: int) -> NamedEntry:
    return NamedEntry(
        "ingress.aggregation.admission",
        {
            "standard_metadata.ingress_port": member,
            "hdr.ipv4.source": f"10.1.0.{member}",
            "hdr.ipv4.destination": "10.1.0.254",
            "hdr.udp.source_port": 48864,
            "hdr.switchml.lease": 3,
        },
        "ingress.aggregation.admit_child",
        {
            "member": member,
            "member_bit": 1 << (member - 1),
            "full": 3,
            "base": 0,
            "slots": 16,
            "first_chunk": 0,
            "last_chunk": 99,
            "checksums": 0,
            "root": 1,
            "group": 5,
            "uplink": 0,
        },
    )


WORKERS = Entries([worker(1), worker(2)], {5: [(1, 1), (2, 2)]})


def update(member: int) -> tuple[int, bytes]:
    """64 values of a worker: 0, 1, … of the first, each 1000 of the second."""
    values = [value if member == 1 else 1000 for value in range(64)]
    header = bytes([1, 3, 0, 0, 0, 7, 0, 0, 1, 0, 0, 0, 0, 2])
    addresses = IP(src=f"10.1.0.{member}", dst="10.1.0.254") / UDP(sport=48864, dport=48864, chksum=0)
    payload = header + b"".join(value.to_bytes(4, "big") for value in values)
    return member, bytes(Ether(dst="02:00:00:00:00:01") / addresses / payload)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_page_is_real(shown: dict[str, str], number: int) -> None:
    """Its lines stand in the real output in this order; `…` leaves some out."""
    kind, block = BLOCKS[number]
    real = shown[kind].splitlines()
    at = None
    skipping = True
    for line in block.splitlines():
        if line.strip() == "…":
            skipping = True
            continue
        after = 0 if at is None else at + 1
        found = real.index(line, after) if line in real[after:] else None
        assert found is not None, line
        assert skipping or found == after, f"lines are missing before: {line}"
        at, skipping = found, False
