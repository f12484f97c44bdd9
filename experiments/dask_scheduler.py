"""Virtual points on a Dask cluster, through its executor of concurrent.futures."""

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

PATIENCE = 10.0  # seconds until a scheduler has answered and has a worker


class SchedulerError(Exception):
    """The cluster cannot run points, or would run others than those meant."""


@contextmanager
def scheduled(
    address: str, run_point: Callable[[Settings, bytes], Row]
) -> Iterator[Callable[[Settings, bytes], Future[Row]]]:
    """What runs `run_point` on any worker of the cluster at `address`, such as tcp://10.0.0.1:8786.

    A point whose worker dies runs on another one. When the context is left, what has not ended is given up; a point
    that is running then goes on to its end on its worker, for nobody.

    Raises:
        SchedulerError: there is no scheduler, it has no workers, or Dask is not installed.
    """
    try:
        from distributed import Client
        from distributed.comm import get_address_host_port
    except ImportError:
        raise SchedulerError("Dask is not installed; install it with: pip install 'fanin[dask]'") from None
    try:
        # A client that did not find its scheduler waits at its end for 20 s, and says so in a traceback.
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
        ) -> bytes:  # of a megabyte, which each point takes along, it leaves 3 %
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
    """On a worker: the row of a point, with the machine that it ran on.

    Raises:
        SchedulerError: this machine has another fanin, or other files, than the one that asks.
    """
    own = provenance()
    for name in ("fanin", "commit"):
        if None not in (own[name], theirs[name]) and own[name] != theirs[name]:
            raise SchedulerError(
                f"{platform.node()}: another fanin than here: {name} {own[name]}, not {theirs[name]}"
            )
    try:
        different = [name for name, digest in _files(point).items() if digest != files[name]]
    except OSError as error:
        raise SchedulerError(f"{platform.node()}: {error.filename}: {error.strerror}") from None
    if different:
        names = ", ".join(name.removesuffix("_sha256") for name in different)
        raise SchedulerError(f"{platform.node()}: another {names} file than here")
    return run_point(point, zlib.decompress(program)) | own


def _files(point: Settings) -> dict[str, Any]:
    """Digests of what a worker reads itself; the program it is sent."""
    return digests(point.model_copy(update={"program": None}))
