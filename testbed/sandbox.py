"""Fresh namespaces for a whole command, so that nothing of its networks is left behind, however it ends."""

import contextlib
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from fanin.native import libc
from fanin.native.cache import CacheError, cache_directory
from fanin.native.trust import replaceable
from fanin.testbed import runs, time_slices
from fanin.testbed.patience import setting
from fanin.topologies.errors import NetworkError

_NOSUID, _NODEV, _NOEXEC, _RECURSIVE, _PRIVATE = 2, 4, 8, 1 << 14, 1 << 18  # mount.h
_ORPHANED = signal.SIGUSR1  # tells the process between supervisor and process 1 that the supervisor has ended
_NO_FOLDER = "\0"  # precedes a reason that has nothing to do with namespaces
END_SECONDS = 60.0  # for a command to end after it is asked to
_AGAIN_SECONDS = 0.01
_REFUSED = 3  # exit status of the process that tries whether there are namespaces
_READY = 0  # follows the signals that the supervisor got before process 1 was ready for them
_LONGEST_WAIT = 3600.0  # seconds, in sigtimedwait
# Settings by which a kernel may forbid user namespaces: the name, the value that forbids, and one that allows them.
_SYSCTLS = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
)
# Mininet's mnexec closes every number up to the limit for each host; where the hard limit is 2**30, that takes minutes.
_LEAST_DESCRIPTORS = 64  # with fewer, gRPC ends the process
_MOST_DESCRIPTORS = 1 << 16

_inside = False
asked_to_stop: list[
    int
] = []  # signals that came since enter(), whatever became of the exceptions they raised


class SandboxError(RuntimeError):
    """Namespaces are unavailable here. The message explains why and what to type."""


def stop_signals() -> set[signal.Signals]:
    """Return the signals that ask a command to end: Ctrl-C, SIGTERM, and SIGHUP unless nohup has it ignored."""
    found = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    return {
        number for number in found if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT
    }


def inside() -> bool:
    """Return whether this process is the first of a sandbox, as it is after `enter`."""
    return _inside


def enter(listen: Sequence[tuple[str, int]] = ()) -> list[socket.socket]:
    """Continue in fresh network, mount and process namespaces; for an ordinary user, also in a user namespace.

    It returns only inside. There this process continues, forked, as process 1 and as root. It has its own /proc, /sys
    and /run, and a loopback interface that is up. It also has short time slices and a high limit of open files, which
    its children inherit. The process outside stays as supervisor: it passes SIGINT, SIGTERM and SIGHUP on and exits
    with the status of the inner one. When either ends, even by SIGKILL, the kernel ends every process inside and
    removes their interfaces.

    Args:
        listen: Addresses and TCP ports at which this command can be reached from outside of the sandbox.

    Returns:
        A listening socket for each of them.

    Raises:
        SandboxError: This user gets no namespaces on this machine, a port is taken, there is no folder for the run,
            another user could replace the cache, or too few files may be open.
    """
    global _inside
    listeners = [_listener(each) for each in listen]
    if _inside:
        return listeners
    _check_cache()
    _check_descriptors()
    # Blocked, the signals wait for sigtimedwait outside, and inside until all is ready for them.
    stopping = stop_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    try:
        time_limit = END_SECONDS * setting()
        run = runs.supervised_by(os.getpid())
        reader, writer = os.pipe()
        child = _fork_inside(run)
    except (SandboxError, runs.RunError, NetworkError) as error:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping)
        raise SandboxError(str(error)) from None
    if child:
        os.close(reader)
        for listener in listeners:
            listener.close()
        _supervise(child, run, writer, time_limit)
    os.close(writer)
    os.environ[runs.VARIABLE] = str(run.folder)
    _raise_descriptor_limit()
    time_slices.shorten()
    missed = _sent_before(reader) - signal.sigpending()
    threading.Thread(target=_obey, args=(reader,), name="sandbox", daemon=True).start()
    for number in stopping:  # process 1 does not get signals with the default action
        signal.signal(number, stop)
    _inside = True
    # The thread has inherited the mask, so that the main thread also gets the terminal's signals.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping)
    for number in missed:
        signal.raise_signal(number)
    return listeners


