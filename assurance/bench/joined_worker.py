"""A worker on a host of a running network: joins the job of all hosts, and executes the orders of its command line.

python -m fanin.assurance.bench.joined_worker ORDERS, a JSON list of Order. For each it prints a Report as a line of
JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial

from fanin.assurance.bench.allreduce_worker import Inputs, Order, execute
from fanin.experiments.live.output import lines_out, write_line
from fanin.experiments.results.checking import quantized_sum_bound
from fanin.testbed.patience import setting
from fanin.workers import CollectiveError, join

_JOIN_SECONDS = 60.0
# Shorter than the benchmark's, for networks of many workers; also a prime number of blocks.
_PERIOD = 509 * 256


def main(orders: str) -> None:
    """Join, and execute the orders one after the other."""
    lines_out()
    try:
        with join(timeout=_JOIN_SECONDS * setting()) as job:
            # The bound for vectors that are scaled according to earlier ones.
            promise = partial(quantized_sum_bound, window=_PERIOD)
            inputs = Inputs(job.rank, job.workers, promise, _PERIOD)
            for order in json.loads(orders):
                write_line(json.dumps(asdict(execute(Order(**order), job, inputs))).encode())
    except CollectiveError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
