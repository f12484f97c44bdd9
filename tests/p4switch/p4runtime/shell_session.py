"""A session of p4runtime-shell, run by its own interpreter: prints what it saw as JSON.

Arguments: the server's address, the P4Info text file, the BMv2 JSON file.
"""

import json
import sys

import p4runtime_sh.shell as sh

address, p4info, device_config = sys.argv[1:]
seen = {}
sh.setup(device_id=1, grpc_addr=address, election_id=(0, 1), config=sh.FwdPipeConfig(p4info, device_config))
try:
    entry = sh.TableEntry("hosts")(action="forward")
    entry.match["destination"] = "00:00:00:00:00:01"
    entry.action["port"] = "5"
    entry.insert()
    try:
        entry.insert()
    except Exception as error:
        seen["twice"] = str(error)

    route = sh.TableEntry("routes")(action="forward")
    route.match["address"] = "10.0.0.0/8"
    route.action["port"] = "6"
    route.insert()

    acl = sh.TableEntry("acl")(action="drop")
    acl.match["type"] = "0x800 &&& 0xffff"
    acl.priority = 3
    acl.insert()

    tables = ("hosts", "routes", "acl", "well_known")
    seen["entries"] = {table: len(list(sh.TableEntry(table).read())) for table in tables}
    default = sh.TableEntry("hosts")(action="forward", is_default=True)
    default.action["port"] = "9"
    default.modify()
    entry.delete()
    seen["after delete"] = len(list(sh.TableEntry("hosts").read()))

    counter = sh.CounterEntry("arrivals")
    counter.index = 2
    counter.packet_count = 11
    counter.modify()
    seen["counter"] = [cell.packet_count for cell in sh.CounterEntry("arrivals").read()]
    entry.insert()
    seen["direct counter"] = [cell.packet_count for cell in sh.DirectCounterEntry("host_hits").read()]

    group = sh.MulticastGroupEntry(4).add(1, 1).add(2, 1)
    group.insert()
    seen["groups"] = [len(found.replicas) for found in sh.MulticastGroupEntry().read()]

    packet_in = sh.PacketIn()
    packet_out = sh.PacketOut(b"\x00\x81" + bytes(14) + b"payload", egress_port="255", pad="0")
    packet_out.send()
    seen["packet"] = packet_in.packet_in_queue.get(timeout=10).packet.payload.hex()
    seen["version"] = str(sh.APIVersion())
finally:
    sh.teardown()
print(json.dumps(seen))
