"""The user's own workers: what their file has to define."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import cast

from fanin.controller.python_file import PythonFileError, functions
from fanin.workers.collective import Participant
from fanin.workers.lease import Lease
from fanin.workers.protocol import AnyWorker, MakeWorker, Worker
from fanin.workers.recovery import Recovery


@cache
def make_worker_of(file: Path | None) -> MakeWorker:
    """Return the function that makes each in-network worker: `participant(lease, recovery)` of a file, or ours.

    Raises:
        PythonFileError: If the file cannot be loaded or does not define the function. The function returned raises it
            if the result of participant() is no Participant.
    """
    if file is None:
        return Worker
    make = functions(file, ("participant",))["participant"]
    wanted = [name for name in vars(Participant) if not name.startswith("_")]

    def checked(lease: Lease, recovery: Recovery) -> AnyWorker:
        made = make(lease, recovery)
        if missing := [name for name in wanted if not hasattr(made, name)]:
            raise PythonFileError(
                f"{file}: participant() returns {made!r}, which lacks {', '.join(missing)}; see "
                "fanin.workers.collective.Participant"
            )
        return cast(AnyWorker, made)

    return checked
