"""A number that was handed out is not handed out again: over grants, withdrawals, restarts and crashes."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fanin.controller.errors import ControllerError
from fanin.controller.jobs.ledger import CHUNKS, GRANT, LEASES, Identity, Ledger, NumberSpace, UsedUpError
from tests.sizes import sized

ROOT = Path(__file__).parents[3]


class Grants(RuleBasedStateMachine):
    """A ledger through its life; whatever is written to its file is all that a restart leaves."""

    @initialize(place=st.integers(0, LEASES), left=st.sampled_from((CHUNKS, 3 * GRANT, GRANT, 5, 0)))
    def begin(self, place: int, left: int) -> None:
        self.space = NumberSpace(place, [CHUNKS - left] * LEASES)
        self.handed_out: list[Identity] = []  # since the numbers began again
        self.in_force: list[Identity] = []

    @rule(chunks=st.sampled_from((1, 1000, GRANT, GRANT + 1, CHUNKS // 2, CHUNKS)), crash=st.booleans())
    def grant(self, chunks: int, crash: bool) -> None:
        """crash: after the ledger is written and before a switch is told."""
        try:
            identity = self.space.take(chunks, {held.lease for held in self.in_force})
        except UsedUpError:
            if not self.in_force:
                self.space.start_again()
                self.handed_out = [
                    old for old in self.handed_out if old.last_chunk < self.space.next_chunks[old.lease - 1]
                ]
            return
        except ControllerError:
            longest = max(CHUNKS - chunk for chunk in self.space.next_chunks)
            assert chunks > GRANT
            assert chunks > longest or self.in_force
            return
        assert identity.last_chunk - identity.first_chunk + 1 == chunks
        self.handed_out.append(identity)
        if crash:
            self.restart()
        else:
            self.in_force.append(identity)

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        if self.in_force:
            self.in_force.remove(data.draw(st.sampled_from(self.in_force)))

    @rule()
    def restart(self) -> None:
        """Restart the controller, which programs the switches again."""
        self.space = NumberSpace(self.space.last_lease, self.space.next_chunks)
        self.in_force = []

    @invariant()
    def no_two_grants_share_a_number(self) -> None:
        taken = sorted((i.lease, i.first_chunk, i.last_chunk) for i in self.handed_out)
        for (lease, _, last), (next_lease, first, _) in itertools.pairwise(taken):
            assert lease < next_lease or last < first
        assert all(
            1 <= i.lease <= LEASES and 0 <= i.first_chunk <= i.last_chunk < CHUNKS for i in self.handed_out
        )

    @invariant()
    def ids_in_force_differ(self) -> None:
        assert len({held.lease for held in self.in_force}) == len(self.in_force)


TestGrants = Grants.TestCase
TestGrants.settings = settings(max_examples=sized(33, 100), stateful_step_count=30)


def test_ids_take_turns_and_4080_grants_of_the_usual_size_use_everything_up() -> None:
    space = NumberSpace()
    granted = [space.take() for _ in range(LEASES * CHUNKS // GRANT)]
    assert len(granted) == 4080
    assert [identity.lease for identity in granted] == [1 + n % LEASES for n in range(4080)]
    assert len({(i.lease, i.first_chunk) for i in granted}) == 4080
    with pytest.raises(UsedUpError):
        space.take(1)
    space.start_again()
    assert space.take() == granted[0]


def test_a_range_too_long_is_refused_with_what_there_is() -> None:
    space = NumberSpace(0, [1] * LEASES)
    with pytest.raises(ControllerError, match=f"no lease has more than {CHUNKS - 1} left: ask for fewer"):
        space.take(CHUNKS)
    for chunks in (0, CHUNKS + 1):
        with pytest.raises(ControllerError, match=f"chunks: is {chunks}, must be from 1"):
            space.take(chunks)


def test_an_id_in_force_is_not_granted_again() -> None:
    space = NumberSpace()
    assert space.take(in_force={1, 2}).lease == 3
    with pytest.raises(ControllerError, match="all 255 leases are in force"):
        space.take(in_force=range(1, LEASES + 1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.json"


def test_what_was_taken_is_known_after_a_restart(path: Path) -> None:
    granted = []
    for _ in range(4):
        with Ledger(path) as ledger:
            granted += [ledger.take(), ledger.take(5)]
    assert len({identity.lease for identity in granted}) == 8


def crashing(call: Callable[..., Any], left: Iterator[int]) -> Callable[..., Any]:
    """`call`, until `left` has come to 0."""

    def crash_or_call(*arguments: Any) -> Any:
        if next(left) <= 0:
            raise SystemExit
        return call(*arguments)

    return crash_or_call


def test_a_crash_at_any_moment_leaves_the_numbers_before_it_or_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each system call of a write; after it the file is whole, and no number comes twice."""
    granted: list[Identity] = []
    for number in range(8):
        with Ledger(path) as ledger, monkeypatch.context() as patch:
            left = itertools.count(number, -1)
            for name in ("fsync", "replace", "open"):
                patch.setattr(os, name, crashing(getattr(os, name), left))
            with contextlib.suppress(SystemExit):
                granted.append(ledger.take())
        with Ledger(path) as ledger:
            granted.append(ledger.take())
    assert len(set(granted)) == len(granted) > 8


