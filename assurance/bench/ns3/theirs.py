"""Runs flows in ns-3, in a Python that has it and need not have fanin. Arguments are JSON on standard input.

flows.cc is compiled by cppyy, which comes with ns-3. beside.py makes the arguments.
"""

import importlib.util
import json
import sys
from pathlib import Path

import cppyy

LIBRARIES = (
    "core",
    "network",
    "stats",
    "bridge",
    "traffic-control",
    "internet",
    "point-to-point",
    "applications",
)


def load() -> None:
    """Load what flows.cc needs; `import ns` takes ten times as long."""
    spec = importlib.util.find_spec("ns3")
    assert spec is not None
    assert spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    cppyy.add_include_path(str(root / "include"))
    for name in LIBRARIES:
        [library] = (root / "lib64").glob(f"libns3*[0-9]-{name}.so")
        cppyy.load_library(str(library))
    cppyy.include(str(Path(__file__).with_name("flows.cc")))


def main() -> None:
    """Do one run."""
    asked = json.load(sys.stdin)
    load()
    destinations = cppyy.gbl.std.vector["unsigned"](asked.pop("destinations"))
    result = cppyy.gbl.fanin.Run(asked.pop("leaves"), destinations, *asked.values())
    found = {
        "events": result.events,
        "packet_hops": result.packetHops,
        "processor_seconds": result.processorSeconds,
        "seconds": list(result.ends),
    }
    print(json.dumps(found))


main()
