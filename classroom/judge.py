"""The part of a grader that runs inside a sandbox: it runs the tests of a lab on one submission.

It reads the tests from standard input, so that no file of the sandbox has them, and writes a line of JSON for each
outcome. `python -m fanin.classroom.judge FOLDER FD SEED`: FD is the socket to the server of the student's programs,
which is in another sandbox.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path

from fanin.classroom.bench import collect
from fanin.classroom.check import run_tests
from fanin.classroom.student import StudentPrograms


def main() -> None:
    """Run the tests, with a copy of what was compiled before all submissions."""
    shutil.copytree("/compiled", Path(os.environ["XDG_CACHE_HOME"], "fanin"))
    folder, descriptor, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    tests = collect(sys.stdin.read(), "tests.py")
    students = StudentPrograms(folder, socket.socket(fileno=descriptor))
    for outcome in run_tests(tests, folder, students, seed):
        print(json.dumps(outcome.document()), flush=True)


if __name__ == "__main__":
    main()
