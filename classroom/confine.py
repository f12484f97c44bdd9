"""Runs a command in a sandbox: with the files it is shown, no network, and limits.

`python -m fanin.classroom.confine JSON COMMAND...` becomes the command. It is process 1 of its own namespaces, and ends
with the process that started it. JSON has the fields of `Confinement`.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import resource
import signal
import site
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import fanin
from fanin.native import libc
from fanin.testbed.sandbox import SandboxError, check

_NEW_UTS, _NEW_IPC = 0x4000000, 0x8000000  # sched.h
_READ_ONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND = 1, 2, 4, 8, 32, 4096  # mount.h
_RECURSIVE, _PRIVATE, _DETACH = 1 << 14, 1 << 18, 2
_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41}  # unistd.h
_PR_SET_SECCOMP, _SECCOMP_FILTER = 22, 2  # linux/prctl.h, linux/seccomp.h
_SECCOMP_ALLOW, _SECCOMP_ERROR = 0x7FFF0000, 0x00050000  # linux/seccomp.h; an error's number is added
# linux/bpf_common.h: LD|W|ABS, JMP|…, RET|K.
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_X32 = 0x40000000  # from here on are the calls of another ABI of x86_64
_NAMESPACES = 0x7E020080  # clone's flags for new namespaces, sched.h
_CLONE3 = 435
# System calls that the sandbox refuses, by machine: AUDIT_ARCH_* (linux/audit.h), clone, and the others (unistd.h).
# No limit counts memory of System V and message queues, which stays until the sandbox ends. The others are parts of the
# kernel that nothing here needs: namespaces and mounts, the memory of other processes, keys, bpf, io_uring.
_GENERIC = (186, 190, 194, 180, 97, 268, 40, 39, 41, 117, 270, 271, 217, 218, 219, 241, 280, 282, 425)
_REFUSED = {
    # msgget semget shmget mq_open unshare setns mount umount2 pivot_root ptrace process_vm_readv, _writev
    # add_key request_key keyctl perf_event_open bpf userfaultfd io_uring_setup
    "x86_64": (
        0xC000003E,
        56,
        (68, 64, 29, 240, 272, 308, 165, 166, 155, 101, 310, 311, 248, 249, 250, 298, 321, 323, 425),
    ),
    "aarch64": (0xC00000B7, 220, _GENERIC),
    "riscv64": (0xC00000F3, 220, _GENERIC),
}
_FIRST_USER = 61_000  # users without files, for the sandboxes of root
_DEVICES = ("null", "zero", "random", "urandom")
_NOT_FOUND = 127
COMPLAINT = "no sandbox: "  # precedes what goes wrong before the command runs


@dataclass(frozen=True, slots=True)
class Confinement:
    """The files that a command may see, and its limits.

    Attributes:
        root: An empty folder, over which the sandbox mounts its root.
        shown: Files and folders that it may read, at the same places.
        mounted: Further folders that it may read, by the place at which it sees them.
        masked: Folders below those that are empty in the sandbox.
        user: Number of the sandbox, which distinguishes those that run at the same time.
        disk_bytes: Size of /tmp, the only place to write. 0: there is none.
        memory_bytes: Limit of the addresses of each process.
        processes: Limit of processes.
        cpu_seconds: Limit of processor time of each process.
    """

    root: str
    shown: Sequence[str]
    mounted: dict[str, str]
    masked: Sequence[str]
    user: int
    disk_bytes: int
    memory_bytes: int
    processes: int
    cpu_seconds: int

    def command(self, *words: str) -> list[str]:
        """Return the command that runs another one in the sandbox."""
        return [sys.executable, "-P", "-m", "fanin.classroom.confine", json.dumps(asdict(self)), *words]


def files_of_fanin() -> list[str]:
    """Return the files and folders that fanin, Python's packages and the C compiler need in a sandbox.

    The labs are not among them, but may be below them: mask `hidden_labs`.
    """
    package = Path(fanin.__file__).parent
    parts = [each.resolve() for each in package.iterdir() if each.is_symlink() and each.name != "labs"]
    system = [Path(each) for each in ("/usr", "/etc/alternatives", sys.prefix, sys.base_prefix)]
    places = [*system, *_folders_of_packages(), package, *parts]
    further = [each for each in _imported() if not any(each.is_relative_to(place) for place in places)]
    return [str(each) for each in dict.fromkeys([*places, *further])]


def _folders_of_packages() -> list[Path]:
    """Return the folders of Python's path into which packages were installed, such as those that a .pth file adds."""
    return [each for each in map(Path, sys.path) if each.is_absolute() and any(each.glob("*.dist-info"))]


