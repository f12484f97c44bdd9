"""A Python environment for P4 courses: what their scripts import, and the commands of p4c and BMv2."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from fanin.bmv2_commands.course_modules import modules
from fanin.bmv2_commands.install import install

# What the scripts of p4lang/tutorials, p4-guide, p4-utils and p4-learning import.
PACKAGES = (
    *(
        "scapy",
        "psutil",
        "ptf",
        "thrift",
        "pynng",
        "networkx",
        "ipaddr",
        "ipython",
        "netaddr",
        "beautifulsoup4",
    ),
    *("protobuf>=3.20", "grpcio", "googleapis-common-protos"),
)
# Without what they require: old versions of packages above.
_BARE_PACKAGES = ("p4runtime-shell",)
# Debian's package installs Mininet for the system's Python, whose other packages would get in the way.
_DIST_PACKAGES = "/usr/lib/python3/dist-packages"
# Programs that the courses run, with their Debian packages.
_PROGRAMS = {
    "mn": "mininet",
    "ping": "iputils-ping",
    "iperf": "iperf",
    "tcpdump": "tcpdump",
    "make": "make",
    "sudo": "sudo",
    "ethtool": "ethtool",
    "pkill": "procps",
    "ip": "iproute2",
    "ifconfig": "net-tools",
    "telnet": "telnet",
    "brctl": "bridge-utils",
}

# Scripts call `sudo simple_switch_grpc`, and sudo searches its own folders only.
_SUDO = """#!/bin/sh
# Written by fanin course: sudo that finds the commands of this folder, and does without sudo for root. In a user
# namespace, where everybody is root, the machine's sudo refuses to work.
case "$1" in
-*) ;;
*) [ "$(id -u)" = 0 ] && exec env "$@" ;;
esac
for real in /usr/bin/sudo /usr/local/bin/sudo /bin/sudo; do
    [ -x "$real" ] || continue
    case "$1" in
    -*) exec "$real" "$@" ;;
    *) exec "$real" env PATH="$PATH" "$@" ;;
    esac
done
echo "sudo is not installed: run this as root, or install sudo" >&2
exit 1
"""


class CourseError(Exception):
    """Environment that cannot be set up. The message explains why, and what to do."""


def set_up(folder: Path) -> None:
    """Create an environment for courses in `folder`, or complete the one that is there. This needs the package index.

    Its `bin` holds the interpreter and the commands.

    Raises:
        CourseError: If Mininet is missing, pip fails, or the folder cannot be written.
    """
    mininet = _mininet()
    try:
        _run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(folder / "bin/python3"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *PACKAGES])
        _run([*pip, "--no-deps", *_BARE_PACKAGES])
        packages = next(folder.glob("lib/python3*/site-packages"))
        link = packages / "mininet"
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(mininet)
        for path, text in modules().items():
            (packages / path).parent.mkdir(parents=True, exist_ok=True)
            (packages / path).write_text(text)
        install(folder / "bin")
        sudo = folder / "bin/sudo"
        sudo.write_text(_SUDO)
        sudo.chmod(0o755)
    except OSError as error:
        raise CourseError(f"{error.filename or folder}: {error.strerror}") from error


def missing_programs() -> dict[str, str]:
    """Return the programs that courses run and that are not installed, with their Debian packages."""
    return {name: package for name, package in _PROGRAMS.items() if shutil.which(name) is None}


def _mininet() -> str:
    for folder in (_DIST_PACKAGES, *sys.path):
        if (Path(folder) / "mininet/net.py").is_file():
            return str(Path(folder) / "mininet")
    raise CourseError("Mininet is missing: sudo apt-get install mininet")


def _run(command: list[str]) -> None:
    # pip leaves its processes and files behind when it is interrupted.
    with (
        tempfile.TemporaryDirectory(prefix="fanin-course-") as scratch,
        subprocess.Popen(
            command,
            env={**os.environ, "TMPDIR": scratch},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            out, err = process.communicate()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise CourseError(f"{' '.join(command[:4])} failed:\n{(err or out).strip()}")
