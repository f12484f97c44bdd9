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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("distribution", "says"),
    [
        ("bullseye", "its kernel: KERNEL=5.10 DISTRIBUTION=bookworm"),
        ("sarge", "take DISTRIBUTION=bookworm or trixie"),
    ],
)
def test_a_machine_that_cannot_be_made_is_refused_with_one_that_can(
    tmp_path: Path, distribution: str, says: str
) -> None:
    command = ["vm/image.sh", distribution, "pip"]
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
