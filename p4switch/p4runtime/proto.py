"""The P4Runtime messages and service stubs, taken from finsy without its client.

Importing `finsy` itself would load a whole asyncio controller in every switch process, which takes about as long as
loading gRPC. Its generated modules import each other relatively, so they can be loaded under another package name.
protobuf has a single class for each message either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from finsy.proto import p4d, p4i, p4r, p4r_grpc, p4t, rpc_code, rpc_status, stratum
else:
    import sys
    from importlib import import_module
    from importlib.util import find_spec
    from pathlib import Path
    from types import ModuleType

    _finsy = find_spec("finsy")
    if _finsy is None or _finsy.origin is None:
        raise ModuleNotFoundError(
            "the package finsy, which has the P4Runtime messages, is missing: install fanin again, "
            "with make setup in its clone or with pip"
        )
    ALIAS = f"{__name__}_messages"
    _package = ModuleType(ALIAS)
    _package.__path__ = [str(Path(_finsy.origin).parent / "proto")]
    sys.modules[ALIAS] = _package

    p4i = import_module(f"{ALIAS}.p4.config.v1.p4info_pb2")
    p4d = import_module(f"{ALIAS}.p4.v1.p4data_pb2")
    p4t = import_module(f"{ALIAS}.p4.config.v1.p4types_pb2")
    p4r = import_module(f"{ALIAS}.p4.v1.p4runtime_pb2")
    p4r_grpc = import_module(f"{ALIAS}.p4.v1.p4runtime_pb2_grpc")
    rpc_code = import_module(f"{ALIAS}.google.rpc.code_pb2")
    rpc_status = import_module(f"{ALIAS}.google.rpc.status_pb2")
    stratum = import_module(f"{ALIAS}.stratum1.p4_role_config_pb2")

__all__ = ["p4d", "p4i", "p4r", "p4r_grpc", "p4t", "rpc_code", "rpc_status", "stratum"]
