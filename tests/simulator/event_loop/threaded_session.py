"""Run by test_sanitizers.py with ThreadSanitizer in the process: networks that several cores share.

A finding makes the exit status 66.
"""

from __future__ import annotations

from functools import partial

from fanin.simulator import VirtualNetwork
from fanin.simulator.fabric import Cluster, load_switch
from tests.simulator.event_loop import random_flows
from tests.simulator.event_loop.random_clusters import between_hosts, random_case


def main() -> None:
    switch = load_switch()
    for seed in range(40):
        random_flows.run(switch, seed, observed=False, cores=2)
    barriers = 0
    for seed in range(20):
        spec, inputs, _ = random_case(seed)
        for one in (spec, between_hosts(spec, seed)):
            cluster = Cluster(one, switch, inputs, make_network=partial(VirtualNetwork, cores=3, worth=0))
            assert cluster.run(limit=10.0)
            barriers += cluster.network.barriers
    assert barriers
    print("no finding")


if __name__ == "__main__":
    main()
