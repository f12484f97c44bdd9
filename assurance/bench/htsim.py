"""The same flows in htsim and in virtual time: processor time, and when the last flow arrives.

The flows are a permutation and an incast of 128 hosts on a fat tree of switches with 8 ports. htsim's are EQDS with
packets of 4 KB, sprayed over all paths (csg-htsim, `htsim_eqds`). Ours use the transport of host-based all-reduce, also
sprayed, through the compiled P4 program in every switch, with packets of 1 KB and of 4 KB.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fanin.assurance.validation.simulators import SIZE, Pairs, SimulatorCase, flows_of, incast, permutation
from fanin.experiments.results.provenance import machine
from fanin.native.files import write_json
from fanin.simulator.fabric import load_switch

K, HOSTS = 8, 128
CASES: dict[str, Pairs] = {"permutation": permutation(HOSTS), "incast": incast(HOSTS - 1)}
PAYLOADS = (1024, 4096)
ROUNDS = 3  # in turns; the fastest of each simulator counts
LIMIT = 0.05  # seconds of virtual time

HEADINGS = ("simulator", "CPU s", "MB/\nCPU s", "packet-hops", "last flow\nµs")

_FINISHED = re.compile(r"^Flow .* finished at ([\d.e+]+) total packets", re.MULTILINE)


class HtsimError(RuntimeError):
    """htsim has not run."""


@dataclass(frozen=True, slots=True)
class FlowRun:
    """One case in one simulator.

    Attributes:
        case: Name of the case.
        simulator: The simulator, with the size of its packets.
        bytes: Bytes of all flows.
        processor_seconds: Processor time, from an empty network until the last flow has arrived; htsim's is that of its
            process.
        packet_hops: Packets that have crossed a link, acknowledgements included; None for htsim.
        seconds: When the last flow arrives.
    """

    case: str
    simulator: str
    bytes: int
    processor_seconds: float
    packet_hops: int | None
    seconds: float

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the values below HEADINGS."""
        return (
            self.simulator,
            f"{self.processor_seconds:.2f}",
            f"{self.bytes / 1e6 / self.processor_seconds:,.0f}",
            "" if self.packet_hops is None else f"{self.packet_hops:,}",
            f"{1e6 * self.seconds:,.1f}",
        )


def run_ours(name: str, pairs: Pairs, payload: int, k: int = K) -> FlowRun:
    """FlowRun flows in virtual time.

    Args:
        name: Name of the case.
        pairs: Source and destination of each flow.
        payload: Bytes of a flow in a full packet.
        k: Ports of each switch.

    Raises:
        UnfinishedError: Not all flows arrive within a second.
    """
    switch = load_switch()
    begun = time.process_time()
    fabric, flows = flows_of(SimulatorCase(name=name, k=k, pairs=pairs, htsim=0.0), switch, payload)
    last = max(flow.seconds for flow in flows.completed)
    spent = time.process_time() - begun
    return FlowRun(name, f"fanin, {payload:,} B", len(pairs) * SIZE, spent, fabric.network.hops, last)


def run_htsim(name: str, pairs: Pairs, program: Path, hosts: int = HOSTS) -> FlowRun:
    """FlowRun flows in htsim.

    Args:
        name: Name of the case.
        pairs: Source and destination of each flow.
        program: The program `htsim_eqds`.
        hosts: Number of hosts; k^3 / 4 for some k.

    Raises:
        HtsimError: It cannot be started, fails, or not all flows arrive.
    """
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / "flows.cm"
        flows = [f"{source}->{destination} start 0 size {SIZE}" for source, destination in pairs]
        matrix.write_text("\n".join((f"Nodes {hosts}", f"Connections {len(pairs)}", *flows, "")))
        options = ["-tm", str(matrix), "-paths", "128", "-end", str(round(LIMIT * 1e6))]
        with tempfile.TemporaryFile("w+") as printed:
            try:
                process = subprocess.Popen(
                    [program.resolve(), *options], cwd=folder, stdout=printed, stderr=subprocess.STDOUT
                )
            except OSError as error:
                raise HtsimError(f"{program} cannot be started: {error.strerror}") from None
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            printed.seek(0)
            text = printed.read()
    if process.returncode:
        raise HtsimError(f"{program} ended with status {process.returncode}: {text[-500:].strip()}")
    ended = [float(found) / 1e6 for found in _FINISHED.findall(text)]
    if len(ended) != len(pairs):
        raise HtsimError(
            f"{program} reports the end of {len(ended)} of {len(pairs)} flows; "
            "build htsim_eqds of github.com/Broadcom/csg-htsim"
        )
    spent = usage.ru_utime + usage.ru_stime
    return FlowRun(name, "htsim, 4,086 B", len(pairs) * SIZE, spent, None, max(ended))


def bench(program: Path, progress: Callable[[FlowRun], None], folder: Path) -> Path:
    """FlowRun all cases in both simulators in turns, and write htsim.json.

    Args:
        program: The program `htsim_eqds`.
        progress: Called with the fastest run of each simulator.
        folder: Where the file goes.

    Returns:
        The file.

    Raises:
        HtsimError: See run_htsim().
    """
    found: list[FlowRun] = []
    for name, pairs in CASES.items():
        rounds: list[Sequence[FlowRun]] = [
            [run_htsim(name, pairs, program), *(run_ours(name, pairs, payload) for payload in PAYLOADS)]
            for _ in range(ROUNDS)
        ]
        for runs in zip(*rounds, strict=True):
            found.append(replace(runs[0], processor_seconds=min(one.processor_seconds for one in runs)))
            progress(found[-1])
    folder.mkdir(parents=True, exist_ok=True)
    document = {"runs": [asdict(one) for one in found], "machine": machine()}
    write_json(document, folder / "htsim.json")
    return folder / "htsim.json"
