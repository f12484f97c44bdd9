"""The same controller in p4runtime-shell."""

import p4runtime_sh.shell as sh

config = sh.FwdPipeConfig("forward.p4info.txtpb", "forward.json")
sh.setup(device_id=1, grpc_addr="127.0.0.1:9559", election_id=(0, 11), config=config)
entry = sh.TableEntry("hosts")(action="forward")
entry.match["hdr.ethernet.dst"] = "02:00:00:00:00:02"
entry.action["port"] = "2"
entry.insert()
sh.teardown()
