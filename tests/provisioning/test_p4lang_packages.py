"""p4lang-packages.sh, with repositories of stand-in packages and a copy of this machine that is thrown away."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("apt-get", "dpkg-deb", "dpkg-scanpackages", "gpg", "unshare")
LATEST, STABLE = "home:/p4lang:/latest", "home:/p4lang"
PROGRAMS = {"p4lang-bmv2": "simple_switch_grpc", "p4lang-p4c": "p4c-bm2-ss"}
WORKS, FAILS = "echo stand-in 1.0", "exit 127"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or any(shutil.which(tool) is None for tool in TOOLS),
        reason=f"needs root and {', '.join(TOOLS)}",
    ),
]

# All of this machine, written to in memory only; $1: the repositories, $2: the release's name and number, $3: script.
COPY = """
set -e
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay none -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
cd /mnt/root
mount --bind "$1" mnt
mount --rbind /dev dev
mount --rbind /proc proc
mount -t tmpfs none tmp
cp "$4" tmp
set -- $2 "$3"
printf 'ID=%s\\nVERSION_ID="%s"\\nPRETTY_NAME="%s %s"\\n' "$1" "$2" "$1" "$2" >tmp/os-release
mv tmp/os-release etc/os-release
rm -f etc/apt/sources.list.d/* etc/apt/sources.list
exec chroot . sh -c "$3"
"""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of gpg's with a key, whose public part is in Release.key."""
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    make = [*gpg, "--passphrase", "", "--quick-generate-key", "stand-in", "rsa2048", "sign", "never"]
    subprocess.run(make, check=True)
    public = subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True).stdout
    (home / "Release.key").write_bytes(public)
    yield home
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)


def publish(folder: Path, key: Path, packages: Mapping[str, str]) -> None:
    """A signed repository: of each package what its program does."""
    folder.mkdir(parents=True)
    for package, does in packages.items():
        tree = folder / package
        program = tree / "usr/bin" / PROGRAMS[package]
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN/control").write_text(
            f"Package: {package}\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\n"
            "Description: stand-in\n"
        )
        subprocess.run(["dpkg-deb", "--build", tree, folder], check=True, capture_output=True)
        shutil.rmtree(tree)
    scan = ["dpkg-scanpackages", "--multiversion", "."]
    index = subprocess.run(scan, cwd=folder, check=True, capture_output=True).stdout
    (folder / "Packages").write_bytes(index)
    digest = hashlib.sha256(index).hexdigest()
    (folder / "Release").write_text(
        f"Date: Sun, 22 Nov 2026 00:00:00 UTC\nSHA256:\n {digest} {len(index)} Packages\n"
    )
    sign = ["gpg", "--homedir", str(key), "--batch", "--clearsign", "--output", "InRelease", "Release"]
    subprocess.run(sign, cwd=folder, check=True, capture_output=True)
    shutil.copy(key / "Release.key", folder)


Install = Callable[..., list[str]]


@pytest.fixture
def install(tmp_path: Path, key: Path) -> Install:
    """Publishes, runs the script (and what follows) on a release, and gives the lines of its output."""

    def run(
        repositories: Mapping[str, Mapping[str, str]],
        *after: str,
        release: str = "ubuntu 22.04",
        address: str = "file:///mnt",
    ) -> list[str]:
        tmp_path.chmod(0o755)  # apt reads as a user of its own
        for name, packages in repositories.items():
            publish(tmp_path / name / "xUbuntu_22.04", key, packages)
        script = "; ".join([f"cd /tmp; ./p4lang-packages.sh {address}", *after])
        command = ["unshare", "--mount", "sh", "-c", COPY, "sh", str(tmp_path), release, script]
        done = subprocess.run(
            [*command, str(ROOT / "p4lang-packages.sh")],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    return run


BOTH = dict.fromkeys(PROGRAMS, WORKS)


def test_the_newer_repository_comes_first(install: Install) -> None:
    said = install({LATEST: BOTH, STABLE: BOTH}, "cat /etc/apt/sources.list.d/p4lang.list")
    assert said[-2] == f"BMv2 and p4c are installed, from {LATEST}"
    assert said[-1].endswith(f"file:///mnt/{LATEST}/xUbuntu_22.04/ /")


def test_both_come_from_one_repository(install: Install) -> None:
    said = install({LATEST: {"p4lang-p4c": WORKS}, STABLE: BOTH}, "cat /etc/apt/sources.list.d/p4lang.list")
    assert said[-2] == f"BMv2 and p4c are installed, from {STABLE}"
    assert said[-1].endswith(f"file:///mnt/{STABLE}/xUbuntu_22.04/ /")


def test_what_does_not_start_is_removed_and_the_next_is_taken(install: Install) -> None:
    said = install({LATEST: BOTH | {"p4lang-bmv2": FAILS}, STABLE: BOTH}, "simple_switch_grpc --version")
    assert said[-2:] == [f"BMv2 and p4c are installed, from {STABLE}", "stand-in 1.0"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("repositories", "release"),
    [
        ({}, "ubuntu 22.04"),
        ({LATEST: BOTH, STABLE: BOTH}, "ubuntu 24.04"),
        ({LATEST: BOTH, STABLE: BOTH}, "debian 12"),
        ({LATEST: {"p4lang-p4c": WORKS}, STABLE: BOTH | {"p4lang-p4c": FAILS}}, "ubuntu 22.04"),
    ],
    ids=["empty", "Ubuntu 24.04", "Debian", "broken"],
)
def test_where_there_are_none_one_line_says_what_that_costs_and_nothing_is_left(
    install: Install, repositories: Mapping[str, Mapping[str, str]], release: str
) -> None:
    look = (
        "ls /etc/apt/sources.list.d /usr/share/keyrings; dpkg-query -W -f '${Status}' p4lang-bmv2 p4lang-p4c"
    )
    said = install(repositories, f"{look}; apt-get update 2>&1 | grep '^[EW]:'; true", release=release)
    (at,) = (i for i, line in enumerate(said) if line.startswith("BMv2 and p4c are not installed"))
    assert f"no packages that work for {release}" in said[at]
    for part in ("fanin demo --switch bmv2", "fanin diff", "Ubuntu 22.04"):
        assert part in said[at]
    assert not [
        line
        for line in said[at + 1 :]
        if "p4lang" in line or "install ok" in line or line[:2] in ("E:", "W:")
    ]


@pytest.mark.few(0)
def test_a_network_that_is_not_there_is_not_taken_for_a_repository_without_packages(install: Install) -> None:
    said = install({}, "ls /etc/apt/sources.list.d", address="http://127.0.0.1:1")
    [line] = [line for line in said if line.startswith("BMv2 and p4c are not installed")]
    assert "http://127.0.0.1:1 cannot be reached" in line
    assert "no packages" not in line
    assert said[-1] == line  # and nothing is left


def test_a_second_run_changes_nothing(install: Install) -> None:
    state = "dpkg-query -W; cat /etc/apt/sources.list.d/*"
    twice = f"({state}) >before; ./p4lang-packages.sh file:///nowhere; ({state}) | diff before -; echo $?"
    said = install({LATEST: BOTH}, twice)
    assert said[-2:] == ["BMv2 and p4c are installed", "0"]
