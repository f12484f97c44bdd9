"""finsy's view of a program, and what it cannot tell apart."""

import pytest
from finsy.proto import p4i

from fanin.controller.errors import ControllerError
from fanin.controller.schema import schema_of


def table(*names: str) -> p4i.P4Info:
    fields = [
        p4i.MatchField(id=number, name=name, bitwidth=32, match_type=p4i.MatchField.EXACT)
        for number, name in enumerate(names, start=1)
    ]
    preamble = p4i.Preamble(id=0x02000001, name="ingress.pairs", alias="pairs")
    return p4i.P4Info(tables=[p4i.Table(preamble=preamble, match_fields=fields)])


def test_keys_are_known_in_full_and_by_their_last_name() -> None:
    fields = schema_of(table("hdr.ipv4.source", "hdr.ipv4.destination")).tables["pairs"].match_fields
    assert fields["hdr.ipv4.source"] is fields["source"]


def test_keys_that_end_in_the_same_name_are_refused_with_the_way_out() -> None:
    with pytest.raises(ControllerError) as refused:
        schema_of(table("hdr.ipv4.source", "hdr.udp.source", "hdr.ipv4.destination"))
    assert str(refused.value) == (
        "table ingress.pairs: the keys hdr.ipv4.source and hdr.udp.source end in the same name, so that finsy cannot "
        'distinguish them; give one another name: hdr.udp.source: … @name("other")'
    )
