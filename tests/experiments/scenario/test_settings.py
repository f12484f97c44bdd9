"""Settings of a point: what is derived from keys follows them."""

from fanin.experiments.scenario.settings import Settings

EIGHT = {"topology": {"leaf_spine": {"leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s"}}, "size": "1 MB"}


def test_a_copy_derives_its_hosts_and_servers_from_the_changed_keys() -> None:
    point = Settings.model_validate(EIGHT | {"workers": 4, "protocol": "atp"})
    assert len(point.members) == len(point.outside) == 4
    assert point.servers_needed == 1
    assert len(point.model_copy(update={"workers": 6}).members) == 6
    assert len(point.model_copy(update={"workers": 6}).outside) == 2
    assert point.model_copy(update={"algorithm": "ring"}).servers_needed == 0
    assert len(point.members) == 4


def test_a_copy_has_the_network_of_its_keys_and_shares_one_that_is_the_same() -> None:
    point, other = (Settings.model_validate(EIGHT | {"links": {"loss": loss}}) for loss in ("0%", "1%"))
    assert point.model_copy(update={"workers": 6}).network is point.network
    assert point.model_copy(update={"links": other.links}).network == other.network != point.network
