"""The ledger of lease ids and chunk numbers that have been granted, so that none is handed out twice.

This holds even after restarts. Two numbers of a packet's header identify its job: the lease id (1 to 255) and the chunk
number (32 bits), 40 bits together. A grant takes a range of chunk numbers under one id, and what has been taken stays
taken. So a packet of an earlier job, however late, has numbers outside every range in force, and no switch admits it.
Nor can a cell left by an earlier job be mistaken for one of the new job's chunks.

With ranges of the usual size that is enough for 4,080 grants. Then the oldest ranges are reused, and only when no lease
is in force and all switches have been programmed again, which empties the cells. Only a packet that has been on its way
while 2^40 chunk numbers were handed out could be mistaken. (RFC 9293, section 3.4.1, has the same argument for 32 bits
of TCP, which relies on a packet's lifetime of 2 minutes.)
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

LEASES = 255  # ids from 1 on; 0 is the initial value of a register
CHUNKS = 2**32  # chunk numbers of an id
GRANT = 2**28  # chunk numbers of a grant: 275 GB of gradient in packets of 256 values

_FORMAT = 1


class UsedUpError(ControllerError):
    """The exhaustion of the numbers: every lease id that is not in force has fewer than GRANT chunk numbers left."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The numbers in the packets of one grant: the lease id, and a range of chunk numbers, both ends included."""

    lease: int
    first_chunk: int
    last_chunk: int


class NumberSpace:
    """The numbers that can be granted: ids are used in turn, and under each id one range after the other.

    Args:
        last_lease: The id of the newest grant.
        next_chunks: The first free chunk number of each id. None: all numbers are free.
    """

    def __init__(self, last_lease: int = 0, next_chunks: Sequence[int] | None = None) -> None:
        self.last_lease = last_lease
        self.next_chunks = tuple(next_chunks or [0] * LEASES)

    def take(self, chunks: int = GRANT, in_force: Collection[int] = ()) -> Identity:
        """Return a range of chunk numbers that nobody has had, under an id that is not in force.

        Args:
            chunks: Length of the range.
            in_force: The ids in force.

        Raises:
            UsedUpError: If all numbers have been handed out; see start_again().
            ControllerError: If no free range is that long, or all ids are in force.
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
        """Free the numbers of all ids that have less than GRANT left, so that the oldest are handed out again.

        Call it only when no lease is in force and no switch holds anything of a lease.
        """
        for lease in range(1, LEASES + 1):
            if CHUNKS - self.next_chunks[lease - 1] < GRANT:
                self._set(lease, 0)

    def _set(self, lease: int, chunk: int) -> None:
        self.next_chunks = (*self.next_chunks[: lease - 1], chunk, *self.next_chunks[lease:])


class Ledger:
    """A network's number space in the file `path`, which outlives its controllers. A context manager.

    Inside, no other process can use the file. A new ledger begins at a random place: if the file is lost while workers
    of this network are alive, their numbers very probably differ from the new ones.

    Raises:
        ControllerError: If another controller uses the file, or it cannot be read or written.
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
        """Return a range like NumberSpace.take(), after recording on disk that it is taken."""
        space = self._copy()
        identity = space.take(chunks, in_force)
        self._write(space)
        return identity

    def start_again(self) -> None:
        """Free numbers like NumberSpace.start_again()."""
        space = self._copy()
        space.start_again()
        self._write(space)

    def _copy(self) -> NumberSpace:
        if self._lock is None:
            raise ControllerError(f"the ledger {self._path} is not open: enter it first")
        return NumberSpace(self._space.last_lease, self._space.next_chunks)

    # The lock is a separate file, since the ledger's file is replaced at each write.
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
                f"the ledger {self._path} cannot be read ({error}). It records which numbers packets have carried: "
                "end all workers of this network, then delete it"
            ) from None
        return NumberSpace(last, chunks)

    def _write(self, space: NumberSpace) -> None:
        """Write the file so that it holds either the old contents or the new ones, even after a power failure."""
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
