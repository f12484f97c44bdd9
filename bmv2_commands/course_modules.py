"""Modules that the scripts of courses import, and that no package offers for today's Python."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import getsource

from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from fanin.bmv2_commands.course_packages import bmpy_utils, nnpy
from fanin.p4switch.bmv2_runtime import interface, types
from fanin.p4switch.p4runtime.proto import p4d, p4i, p4r, p4t

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

# Modules of the code generated for BMv2, and what our interface calls their service.
_SERVICES = {
    "bm_runtime.standard.Standard": "STANDARD",
    "bm_runtime.simple_pre.SimplePre": "SIMPLE_PRE",
    "bm_runtime.simple_pre_lag.SimplePreLAG": "SIMPLE_PRE_LAG",
    "sswitch_runtime.SimpleSwitch": "SIMPLE_SWITCH",
}
_TYPES = '''"""Types of the service {service}."""

from bm_runtime.interface import {names}
'''
_CLIENT = '''"""Client of the service {service}."""

from bm_runtime import interface, types
from {package}.ttypes import *


class Client(types.Client):
    """Client of the service, over a protocol of Thrift's library."""

    service = interface.{constant}
'''


def modules() -> dict[str, str]:
    """Return the modules by path, relative to the folder from which they are imported."""
    return {
        **_p4runtime(),
        **_thrift(),
        "bmpy_utils.py": getsource(bmpy_utils),
        "nnpy.py": getsource(nnpy),
    }


def _thrift() -> dict[str, str]:
    """Return the packages of BMv2's Thrift interface: our declarations, with the names of BMv2's generated code."""
    declared = [
        name
        for name, value in vars(interface).items()
        if isinstance(value, type) and value.__module__ == interface.__name__
    ]
    found = {
        "bm_runtime/__init__.py": "",
        "bm_runtime/types.py": getsource(types),
        "bm_runtime/interface.py": getsource(interface),
    }
    for path, service in _SERVICES.items():
        package, _, module = path.rpartition(".")
        folder = package.replace(".", "/")
        found[f"{folder}/__init__.py"] = f'__all__ = ["ttypes", "{module}"]\n'
        found[f"{folder}/ttypes.py"] = _TYPES.format(service=module, names=", ".join(declared))
        found[f"{folder}/{module}.py"] = _CLIENT.format(service=module, constant=service, package=package)
    return found


def _p4runtime() -> dict[str, str]:
    """Return the modules of the P4Runtime messages.

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
