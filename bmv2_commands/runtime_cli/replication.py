"""Commands of simple_switch_CLI for multicast groups, mirroring sessions and queues."""

from __future__ import annotations

import json
from collections.abc import Callable

from fanin.bmv2_commands.runtime_cli.prompt import RuntimeCli, command, simple
from fanin.bmv2_commands.runtime_cli.words import CliError, number_of, port_map, ports_and_lags
from fanin.p4switch.bmv2_runtime import interface as bm


@command("mc_node_create INSTANCE PORT… [| LAG…]", "Create a node")
def _mc_node_create(cli: RuntimeCli, words: list[str]) -> None:
    rid, *words = words
    ports, lags = ports_and_lags(words)
    print(f"Creating node with rid {rid} , port map {ports} and lag map {lags}")
    handle = cli.mc.bm_mc_node_create(0, number_of(rid), ports, lags)
    print(f"node was created with handle {handle}")


@command("mc_node_update NODE PORT… [| LAG…]", "Replace the ports of a node")
def _mc_node_update(cli: RuntimeCli, words: list[str]) -> None:
    node, *words = words
    cli.mc.bm_mc_node_update(0, number_of(node), *ports_and_lags(words))


@command("mc_set_lag_membership LAG PORT…", "Set the ports of a group of links")
def _mc_set_lag_membership(cli: RuntimeCli, words: list[str]) -> None:
    lag, *words = words
    cli.mc.bm_mc_set_lag_membership(0, number_of(lag), port_map(words))


@command("mc_dump", "Show groups and nodes")
def _mc_dump(cli: RuntimeCli, _words: list[str]) -> None:
    entries = json.loads(cli.mc.bm_mc_get_entries(0))
    places = {each["handle"]: each for each in entries["l2_handles"]}
    nodes = {each["handle"]: each for each in entries["l1_handles"]}

    def show(handle: int) -> None:
        node, place = nodes.pop(handle), places[handle]
        ports, lags = (", ".join(map(str, place[kind])) for kind in ("ports", "lags"))
        print(f"  -> (L1h={handle}, rid={node['rid']}) -> (ports=[{ports}], lags=[{lags}])")

    print("==========\nMC ENTRIES")
    for group in entries["mgrps"]:
        print(f"**********\nmgrp({group['id']})")
        for handle in group["l1_handles"]:
            show(handle)
    print("==========\nNODES WITHOUT A GROUP")
    for handle in list(nodes):
        show(handle)
    print("==========\nLAGS")
    for lag in entries["lags"]:
        print(f"lag({lag['id']}) -> ports=[{', '.join(map(str, lag['ports']))}]")
    print("==========")


# -- mirroring and queues


@command("mirroring_add SESSION PORT", "Let a mirroring session send to a port")
def _mirroring_add(cli: RuntimeCli, words: list[str]) -> None:
    session, port = map(number_of, words)
    cli.target.mirroring_session_add(session, bm.MirroringSessionConfig(port=port))


@command("mirroring_add_mc SESSION GROUP", "Let a mirroring session send to a multicast group")
def _mirroring_add_mc(cli: RuntimeCli, words: list[str]) -> None:
    session, group = map(number_of, words)
    cli.target.mirroring_session_add(session, bm.MirroringSessionConfig(mgid=group))


@command("set_queue_rate RATE [PORT [PRIORITY]]", "Set packets per second of a port, or of all")
def _set_queue_rate(cli: RuntimeCli, words: list[str]) -> None:
    to = cli.target
    _set_queue(
        words, to.set_all_egress_queue_rates, to.set_egress_queue_rate, to.set_egress_priority_queue_rate
    )


@command("set_queue_depth PACKETS [PORT [PRIORITY]]", "Set the packets that wait for a port, or for all")
def _set_queue_depth(cli: RuntimeCli, words: list[str]) -> None:
    to = cli.target
    _set_queue(
        words, to.set_all_egress_queue_depths, to.set_egress_queue_depth, to.set_egress_priority_queue_depth
    )


def _set_queue(words: list[str], *methods: Callable[..., int]) -> None:
    """Call the method for so many words behind the value."""
    value, *place = map(number_of, words)
    if len(place) >= len(methods):
        raise CliError("write a port and a priority at most")
    if methods[len(place)](*place, value):
        raise CliError("the switch has no such port, or the value is out of range")


# fmt: off
simple("mc_mgrp_create GROUP", "Create a multicast group", "bm_mc_mgrp_create", says="Creating multicast group {0}")
simple("mc_mgrp_destroy GROUP",
       "Remove a multicast group", "bm_mc_mgrp_destroy", says="Destroying multicast group {0}")
simple("mc_node_associate GROUP NODE",
       "Add a node to a group", "bm_mc_node_associate", says="Associating node {1} to multicast group {0}")
simple("mc_node_dissociate GROUP NODE",
       "Remove a node from a group", "bm_mc_node_dissociate", says="Dissociating node {1} from multicast group {0}")
simple("mc_node_destroy NODE", "Remove a node", "bm_mc_node_destroy", says="Destroying node {0}")
simple("mirroring_delete SESSION", "Remove a mirroring session", "mirroring_session_delete")
simple("mirroring_get SESSION", "Show a mirroring session", "mirroring_session_get", answers="{}")
# fmt: on