def _imported() -> Iterator[Path]:
    """Yield the packages and modules that were imported here.

    They may be in folders that a sandbox must not show as a whole: next to the packages of a project that is installed
    for editing are its other files.
    """
    for name, module in tuple(sys.modules.items()):
        if "." not in name and name != "__main__" and _can_be_imported(name):
            file = getattr(module, "__file__", None)
            places = map(Path, getattr(module, "__path__", None) or [file or ""])
            yield from (each for each in places if each.is_absolute())


def _can_be_imported(name: str) -> bool:
    """Return whether a module is one that Python finds by its name, and not one that was read from a file."""
    return any(finder.find_spec(name, None) for finder in sys.meta_path)


def hidden_labs() -> list[str]:
    """Return the folders of labs below those that `files_of_fanin` returns."""
    packages = [Path(fanin.__file__).parent, *(each / "fanin" for each in _folders_of_packages())]
    return [str(each / "labs") for each in dict.fromkeys(packages)]


def require_sandboxes() -> None:
    """Check that sandboxes are possible here.

    Raises:
        SandboxError: They are not. The message explains why, and what to type.
    """
    if platform.machine() not in _PIVOT_ROOT:
        raise SandboxError(f"no sandbox for processors of type {platform.machine()}")
    check()


def _enter(box: Confinement) -> None:
    """Continue as process 1 of fresh namespaces, without privileges, in a root folder with what the sandbox shows."""
    parent = os.getpid()
    user, group = os.geteuid(), os.getegid()
    kinds = libc.NEW_MOUNTS | libc.NEW_PROCESSES | libc.NEW_NETWORK | _NEW_UTS | _NEW_IPC
    if user == 0:
        libc.call("unshare", kinds)
    else:
        _unshare_user(kinds, 0, user, group)
    child = os.fork()
    if child:
        _follow(child)
    _end_with_parent()
    if not Path("/proc", str(parent)).exists():
        os._exit(1)
    _mount_root(box, _FIRST_USER + box.user if user == 0 else 0)
    for kind, most in (
        (resource.RLIMIT_AS, box.memory_bytes),
        (resource.RLIMIT_CPU, box.cpu_seconds),
        (resource.RLIMIT_FSIZE, max(box.disk_bytes, 1 << 16)),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, box.processes),
    ):
        resource.setrlimit(kind, (most, most))
    if user == 0:
        os.setgroups([])
        other = _FIRST_USER + box.user
        os.setresgid(other, other, other)
        os.setresuid(other, other, other)
    else:
        # In a namespace of users below the one that owns the mounts, so that they cannot be changed.
        _unshare_user(0, 65534, 0, 0)
    libc.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _refuse_system_calls()
    _end_with_parent()  # again: a change of user makes the kernel forget it