def check() -> None:
    """Check that this user can create namespaces on this machine.

    Raises:
        SandboxError: This is not possible.
    """
    # In a process of its own: libraries of this one, such as gRPC, may end a process that it forks.
    tried = subprocess.run(
        [sys.executable, "-P", "-m", __name__, *sys.orig_argv[1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        how = tried.stderr.strip() or f"the process that tried it ended with status {tried.returncode}"
        raise SandboxError(how if tried.returncode == _REFUSED else f"namespaces cannot be checked: {how}")


def _try() -> NoReturn:
    """Enter namespaces and leave them, for `check`, in a process that was started with the words of the command."""
    sys.orig_argv[1:] = sys.argv[1:]
    try:
        child = _fork_inside()
    except SandboxError as error:
        print(error, file=sys.stderr)
        sys.exit(_REFUSED)
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            print(f"the first process ended with status {status}", file=sys.stderr)
    else:
        status = 0
    sys.exit(status and 1)


def _raise_descriptor_limit() -> None:
    """Allow this process and its children as many open files as the hard limit, at most _MOST_DESCRIPTORS."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, _MOST_DESCRIPTORS) if hard != resource.RLIM_INFINITY else _MOST_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _check_descriptors() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < _LEAST_DESCRIPTORS:
        raise SandboxError(
            f"a process may open at most {hard} files here, and a network needs {_LEAST_DESCRIPTORS} or more: "
            "raise the limit with ulimit -n, or as root"
        )


def _check_cache() -> None:
    """Check the folders above the cache; inside a user namespace the owners of most of them are unknown.

    Raises:
        SandboxError: Another user could replace the cache.
    """
    with contextlib.suppress(CacheError, OSError):  # reported by whatever needs the cache
        cache = cache_directory()
        if how := replaceable(cache):
            raise SandboxError(
                f"{cache}: others may replace it: {how}; set XDG_CACHE_HOME to a folder of yours"
            )


def _listener(address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_server(address)
    except OSError as error:
        raise SandboxError(
            f"cannot listen on {address[0]}:{address[1]}: {os.strerror(error.errno or 0)}"
        ) from None


def _fork_inside(run: runs.Run | None = None) -> int:
    """Fork process 1 of fresh namespaces.

    Two processes are needed, since only children of the first are in its new namespace of processes.

    Args:
        run: The run that this process supervises. The child makes its folder and removes it, even if this process is
            killed. If the child is killed, this process has to remove it.

    Returns:
        0 in process 1. Outside, the id of the child, which ends when process 1 does, with the same status.

    Raises:
        SandboxError: There are no such namespaces, or there is no folder for the run.
    """
    if shutil.which("ip") is None:
        raise SandboxError("the command ip is not installed; install the package iproute2")
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()  # buffered output must not be printed twice
    reader, writer = os.pipe()
    parent = os.getpid()
    try:
        child = os.fork()
    except OSError as error:
        raise SandboxError(f"cannot start a process: {error.strerror}") from None
    if child:
        os.close(writer)
        with os.fdopen(reader) as told:
            refusal = told.read()
        if not refusal:
            return child
        os.waitpid(child, 0)
        if run is not None:
            run.remove()
        raise SandboxError(
            refusal.removeprefix(_NO_FOLDER) if refusal.startswith(_NO_FOLDER) else _explained(refusal)
        )
    os.close(reader)
    # Should the supervisor be killed from here on, this waits for _end_as, which removes the run.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, _ORPHANED})
    first = -1
    try:
        if run is not None:
            runs.create(parent)  # not in the new namespace of users, to which other users are unknown
        _unshare()
        _end_with_parent(_ORPHANED)  # not above: a new user namespace forgets it
        if os.getppid() != parent:
            raise InterruptedError
        between = os.getpid()
        first = os.fork()
        if first == 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _end_with_parent()
            if _parent_outside() != between:
                os._exit(1)
            if run is not None:
                run.set_first()
            _set_up()
    except BaseException as error:  # Ctrl-C, too: the caller continues outside only
        if first == -1 and run is not None and not isinstance(error, runs.RunError):
            run.remove()
        with contextlib.suppress(OSError):  # the supervisor was killed
            os.write(writer, _refused(error).encode())
        os._exit(1)
    os.close(writer)
    if first:
        _end_as(first, run, parent)
    return 0


def _parent_outside() -> int:
    """Return the id of the parent of this process 1, by the /proc of outside, which it still has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))


def _refused(error: BaseException) -> str:
    """Return why there are no namespaces or no folder, for _fork_inside."""
    if isinstance(error, runs.RunError):
        return f"{_NO_FOLDER}{error}"
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else repr(error)


def _explained(refusal: str) -> str:
    """Explain why there are no namespaces, and what to type."""
    if os.geteuid() == 0:
        return f"no namespaces ({refusal}): a container needs --privileged, or run outside of it"
    fix = f"run it as root:\n  sudo {shlex.join([sys.executable, *sys.orig_argv[1:]])}"
    for name, forbids, allows in _SYSCTLS:
        value = Path("/proc/sys", *name.split("."))
        if value.exists() and value.read_text().strip() == forbids:
            fix += f"\nor allow user namespaces:\n  sudo sysctl -w {name}={allows}"
    return f"no user namespaces here ({refusal}); {fix}"


def _unshare() -> None:
    """Create namespaces for this process, which has one thread; the one of processes applies to its children."""
    new = libc.NEW_NETWORK | libc.NEW_MOUNTS | libc.NEW_PROCESSES
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        libc.call("unshare", new)
    else:
        libc.call("unshare", new | libc.NEW_USER)
        for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path("/proc/self", name).write_text(line)
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)


