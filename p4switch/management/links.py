"""The management calls "Links" and "SetLink", which read and change the emulated links of a running switch."""

from __future__ import annotations

from typing import Any

from fanin.p4switch.engine.links import Direction, LinkError
from fanin.p4switch.engine.live_ports import PortError
from fanin.p4switch.management.service import ManagementError, Method
from fanin.p4switch.p4runtime.device import Device


def link_calls(device: Device) -> dict[str, Method]:
    """Return the calls on the links of a device.

    Links: {} returns {"ports": [...]}, as Device.ports does; {"port": 1} only that port.
    SetLink: {"port": 1, "direction": "egress" or "ingress", "properties": {...}} returns what Links then returns for
    that port. Properties are those of links.changed; others keep their values.

    Errors are raised as ManagementError.
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
