"""The modules generated from each .proto are committed; they must be what the .proto makes today."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROTOS = ("fanin/controller/job_service/jobs.proto", "fanin/experiments/workloads/chakra.proto")
TOOLS = "1.81.1"  # as in pyproject.toml


def generate(folder: Path) -> None:
    options = ["-I.", f"--python_out={folder}", f"--pyi_out={folder}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, *PROTOS], cwd=ROOT, check=True)


def test_the_committed_code_is_what_the_proto_makes(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    if (found := metadata.version("grpcio-tools")) != TOOLS:
        pytest.skip(f"grpcio-tools is {found}; the committed code is {TOOLS}'s")
    generate(tmp_path)
    for name in (f"{proto.removesuffix('.proto')}_pb2.{kind}" for proto in PROTOS for kind in ("py", "pyi")):
        assert (ROOT / name).read_text() == (tmp_path / name).read_text(), (
            f"python -m {__spec__.name} writes it anew"
        )


if __name__ == "__main__":
    generate(ROOT)
