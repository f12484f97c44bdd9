"""`fanin up`: a network with its program, routes and controller, which runs until Ctrl-C."""

from __future__ import annotations

import logging
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fanin import options
from fanin.cli_errors import INTERRUPTED, complain, failing
from fanin.experiments.scenario.tools import ToolError
from fanin.output import say
from fanin.testbed.running import JOB_SERVICE, JOB_SERVICE_GRPC
from fanin.testbed.runs import Run, scratch
from fanin.testbed.sandbox import SandboxError, enter
from fanin.topologies.errors import NetworkError

if TYPE_CHECKING:
    import ssl

    from fanin.experiments.protocol import Protocol
    from fanin.experiments.scenario.compilers import CompiledProgram
    from fanin.experiments.scenario.targets import Target
    from fanin.testbed.mininet_net import MininetNetwork
    from fanin.topologies.model import Topology

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())  # not to the terminal, which gets the same messages

_DASHBOARD_PORT = 8041  # next to the playground's


def _address(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) >= 1 << 16:
        raise typer.BadParameter(
            f"{text}: write a TCP port, such as 9464, or an address and a port, such as 0.0.0.0:9464"
        )
    return address or "127.0.0.1", int(port)


def up(
    context: typer.Context,
    workers: options.Workers = 8,
    leaves: options.Leaves = 2,
    spines: options.Spines = 2,
    rate: options.Rate = None,
    topology: options.TopologyFile = None,
    switch: options.Switch = "embedded",
    protocol: options.ProtocolName = None,
    program: options.Program = None,
    compiler: options.ProgramCompiler = "embedded",
    controller: options.ControllerFile = None,
    offload: options.Offload = True,
    pcap: options.Captures = None,
    logs: Annotated[
        Path,
        typer.Option(
            file_okay=False, callback=options.creatable, help="Folder for the output of the switches"
        ),
    ] = Path("results/up"),
    metrics: Annotated[
        Any,
        typer.Option(
            parser=_address,
            metavar="[ADDRESS:]PORT",
            help="Serve metrics for Prometheus; on the loopback interface by default",
        ),
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve a page for the browser that shows the network")
    ] = False,
    dashboard_listen: Annotated[
        Any,
        typer.Option(
            parser=_address,
            metavar="[ADDRESS:]PORT",
            help="The same there; an address that other machines reach requires a token",
        ),
    ] = None,
    jobs_listen: Annotated[
        Any,
        typer.Option(
            parser=_address,
            metavar="[ADDRESS:]PORT",
            help="Also serve the job service there, to clients with a certificate (with --jobs-tls)",
        ),
    ] = None,
    jobs_tls: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder with ca.crt, server.crt and server.key for --jobs-listen",
        ),
    ] = None,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Start a second controller that takes over if the first one ends"),
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(
            parser=lambda text: options.file_to_write(text).resolve(),
            metavar="FILE",
            help="File to which events are appended as lines of JSON",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a line of JSON with switches and hosts when the network is up"),
    ] = False,
) -> None:
    """Build and program a network, and keep it up until Ctrl-C.

    Use the network from another terminal: fanin ps lists its hosts, fanin exec runs a command on one of them, and fanin
    launch runs a program on all of them. fanin tables, fanin counters and fanin trace show what a switch does. Python
    programs on the hosts that call fanin.init() or fanin.workers.join() form a job and get a lease.

    Examples:
        fanin up --workers 2 --leaves 1 --spines 0
        fanin up --dashboard
    """
    options.refuse_with_topology(topology, context)
    in_each = options.hosts_per_leaf(workers, leaves)
    if log is not None:  # to refuse it before a network is built
        with failing("up", OSError, status=2):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.open("a").close()
    if (jobs_listen is None) != (jobs_tls is None):
        raise typer.BadParameter("give both or neither", param_hint="--jobs-listen and --jobs-tls")
    tls = None
    if jobs_tls is not None:
        from fanin.controller.errors import ControllerError
        from fanin.controller.job_service.tls import context_of

        with failing("up", ControllerError, status=2):
            tls = context_of(jobs_tls)
    if dashboard and dashboard_listen is None:
        dashboard_listen = ("127.0.0.1", _DASHBOARD_PORT)
    addresses = {"metrics": metrics, "jobs": jobs_listen, "dashboard": dashboard_listen}
    wanted_addresses = {name: address for name, address in addresses.items() if address is not None}
    with failing("up", SandboxError):
        listeners = dict(zip(wanted_addresses, enter(list(wanted_addresses.values())), strict=True))

    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.console import messages
    from fanin.controller.errors import ControllerError
    from fanin.experiments.protocol import OURS, ProtocolError, built_in, protocol_of
    from fanin.experiments.scenario.file import ScenarioError, load_network
    from fanin.experiments.scenario.targets import target
    from fanin.experiments.scenario.user_files import program_of_network
    from fanin.native.python_file import PythonFileError
    from fanin.p4compiler import CompileError
    from fanin.programs import show_warnings
    from fanin.testbed.interrupt import run_until_interrupted
    from fanin.testbed.mininet_net import MininetNetwork
    from fanin.testbed.monitoring.logs import logging_to
    from fanin.topologies.model import TopologyError
    from fanin.topologies.shapes import leaf_spine

    wrong = (ScenarioError, TopologyError, ProtocolError)
    errors = (PythonFileError, ToolError, CompileError, NetworkError, ControllerError)
    with failing("up", *wrong, status=2), failing("up", *errors), _until_ended(as_json):
        chosen = protocol_of(protocol or OURS, program, controller)
        if why := chosen.unusable_in_jobs:
            usable = [name for name in built_in() if not protocol_of(name).unusable_in_jobs]
            raise ProtocolError(
                f"--protocol: jobs cannot use {chosen.name}: {why}; run it with fanin run, or use one of "
                f"{', '.join(usable)} here"
            )
        on = target(switch)
        if topology:
            wanted = load_network(topology).network
        else:
            wanted = leaf_spine(
                spines, leaves, in_each, rate=options.link_rate(rate, on.rate), offload=offload
            )
        own = chosen.ours and not program
        compiled = program_of_network(None if own else chosen.program, compiler, wanted, chosen.controller)
        show_warnings(compiled.warnings)
        with (
            messages.status("starting the network") as status,
            MininetNetwork(
                wanted,
                on.launcher,
                logs,
                pcap,
                lambda who: status.update(f"waiting for {who}"),
                chosen.loopback("live"),
            ) as network,
        ):
            status.stop()
            with nullcontext() if log is None else logging_to(log):
                run_until_interrupted(
                    _keep_up(network, compiled, chosen, on, listeners, tls, log, standby, as_json)
                )


