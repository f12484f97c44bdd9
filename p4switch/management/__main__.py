"""The management calls as a command, for processes outside of the switch's network namespace.

    python -m fanin.p4switch.management HOST:PORT METHOD [JSON]

prints the answer, or each message of a stream, as a line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from fanin.p4switch.management.service import ManagementClient, ManagementError

_EXIT_FAILURE = 1
_EXIT_USAGE = 2


def main(argv: Sequence[str]) -> int:
    """Make the call that the command line names, and return the exit status."""
    if len(argv) not in (2, 3):
        print("usage: python -m fanin.p4switch.management HOST:PORT METHOD [JSON]", file=sys.stderr)
        return _EXIT_USAGE
    address, method, text = *argv[:2], argv[2] if len(argv) == 3 else "{}"
    try:
        request = json.loads(text)
    except json.JSONDecodeError:
        request = None
    if not isinstance(request, dict):
        print(f"fanin.p4switch.management: a request is a JSON object, not {text}", file=sys.stderr)
        return _EXIT_USAGE
    try:
        with ManagementClient(address) as client:
            # A call is a stream of one message on the wire.
            for message in client.stream(method, request):
                print(json.dumps(message), flush=True)
    except ManagementError as error:
        print(f"fanin.p4switch.management: {error}", file=sys.stderr)
        return _EXIT_FAILURE
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
