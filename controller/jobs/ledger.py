"""What has been granted: lease ids and chunk numbers, of which none is handed out twice, whatever restarts.

A packet says whose it is by two numbers of its header, the lease id (1 to 255) and the chunk number (32 bits): 40 bits
together. A grant takes a range of chunk numbers under one id, and what has been taken stays taken. So a packet of an
earlier job, however late, bears numbers outside of every range in force, and no switch admits it; neither does a cell
that an earlier job has left pass for one of the new job's chunks.

With ranges of the usual size that is enough for 4,080 grants. Then the oldest ranges come again, and only when no
lease is in force and all switches have been programmed anew, which empties the cells: what could be mistaken is a
packet that has been on its way while 2^40 chunk numbers were handed out. (RFC 9293, section 3.4.1, has the same
argument for 32 bits of TCP, which does with a packet's life of 2 minutes.)
"""

import fcntl
import json
import os
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from fanin.controller.errors import ControllerError

LEASES = 255  # ids from 1 on; 0 is what a fresh register holds
CHUNKS = 2**32  # of an id
GRANT = 2**28  # of a grant: 275 GB of gradient in packets of 256 values

_FORMAT = 1


class UsedUpError(ControllerError):
    """Every lease id that is not in force has fewer than GRANT chunk numbers left."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the packets of one grant carry: the lease id, and chunk numbers of a range, both ends included."""

    lease: int
    first_chunk: int
    last_chunk: int


class NumberSpace:
    """Hands out identities, the ids in turn, and under each id one range after the other.

    Args:
        last_lease: the id of the newest grant.
        next_chunks: of each id, the first chunk number that has not been handed out; None: all are there.
    """

    def __init__(self, last_lease: int = 0, next_chunks: Sequence[int] | None = None) -> None:
        self.last_lease = last_lease
        self.next_chunks = tuple(next_chunks or [0] * LEASES)

    def take(self, chunks: int = GRANT, in_force: Collection[int] = ()) -> Identity:
        """A range of `chunks` numbers that nobody has had, under an id that is not in force.

        Raises:
            UsedUpError: there is none; see start_again.
            ControllerError: there is none so long, or all ids are in force.
        """
        if not 1 <= chunks <= CHUNKS:
            raise ControllerError(f"chunks: is {chunks}, must be from 1 to {CHUNKS}")
        turn = [1 + (self.last_lease + n) % LEASES for n in range(LEASES)]
        free = [lease for lease in turn if lease not in in_force]
        if not free:
            raise ControllerError(f"all {LEASES} leases are in force; withdraw one")
        longest = max(CHUNKS - self.next_chunks[lease - 1] for lease in free)
        if longest < chunks:
            if longest < GRANT:
                raise UsedUpError("all chunk numbers have been handed out")
            raise ControllerError(
                f"chunks: is {chunks}, and no lease has more than {longest} left: ask for fewer, and renew the lease"
            )
        lease = next(lease for lease in free if CHUNKS - self.next_chunks[lease - 1] >= chunks)
        first = self.next_chunks[lease - 1]
        self._set(lease, first + chunks)
        self.last_lease = lease
        return Identity(lease, first, first + chunks - 1)

    def start_again(self) -> None:
        """What was handed out first may be handed out again, under all ids that have less than GRANT left.

        For when nothing is in force and no switch holds anything of a lease.
        """
        for lease in range(1, LEASES + 1):
            if CHUNKS - self.next_chunks[lease - 1] < GRANT:
                self._set(lease, 0)

    def _set(self, lease: int, chunk: int) -> None:
        self.next_chunks = (*self.next_chunks[: lease - 1], chunk, *self.next_chunks[lease:])


class Ledger:
    """A network's number space in the file `path`, which outlives its controllers. A context manager.

    Inside, no other process has it. A new one begins at a random place: should the file be lost while workers of
    this network are alive, theirs are other numbers in all likelihood.

    Raises:
        ControllerError: another controller has it, or the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None
        self._space = NumberSpace()

    def __enter__(self) -> Self:
        self._acquire()
        try:
            if self._path.exists():
                self._space = self._read()
            else:
                start = secrets.randbelow(CHUNKS // 2)
                self._write(NumberSpace(secrets.randbelow(LEASES), [start] * LEASES))
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._release()

    def take(self, chunks: int = GRANT, in_force: Collection[int] = ()) -> Identity:
        """As NumberSpace.take; that it is taken is on the disk before this returns."""
        space = self._copy()
        identity = space.take(chunks, in_force)
        self._write(space)
        return identity

    def start_again(self) -> None:
        """As NumberSpace.start_again."""
        space = self._copy()
        space.start_again()
        self._write(space)

    def _copy(self) -> NumberSpace:
        if self._lock is None:
            raise ControllerError(f"the ledger {self._path} is not open: enter it first")
        return NumberSpace(self._space.last_lease, self._space.next_chunks)

    # The lock is a file of its own, since the other one is replaced at each write.
    def _acquire(self) -> None:
        if self._lock is not None:
            raise ControllerError(f"the ledger {self._path} is in use by another controller of this process")
        path = self._path.with_name(f"{self._path.name}.lock")
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ControllerError(f"the ledger {path}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ControllerError(
                f"the ledger {self._path} is in use by another controller; end that one first"
            ) from None
        self._lock = lock

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def _read(self) -> NumberSpace:
        try:
            held = json.loads(self._path.read_text())
            last, chunks = held["last_lease"], held["next_chunks"]
            numbers = [last, *chunks]
            if (
                held["format"] != _FORMAT
                or len(chunks) != LEASES
                or any(type(number) is not int for number in numbers)
                or not 0 <= last <= LEASES
                or not all(0 <= chunk <= CHUNKS for chunk in chunks)
            ):
                raise ValueError("it is not what a controller of this version writes")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ControllerError(
                f"the ledger {self._path} cannot be read ({error}). It says which numbers packets have carried: "
                "end all workers of this network, then delete it"
            ) from None
        return NumberSpace(last, chunks)

    def _write(self, space: NumberSpace) -> None:
        """Either the old contents are there afterwards or the new ones, whenever the power fails."""
        held = {"format": _FORMAT, "last_lease": space.last_lease, "next_chunks": list(space.next_chunks)}
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            with new.open("w") as file:
                json.dump(held, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise ControllerError(f"the ledger {self._path} cannot be written: {error.strerror}") from None
        self._space = space