@contextmanager
def _until_ended(as_json: bool) -> Iterator[None]:
    """Say that the network is down after Ctrl-C, SIGTERM or SIGHUP, and exit with the status of the signal."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as told:
        with suppress(OSError):  # a terminal that was closed
            say("The network is down; nothing is left behind.", err=as_json)
        if isinstance(told, SystemExit):
            raise
        raise typer.Exit(INTERRUPTED) from None


async def _keep_up(
    network: MininetNetwork,
    program: CompiledProgram,
    protocol: Protocol,
    on: Target,
    listeners: Mapping[str, socket.socket],
    tls: ssl.SSLContext | None,
    log: Path | None,
    standby: bool,
    as_json: bool,
) -> None:
    from fanin.controller.job_service.json_lines_server import serving_workers
    from fanin.controller.job_service.server import serving
    from fanin.controller.job_service.tls import serving_tls
    from fanin.controller.jobs.membership import JobService
    from fanin.controller.telemetry import Telemetry
    from fanin.testbed.control.controller_process import ControllerProcess
    from fanin.testbed.control.controller_subprocess import Setup
    from fanin.testbed.monitoring.inspector import Inspector
    from fanin.testbed.monitoring.logs import Stalls
    from fanin.testbed.network_jobs import NetworkJobs
    from fanin.testbed.supervisor import Watch

    topology = network.topology
    folder = scratch()
    assert folder is not None  # as in every sandbox
    setup = Setup(
        topology,
        program.p4info.SerializeToString(),
        program.device_config,
        folder / "leases.json",
        network.patience,
        protocol.controller,
        log,
    )
    async with ControllerProcess(setup, _warn, standby=standby) as controller:
        worker = None if protocol.ours else protocol.worker
        jobs = NetworkJobs(controller, topology, on.live_pace(topology.slowest_rate), worker)
        service = JobService([host.name for host in topology.ranked_hosts], jobs.open, _warn)
        async with (
            Telemetry(topology, program.p4info, program.device_config) as telemetry,
            AsyncExitStack() as stack,
        ):
            inspector, stalls = Inspector(topology, telemetry, service), Stalls()
            await stack.enter_async_context(serving_workers(service, folder / JOB_SERVICE))
            await stack.enter_async_context(serving(service, inspector, folder / JOB_SERVICE_GRPC))
            if tls is not None:
                listener = listeners["jobs"]
                address, port = listener.getsockname()
                await stack.enter_async_context(serving_tls(listener, tls, folder / JOB_SERVICE_GRPC))
                say(f"Job service: gRPC with TLS at {address}:{port}\n", err=as_json)
            await stack.enter_async_context(service)
            if "metrics" in listeners:
                from fanin.testbed.monitoring.metrics import serving as serving_metrics

                listener = listeners["metrics"]
                await stack.enter_async_context(serving_metrics(inspector, listener))
                address, port = listener.getsockname()
                say(f"Metrics for Prometheus: http://{address}:{port}/metrics\n", err=as_json)
            if "dashboard" in listeners:
                from fanin.browser.dashboard import dashboard
                from fanin.browser.server import serving as serving_pages

                page = dashboard(topology, inspector)
                url = await stack.enter_async_context(serving_pages([page], listeners["dashboard"]))
                say(f"Dashboard: {url}\n", err=as_json)
            _show(topology, as_json)
            watch = Watch(network, controller, jobs, service.jobs, _warn)
            await watch.run(None if log is None else lambda: stalls.look(inspector.jobs(), time.time()))


def _warn(message: str) -> None:
    """Print a message on the terminal and write it into the log."""
    complain("up", message)
    _logger.warning("%s", message)


def _show(topology: Topology, as_json: bool) -> None:
    from fanin.table import new_table, print_records, print_table

    switches: dict[str, dict[str, Any]] = {
        switch.name: {
            "role": switch.role,
            "device_id": switch.device_id,
            "grpc_port": switch.grpc_port,
            "neighbours": {str(port): peer for port, peer in sorted(_peers(topology, switch.name))},
        }
        for switch in topology.switches
    }
    hosts: dict[str, dict[str, Any]] = {
        host.name: {"rank": host.rank, "ip": str(host.ip), "gateway": str(host.gateway)}
        for host in topology.ranked_hosts
    }
    if as_json:
        folder = scratch()
        assert folder is not None  # as in every sandbox
        process = Run(folder).supervisor
        print_records([{"process": process, "switches": switches, "hosts": hosts}])
        sys.stdout.flush()  # the reader of a pipe waits for it until the network is up
    else:
        table = new_table(["switch", "role", "P4Runtime", "neighbours by port"], "device id")
        for name, switch in switches.items():
            neighbours = ", ".join(f"{port}: {peer}" for port, peer in switch["neighbours"].items())
            address = f"127.0.0.1:{switch['grpc_port']}"
            table.add_row(name, switch["role"], address, neighbours, str(switch["device_id"]))
        print_table(table)
        say("")
        table = new_table(["host", "address", "gateway"], "rank")
        for name, host in hosts.items():
            table.add_row(name, host["ip"], host["gateway"], str(host["rank"]))
        print_table(table)
    say(
        "\nThe network is running until Ctrl-C. In another terminal, try:\n"
        "  fanin allreduce\n"
        f"  fanin tables {topology.leaves[0].name}\n"
        f"  fanin shell {topology.leaves[0].name}\n"
        f"  fanin exec {topology.ranked_hosts[0].name} ping {topology.ranked_hosts[-1].ip}",
        err=as_json,
    )


def _peers(topology: Topology, switch: str) -> Iterator[tuple[int, str]]:
    for link in topology.links_of(switch):
        yield link.end(switch).port, link.b.node if link.a.node == switch else link.a.node
