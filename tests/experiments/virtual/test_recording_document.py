"""A recording document has everything of the recording, in whole picoseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.virtual.recording import PacketRecording, record
from fanin.experiments.virtual.recording_document import recording_document
from fanin.simulator.fabric import load_switch

SCENARIO = Path(__file__).parents[3] / "scenarios/in-network-and-ring.toml"


@pytest.fixture(scope="module")
def recordings() -> list[PacketRecording]:
    switch = load_switch()
    points = load_scenario(SCENARIO, ["loss=0.02", "duplication=0.02"]).points
    return [record(point.algorithm, point, switch) for point in points]


@pytest.fixture(scope="module")
def document(recordings: list[PacketRecording]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(recording_document("name", "what", recordings)))
    return found


def test_it_names_its_format(document: dict[str, Any]) -> None:
    assert (document["format"], document["version"]) == ("fanin-recording", 1)
    assert (document["name"], document["description"]) == ("name", "what")


def test_every_packet_is_found_again(document: dict[str, Any], recordings: list[PacketRecording]) -> None:
    for point, recording in zip(document["points"], recordings, strict=True):
        columns = point["flights"]
        assert {len(column) for column in columns.values()} == {len(recording.flights)}
        for number, one in enumerate(recording.flights):
            row = {name: column[number] for name, column in columns.items()}
            a, b, rate = point["links"][row["link"] // 2]
            assert (b, a) if row["link"] % 2 else (a, b) == (one.sender, one.receiver)
            assert rate == 10**10
            times = [row[name] * 1e-12 for name in ("joined", "begin", "sent", "end")]
            assert times == pytest.approx([one.joined, one.begin, one.sent, one.end], abs=1e-12)
            assert point["kinds"][row["kind"]] == one.kind
            assert point["streams"][row["stream"]] == one.stream
            assert point["repeats"][row["again"]] == one.again
            assert point["reasons"][row["lost"]] == one.lost
            assert (row["number"], row["bytes"]) == (one.number, one.size)


def test_calls_and_cells_are_found_again(document: dict[str, Any], recordings: list[PacketRecording]) -> None:
    in_network, ring = document["points"]
    assert ring["changes"]["time"] == []
    changes = in_network["changes"]
    states = list(zip(changes["slot"], changes["version"], changes["chunk"], changes["seen"], strict=True))
    assert states == [(one.slot, one.version, one.chunk, one.seen) for one in recordings[0].changes]
    assert [in_network["switches"][number] for number in changes["switch"]] == [
        one.switch for one in recordings[0].changes
    ]
    for point, recording in zip(document["points"], recordings, strict=True):
        assert [call[:3:2] for call in point["calls"]] == [
            [one.rank, round(one.end * 1e12)] for one in recording.calls
        ]
        assert point["workers"] == ["h1", "h2", "h3", "h4"]
        assert point["tiers"] == [["leaf1", "leaf2"], ["spine1"]]
