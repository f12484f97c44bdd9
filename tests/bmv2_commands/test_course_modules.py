"""The modules that the scripts of courses import, in an interpreter that has no fanin."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from textwrap import dedent

import pynng
import pytest
from finsy.proto import rpc_status
from google.protobuf import text_format

from fanin.bmv2_commands.course_modules import modules
from fanin.p4compiler import compile_once
from fanin.p4switch.bmv2_runtime.server import ThriftServer, serve_thrift
from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.p4runtime.server import P4RuntimeService, serve

PROGRAM = Path(__file__).with_name("course.p4")

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    # It comes with googleapis-common-protos, which courses have.
    status = (
        f"DESCRIPTOR = descriptor_pool.Default().AddSerializedFile({rpc_status.DESCRIPTOR.serialized_pb!r})"
    )
    common = {"google/rpc/status_pb2.py": f"from google.protobuf import any_pb2, descriptor_pool\n{status}\n"}
    for path, text in (modules() | common).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def script(folder: Path) -> Script:
    """Run a script as a course does: it can import the modules and the libraries, and fails if it imports fanin."""

    def run(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        begin = f"import sys; sys.modules['fanin'] = None; sys.path.insert(0, {str(folder)!r})\n"
        command = [sys.executable, "-c", begin + dedent(text), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device({}, None, 511)
    yield device
    device.stop()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "course.json"
    path.write_bytes(compile_once(PROGRAM).device_config())
    return path


@pytest.fixture
def thrift(device: Device, program: Path, tmp_path: Path) -> Iterator[ThriftServer]:
    device.boot(program.read_bytes())
    server = serve_thrift(device, 0, 0, f"ipc://{tmp_path}/notifications")
    yield server
    server.stop()


def test_a_script_without_the_modules_has_no_fanin(script: Script) -> None:
    assert "ModuleNotFoundError" in script("import fanin.p4switch").stderr


def test_a_script_writes_and_reads_by_thrift(script: Script, thrift: ThriftServer, program: Path) -> None:
    done = script(
        """
        import bmpy_utils
        from bm_runtime.standard import Standard
        from bm_runtime.standard.ttypes import *
        from bm_runtime.simple_pre import SimplePre
        from bm_runtime.simple_pre_lag import SimplePreLAG
        from sswitch_runtime import SimpleSwitch
        from sswitch_runtime.ttypes import *

        services = [("standard", Standard.Client), ("simple_pre_lag", SimplePreLAG.Client),
                    ("simple_switch", SimpleSwitch.Client), ("none", None)]
        standard, multicast, switch, none = bmpy_utils.thrift_connect("localhost", sys.argv[1], services)
        assert none is None
        bmpy_utils.check_JSON_md5(standard, sys.argv[2])
        assert bmpy_utils.get_json_config(standard) == bmpy_utils.get_json_config(json_path=sys.argv[2])
        table, action = "CourseIngress.ports", "CourseIngress.forward"
        key = BmMatchParam(type=BmMatchParamType.EXACT, exact=BmMatchParamExact(b"\\x00\\x01"))
        handle = standard.bm_mt_add_entry(0, table, [key], action, [b"\\x00\\x02"], BmAddEntryOptions())
        entry = standard.bm_mt_get_entry(0, table, handle)
        print(entry.action_entry.action_name, BmMatchParamType._VALUES_TO_NAMES[entry.match_key[0].type])
        try:
            standard.bm_mt_delete_entry(0, table, 77)
        except InvalidTableOperation as error:
            print(TableOperationErrorCode._VALUES_TO_NAMES[error.code])
        multicast.bm_mc_mgrp_create(0, 1)
        switch.mirroring_session_add(5, MirroringSessionConfig(port=2))
        print(switch.mirroring_session_get(5).port, MirroringOperationErrorCode._NAMES_TO_VALUES)
        print(SimplePre.InvalidMcOperation is SimplePreLAG.InvalidMcOperation)
        again = bmpy_utils.thrift_connect_standard("localhost", sys.argv[1])
        print(again.bm_mt_get_num_entries(0, table))
        """,
        thrift.port,
        program,
    )
    assert done.stdout.splitlines() == [
        "CourseIngress.forward EXACT",
        "INVALID_HANDLE",
        "2 {'SESSION_NOT_FOUND': 1}",
        "True",
        "1",
    ], done.stderr


def test_another_program_than_the_switch_s_is_noticed(
    script: Script, thrift: ThriftServer, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    text = """
        import bmpy_utils
        bmpy_utils.get_json_config(bmpy_utils.thrift_connect_standard("localhost", sys.argv[1]), sys.argv[2])
        """
    done = script(text, thrift.port, other)
    assert done.returncode == 1
    assert f"{other} is not the program that the switch runs" in done.stdout


def test_a_port_at_which_nobody_listens_ends_the_script_as_bmv2_s_does(script: Script) -> None:
    done = script("import bmpy_utils; bmpy_utils.thrift_connect('127.0.0.1', 1, [])")
    assert (done.returncode, done.stdout) == (1, "Could not connect to thrift client on port 1\n")


def test_a_script_receives_what_is_published_over_nanomsg(script: Script, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/digests"
    text = """
        import nnpy
        socket = nnpy.Socket(nnpy.AF_SP, nnpy.SUB)
        socket.connect(sys.argv[1])
        socket.setsockopt(nnpy.SUB, nnpy.SUB_SUBSCRIBE, "")
        print(socket.recv())
        socket.close()
        """
    with pynng.Pub0(listen=address) as publisher, ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(script, text, address)
        while not receiving.done():  # what comes before the script has subscribed is lost
            publisher.send(b"learnt")
            wait([receiving], timeout=0.01)
        done = receiving.result()
    assert done.stdout == "b'learnt'\n", done.stderr


def test_a_script_drives_a_switch_by_p4runtime(script: Script, device: Device, program: Path) -> None:
    server, port = serve(P4RuntimeService(device, 1), "127.0.0.1:0")
    done = script(
        """
        import queue
        import grpc
        from google.protobuf import text_format
        from p4.config.v1 import p4info_pb2
        from p4.tmp import p4config_pb2
        from p4.v1 import p4runtime_pb2 as p4r, p4runtime_pb2_grpc

        stub = p4runtime_pb2_grpc.P4RuntimeStub(grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}"))
        requests = queue.Queue()
        stream = stub.StreamChannel(iter(requests.get, None))
        update = p4r.StreamMessageRequest()
        update.arbitration.device_id, update.arbitration.election_id.low = 1, 1
        requests.put(update)
        print(next(stream).arbitration.status.message)
        config = p4config_pb2.P4DeviceConfig(reassign=True, device_data=open(sys.argv[2], "rb").read())
        request = p4r.SetForwardingPipelineConfigRequest(device_id=1, action="VERIFY_AND_COMMIT")
        request.election_id.low = 1
        request.config.p4info.CopyFrom(text_format.Parse(open(sys.argv[3]).read(), p4info_pb2.P4Info()))
        request.config.p4_device_config = config.SerializeToString()
        stub.SetForwardingPipelineConfig(request)
        print(len(stub.GetForwardingPipelineConfig(
            p4r.GetForwardingPipelineConfigRequest(device_id=1)).config.p4info.tables))
        requests.put(None)
        """,
        port,
        program,
        _p4info(program),
    )
    server.stop(grace=0).wait()
    assert done.stdout == "Is primary\n1\n", done.stderr


def _p4info(program: Path) -> Path:
    path = program.with_suffix(".txtpb")
    path.write_text(text_format.MessageToString(compile_once(PROGRAM).p4info))
    return path
