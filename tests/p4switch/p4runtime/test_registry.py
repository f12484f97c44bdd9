"""The kinds of entities that the service knows."""

from finsy.proto import p4r

from fanin.p4switch.p4runtime.entities.registry import KINDS

UNIONS = {"packet_replication_engine_entry"}
UNSUPPORTED = {"extern_entry"}  # a program here has no externs of its own


def test_every_field_of_an_entity_has_one_kind():
    there = set(p4r.Entity.DESCRIPTOR.fields_by_name) - UNIONS - UNSUPPORTED
    there |= set(p4r.PacketReplicationEngineEntry.DESCRIPTOR.fields_by_name)
    assert sorted(kind.field for kind in KINDS) == sorted(there)
