"""Setting, saving and reading the pipeline (specification, "SetForwardingPipelineConfig RPC")."""

import json

import grpc
import pytest
from finsy.proto import p4r

from fanin.p4compiler import compile_file
from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.p4runtime.errors import P4RuntimeError
from fanin.p4switch.p4runtime.server import P4RuntimeService, serve
from tests.p4switch.p4runtime.conftest import DEVICE_ID, Controller, Program

HOSTS = "hosts"


@pytest.fixture
def primary(connect):
    """The primary of a switch without a pipeline."""
    return connect().become_primary()


def with_cookie(config, cookie):
    config.cookie.cookie = cookie
    return config


def smaller(program):
    """The program's config with a hosts table of one entry."""
    document = json.loads(program.device_config)
    (table,) = (
        table
        for pipeline in document["pipelines"]
        for table in pipeline["tables"]
        if table["name"].endswith(HOSTS)
    )
    table["max_size"] = 1
    return p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=json.dumps(document).encode())


def hosts(controller, program):
    return controller.read(program.entry(HOSTS))


def test_before_a_pipeline_is_set_there_is_nothing_to_read_or_write(primary, program):
    for request in (lambda: hosts(primary, program), lambda: primary.insert(program.host(1))):
        refused = primary.refusal(request)
        assert refused.code is grpc.StatusCode.FAILED_PRECONDITION
        assert "No forwarding pipeline config" in refused.message
    assert not primary.get_pipeline().HasField("config")


def test_the_config_is_returned_as_it_was_set(primary, program):
    primary.set_pipeline(with_cookie(program.config, 42))
    config = primary.get_pipeline("ALL").config
    assert config == with_cookie(program.config, 42)


@pytest.mark.parametrize(
    ("response_type", "p4info", "device_config"),
    [
        ("COOKIE_ONLY", False, False),
        ("P4INFO_AND_COOKIE", True, False),
        ("DEVICE_CONFIG_AND_COOKIE", False, True),
        ("ALL", True, True),
    ],
)
def test_parts_of_the_config_are_returned(primary, program, response_type, p4info, device_config):
    primary.set_pipeline(with_cookie(program.config, 42))
    config = primary.get_pipeline(response_type).config
    assert config.cookie.cookie == 42
    assert config.HasField("p4info") == p4info
    assert bool(config.p4_device_config) == device_config


def test_a_config_without_a_cookie_has_none(primary, program):
    primary.set_pipeline(program.config)
    assert not primary.get_pipeline("COOKIE_ONLY").config.HasField("cookie")


def test_verify_changes_nothing(controller, program):
    controller.insert(program.host(1))
    controller.set_pipeline(with_cookie(program.config, 42), "VERIFY")
    assert hosts(controller, program) == [program.host(1)]
    assert not controller.get_pipeline().config.HasField("cookie")


def test_verify_and_commit_clears_the_state(controller, program):
    controller.insert(program.host(1))
    controller.set_pipeline(program.config)
    assert hosts(controller, program) == []


def test_a_saved_pipeline_takes_writes_before_it_is_committed(controller, program):
    controller.insert(program.host(1))
    controller.set_pipeline(program.config, "VERIFY_AND_SAVE")
    assert hosts(controller, program) == []
    controller.insert(program.host(2))
    controller.set_pipeline(None, "COMMIT")
    assert hosts(controller, program) == [program.host(2)]
    refused = controller.refusal(controller.set_pipeline, None, "COMMIT")
    assert refused.code is grpc.StatusCode.NOT_FOUND


def test_reconcile_keeps_entries_defaults_and_groups(controller, program):
    group = p4r.Entity(
        packet_replication_engine_entry={
            "multicast_group_entry": {"multicast_group_id": 1, "replicas": [{"port": b"\1"}]}
        }
    )
    default = program.entry(HOSTS, is_default_action=True, action=program.action("forward", b"\5"))
    kept = [program.host(1, metadata=b"mine"), program.route(0x0A000000, 8), group]
    controller.insert(*kept)
    controller.modify(default)
    controller.set_pipeline(smaller(program), "RECONCILE_AND_COMMIT")
    assert hosts(controller, program) == kept[:1]
    assert controller.read(program.entry("routes")) == kept[1:2]
    assert controller.read(group) == [group]
    assert controller.read(program.entry(HOSTS, is_default_action=True)) == [default]