def _refuse_system_calls() -> None:
    """Let the kernel refuse system calls to this process and its children, with a filter (seccomp)."""
    machine, clone, refused = _REFUSED[platform.machine()]
    refuse, unknown, allow = (
        (_RETURN, 0, 0, _SECCOMP_ERROR + errno.EPERM),
        (_RETURN, 0, 0, _SECCOMP_ERROR + errno.ENOSYS),
        (_RETURN, 0, 0, _SECCOMP_ALLOW),
    )
    steps = [
        (_LOAD, 0, 0, 4),  # the machine, of struct seccomp_data
        (_EQUAL, 1, 0, machine),
        refuse,
        (_LOAD, 0, 0, 0),  # the number of the call
        *((_AT_LEAST, 0, 1, _X32), refuse),
        *(step for number in refused for step in ((_EQUAL, 0, 1, number), refuse)),
        # Its flags are in memory, which a filter cannot read. The C library takes clone instead if there is none.
        *((_EQUAL, 0, 1, _CLONE3), unknown),
        (_EQUAL, 1, 0, clone),
        allow,
        (_LOAD, 0, 0, 16),  # its first argument
        *((_ANY_OF, 0, 1, _NAMESPACES), refuse),
        allow,
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    libc.call("prctl", _PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.addressof(program), 0, 0, of="seccomp")


def _unshare_user(kinds: int, inside: int, user: int, group: int) -> None:
    libc.call("unshare", kinds | libc.NEW_USER)
    lines = (("setgroups", "deny"), ("uid_map", f"{inside} {user} 1"), ("gid_map", f"{inside} {group} 1"))
    for name, line in lines:
        Path("/proc/self", name).write_text(line)


def _mount_root(box: Confinement, owner: int) -> None:
    root = Path(box.root)
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", str(root), "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for place in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):  # links to /usr, or folders on older systems
        if Path(place).is_symlink():
            (root / place[1:]).symlink_to(Path(place).readlink())
        elif Path(place).is_dir():
            _show(Path(place), root / place[1:])
    (root / "tmp").mkdir()
    if box.disk_bytes:
        _mount(
            "tmpfs",
            str(root / "tmp"),
            "tmpfs",
            _NOSUID | _NODEV,
            f"size={box.disk_bytes},nr_inodes=4k,mode=700",
        )
        os.chown(root / "tmp", owner, owner)
    for each in box.shown:
        _show(Path(each), root / each[1:])
    for place, source in box.mounted.items():
        _show(Path(source), root / place[1:])
    for each in box.masked:
        if (root / each[1:]).is_dir():
            _mount("tmpfs", str(root / each[1:]), "tmpfs", _READ_ONLY | _NOSUID | _NODEV, "size=4k,mode=755")
    for name in _DEVICES:
        _show(Path("/dev", name), root / "dev" / name, writable=True)
    (root / "proc").mkdir(exist_ok=True)
    with suppress(OSError):  # a container may not allow it; hardly anything needs it
        _mount("proc", str(root / "proc"), "proc", _NOSUID | _NODEV | _NOEXEC)
    os.chdir(root)
    libc.call("syscall", _PIVOT_ROOT[platform.machine()], b".", b".", of="pivot_root")
    libc.call("umount2", b".", _DETACH)
    os.chdir("/")
    _mount("none", "/", None, _REMOUNT | _READ_ONLY | _NOSUID | _NODEV, "size=1m,mode=755")


def _show(source: Path, place: Path, *, writable: bool = False) -> None:
    if not source.exists():
        return
    source = source.resolve()
    if source.is_dir():
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    _mount(str(source), str(place), None, _BIND)
    if not writable:
        flags = _REMOUNT | _BIND | _READ_ONLY | _kept(place)
        _mount("none", str(place), None, flags)


def _kept(place: Path) -> int:
    """Return the flags of a mount that a namespace of users may not drop."""
    flags = os.statvfs(place).f_flag
    named = ((os.ST_NOSUID, _NOSUID), (os.ST_NODEV, _NODEV), (os.ST_NOEXEC, _NOEXEC), (os.ST_NOATIME, 1024))
    return sum(ours for theirs, ours in named if flags & theirs) | _NOSUID | (1 << 21 if flags & 4096 else 0)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind)]
    libc.call("mount", *texts, flags, None if data is None else data.encode(), of=f"mount {target}")


def _end_with_parent() -> None:
    libc.call("prctl", libc.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _follow(child: int) -> NoReturn:
    """Wait for process 1 of the sandbox, and end with its status."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def run_confined(box: Confinement, command: str, run: Callable[[], None]) -> NoReturn:
    """Enter a sandbox, run a function there, and exit. This process must have no threads, and end with its parent.

    Args:
        box: The sandbox.
        command: What runs, for the message if it cannot.
        run: The function.
    """
    _end_with_parent()
    try:
        _enter(box)
    except OSError as error:
        _refuse(error, command)
    run()
    os._exit(0)


def _refuse(error: OSError, command: str) -> NoReturn:
    print(f"{COMPLAINT}{error.filename or command}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(_NOT_FOUND)


def main() -> None:
    """Enter the sandbox that the first argument describes, and become the command of the others."""
    words = sys.argv[2:]

    def become() -> None:
        try:
            os.execve(words[0], words, ENVIRONMENT)
        except OSError as error:
            _refuse(error, words[0])

    run_confined(Confinement(**json.loads(sys.argv[1])), words[0], become)


_python_path = os.environ.get("PYTHONPATH", "").split(":")
ENVIRONMENT = {
    # Where Python finds packages outside of its own folders.
    "PYTHONPATH": ":".join(each for each in _python_path if Path(each).is_absolute()),
    "PYTHONUSERBASE": site.getuserbase(),
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": "/tmp",
    "XDG_CACHE_HOME": "/tmp",
    "LC_ALL": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


if __name__ == "__main__":
    main()
