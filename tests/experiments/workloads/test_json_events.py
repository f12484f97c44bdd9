"""Events come one by one with their lines, in little memory, and what is wrong is named with its line."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from io import StringIO, TextIOBase

import pytest

from fanin.experiments.workloads import json_events
from fanin.experiments.workloads.json_events import JsonEvents
from fanin.experiments.workloads.trace import TraceError


def read(text: str) -> JsonEvents:
    return JsonEvents(StringIO(text), "trace.json")


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
def test_events_and_their_lines_do_not_depend_on_how_much_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(json_events, "_CHUNK", chunk)
    events = [{"name": "été", "ts": 12345.678, "args": {"list": [1, [2, "]}"]]}}, 17, {"dur": -1e-3}]
    text = json.dumps({"version": 123, "traceEvents": events, "distributedInfo": {"rank": 3}}, indent=1)
    reader = read(text)
    found = [(event, reader.line) for event in reader]
    lines = text.splitlines()
    starts = [lines.index("  {") + 1, lines.index("  17,") + 1, len(lines) - lines[::-1].index("  {")]
    assert found == list(zip(events, starts, strict=True))
    assert reader.facts == {"version": 123, "distributedInfo": {"rank": 3}}


def test_a_file_may_be_a_list_of_events() -> None:
    assert list(read('[{"a": 1}, {"b": 2}]')) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"traceEvents": [\n{"ts": 1},\n{"ts": 2',
            "trace.json:3: ends in the middle: the file is truncated",
        ),
        ('{"traceEvents": [\n{"ts": 1}', "trace.json:2: expected ',' or ']'"),
        ('{"traceEvents": [\n\n{"ts": 1, oops}]}', "trace.json:3: is not JSON: expecting property name"),
        ('{"traceEvents": []}\n{}', "trace.json:2: has something behind the end of the trace"),
        ('{"workload_graph": []}', "trace.json: has no list 'traceEvents' (its keys are 'workload_graph')"),
        ('{"traceEvents" 1', "trace.json:1: expected ':', found '1'"),
        (f'{{"traceEvents": {"[" * 100_000}', "too deep to read"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, words: str) -> None:
    with pytest.raises(TraceError) as error:
        list(read(text))
    assert words in str(error.value)


def test_a_value_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_events, "_LONGEST", 10_000)
    monkeypatch.setattr(json_events, "_CHUNK", 1000)
    with pytest.raises(TraceError, match="is longer than 10,000 characters"):
        list(read('{"traceEvents": ["' + "x" * 100_000))


class _Endless(TextIOBase):
    """A file of many events, made as it is read."""

    def __init__(self, events: int) -> None:
        self._parts = self._text(events)

    @staticmethod
    def _text(events: int) -> Iterator[str]:
        yield '{"traceEvents": [{"ts": 0}'
        for number in range(events // 100):
            yield f',{{"ts": {number}, "args": {{"text": "{"x" * 100}"}}}}' * 100
        yield "]}"

    def read(self, _size: int | None = -1, /) -> str:
        return next(self._parts, "")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file() -> None:
    """15 MB of text in less than 3 MB."""
    tracemalloc.start()
    count = sum(1 for _ in JsonEvents(_Endless(100_000), "trace.json"))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 100_001
    assert most < 3e6
