"""Batches that are carried out whole or not at all: what undoes each update, found before it is carried out."""

from __future__ import annotations

from collections.abc import Iterator

from p4switch.engine.entries import TableError
from p4switch.p4runtime.entities.index import Entities
from p4switch.p4runtime.errors import P4RuntimeError
from p4switch.p4runtime.proto import p4r


def undoing(entities: Entities, update: p4r.Update) -> list[p4r.Update]:
    """The updates that bring back what an update is about to change; empty where it will be refused anyway."""
    if update.type == p4r.Update.INSERT:
        return [p4r.Update(type=p4r.Update.DELETE, entity=update.entity)]
    kind = p4r.Update.INSERT if update.type == p4r.Update.DELETE else p4r.Update.MODIFY
    try:
        return [p4r.Update(type=kind, entity=entity) for entity in _present(entities, update.entity)]
    except (P4RuntimeError, TableError):
        return []


def _present(entities: Entities, entity: p4r.Entity) -> Iterator[p4r.Entity]:
    """What an entity is now, as it would be written."""
    query = p4r.Entity()
    query.CopyFrom(entity)
    if query.WhichOneof("entity") == "table_entry":
        entry = query.table_entry
        table = entities.tables.get(entry.table_id)
        entry.ClearField("action")
        entry.controller_metadata, entry.metadata, entry.idle_timeout_ns = 0, b"", 0
        if table is not None and table.resources.counted:
            entry.counter_data.SetInParent()
        if table is not None and table.resources.meter is not None:
            entry.meter_config.SetInParent()
            entry.meter_counter_data.SetInParent()
    elif query.WhichOneof("entity") == "direct_meter_entry":
        query.direct_meter_entry.counter_data.SetInParent()
    elif query.WhichOneof("entity") == "meter_entry":
        query.meter_entry.counter_data.SetInParent()
    for found in entities.read(query):
        if found.WhichOneof("entity") == "table_entry":
            found.table_entry.is_const = False
            table = entities.tables[found.table_entry.table_id]
            if found.table_entry.is_default_action and not table.default_is_ours:
                found.table_entry.ClearField("action")
        yield found
