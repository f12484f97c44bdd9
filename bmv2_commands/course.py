"""A Python environment for P4 courses: what their scripts import, and the commands of p4c and BMv2."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from fanin.bmv2_commands.install import install
from fanin.p4switch.p4runtime.proto import p4d, p4i, p4r, p4t

# What the scripts of p4lang/tutorials, p4-utils and p4-learning import.
PACKAGES = (
    *("scapy", "psutil", "ptf", "thrift", "pynng", "networkx", "ipaddr"),
    *("protobuf>=3.20", "grpcio", "googleapis-common-protos"),
)
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
}

_MODULE = '''"""Messages of {name}, made of their description by the protobuf that is installed."""

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

{imports}
DESCRIPTOR = descriptor_pool.Default().AddSerializedFile({content!r})
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
'''
_STUB = '''"""Client of the service {service}."""

from {package} import {module}


class {service}Stub:
    """Methods of the service, over a channel."""

    def __init__(self, channel):
'''
_METHOD = """        self.{name} = channel.{kind}(
            "/{service}/{name}",
            request_serializer={module}.{request}.SerializeToString,
            response_deserializer={module}.{response}.FromString,
        )
"""


# Scripts call `sudo simple_switch_grpc`, and sudo searches its own folders only.
_SUDO = """#!/bin/sh
# Written by fanin course: sudo that finds the commands of this folder, and does without sudo for root.
for real in /usr/bin/sudo /usr/local/bin/sudo /bin/sudo; do
    [ -x "$real" ] || continue
    case "$1" in
    -*) exec "$real" "$@" ;;
    *) exec "$real" env PATH="$PATH" "$@" ;;
    esac
done
[ "$(id -u)" = 0 ] && exec env "$@"
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
        packages = next(folder.glob("lib/python3*/site-packages"))
        link = packages / "mininet"
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(mininet)
        for path, text in _modules().items():
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise CourseError(f"{' '.join(command[:4])} failed:\n{said}")


def _modules() -> dict[str, str]:
    """Return the modules of the P4Runtime messages as the courses import them, by path.

    The package p4runtime on PyPI needs a protobuf of the 3.20 series. These work with any later one.
    """
    files = (p4t.DESCRIPTOR, p4i.DESCRIPTOR, p4d.DESCRIPTOR, p4r.DESCRIPTOR)
    found = {f"p4/{part}__init__.py": "" for part in ("", "v1/", "config/", "config/v1/", "tmp/")}
    for file in files:
        found[_path(file.name)] = _module(file.name, (d.name for d in file.dependencies), file.serialized_pb)
    config = _device_config()
    found[_path(config.name)] = _module(config.name, (), config.SerializeToString())
    found["p4/v1/p4runtime_pb2_grpc.py"] = _stub(p4r.DESCRIPTOR.services_by_name["P4Runtime"], p4r.DESCRIPTOR)
    return found


def _path(proto: str) -> str:
    return proto.removesuffix(".proto") + "_pb2.py"


def _module(name: str, dependencies: Iterable[str], content: bytes) -> str:
    imports = [
        f"import {_path(other).removesuffix('.py').replace('/', '.')}  # noqa: F401\n"
        for other in dependencies
    ]
    return _MODULE.format(name=name, imports="".join(imports), content=content)


def _stub(service: ServiceDescriptor, file: FileDescriptor) -> str:
    package, _, module = _path(file.name).removesuffix(".py").replace("/", ".").rpartition(".")
    text = _STUB.format(service=service.name, package=package, module=module)
    description = next(
        s for s in FileDescriptorProto.FromString(file.serialized_pb).service if s.name == service.name
    )
    for method in description.method:
        text += _METHOD.format(
            name=method.name,
            kind=f"{_arity(method.client_streaming)}_{_arity(method.server_streaming)}",
            service=service.full_name,
            module=module,
            request=method.input_type.rpartition(".")[2],
            response=method.output_type.rpartition(".")[2],
        )
    return text


def _arity(streaming: bool) -> str:
    return "stream" if streaming else "unary"


def _device_config() -> FileDescriptorProto:
    """Return p4/tmp/p4config.proto, in which scripts wrap the JSON for BMv2."""
    field = FieldDescriptorProto
    entry = DescriptorProto(
        name="KvEntry",
        field=[
            field(name=name, number=number, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
            for number, name in enumerate(("key", "value"), 1)
        ],
    )
    entry.options.map_entry = True
    extras = DescriptorProto(
        name="Extras",
        nested_type=[entry],
        field=[
            field(
                name="kv",
                number=1,
                type=field.TYPE_MESSAGE,
                label=field.LABEL_REPEATED,
                type_name=".p4.tmp.P4DeviceConfig.Extras.KvEntry",
            )
        ],
    )
    optional = field.LABEL_OPTIONAL
    message = DescriptorProto(
        name="P4DeviceConfig",
        nested_type=[extras],
        field=[
            field(
                name="extras",
                number=1,
                type=field.TYPE_MESSAGE,
                label=optional,
                type_name=".p4.tmp.P4DeviceConfig.Extras",
            ),
            field(name="reassign", number=2, type=field.TYPE_BOOL, label=optional),
            field(name="device_data", number=3, type=field.TYPE_BYTES, label=optional),
        ],
    )
    return FileDescriptorProto(
        name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3", message_type=[message]
    )
