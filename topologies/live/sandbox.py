"""Fresh namespaces for a whole command: whatever happens to it, nothing of its networks is left behind."""

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from topologies.live import runs, time_slices

_CONTROL_PIPE = "FANIN_SANDBOX_PIPE"  # in the environment of the command inside, until it has taken it out
_LISTENERS = "FANIN_SANDBOX_LISTENERS"  # and likewise, sockets of the namespace outside
# What a kernel may forbid user namespaces with: the file, the value that forbids, and what allows them.
_SYSCTLS = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
)

_inside = False


class SandboxError(RuntimeError):
    """Namespaces are unavailable here: the message says why and what to type."""


def stop_signals() -> set[signal.Signals]:
    """What asks a command to end: Ctrl-C, SIGTERM, and a terminal that is closed, unless nohup has it ignored."""
    found = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    return {
        number for number in found if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT
    }


def inside() -> bool:
    """Whether this process is the first of a sandbox, as it is after `enter`."""
    return _inside


def enter(listen: Sequence[tuple[str, int]] = ()) -> list[socket.socket]:
    """Goes on in fresh network, mount and process namespaces; as an ordinary user, in a user namespace too.

    Returns inside only: there this very command has been started again as process 1, which is root and has its own
    /proc, /sys and /run, a loopback interface that is up, and short time slices, as all that it starts. The process
    outside stays as supervisor: it passes SIGINT, SIGTERM and SIGHUP on and exits with the status of the inner one.
    When either ends, by SIGKILL too, the kernel ends every process inside and removes their interfaces. What precedes
    the call runs twice.

    listen: each (address, TCP port) on which others can reach this command from outside of the sandbox: at the sockets
    that are returned.

    Raises:
        SandboxError: no namespaces for this user on this machine, or a port is taken.
    """
    global _inside
    if _inside:
        return [_listener(each) for each in listen]
    pipe = os.environ.pop(_CONTROL_PIPE, None)
    if pipe is None or os.getpid() != 1:
        _supervise([sys.executable, *sys.orig_argv[1:]], [_listener(each) for each in listen])
    handed_in = os.environ.pop(_LISTENERS, "")
    _set_up()
    time_slices.shorten()
    threading.Thread(target=_obey, args=(int(pipe),), name="sandbox", daemon=True).start()
    stopping = stop_signals()
    for number in stopping:  # process 1 would not get them with the default action
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _exit_on_signal)
    _inside = True
    # The thread has inherited the mask: the terminal's signals, too, go to the main one.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping)
    listeners = [socket.socket(fileno=int(number)) for number in handed_in.split()]
    for listener in listeners:
        listener.set_inheritable(False)
    return listeners


def _listener(address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_server(address)
    except OSError as error:
        raise SandboxError(
            f"cannot listen on {address[0]}:{address[1]}: {os.strerror(error.errno or 0)}"
        ) from None


def _supervise(argv: Sequence[str], listeners: Sequence[socket.socket]) -> NoReturn:
    """Runs `argv` inside, which is handed `listeners`, and exits as it did."""
    check()
    reader, writer = os.pipe()
    run = runs.create()
    # Blocked, the signals wait for sigwaitinfo here, and inside until `enter` is ready for them.
    stopping = stop_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    handed_in = [listener.fileno() for listener in listeners]
    names = {_CONTROL_PIPE: str(reader), _LISTENERS: " ".join(map(str, handed_in))}
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *_unshare(), "--", *argv],
        pass_fds=[reader, *handed_in],
        env={**os.environ, **names, runs.VARIABLE: str(run.folder)},
    )
    os.close(reader)
    for listener in listeners:
        listener.close()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while process.poll() is None:
        info = signal.sigwaitinfo(stopping | {signal.SIGCHLD})
        # A terminal's Ctrl-C has gone to the processes inside as well (si_code is positive: from the kernel); of one
        # that is closed, the kernel tells the leader of the session only, which may be this process.
        if info.si_signo in stopping and (info.si_code <= 0 or info.si_signo == signal.SIGHUP):
            with contextlib.suppress(BrokenPipeError):
                os.write(writer, bytes([info.si_signo]))
    run.remove()
    status = process.returncode
    sys.exit(status if status >= 0 else 128 - status)


def _unshare() -> list[str]:
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return command if os.geteuid() == 0 else [*command, "--user", "--map-root-user"]


def check() -> None:
    """Check that there are namespaces for this user on this machine.

    Raises:
        SandboxError: there are none.
    """
    for tool in ("unshare", "setpriv", "mount", "ip"):
        if shutil.which(tool) is None:
            raise SandboxError(f"the command {tool} is missing; install the packages util-linux and iproute2")
    tried = subprocess.run([*_unshare(), "--", "true"], capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return
    reason = tried.stderr.strip() or f"unshare ended with status {tried.returncode}"
    if os.geteuid() == 0:
        raise SandboxError(f"no namespaces ({reason}): a container needs --privileged, or run outside of it")
    fix = f"run it as root:\n  sudo {shlex.join([sys.executable, *sys.orig_argv[1:]])}"
    for name, forbids, allows in _SYSCTLS:
        value = Path("/proc/sys", *name.split("."))
        if value.exists() and value.read_text().strip() == forbids:
            fix += f"\nor allow user namespaces:\n  sudo sysctl -w {name}={allows}"
    raise SandboxError(f"no user namespaces here ({reason}); {fix}")


def _set_up() -> None:
    # /sys/class/net shows the namespace it was mounted in; ip netns and iptables write below /run.
    for command in ("mount -t sysfs sysfs /sys", "mount -t tmpfs tmpfs /run", "ip link set lo up"):
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SandboxError(f"{command}: {done.stderr.strip()}")
    # No router solicitations, no listener reports: the only packets are those of the experiment.
    for scope in ("all", "default"):
        switch = Path("/proc/sys/net/ipv6/conf", scope, "disable_ipv6")
        if switch.exists():
            switch.write_text("1")


def _obey(pipe: int) -> None:
    """Delivers the signals that the supervisor passes on; ends everything when it is gone."""
    main = threading.main_thread().ident
    assert main is not None
    while received := os.read(pipe, 1):
        signal.pthread_kill(main, received[0])  # a blocking call there is to notice
    os._exit(128 + signal.SIGKILL)


def _exit_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # a second one would end what cleans up
    raise SystemExit(128 + number)
