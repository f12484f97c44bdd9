"""Run by test_sanitizers.py with the sanitizers in the process: the loop of virtual time in C, workers and flows in C.

A finding of a sanitizer ends the process.
"""

from __future__ import annotations

from fanin.assurance.soak.generate import draw_scenario
from fanin.assurance.soak.run import run_scenario
from fanin.simulator.fabric import Cluster, load_switch
from tests.simulator.event_loop import anything, random_flows
from tests.simulator.event_loop.random_clusters import between_hosts, random_case
from tests.sizes import sized


def main() -> None:
    program = anything.load()
    for seed in range(sized(40, 100)):
        anything.run(program, seed)
    switch = load_switch()
    for seed in range(sized(3, 6)):
        spec, inputs, stalls = random_case(seed)
        cluster = Cluster(spec, switch, inputs)
        for stall in stalls:
            cluster.network.stall("h1", *stall)
        assert cluster.run(limit=10.0)
        assert Cluster(between_hosts(spec, seed), switch, inputs).run(limit=10.0)
    for seed in range(sized(10, 100)):
        random_flows.run(switch, seed)
    for seed in range(sized(3, 6)):
        run_scenario(draw_scenario(seed), switch)
    print("no finding")


if __name__ == "__main__":
    main()
