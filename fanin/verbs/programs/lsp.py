"""`fanin lsp`: the language server that editors start."""

from __future__ import annotations

import gc
import os
import sys
from importlib.metadata import version

from fanin.cli_errors import failure
from fanin.native.extras import install_command


def lsp() -> None:
    """Answer an editor's questions about P4 programs.

    An editor starts this command, and speaks the Language Server Protocol over its standard input and output. It then
    shows errors while you type, types, definitions and references; it completes, renames and formats.

    Examples:
        fanin lsp
        fanin lsp --help
    """
    try:
        from fanin.language_server.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        how = f"type make setup in the clone, or {install_command('editor')}"
        raise failure("lsp", f"the package pygls is missing; to install it, {how}") from None
    # An analysis makes many objects that stay: looking through them for garbage would take half of its time.
    gc.set_threshold(200_000, 20, 50)
    # pygls closes what it writes to, and fanin flushes its standard output at the end.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0) as output:
        make_server(version("fanin")).start_io(stdout=output)
