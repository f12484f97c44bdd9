"""The program with a defect in it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from fanin.controller.requirements import PROGRAM
from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine


def load_mutant(name: str, folder: Path) -> Engine:
    """The program with this defect. folder: the same each time, so that a mutant is found compiled."""
    file, old, new = PROGRAM_MUTANTS[name]
    folder /= name.replace(" ", "-")
    folder.mkdir(exist_ok=True)
    texts = {source.name: source.read_text() for source in PROGRAM.parent.iterdir()}
    texts[file], count = re.subn(old, new, texts[file])
    assert count, f"{old} is not in {file}"
    for its, text in texts.items():
        writing = folder / f"{its}.{os.getpid()}"  # whole, whenever another process compiles it
        writing.write_text(text)
        writing.replace(folder / its)
    # Without the folder in it the program is the same in each repository, and its C is compiled once.
    config = compile_once(folder / PROGRAM.name).device_config()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("P4SWITCH_CFLAGS", "-Og")  # half the time to compile
        return Engine.load(config.replace(f"{folder}/".encode(), b""))


# The file, what is there, and what takes its place.
PROGRAM_MUTANTS = {
    # As in SwitchML: whatever comes for a slot and version is taken for a part of the chunk that is there.
    "no chunk tag": (
        "aggregation.p4",
        r"read_cell\(\);",
        "read_cell(); if (stored_chunk > hdr.switchml.chunk) { hdr.switchml.chunk = stored_chunk; }",
    ),
    "a chunk tag of 16 bits": (
        "aggregation.p4",
        r"stored_chunk (<|>|!=) hdr\.switchml\.chunk",
        r"stored_chunk[15:0] \1 hdr.switchml.chunk[15:0]",
    ),
    "calls not told apart": ("aggregation.p4", r"stored_call != hdr\.call\.call", "false"),
    "calls told apart by seven bits": (
        "aggregation.p4",
        r"stored_call != hdr\.call\.call",
        "stored_call[31:25] != hdr.call.call[31:25]",
    ),
    "admission without the chunk range": (
        "aggregation.p4",
        r"hdr\.switchml\.chunk < job_first_chunk \|\| hdr\.switchml\.chunk > job_last_chunk",
        "false",
    ),
    "old chunks let through": ("aggregation.p4", r"stored_chunk > hdr\.switchml\.chunk", "false"),
    "no re-serve": (
        "aggregation.p4",
        r"load_cell\(\);\s+if \(hdr\.switchml\.msg_type == MSG_GIVE\)",
        "meta.reason = REASON_DUPLICATE; if (true) {} else if (hdr.switchml.msg_type == MSG_GIVE)",
    ),
    "partial sum not sent up again": (
        "aggregation.p4",
        r"load_cell\(\);\s+make_room = true;\s+sends_up = true;",
        "meta.reason = REASON_DUPLICATE;",
    ),
    "saturation ignored": ("values.p4", r"\|\+\|", "+"),
    "a negative overflow wraps": (
        "values.p4",
        r"values\.v##i = \(int<32>\)stored \|\+\| values\.v##i;",
        "values.v##i = values.v##i < 0 ? (int<32>)(stored + (bit<32>)values.v##i) : (int<32>)stored |+| values.v##i;",
    ),
    "an earlier saturation forgotten": (
        "aggregation.p4",
        r"hdr\.switchml\.saturated \| stored_saturated",
        "hdr.switchml.saturated",
    ),
    "not quantizable forgotten": (
        "aggregation.p4",
        r"hdr\.exponents\.not_quantizable \| stored_not_quantizable",
        "hdr.exponents.not_quantizable",
    ),
    "the packet decides whether it needs a checksum": (
        "aggregation.p4",
        r"if \(meta\.checksummed == 1 && hdr\.udp\.checksum == 0\)",
        "meta.checksummed = (bit<1>)(hdr.udp.checksum != 0); if (false)",
    ),
    "UDP checksum not verified": ("parser.p4", r"hdr\.udp\.checksum != 0, \{", "false, {"),
    "retransmissions added again": ("aggregation.p4", r"\(seen & sender_bit\) == 0", "true"),
    "added to a stored result": (
        "aggregation.p4",
        r"else if \(done == 1\)",
        "else if (done == 1 && (seen & sender_bit) != 0)",
    ),
    # Where chunks begin with 1: what is of chunk 0 is older than all of them.
    "incomplete chunks kept": (
        "aggregation.p4",
        r"read_cell\(\);",
        "read_cell(); if (from_parent == 0 && stored_lease == hdr.switchml.lease && "
        "stored_chunk < hdr.switchml.chunk && done == 0) { hdr.switchml.chunk = 0; }",
    ),
    # Above 2^31 - 1, newer is taken for older.
    "chunk numbers compared with a sign": (
        "aggregation.p4",
        r"stored_chunk (<|>) hdr\.switchml\.chunk",
        r"(int<32>)stored_chunk \1 (int<32>)hdr.switchml.chunk",
    ),
    "an older result taken from the parent": (
        "aggregation.p4",
        r"stored_chunk != hdr\.switchml\.chunk \|\| done == 1",
        "stored_chunk < hdr.switchml.chunk || done == 1",
    ),
    "cells beyond the lease kept": ("aggregation.p4", r"\|\|\s+stored_chunk > job_last_chunk\)", ")"),
    "a congestion mark that stays in its cell": (
        "aggregation.p4",
        r"write\(cell, \(bit<1>\)\(hdr\.ipv4\.dscp_ecn\[1:0\] == ECN_CONGESTED\)\)",
        "write(cell, stored_congested | (bit<1>)(hdr.ipv4.dscp_ecn[1:0] == ECN_CONGESTED))",
    ),
    "a congestion mark forgotten": ("aggregation.p4", r"\n\s+keep_mark\(\);", ""),
    "the call of a result from the parent not compared": (
        "aggregation.p4",
        r"(REASON_STALE_RESULT;\s+\} else if \()stored_call != hdr\.call\.call",
        r"\1false",
    ),
    "a result served again to all": (
        "aggregation.p4",
        r"serve\(MSG_RESULT\);",
        "multicast_result();",
    ),
    # Of chunks that have an owner.
    "an update without values overwrites the sum": (
        "aggregation.p4",
        r"make_room = seen == job_full;",
        "operation = OPERATION_STORE;"
        " if (hdr.switchml.size[1:1] == 1) { fill_with_zeros_256(); } else { fill_with_zeros_64(); }",
    ),
    "an update without values begins with what the cell held": (
        "aggregation.p4",
        r"fill_with_zeros_(64|256)\(\);\s+\}",
        r"make_room_\1(); operation = OPERATION_LOAD; }",
    ),
    "givers of the chunk before kept": ("aggregation.p4", r"givers = 0;(\s+complete = 0;)", r"\1"),
    "the sum below complete as that of the chunk before was": (
        "aggregation.p4",
        r"(givers = 0;)\s+complete = 0;",
        r"\1",
    ),
    "a result added to an incomplete sum": ("aggregation.p4", r"if \(complete == 0 && ", "if (false && "),
    "a result that lacks the sum below instead of it": (
        "aggregation.p4",
        r"\{\s+operation = OPERATION_ADD;\s+\} else \{",
        "{ operation = OPERATION_STORE; } else {",
    ),
    "all children alike if one gives": (
        "aggregation.p4",
        r"OF_SCATTER == 1 && givers == job_full",
        "givers != 0",
    ),
    "all children alike if one takes": (
        "aggregation.p4",
        r"OF_SCATTER == 0 && givers != 0",
        "givers == job_full",
    ),
}
