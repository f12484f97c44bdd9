"""finsy, a P4Runtime controller that others wrote, works on the switch."""

import asyncio

import finsy as fy
import grpc
import pytest
from google.protobuf import text_format

FRAME = bytes.fromhex("0000000000bb 0000000000aa 0800") + b"payload"


@pytest.fixture
def files(program, tmp_path):
    """The program's P4Info text and BMv2 JSON, as a compiler leaves them."""
    info, blob = tmp_path / "switch.p4info.txtpb", tmp_path / "switch.json"
    info.write_text(text_format.MessageToString(program.p4info))
    blob.write_bytes(program.device_config)
    return info, blob


@pytest.fixture
def on_switch(address, files):
    """Runs a coroutine on a finsy Switch whose pipeline has been set."""

    def on_switch(work, **options):
        async def run():
            p4info, p4blob = files
            with_files = fy.SwitchOptions(p4info=p4info, p4blob=p4blob, device_id=1, **options)
            async with fy.Switch("s1", address, with_files) as switch:
                await work(switch)

        asyncio.run(asyncio.wait_for(run(), 30))

    return on_switch


def host(address, port=1):
    return fy.P4TableEntry(
        "hosts", match=fy.Match(destination=address), action=fy.Action("forward", port=port)
    )


async def read(switch, entity):
    return [found async for found in switch.read(entity)]


def test_the_pipeline_is_set_and_not_set_again(on_switch):
    async def work(switch):
        assert switch.is_primary
        assert len(switch.p4info.tables) == 4

    on_switch(work)
    on_switch(work)


def test_entries_are_inserted_read_modified_and_deleted(on_switch):
    async def work(switch):
        await switch.insert([host(1), host(2)])
        assert len(await read(switch, fy.P4TableEntry("hosts"))) == 2
        await switch.modify([host(1, port=5)])
        (found,) = await read(switch, host(1))
        assert found.action.args == {"port": 5}
        await switch.delete([host(1)])
        with pytest.raises(fy.P4ClientError) as refused:
            await switch.insert([host(2)])
        assert refused.value.details[0].canonical_code is fy.GRPCStatusCode.ALREADY_EXISTS
        await switch.delete_all()
        assert await read(switch, fy.P4TableEntry("hosts")) == []

    on_switch(work)


def test_groups_counters_and_registers(on_switch):
    async def work(switch):
        await switch.write([+fy.P4MulticastGroupEntry(3, replicas=[1, (2, 7)])])
        (group,) = await read(switch, fy.P4MulticastGroupEntry())
        assert group.replicas[0] == 1
        assert (group.replicas[1].port, group.replicas[1].instance) == (2, 7)
        await switch.modify([fy.P4CounterEntry("arrivals", index=2, data=fy.P4CounterData(packet_count=9))])
        (count,) = await read(switch, fy.P4CounterEntry("arrivals", index=2))
        assert count.data.packet_count == 9
        await switch.modify([fy.P4RegisterEntry("balance", index=1, data=-3)])
        cells = await read(switch, fy.P4RegisterEntry("balance"))
        assert [cell.data for cell in cells] == [0, -3, 0, 0]
        await switch.insert([host(1)])
        (direct,) = await read(switch, fy.P4DirectCounterEntry("host_hits"))
        assert direct.data.packet_count == 0

    on_switch(work)


def test_packets_go_out_and_come_in(on_switch):
    async def work(switch):
        packets = switch.read_packets()
        waiting = asyncio.ensure_future(anext(packets))
        await asyncio.sleep(0)
        await switch.write([fy.P4PacketOut(b"\x00\x81" + FRAME, egress_port=255, pad=0)])
        packet = await waiting
        assert packet.payload == FRAME
        assert packet["ingress_port"] == 1
        assert packet["reason"] == 1

    on_switch(work)


def test_two_controllers_one_primary(on_switch):
    async def first(one):
        async def second(two):
            assert not two.is_primary
            assert await read(two, fy.P4TableEntry("hosts")) == []

        options = one.options
        async with fy.Switch("s2", one.address, options(initial_election_id=5)) as two:
            await second(two)

    on_switch(first)


def test_a_client_of_a_higher_election_id_pushes_its_program_beside_the_primary(
    controller, on_switch, program
):
    """As finsy beside `fanin up`: the switch is the newcomer's, program and all."""

    async def work(switch):
        assert switch.is_primary
        await switch.insert([host(1)])
        assert len(await read(switch, fy.P4TableEntry("hosts"))) == 1
        refused = controller.refusal(controller.insert, program.host(7))
        assert refused.code is grpc.StatusCode.PERMISSION_DENIED
        assert len(await read(switch, fy.P4TableEntry("hosts"))) == 1

    on_switch(work, initial_election_id=5000)
