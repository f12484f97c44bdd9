"""`fanin play`: the playground in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.output import say


def play(
    program: Annotated[
        Path | None, typer.Argument(exists=True, dir_okay=False, help="P4_16 source to begin with")
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            "--stf",
            exists=True,
            dir_okay=False,
            help="STF test with its entries and packets; PROGRAM.stf by default",
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(help="Address to listen at; one that other machines reach requires a token")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one")] = 8040,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in this machine's browser")
    ] = False,
    sessions: Annotated[int, typer.Option(min=1, max=400, help="Most pages open at the same time")] = 8,
    sandbox: Annotated[
        bool,
        typer.Option(
            "--sandbox/--no-sandbox", help="Run programs in sandboxes; without, only at a loopback address"
        ),
    ] = True,
) -> None:
    """Try P4 programs in the browser, packet by packet.

    The page shows the program in an editor. Packets that you send go through it, and you follow each step: the line,
    the parser state or table, the fields and the registers. Nothing runs as root, and the page needs no internet.

    The page works until Ctrl-C. Your file is not changed; the page's address holds what you have edited.

    Examples:
        fanin play
        fanin play examples/own-program/firewall.p4 --open
    """
    # Imported here to keep --help fast.
    from fanin.browser.playground.page import playground
    from fanin.browser.playground.presets import own_program
    from fanin.browser.playground.session import Sessions
    from fanin.browser.server import ServeError, is_loopback, serve
    from fanin.classroom.confine import require_sandboxes
    from fanin.native.cache import CacheError
    from fanin.testbed.sandbox import SandboxError

    if not sandbox and not is_loopback(address):
        raise failure("play", f"--no-sandbox needs a loopback address such as 127.0.0.1, not {address}", 2)
    if program and program.suffix != ".p4":
        raise failure("play", f"{program}: is no P4 program: name a file that ends in .p4", 2)
    page = playground(Sessions(sessions, sandbox), own_program(program, test) if program else None)
    with failing("play", ServeError, CacheError, SandboxError):
        if sandbox:
            require_sandboxes()
        serve(
            [page],
            lambda url: say(f"{url}\nOpen it in a browser; press Ctrl-C to end."),
            address=address,
            port=port,
            open_browser=open_browser,
        )