def test_reconcile_refuses_what_it_cannot_keep(controller, program):
    controller.insert(program.host(1), program.host(2))
    refused = controller.refusal(controller.set_pipeline, smaller(program), "RECONCILE_AND_COMMIT")
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert len(hosts(controller, program)) == 2


def test_reconcile_with_the_same_config_keeps_even_counters(controller, program):
    cell = p4r.Entity(counter_entry={"counter_id": program.id("arrivals"), "index": {"index": 1}})
    counted = p4r.Entity()
    counted.CopyFrom(cell)
    counted.counter_entry.data.packet_count = 5
    controller.modify(counted)
    controller.set_pipeline(with_cookie(program.config, 42), "RECONCILE_AND_COMMIT")
    assert controller.read(cell) == [counted]
    assert controller.get_pipeline("COOKIE_ONLY").config.cookie.cookie == 42


def as_version_2(program):
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(program.config)
    config.p4info.pkg_info.version = "2"
    return config


def registers(program, index, value=None):
    entry = p4r.RegisterEntry(register_id=program.id("last_type"), index={"index": index})
    if value is not None:
        entry.data.bitstring = value
    return p4r.Entity(register_entry=entry)


def counters(program, index, packets=None):
    entry = p4r.CounterEntry(counter_id=program.id("arrivals"), index={"index": index})
    if packets is not None:
        entry.data.packet_count = packets
    return p4r.Entity(counter_entry=entry)


def direct(entity, packets=None):
    entry = p4r.DirectCounterEntry(table_entry=entity.table_entry)
    entry.table_entry.ClearField("action")
    if packets is not None:
        entry.data.packet_count = packets
    return p4r.Entity(direct_counter_entry=entry)


def test_reconcile_keeps_the_cells_of_registers_and_counters(controller, program):
    controller.insert(program.host(1))
    cells = [
        registers(program, 3, b"\7"),
        counters(program, 1, packets=5),
        direct(program.host(1), packets=9),
    ]
    controller.modify(*cells)
    controller.set_pipeline(as_version_2(program), "RECONCILE_AND_COMMIT")
    assert controller.read(registers(program, 3), counters(program, 1), direct(program.host(1))) == cells
    controller.set_pipeline(program.config)
    assert controller.read(registers(program, 3)) == [registers(program, 3, b"\0")]


def resized(program, kind):
    """The program with twice as many cells in its registers or counters."""
    config = as_version_2(program)
    document = json.loads(program.device_config)
    for array in document[kind]:
        if not array.get("is_direct"):
            array["size"] *= 2
    config.p4_device_config = json.dumps(document).encode()
    for described in (*config.p4info.registers, *config.p4info.counters):
        described.size *= 2
    return config


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["register_arrays", "counter_arrays"])
def test_cells_of_another_register_or_counter_start_at_zero(controller, program, kind):
    cells = {
        "register_arrays": (
            registers(program, 3, b"\7"),
            registers(program, 3, b"\0"),
            registers(program, 3),
        ),
        "counter_arrays": (
            counters(program, 1, packets=5),
            counters(program, 1, packets=0),
            counters(program, 1),
        ),
    }
    for written, _, _ in cells.values():
        controller.modify(written)
    controller.set_pipeline(resized(program, kind), "RECONCILE_AND_COMMIT")
    for other, (written, zero, query) in cells.items():
        assert controller.read(query) == [zero if other == kind else written]


def with_another_key(program, **changes):
    """The program with another key field in the table of hosts: id and match kind stay."""
    config = as_version_2(program)
    [table] = [table for table in config.p4info.tables if table.preamble.alias == HOSTS]
    for name, value in changes.items():
        setattr(table.match_fields[0], name, value)
    return config


