"""Circuits of an optical switch: who gets one, and when it is there."""

from __future__ import annotations

from ipaddress import IPv4Address
from math import inf

import pytest

from fanin.simulator.hosts.circuits import Circuits

A, B, C, D = (IPv4Address(f"10.0.0.{number}") for number in range(1, 5))
CHANGE = 10.0


class Hosts:
    """Circuits, and until when each host still sends to another."""

    def __init__(self) -> None:
        self.until: dict[tuple[IPv4Address, IPv4Address], float] = {}
        self.circuits = Circuits(CHANGE)
        for host in (A, B, C, D):
            self.circuits.attach(host, lambda to, now, host=host: self.until.get((host, to), now))  # type: ignore[misc]


def test_a_circuit_takes_its_time_once() -> None:
    hosts = Hosts()
    assert hosts.circuits.up_at(A, B, 5.0) == 15.0
    assert hosts.circuits.up_at(A, B, 30.0) == 15.0
    assert hosts.circuits.changes == 1


def test_each_fibre_is_switched_by_itself() -> None:
    hosts = Hosts()
    ring = [hosts.circuits.up_at(*pair, 0.0) for pair in ((A, B), (B, C), (C, D), (D, A))]
    assert ring == [CHANGE] * 4


def test_a_change_begins_when_both_ends_have_sent_what_they_had() -> None:
    hosts = Hosts()
    hosts.circuits.up_at(A, B, 0.0)
    hosts.circuits.up_at(C, D, 0.0)
    hosts.until = {(A, B): 20.0, (C, D): 25.0}
    assert hosts.circuits.up_at(A, D, 15.0) == 25.0 + CHANGE
    # D no longer receives from C, which needs another circuit.
    hosts.until = {(A, D): 40.0}
    assert hosts.circuits.up_at(C, D, 36.0) == 40.0 + CHANGE


def test_a_host_asks_again_while_an_end_has_more_to_send() -> None:
    hosts = Hosts()
    hosts.circuits.up_at(A, B, 0.0)
    hosts.until = {(A, B): inf}
    assert hosts.circuits.up_at(C, B, 12.0) == pytest.approx(12.0, abs=1e-3)
    assert hosts.circuits.changes == 1
    assert hosts.circuits.up_at(A, B, 12.0) == CHANGE
