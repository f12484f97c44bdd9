"""Shell scripts hold what shellcheck asks for, and refuse what they cannot do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.relative_to(ROOT) for folder in (ROOT, ROOT / "vm") for path in folder.glob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_shellcheck_has_no_complaint(script: Path) -> None:
    subprocess.run(["sh", "-n", ROOT / script], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", ROOT / script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("distribution", "kernel", "says"),
    [
        ("bullseye", "5.10", "its kernel: KERNEL=5.10 DISTRIBUTION=bookworm"),
        ("sarge", "2.6", "take DISTRIBUTION=bookworm or trixie"),
        ("bookworm", "6.5", "no kernel 6.5 for bookworm; there is 5.10 6.1 6.12"),
    ],
)
def test_a_machine_that_cannot_be_made_is_refused_with_one_that_can(
    tmp_path: Path, distribution: str, kernel: str, says: str
) -> None:
    command = ["vm/image.sh", distribution, kernel, "pip"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert says in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_kind_of_machine_that_there_is_not_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    command = ["vm/test-vm.sh", "bookworm", "6.1", "pip", "xen"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "test-vm: VM=xen is none of kvm, uml, emulated\n"
    assert not list(tmp_path.iterdir())


LIMITS = """#!/bin/sh
case "$*" in
    /proc/sys/vm/max_map_count) echo 65530 ;;
    *) exec /bin/cat "$@" ;;
esac
"""


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("", "user-mode Linux needs more mappings than this machine allows: sudo sysctl vm.max_map_count="),
        (
            "uml",
            "user-mode Linux needs more mappings than this machine allows: sudo sysctl vm.max_map_count=",
        ),
        ("kvm", "KVM runs no machine here"),
    ],
    ids=["chosen", "uml", "kvm"],
)
def test_what_a_machine_needs_is_looked_for_before_its_image_is_made(
    tmp_path: Path, kind: str, says: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in (("cat", LIMITS), ("qemu-system-x86_64", "#!/bin/sh\nexit 1\n")):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    command = ["vm/test-vm.sh", "bookworm", "6.1", "pip", kind]
    environment = os.environ | {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "cache").exists()
