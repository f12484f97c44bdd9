"""The gNMI messages, taken from finsy like those of P4Runtime. Only switches that a gNMI client calls load them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from finsy.proto import gnmi
else:
    from importlib import import_module

    from fanin.p4switch.p4runtime.proto import ALIAS

    gnmi = import_module(f"{ALIAS}.gnmi1.gnmi_pb2")

__all__ = ["gnmi"]
