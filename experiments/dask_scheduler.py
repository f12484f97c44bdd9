"""Virtual points on a Dask cluster, by way of its executor for concurrent.futures."""

from __future__ import annotations

import platform
import socket
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from typing import Any

from fanin.experiments.results.measured import Row
from fanin.experiments.results.provenance import provenance
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.user_files import digests
from fanin.native.extras import install_command

PATIENCE = 10.0  # seconds within which a scheduler must answer and have a worker


class SchedulerError(Exception):
    """A Dask cluster that cannot run the points, or would run different ones."""


@contextmanager
def scheduled(
    address: str, run_point: Callable[[Settings, bytes], Row]
) -> Iterator[Callable[[Settings, bytes], Future[Row]]]:
    """Connect to the Dask cluster at `address` and yield a function that runs `run_point` on one of its workers.

    A point whose worker dies runs on another one. When the context is left, waiting points are cancelled; a running
    point continues to its end on its worker, but its result is lost.

    Args:
        address: Address of the scheduler, such as tcp://10.0.0.1:8786.
        run_point: Takes the settings of a point and the compiled program, and returns the row.

    Raises:
        SchedulerError: If there is no scheduler, it has no workers, or Dask is not installed.
    """
    try:
        from distributed import Client
        from distributed.comm import get_address_host_port
    except ImportError:
        how = f"type make setup in the clone, or {install_command('dask')}"
        raise SchedulerError(f"Dask is not installed; to install it, {how}") from None
    try:
        # A client that does not find its scheduler waits for 20 s when it is closed, and prints a traceback.
        socket.create_connection(get_address_host_port(address, strict=True), PATIENCE).close()
        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise SchedulerError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise SchedulerError(
                f"the scheduler at {address} has no workers; start one: dask worker {address}"
            ) from None
        pool = client.get_executor(pure=False)
        own = provenance()

        @cache
        def compressed(
            device_config: bytes,
        ) -> bytes:  # each point sends the program along; compression leaves 3 % of a megabyte
            return zlib.compress(device_config)

        def submit(point: Settings, device_config: bytes) -> Future[Row]:
            program, files = compressed(device_config), _files(point)
            future: Future[Row] = pool.submit(_run_here, run_point, point, program, own, files)
            return future

        try:
            yield submit
        finally:
            pool.shutdown(wait=False)


def _run_here(
    run_point: Callable[[Settings, bytes], Row],
    point: Settings,
    program: bytes,
    theirs: Mapping[str, Any],
    files: Mapping[str, str | None],
) -> Row:
    """Run a point on a worker of the cluster and return its row, with the machine that it ran on.

    Raises:
        SchedulerError: If this machine has another version of fanin, or other files, than the one that asks.
    """
    own = provenance()
    for name in ("fanin", "commit"):
        if None not in (own[name], theirs[name]) and own[name] != theirs[name]:
            raise SchedulerError(
                f"{platform.node()}: has another version of fanin: {name} {own[name]}, not {theirs[name]}; "
                "install the same one there"
            )
    try:
        different = [name for name, digest in _files(point).items() if digest != files[name]]
    except OSError as error:
        raise SchedulerError(f"{platform.node()}: {error.filename}: {error.strerror}") from None
    if different:
        names = ", ".join(name.removesuffix("_sha256") for name in different)
        raise SchedulerError(f"{platform.node()}: has another {names} file; copy the one from here")
    return run_point(point, zlib.decompress(program)) | own


def _files(point: Settings) -> dict[str, Any]:
    """Return digests of the files that a worker reads itself; the program is sent to it."""
    return digests(point.model_copy(update={"program": None}))