def _set_up() -> None:
    # /sys/class/net shows the namespace it was mounted in; ip netns and iptables write below /run.
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _mount("sysfs", "/sys", "sysfs", _NOSUID | _NODEV | _NOEXEC)
    _mount("tmpfs", "/run", "tmpfs", _NOSUID | _NODEV)
    done = subprocess.run(["ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(0, done.stderr.strip(), "ip link set lo up")
    # No router solicitations, no listener reports: the only packets are those of the experiment.
    for scope in ("all", "default"):
        switch = Path("/proc/sys/net/ipv6/conf", scope, "disable_ipv6")
        if switch.exists():
            switch.write_text("1")


def _end_as(first: int, run: runs.Run | None, parent: int) -> NoReturn:
    """End when process 1 does, with its status, and remove the run: the supervisor may be killed before it can.

    If the supervisor has been killed, end process 1.
    """
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))  # including the others' ends of pipes and sockets
    while not (ended := os.waitpid(first, os.WNOHANG))[0]:
        if os.getppid() != parent:
            os.kill(first, signal.SIGKILL)
            ended = os.waitpid(first, 0)
            break
        signal.sigwaitinfo({signal.SIGCHLD, _ORPHANED})
    if run is not None:
        run.remove()
    status = os.waitstatus_to_exitcode(ended[1])
    if status < 0:  # end by the same signal, so that the supervisor can report it
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    libc.call("prctl", libc.PR_SET_PDEATHSIG, number, 0, 0, 0)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind)]
    libc.call("mount", *texts, flags, None, of=f"mount {target}")


def _supervise(child: int, run: runs.Run, pipe: int, time_limit: float) -> NoReturn:
    """Pass signals on to the processes inside, and exit as `child` does; kill it if it does not end in time.

    Args:
        child: The process that ends as process 1 does.
        run: The run, removed at the end.
        pipe: Process 1 reads the signals from it.
        time_limit: Seconds between a signal to stop and SIGKILL.
    """
    stopping = stop_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    kill_at, why = float("inf"), ""
    # A terminal's Ctrl-C has not reached process 1 if it came before that was forked.
    early = signal.sigpending() & stopping
    for number in early:
        signal.sigwait({number})
        kill_at = time.monotonic() + time_limit
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, bytes([*early, _READY]))
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        left = min(kill_at - time.monotonic(), _LONGEST_WAIT)
        info = signal.sigtimedwait(stopping | {signal.SIGCHLD}, max(left, 0.0))
        if info is None:
            if time.monotonic() >= kill_at:
                why = f"it did not end within {time_limit:g} s of being asked to, and was killed"
                os.kill(child, signal.SIGKILL)
                kill_at = float("inf")
        elif info.si_signo in stopping:
            kill_at = min(kill_at, time.monotonic() + time_limit)
            # A terminal's Ctrl-C reaches the processes inside as well (si_code is positive: from the kernel). When the
            # terminal is closed, the kernel signals only the leader of the session, which may be this process.
            if info.si_code <= 0 or info.si_signo == signal.SIGHUP:
                with contextlib.suppress(BrokenPipeError):
                    os.write(pipe, bytes([info.si_signo]))
    run.remove()
    status = os.waitstatus_to_exitcode(ended[1])
    if status < 0:
        why = why or f"its main process was killed by {signal.Signals(-status).name}"
        with contextlib.suppress(OSError):  # a terminal that was closed
            print(f"fanin: {why}; nothing is left behind", file=sys.stderr, flush=True)
    sys.exit(status if status >= 0 else 128 - status)


def _sent_before(pipe: int) -> set[int]:
    """Return the signals that the supervisor got before process 1 was ready for them."""
    early = set[int]()
    while received := os.read(pipe, 1):
        if received[0] == _READY:
            return early
        early.add(received[0])
    os._exit(128 + signal.SIGKILL)


def _obey(pipe: int) -> None:
    """Deliver the signals that the supervisor passes on, and end everything when it is gone."""
    main = threading.main_thread().ident
    assert main is not None
    while received := os.read(pipe, 1):
        signal.pthread_kill(main, received[0])  # so that a blocking call there is interrupted
    os._exit(128 + signal.SIGKILL)


def stop(number: int, _frame: FrameType | None = None) -> None:
    """Note a signal that asks this process to end, and raise what ends it.

    Raises:
        KeyboardInterrupt: For SIGINT.
        SystemExit: For others; with 128 and the signal's number. A second one would interrupt the clean-up.
    """
    again = number in asked_to_stop
    asked_to_stop.append(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if not again:
        raise SystemExit(128 + number)


def raise_dropped_interrupts() -> None:
    """Let this process raise an interrupt again that Python has dropped, as it does in destructors and callbacks."""
    sys.unraisablehook = _raise_again


def _raise_again(dropped: "sys.UnraisableHookArgs") -> None:
    match dropped.exc_value:
        case KeyboardInterrupt():
            number = int(signal.SIGINT)
        case SystemExit(code=int(code)) if code - 128 in asked_to_stop:
            number = code - 128
            asked_to_stop.remove(number)
        case _:
            sys.__unraisablehook__(dropped)
            return
    main = threading.main_thread().ident
    assert main is not None
    # Later, when the destructor or the callback has ended: here it would be dropped again.
    again = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, (main, number))
    again.daemon = True
    again.start()


if __name__ == "__main__":
    _try()