@pytest.mark.parametrize("changes", [{"name": "hdr.ethernet.type"}, {"bitwidth": 16}])
def test_reconcile_refuses_entries_whose_key_is_another_field_now(controller, program, changes):
    controller.set_pipeline(with_another_key(program, **changes), "RECONCILE_AND_COMMIT")  # no entries: fine
    controller.set_pipeline(program.config)
    controller.insert(program.host(0x1122))
    refused = controller.refusal(
        controller.set_pipeline, with_another_key(program, **changes), "RECONCILE_AND_COMMIT"
    )
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "hdr.ethernet.destination (bit<48>), but would be" in refused.message
    assert hosts(controller, program) == [program.host(0x1122)]


@pytest.mark.parametrize("number", [4, 99, -1])
def test_an_unknown_response_type_is_refused_with_those_there_are(primary, number):
    refused = primary.refusal(primary.get_pipeline, number)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert f"response_type {number} does not exist" in refused.message
    assert "COOKIE_ONLY (1)" in refused.message


def without_p4info(program):
    return p4r.ForwardingPipelineConfig(p4_device_config=program.device_config)


def not_json(program):
    return p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=b"{")


def without_a_table(program):
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(program.config)
    config.p4info.tables[0].preamble.name = "Forward.elsewhere"
    return config


def with_another_match_kind(program):
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(program.config)
    (routes,) = (table for table in config.p4info.tables if table.preamble.alias == "routes")
    routes.match_fields[0].match_type = 2
    return config


@pytest.mark.parametrize(
    ("action", "make", "why"),
    [
        ("UNSPECIFIED", lambda program: program.config, "no action"),
        ("VERIFY_AND_COMMIT", lambda _: None, "needs both"),
        ("VERIFY_AND_COMMIT", without_p4info, "needs both"),
        ("VERIFY_AND_COMMIT", not_json, "cannot be loaded"),
        ("VERIFY", not_json, "cannot be loaded"),
        ("VERIFY", without_a_table, "Forward.elsewhere"),
        ("VERIFY", with_another_match_kind, "lpm match here"),
        ("COMMIT", lambda program: program.config, "leave config unset"),
    ],
)
def test_a_wrong_config_is_refused_and_the_present_one_stays(controller, program, action, make, why):
    controller.insert(program.host(1))
    refused = controller.refusal(controller.set_pipeline, make(program), action)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert why in refused.message
    assert hosts(controller, program) == [program.host(1)]


def test_a_table_that_the_compiler_found_to_be_never_applied_takes_no_entries(primary, program):
    """p4c drops it from the JSON alone, with its counter."""
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(program.config)
    table, counter = config.p4info.tables.add(), config.p4info.direct_counters.add()
    table.CopyFrom(program.p4info.tables[0])
    table.preamble.name, table.preamble.id = "Forward.never", 0x0200BEEF
    counter.direct_table_id = table.preamble.id
    primary.set_pipeline(config)
    primary.insert(program.host(1))
    entry = p4r.Entity(table_entry=p4r.TableEntry(table_id=0x0200BEEF))
    assert "no table with the id 0x200beef" in primary.refusal(primary.insert, entry).message


def test_capabilities_tell_the_version(primary):
    assert primary.stub.Capabilities(p4r.CapabilitiesRequest()).p4runtime_api_version.startswith("1.")
    with pytest.raises(grpc.RpcError) as caught:
        primary.stub.Capabilities(p4r.CapabilitiesRequest(device_id=99))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_device_config_may_come_in_the_old_wrapper(primary, program):
    """p4.tmp.P4DeviceConfig: reassign = 1, device_data = 3; the P4 tutorials' controllers send it."""
    size, varint = len(program.device_config), bytearray()
    while size:
        varint.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
    wrapped = b"\x08\x01\x1a" + varint + program.device_config
    primary.set_pipeline(p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=wrapped))
    assert primary.get_pipeline().config.p4_device_config == wrapped


