"""Checks of several folders in live networks: `live_checks.py SWITCH JSON`, a JSON line for each outcome.

JSON is a list of lists: the folder of a lab, the student's folder, and the name of the only test to run, or null.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fanin.testbed import sandbox

sandbox.enter()

from fanin.classroom.check import check  # noqa: E402 - preloading wants no thread before
from fanin.classroom.live_networks import LiveNetworks  # noqa: E402
from fanin.classroom.manifest import load_lab  # noqa: E402
from fanin.testbed.runs import scratch  # noqa: E402

logs = scratch()
assert logs is not None
kind = "bmv2" if sys.argv[1] == "bmv2" else "embedded"
with LiveNetworks(kind, logs) as networks:
    for lab, folder, only in json.loads(sys.argv[2]):
        for outcome in check(
            load_lab(Path(lab)), Path(folder), hidden=True, only=only, surroundings=networks
        ):
            print(json.dumps(outcome.document()), flush=True)
