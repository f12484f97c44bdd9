"""A benchmark of a moment, in a sandbox of its own; prints the path of what it wrote. Argument: a folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fanin.testbed.sandbox import enter

enter()

from fanin.assurance.bench.switch.aggregation import Shape  # noqa: E402
from fanin.assurance.bench.switch.bench import Effort, bench, write  # noqa: E402
from fanin.assurance.bench.switch.tables import Routes  # noqa: E402

folder = Path(sys.argv[1])
effort = Effort(
    shapes=(Shape(2, 64, superframes=False), Shape(2, 256, superframes=True)),
    routes=(Routes("lpm", 100), Routes("exact", 100), Routes("ternary", 20)),
    rounds=1,
    seconds=0.02,
    writes=200,
)
outcomes, skipped = bench(effort, lambda _: None)
print(write(outcomes, skipped, os.getloadavg(), folder))
