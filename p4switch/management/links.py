"""The management calls "Links" and "SetLink": emulated links of a running switch, read and changed."""

from __future__ import annotations

from typing import Any

from fanin.p4switch.engine.links import Direction, LinkError
from fanin.p4switch.engine.live_ports import PortError
from fanin.p4switch.management.service import ManagementError, Method
from fanin.p4switch.p4runtime.device import Device


def link_calls(device: Device) -> dict[str, Method]:
    """Both calls on a device.

    Links: {} gives {"ports": [...]}, as Device.ports has it; {"port": 1} that port alone.
    SetLink: {"port": 1, "direction": "egress" or "ingress", "properties": {...}} gives what Links then does for that
    port; properties as links.changed has them; those not named stay.

    What cannot be done is a ManagementError of the call.
    """

    def links(request: dict[str, Any]) -> dict[str, Any]:
        found = device.ports()
        if "port" in request:
            found = [port for port in found if port["port"] == request["port"]]
            if not found:
                raise ManagementError(f"the switch has no port {request['port']}")
        return {"ports": found}

    def set_link(request: dict[str, Any]) -> dict[str, Any]:
        match request:
            case {
                "port": int(port),
                "direction": "egress" | "ingress" as direction,
                "properties": dict(given),
            }:
                pass
            case _:
                raise ManagementError(
                    "SetLink needs a port (a number), a direction (egress, ingress) and properties"
                )
        try:
            device.set_link(port, Direction(direction), given)
        except (LinkError, PortError) as error:
            raise ManagementError(str(error)) from None
        return links({"port": port})

    return {"Links": links, "SetLink": set_link}
