"""The start of the command line: of `fanin`, and of `python -m fanin`."""

import os
import signal


def main() -> None:
    """Run the command line.

    Until a command begins, there is nothing to clean up, and Ctrl-C ends this process as SIGTERM does. Python would
    print a traceback, and drop an interrupt that comes at certain moments of an import.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a script's shell has it ignored by what it runs with &
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # gRPC's C core would print between our messages. It reads this when it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from fanin.cli import main as run

    run()


if __name__ == "__main__":
    main()
