"""Sandboxes: their Python can import what the Python outside can, wherever packages are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import fanin
from fanin.classroom.confine import require_sandboxes
from fanin.testbed.sandbox import SandboxError

pytestmark = pytest.mark.slow

# Imports the modules that are named, as marking the solution does, then asks a sandbox which of them it can import, and
# which of the files it can see.
SCRIPT = """
import importlib, json, subprocess, sys
from fanin.classroom.confine import Confinement, files_of_fanin
root, modules, files = json.loads(sys.argv[1])
for module in modules:
    importlib.import_module(module)
box = Confinement(root, files_of_fanin(), {}, [], 0, 1 << 20, 1 << 30, 24, 30)
INSIDE = '''
import importlib, json, os, sys
modules, files = json.loads(sys.argv[1])
found = [each for each in files if os.path.exists(each)]
for module in modules:
    try:
        importlib.import_module(module)
        found.append(module)
    except ImportError:
        pass
print(json.dumps(found))
'''
command = box.command(sys.executable, "-P", "-c", INSIDE, json.dumps([modules, files]))
subprocess.run(command, check=True)
"""
# As setuptools does for a project whose packages are not next to each other.
FINDER = """
import importlib.util, sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "by_finder":
            return importlib.util.spec_from_file_location(name, {file!r})
sys.meta_path.append(Finder)
"""
WAYS = ["numpy", "by_target", "by_project", "by_finder", "by_pythonpath", "by_user_site"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names and paths that are there in a sandbox of an environment whose packages are in many places."""
    try:
        require_sandboxes()
    except SandboxError as error:
        pytest.skip(str(error))
    place = tmp_path_factory.mktemp("places")

    def write(file: str, text: str = "") -> Path:
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text(text)
        return place / file

    # An environment that has nothing of its own. System site packages let it have those of the user.
    venv.create(place / "environment", symlinks=True, system_site_packages=True)
    (place / "root").mkdir()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    write("target/by_target/__init__.py", "from by_target_libs import x")
    write("target/by_target_libs.py", "x = 1")
    write("target/by_target-1.dist-info/METADATA")
    write("project/by_project/__init__.py")
    write("modules/by_pythonpath.py")
    write(f"user/lib/{version}/site-packages/by_user_site.py")
    write(f"user/lib/{version}/site-packages/by_user_site-1.dist-info/METADATA")
    clone = Path(fanin.__file__).parents[1]
    folders = [sysconfig.get_path("purelib"), clone, place / "target", place / "project"]
    site = f"environment/lib/{version}/site-packages"
    write(f"{site}/class.pth", "\n".join([*map(str, folders), "import finder", ""]))
    write(f"{site}/finder.py", FINDER.format(file=str(write("scattered/by_finder.py"))))
    private = [str(write("project/submissions/ann/answer.py")), str(clone / "labs"), str(clone / "README.md")]
    done = subprocess.run(
        [place / "environment/bin/python", "-c", SCRIPT, json.dumps([str(place / "root"), WAYS, private])],
        env=os.environ | {"PYTHONPATH": f":{place / 'modules'}", "PYTHONUSERBASE": str(place / "user")},
        cwd=place,
        stdout=subprocess.PIPE,
        check=True,
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("module", WAYS)
def test_a_sandbox_can_import_what_the_environment_can(seen: set[str], module: str) -> None:
    assert module in seen


def test_a_sandbox_sees_packages_of_a_project_and_nothing_beside_them(seen: set[str]) -> None:
    assert not [each for each in seen if "/" in each]