def test_a_write_that_fails_hands_nothing_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with Ledger(path) as ledger:
        before = path.read_text()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(ControllerError, match=r"leases\.json cannot be written: No space left"):
                ledger.take()
        assert path.read_text() == before
        ledger.take()


def test_two_controllers_of_one_network_cannot_both_grant(path: Path) -> None:
    with Ledger(path) as ledger:
        with pytest.raises(ControllerError, match="in use by another controller"):
            Ledger(path).__enter__()
        with pytest.raises(ControllerError, match="in use by another controller"):
            ledger.__enter__()
        imports = "from fanin.controller.jobs.ledger import Ledger; from pathlib import Path"
        other = f"{imports}; Ledger(Path({str(path)!r})).__enter__()"
        done = subprocess.run(
            [sys.executable, "-c", other], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert "in use by another controller" in done.stderr
        ledger.take()
    with Ledger(path):
        pass


def test_a_ledger_that_is_not_open_grants_nothing(path: Path) -> None:
    with Ledger(path) as ledger:
        pass
    with pytest.raises(ControllerError, match="is not open"):
        ledger.take()


GOOD = {"format": 1, "last_lease": 0, "next_chunks": [0] * LEASES}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        json.dumps({}),
        json.dumps(GOOD | {"format": 2}),
        json.dumps(GOOD | {"last_lease": LEASES + 1}),
        json.dumps(GOOD | {"last_lease": True}),
        json.dumps(GOOD | {"next_chunks": [0] * 254}),
        json.dumps(GOOD | {"next_chunks": [-1] * LEASES}),
        json.dumps(GOOD | {"next_chunks": [CHUNKS + 1] * LEASES}),
        json.dumps(GOOD | {"next_chunks": [0.5] * LEASES}),
        json.dumps(GOOD | {"next_chunks": "0" * LEASES}),
        json.dumps(GOOD | {"next_chunks": None}),
        "\udc80",
    ],
)
def test_a_file_that_says_nothing_is_an_error_and_not_a_new_beginning(path: Path, text: str) -> None:
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ControllerError, match=r"leases\.json cannot be read .* end all workers"):
        Ledger(path).__enter__()
    assert path.read_bytes() == text.encode(errors="surrogateescape")
    path.write_text(json.dumps(GOOD))
    with Ledger(path) as ledger:  # what failed has not kept the lock
        assert ledger.take() == Identity(1, 0, GRANT - 1)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ControllerError, match=r"nowhere/leases\.json.*No such file or directory"):
        Ledger(tmp_path / "nowhere" / "leases.json").__enter__()