def test_a_port_that_does_not_open_is_named(program):
    device = Device({1: "nowhere0"}, cpu_port=None, drop_port=511)
    pipeline = device.load(program.config)
    with pytest.raises(P4RuntimeError, match="nowhere0") as refused:
        device.commit(pipeline)
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert device.pipeline is None


def test_an_action_that_a_control_calls_as_well_has_its_parameters_in_a_table(primary, tmp_path):
    """Compilers write it twice under one name: once with the parameters, once with those of the call bound."""
    path = tmp_path / "called.p4"
    path.write_text(
        """#include <v1model.p4>
        struct headers {} struct metadata {}
        parser P(packet_in p, out headers h, inout metadata m, inout standard_metadata_t s) {
            state start { transition accept; } }
        control V(inout headers h, inout metadata m) { apply {} }
        control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
            action forward(bit<9> port) { s.egress_spec = port; }
            table t { key = { s.ingress_port: exact; } actions = { forward; } }
            apply { forward(1); t.apply(); } }
        control E(inout headers h, inout metadata m, inout standard_metadata_t s) { apply {} }
        control D(packet_out p, in headers h) { apply {} }
        V1Switch(P(), V(), I(), E(), V(), D()) main;"""
    )
    compiled = compile_file(path)
    assert [a["runtime_data"] for a in compiled.json["actions"] if a["name"] == "I.forward"] != [[], []]
    called = Program(compiled.p4info, compiled.device_config())
    primary.set_pipeline(called.config)
    primary.insert(called.entry("t", called.exact(3), action=called.action("forward", b"\x05")))
    assert len(primary.read(called.entry("t"))) == 1


# A program is data, whoever sends it.


def changed(program, change):
    document = json.loads(program.device_config)
    change(document)
    return p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=json.dumps(document).encode())


def test_a_name_cannot_bring_code_along(primary, program, tmp_path):
    """Not even to be verified: a comment that ends early, then a function that runs when the library is loaded."""
    canary = tmp_path / "canary"
    code = f'*/\n__attribute__((constructor)) static void f(void) {{ system("touch {canary}"); }}\n/*'
    hostile = changed(program, lambda document: document["header_types"][-1].update(name=code))
    refused = primary.refusal(primary.set_pipeline, hostile, "VERIFY")
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "cannot be in a name" in refused.message
    assert not canary.exists()


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("device_config", "why"),
    [
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"{" + b" " * (64 << 20), "bytes, and may have"),
        (json.dumps({"\ud800" * 100_000: 1}).encode(), "version 2.x is needed"),
    ],
)
def test_a_document_made_to_explode_is_refused(primary, program, device_config, why):
    config = p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=device_config)
    refused = primary.refusal(primary.set_pipeline, config, "VERIFY")
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert why in refused.message


def test_state_beyond_the_machine_s_memory_is_refused(primary, program):
    register = {"name": "r", "id": 99, "size": 2**32 - 1, "bitwidth": 64}
    large = changed(program, lambda document: document["register_arrays"].append(register))
    refused = primary.refusal(primary.set_pipeline, large, "VERIFY")
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "register r: 4294967295 cells of 8 bytes" in refused.message


def test_a_compilation_beyond_its_limits_is_an_error_of_its_own(primary, program, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("fanin.native.toolchain.MAX_MEMORY", 16 << 20)
    another = program.config
    another.p4_device_config += b" "  # not the very bytes that this process has compiled before
    refused = primary.refusal(primary.set_pipeline, another, "VERIFY")
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "MiB of memory" in refused.message


def test_reading_a_pipeline_before_one_is_set_can_fail_as_in_bmv2(device, program):
    server, port = serve(P4RuntimeService(device, DEVICE_ID, empty_config=False), "127.0.0.1:0")
    controller = Controller(f"127.0.0.1:{port}").become_primary()
    refused = controller.refusal(controller.get_pipeline)
    assert refused.code.name == "FAILED_PRECONDITION"
    controller.set_pipeline(program.config)
    assert controller.get_pipeline().config == program.config
    controller.close()
    server.stop(grace=0).wait()
