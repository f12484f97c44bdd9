"""Command `python -m fanin.p4switch`: the switch as a process, with simple_switch_grpc's command line."""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType

from fanin.native.text import printable
from fanin.p4switch.log import LOGGER
from fanin.p4switch.options import MODULE, Options, StartError, UsageError, parse

PRELOADED = ("fanin.p4switch.serving",)

_EXIT_FAILURE = 1
_EXIT_USAGE = 2


def main(argv: Sequence[str] | None = None, command: str = MODULE) -> int:
    """Run the switch until SIGTERM or SIGINT.

    Args:
        argv: The arguments; None uses the process's own.
        command: What was typed before them, for the help.

    Returns:
        The exit status: 0, 1 if the switch cannot start, or 2 for wrong usage.
    """
    name = "p4switch" if command == MODULE else command  # in messages
    # Nothing that a start makes is garbage: collections were a third of the time to read a large program.
    gc.disable()
    try:
        with _unused_left_out():
            options = parse(sys.argv[1:] if argv is None else argv, command)
            for warning in options.warnings:
                print(f"{name}: warning: {warning}", file=sys.stderr)
            _log_to(options)
            _check_ports(options.ports)
            # Imported here because serving needs gRPC, which takes long to load: wrong usage should fail at once.
            # GRPC_VERBOSITY keeps gRPC's C core from printing between our messages.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
            from fanin.p4switch.serving import run

        run(options)
    except UsageError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return _EXIT_USAGE
    except StartError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return _EXIT_FAILURE
    return 0


@contextmanager
def _unused_left_out() -> Iterator[None]:
    """Let imports do without modules that take 8 MB of memory and that the switch never uses.

    - OpenSSL: hashlib then uses Python's own hashes, where Python was built with them, and gRPC brings its own TLS.
    - asyncio: gRPC only needs it for servers in coroutines, and gets an empty module.
    - Compression of archives: shutil does without.
    """
    of_its_own = find_spec("_md5") and find_spec("_sha1") and (find_spec("_sha2") or find_spec("_sha256"))
    openssl = ("ssl", "_hashlib") if of_its_own else ()
    # None: importing it fails
    instead: dict[str, ModuleType | None] = dict.fromkeys((*openssl, "bz2", "lzma"))
    instead |= {name: ModuleType(name) for name in ("asyncio", "grpc.aio")}
    left_out = [name for name in instead if name not in sys.modules]
    sys.modules.update({name: instead[name] for name in left_out})  # type: ignore[misc]
    try:
        yield
    finally:
        for name in left_out:
            del sys.modules[name]


class _PrintableFormatter(logging.Formatter):
    """Formatter that makes log lines printable, because they quote names and messages of clients."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without control characters that could act on a terminal."""
        if record.name == LOGGER:  # BMv2's format; what it quotes is printable
            return record.getMessage()
        return printable(super().format(record))


def _log_to(options: Options) -> None:
    handler: logging.Handler
    try:
        if options.log_file:
            handler = logging.FileHandler(options.log_file)
        else:
            handler = logging.StreamHandler(sys.stdout if options.log_console else sys.stderr)
    except OSError as error:
        raise StartError(f"cannot log: {error}") from None
    handler.setFormatter(_PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=options.log_level, handlers=[handler])
    if options.log_console or options.log_file:  # otherwise messages of the program go to the standard error
        logging.getLogger(LOGGER).setLevel(max(logging.INFO, options.log_level))


def _check_ports(ports: dict[int, str]) -> None:
    for port, interface in ports.items():
        try:
            socket.if_nametoindex(interface)
        except OSError:
            raise StartError(f"port {port}: this network namespace has no interface {interface}") from None
    if ports:
        try:
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
        except PermissionError:
            raise StartError(
                "ports need CAP_NET_RAW: run as root, or in your own network namespace (unshare -Urn)"
            ) from None


if __name__ == "__main__":
    sys.exit(main())
