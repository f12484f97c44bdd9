"""The fuzzer: what it makes is repeatable and mostly valid, what it finds it writes, and the switch passes it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from fanin.assurance.fuzz import campaign
from fanin.assurance.fuzz.campaign import NoSanitizersError, fuzz
from fanin.assurance.fuzz.case import FuzzCase
from fanin.assurance.fuzz.shrink import shrink
from fanin.native.cache import cache_directory
from fanin.p4switch.bmv2json.program import LONGEST_PACKET, ProgramError
from fanin.p4switch.codegen.translate import translate
from fanin.p4switch.primitives.registry import KINDS
from fanin.p4switch.reader import read_program
from tests.sizes import sized

pytestmark = pytest.mark.slow

CASES = sized(7, 12)  # `fanin fuzz` goes on
SEEDS = range(sized(60, 200))


@pytest.mark.long
def test_random_programs_and_hostile_packets_find_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In small, C is compiled when it, or how it is compiled, has changed; in full size each time."""
    if sized(True, False):
        monkeypatch.setattr(campaign, "_cache", lambda: nullcontext(cache_directory().parent))
    try:
        done = fuzz(0, CASES, None, 2, tmp_path, lambda _: None)
    except NoSanitizersError as error:
        pytest.skip(str(error))
    assert done.failed is None, done.failed[1]
    assert done.cases == CASES
    assert done.taken > CASES // 3


def test_a_seed_gives_the_same_case_again() -> None:
    assert FuzzCase.random(7) == FuzzCase.random(7)
    assert FuzzCase.random(7) != FuzzCase.random(8)


def test_a_case_is_written_and_read(tmp_path: Path) -> None:
    case = FuzzCase.random(3)
    case.write(tmp_path / "case.json")
    assert FuzzCase.read(tmp_path / "case.json") == case


@pytest.mark.few(0)
def test_most_programs_are_taken_and_they_use_everything() -> None:
    taken = 0
    used: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for seed in SEEDS:
        case = FuzzCase.random(seed)
        try:
            program = read_program(case.program)
            translate(program)
        except ProgramError:
            continue
        taken += 1
        used.update(p.op for action in program.actions.values() for p in action.primitives)
        used.update(o["op"] for o in _operations(json.loads(case.program)))
        kinds.update(key.kind for table in program.tables.values() for key in table.keys)
    assert taken > len(SEEDS) // 2
    rare = {"assume", "drop", "no_op", "log_msg", "modify_field", "copy_header", "add_header_fast"}
    same = {"add_to_field", "subtract_from_field", "shift_left", "shift_right"}
    same |= {"assign_union", "assign_union_stack"}
    assert set(KINDS) - rare - same <= set(used)
    assert {"extract", "extract_VL", "advance", "set", "verify", "primitive"} <= set(used)
    assert {"exact", "lpm", "ternary", "range", "optional"} <= set(kinds)


def _operations(document: dict) -> list[dict]:
    return [o for state in document["parsers"][0]["parse_states"] for o in state["parser_ops"]]


def test_packets_have_all_lengths() -> None:
    lengths = [len(packet) for seed in SEEDS for _, packet in FuzzCase.random(seed).packets]
    assert min(lengths) == 0
    assert max(lengths) == LONGEST_PACKET


def test_a_failing_case_is_made_smaller() -> None:
    """It fails as long as one packet and one statement are there."""
    case = FuzzCase.random(1)
    needed = case.packets[3]
    statement = json.loads(case.program)["actions"][0]["primitives"][0]

    def fails(smaller: FuzzCase) -> bool:
        statements = [p for a in json.loads(smaller.program)["actions"] for p in a["primitives"]]
        return needed in smaller.packets and statement in statements

    smallest = shrink(case, fails)
    assert smallest.packets == (needed,)
    assert smallest.frames == ()
    assert [a["primitives"] for a in json.loads(smallest.program)["actions"][:1]] == [[statement]]


def test_the_compiler_of_a_process_that_was_ended_is_waited_for(tmp_path: Path) -> None:
    """It goes on without it, in the folder that is to be removed."""
    (tmp_path / "fanin").mkdir()
    lock, done = tmp_path / "fanin/program.lock", tmp_path / "done"
    compiler = subprocess.Popen(
        ["flock", lock, "sh", "-c", 'echo; read -r _; touch "$1"', "sh", done],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert compiler.stdout is not None
    compiler.stdout.readline()  # it has the lock
    waiting = threading.Thread(target=campaign._wait_for_compilers, args=(tmp_path,))
    waiting.start()
    compiler.communicate()
    waiting.join()
    assert done.exists()


def test_a_case_that_fails_is_written_with_the_command_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here every case fails, since its program is not a program."""
    broken = replace(FuzzCase.random(0), program=b"{}", packets=(), frames=())
    monkeypatch.setattr(campaign, "shrink", lambda _case, _fails: broken)
    monkeypatch.setattr(campaign, "_follow", lambda *_: (0, "a finding"))
    try:
        done = fuzz(0, 1, None, 1, tmp_path, lambda _: None)
    except NoSanitizersError as error:
        pytest.skip(str(error))
    assert done.failed == (0, "a finding")
    assert done.path is not None
    assert FuzzCase.read(done.path) == broken
