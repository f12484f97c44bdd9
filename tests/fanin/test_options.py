"""The same thing has the same option in every verb."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from fanin.cli import VERBS, load

# Verbs that look into a network that is up or change it: which one is meant, where there are several.
ON_A_NETWORK = {
    "shell",
    "exec",
    "jobs",
    "launch",
    "link",
    "allreduce",
    "tables",
    "counters",
    "top",
    "why",
    "packet",
    "trace",
}


def options() -> Iterator[tuple[str, Any]]:
    """Each verb and each of its options."""
    for name in VERBS:
        command = load(name)
        for each in (command, *getattr(command, "commands", {}).values()):
            for parameter in each.params:
                if parameter.param_type_name == "option":
                    yield name, parameter


def test_a_value_has_one_option_in_all_verbs() -> None:
    spelled: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for _, option in options():
        spelled[option.name].add((*option.opts, *option.secondary_opts))
    assert {name: ways for name, ways in spelled.items() if len(ways) > 1} == {}


def test_which_network_is_meant_is_said_alike() -> None:
    assert {verb for verb, option in options() if "--network" in option.opts} == ON_A_NETWORK
    assert not [verb for verb, option in options() if "--run" in option.opts]
