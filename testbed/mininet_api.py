"""The only module that touches Mininet, which has no types: it loads Mininet and extends its classes."""

import importlib
import importlib.util
import logging
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from fanin.testbed.patience import await_process
from fanin.testbed.switch_processes import SwitchProcess
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Link

# Debian's package installs Mininet for the system's Python, whose other packages we must not import.
_DIST_PACKAGES = "/usr/lib/python3/dist-packages"
_TOOLS = {"mnexec": "mininet", "ifconfig": "net-tools", "ip": "iproute2", "tc": "iproute2", "bash": "bash"}


class _Shell:
    """Shell of a Mininet node with bounded waits: Mininet waits indefinitely for one that died or was stopped."""

    name: str
    shell: Any
    stdout: Any
    readbuf: str

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802
        try:
            super().startShell(mnopts)  # type: ignore[misc]
        except BaseException:
            self.terminate()
            raise

    def read(self, size: int = 1024) -> str:
        """Return what the shell has printed, once there is something.

        Raises:
            NetworkError: The shell has ended, or is stuck.
        """
        if not self.readbuf:
            try:
                answers = await_process(self.shell.pid, self.stdout.fileno())
            except NetworkError as error:
                raise NetworkError(f"{self.name}: its shell is stuck: {error}") from None
            if not answers:
                check_shell(self)
        said: str = super().read(size)  # type: ignore[misc]
        return said

    def terminate(self) -> None:
        """End the shell and what it has started; SIGHUP, which Mininet sends, does not reach a stopped process."""
        if self.shell and self.shell.returncode is None:
            self.shell.kill()  # it may not have its session yet
            with suppress(ProcessLookupError):
                os.killpg(self.shell.pid, signal.SIGKILL)
        self.cleanup()  # type: ignore[attr-defined]


def check_shell(node: Any) -> None:
    """Check that the shell of a node, which keeps its namespaces, is alive.

    Raises:
        NetworkError: It has ended.
    """
    if (status := node.shell.poll()) is not None:
        how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        raise NetworkError(
            f"{node.name}: its shell (bash mininet:{node.name}) has ended with {how}; nothing more can be started on "
            f"{node.name}: stop the network and start it again"
        )


def new_network() -> Any:
    """Return an empty `mininet.net.Mininet` without controllers, whose hosts are left for us to configure.

    Raises:
        NetworkError: Mininet or a tool it needs is missing.
    """
    net = _module("mininet.net")
    base: Any = _module("mininet.node").Host

    class Host(_Shell, base):  # type: ignore[misc]
        def config(self, **_params: Any) -> None:
            """Do nothing: one batch of ip and tc commands does it all (MininetNetwork)."""

    # Skips Mininet's set-up, which raises limits of the whole machine for networks of hundreds of nodes.
    net.Mininet.inited = True
    return net.Mininet(host=Host, controller=None, build=False)


def version() -> str:
    """Return Mininet's version.

    Raises:
        NetworkError: Mininet, or a tool it needs, is missing.
    """
    return str(_module("mininet.net").VERSION)


def add_switch(network: Any, process: SwitchProcess) -> None:
    """Add a switch in the root namespace that is `process`, which starts with the network."""
    base: Any = _module("mininet.node").Switch

    class ProcessSwitch(_Shell, base):  # type: ignore[misc]
        def start(self, _controllers: Any) -> None:
            process.start()

    network.addSwitch(process.switch.name, cls=ProcessSwitch, dpid=f"{process.switch.device_id:x}")


def add_link(network: Any, link: Link, macs: Mapping[str, str]) -> None:
    """Join two nodes by a link whose interfaces have the MAC addresses of their nodes, and are not up yet.

    Raises:
        NetworkError: It cannot be made.
    """
    a, b = link.a, link.b
    try:
        network.addLink(
            a.node,
            b.node,
            port1=a.port,
            port2=b.port,
            intfName1=a.interface,
            intfName2=b.interface,
            addr1=macs[a.node],
            addr2=macs[b.node],
            up=None,
        )
    except NetworkError:
        raise
    except Exception as error:  # Mininet raises this class itself
        for end in (a, b):
            check_shell(network[end.node])
        raise NetworkError(
            f"the link between {a.node} and {b.node} cannot be made: {str(error).strip()}"
        ) from error


def _module(name: str) -> Any:
    if "mininet" not in sys.modules:
        _load()
    return importlib.import_module(name)


def _load() -> None:
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            raise NetworkError(f"the command {tool} is missing; install it: sudo apt install {package}")
    spec = importlib.util.find_spec("mininet") or PathFinder.find_spec("mininet", [_DIST_PACKAGES])
    if spec is None or spec.loader is None:
        raise NetworkError("Mininet is missing; install it: sudo apt install mininet")
    logger_class = logging.getLoggerClass()
    sys.modules["mininet"] = module = importlib.util.module_from_spec(spec)
    try:
        with warnings.catch_warnings(), _stand_in_for_distutils():
            warnings.simplefilter("ignore")  # invalid escapes in strings
            spec.loader.exec_module(module)
            importlib.import_module("mininet.net")
    except ImportError as error:
        del sys.modules["mininet"]
        raise NetworkError(f"Mininet does not load: {error}") from error
    finally:
        logging.setLoggerClass(logger_class)  # Mininet replaces it globally
    importlib.import_module("mininet.log").setLogLevel("critical")


@contextmanager
def _stand_in_for_distutils() -> Iterator[None]:
    """Provide a stub of distutils, with which Mininet compares versions of Open vSwitch, which we do not use.

    Python has had none since 3.12, and that of setuptools takes longer to load than all of Mininet.
    """
    package, module = ModuleType("distutils"), ModuleType("distutils.version")
    module.StrictVersion = str  # type: ignore[attr-defined]
    made = {one.__name__: one for one in (package, module) if one.__name__ not in sys.modules}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]
