"""Command `simple_switch_CLI`: what BMv2's command line tool does, over the same interface (Thrift)."""

from __future__ import annotations

import argparse
import cmd
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TMultiplexedProtocol import TMultiplexedProtocol
from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from fanin.native.text import printable
from fanin.p4switch.bmv2_runtime import interface as bm
from fanin.p4switch.bmv2_runtime.types import Client, Service, ThriftError
from fanin.p4switch.bmv2json.program import Action, Program, Table
from fanin.p4switch.reader import read_program

_HISTORY = Path("~/.simple_switch_CLI_history").expanduser()
_MAX_PORTS = 512
_Object = TypeVar("_Object")

# What each error is about, and the names of its codes.
_ERRORS: Mapping[type[ThriftError], tuple[str, Any]] = {
    bm.InvalidTableOperation: ("table", bm.TableOperationErrorCode),
    bm.InvalidCounterOperation: ("counter", bm.CounterOperationErrorCode),
    bm.InvalidMeterOperation: ("meter", bm.MeterOperationErrorCode),
    bm.InvalidRegisterOperation: ("register", bm.RegisterOperationErrorCode),
    bm.InvalidLearnOperation: ("learn", bm.LearnOperationErrorCode),
    bm.InvalidSwapOperation: ("swap", bm.SwapOperationErrorCode),
    bm.InvalidDevMgrOperation: ("device manager", bm.DevMgrErrorCode),
    bm.InvalidCrcOperation: ("crc", bm.CrcErrorCode),
    bm.InvalidToeplitzHashOperation: ("toeplitz hash", bm.ToeplitzHashErrorCode),
    bm.InvalidParseVSetOperation: ("parser value set", bm.ParseVSetOperationErrorCode),
    bm.InvalidMcOperation: ("PRE", bm.McOperationErrorCode),
    bm.InvalidMirroringOperation: ("mirroring", bm.MirroringOperationErrorCode),
}


class CliError(Exception):
    """Command that is not correct. The message explains what is wrong, and what to write."""


def main(argv: Sequence[str] | None = None) -> int:
    """Read commands from the standard input, or at a prompt, until its end.

    Args:
        argv: The arguments; None uses the process's own.

    Returns:
        The exit status: 0, or 1 if there is no switch.
    """
    parser = argparse.ArgumentParser(
        prog="simple_switch_CLI", description="Read and write the tables of a running switch."
    )
    parser.add_argument("--thrift-port", type=int, default=9090, metavar="PORT", help="default 9090")
    parser.add_argument("--thrift-ip", default="localhost", metavar="HOST", help="default localhost")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the program; by default the switch's")
    parser.add_argument(
        "--pre", choices=("None", "SimplePre", "SimplePreLAG"), default="SimplePreLAG", help="accepted"
    )
    arguments = parser.parse_args(argv)
    transport = TBufferedTransport(TSocket(arguments.thrift_ip, arguments.thrift_port))
    try:
        transport.open()
    except TTransportException:
        print(
            f"Could not connect to a switch at {arguments.thrift_ip}:{arguments.thrift_port}: start it with "
            f"--thrift-port {arguments.thrift_port}, or give its port here with --thrift-port",
            file=sys.stderr,
        )
        return 1
    protocol = TBinaryProtocol(transport)
    cli = RuntimeCli(*(_client(s, protocol) for s in (bm.STANDARD, bm.SIMPLE_PRE_LAG, bm.SIMPLE_SWITCH)))
    try:
        cli.load(arguments.json.read_text() if arguments.json else cli.standard.bm_get_config())
        cli.run()
    except (TTransportException, TApplicationException, OSError) as error:
        print(f"simple_switch_CLI: {printable(str(error))}", file=sys.stderr)
        return 1
    finally:
        transport.close()
    return 0


def _client(service: Service, protocol: TBinaryProtocol) -> Client:
    client: Client = type("Client", (Client,), {"service": service})(
        TMultiplexedProtocol(protocol, service.name)
    )
    return client


def value_bytes(text: str, width: int) -> bytes:
    """Return a value as the switch takes it: decimal, 0x…, an address of Ethernet, IPv4 or IPv6.

    Raises:
        CliError: If it is no number, or does not fit.
    """
    number: int | None = None
    if re.fullmatch(r"[0-9a-fA-F]{1,2}(:[0-9a-fA-F]{1,2}){5}", text):
        number = int.from_bytes(bytes(int(part, 16) for part in text.split(":")), "big")
    elif "." in text or ":" in text:
        with suppress(ValueError):
            number = int(ip_address(text))
    else:
        with suppress(ValueError):
            number = int(text, 0) if text.lower().startswith(("0x", "0b")) else int(text)
    if number is None:
        raise CliError(f"{text} is not a number or an address")
    if not 0 <= number < 1 << width:
        raise CliError(f"{text} does not fit into {width} bits")
    return number.to_bytes((width + 7) // 8, "big")


class RuntimeCli(cmd.Cmd):
    """Prompt with BMv2's commands. Objects are named by any unique ending of their name: `ipv4_lpm`."""

    prompt = "RuntimeCmd: "
    intro = "Control utility for runtime P4 table manipulation"

    def __init__(self, standard: Client, replication: Client, target: Client) -> None:
        super().__init__()
        self.standard: Any = standard
        self._mc: Any = replication
        self._target: Any = target
        self._program: Program
        self._names: dict[str, dict[str, Any]] = {}

    def load(self, config: str) -> None:
        """Take the objects' names from a program."""
        program = self._program = read_program(config.encode())
        self._names = {
            "table": dict(program.tables),
            "action": {action.name: action for action in program.actions.values()},
            "profile": dict(program.profiles),
            "counter": dict(program.counters),
            "meter": dict(program.meters),
            "register": dict(program.registers),
            "value set": dict(program.value_sets),
            "calculation": dict(program.calculations),
        }

    def run(self) -> None:
        """Read commands until the end of the input. At a prompt, they are kept for the next time."""
        if not sys.stdin.isatty():
            self.cmdloop()
            return
        import readline  # not above: it writes to the terminal

        readline.set_completer_delims(" ")  # names have dots
        with suppress(OSError):
            readline.read_history_file(_HISTORY)
        try:
            self.cmdloop()
        except KeyboardInterrupt:
            print()
        finally:
            with suppress(OSError):
                readline.write_history_file(_HISTORY)

    # cmd.Cmd

    def onecmd(self, line: str) -> bool:
        """Carry out a command. Errors are printed, and the next command is read."""
        try:
            return bool(super().onecmd(line))
        except CliError as error:
            print(f"Error: {printable(str(error))}")
        except ThriftError as error:
            what, codes = _ERRORS.get(type(error), (type(error).__name__, None))
            name = codes(error.code).name if codes and error.code in iter(codes) else error.code
            print(f"Invalid {what} operation ({name})")
        except TApplicationException as error:
            print(f"Error: {printable(str(error.message or error))}")
        return False

    def emptyline(self) -> bool:
        """Do nothing."""
        return False

    def default(self, line: str) -> None:
        """Refuse an unknown command; lines that begin with # are comments."""
        if not line.startswith("#"):
            print(f"Error: unknown command {printable(line.split()[0])}; help lists the commands")

    def do_EOF(self, _line: str) -> bool:  # noqa: N802 - the name is cmd.Cmd's
        """End."""
        print()
        return True

    def do_exit(self, _line: str) -> bool:
        """End: exit"""
        return True

    do_quit = do_exit

    def completedefault(self, text: str, line: str, _begin: int, _end: int) -> list[str]:
        """Return the objects that a word may name."""
        words = line.split()
        place = len(words) - (0 if line.endswith(" ") else 1)
        kinds = _COMPLETED.get(words[0], ())
        if not 1 <= place <= len(kinds):
            return []
        known = self._names[kinds[place - 1]]
        if kinds[place - 1] == "action" and place > 1:
            with suppress(CliError):
                known = {action.name: action for action in self._find("table", words[1]).actions}
        return [name for name in known if name.startswith(text) or name.rpartition(".")[2].startswith(text)]

    # Arguments

    def _find(self, kind: str, name: str) -> Any:
        known = self._names[kind]
        if name in known:
            return known[name]
        found = [each for each in known if each.endswith(f".{name}")]
        if len(found) == 1:
            return known[found[0]]
        if found:
            raise CliError(f"{name} may be any of {', '.join(found)}: write more of its name")
        raise CliError(f"Invalid {kind} name ({name}); there are {', '.join(known) or 'none'}")

    def _table_action(self, table: Table, name: str) -> Action:
        found = [a for a in table.actions if a.name == name or a.name.endswith(f".{name}")]
        if len(found) != 1:
            raise CliError(
                f"Table {table.name} has no action {name}; it has {', '.join(a.name for a in table.actions)}"
            )
        return found[0]

    @staticmethod
    def _action_data(action: Action, words: Sequence[str]) -> list[bytes]:
        if len(words) != len(action.parameters):
            names = " ".join(f"{p.name}(bit<{p.width}>)" for p in action.parameters)
            raise CliError(
                f"Action {action.name} needs {len(action.parameters)} parameters"
                + (f": {names}" if names else "")
            )
        return [value_bytes(word, p.width) for word, p in zip(words, action.parameters, strict=True)]

    def _match_key(self, table: Table, words: Sequence[str]) -> list[bm.BmMatchParam]:
        if len(words) != len(table.keys):
            names = " ".join(f"{key.name}({key.kind}, bit<{key.width}>)" for key in table.keys)
            raise CliError(f"Table {table.name} needs {len(table.keys)} key fields: {names}")
        return [_match_param(w, key.kind, key.width) for w, key in zip(words, table.keys, strict=True)]

    def _key_and_rest(
        self, table: Table, words: Sequence[str], values: int
    ) -> tuple[list[bm.BmMatchParam], list[str], bm.BmAddEntryOptions]:
        """Split `KEY… => VALUES… [PRIORITY]` into key, values and options."""
        if "=>" in words:
            at = list(words).index("=>")
            key, rest = words[:at], list(words[at + 1 :])
        else:
            key, rest = words[: len(table.keys)], list(words[len(table.keys) :])
        options = bm.BmAddEntryOptions()
        if _has_priority(table):
            if len(rest) != values + 1:
                raise CliError(
                    f"Table {table.name} needs a priority as the last word; the smallest number wins"
                )
            options.priority = _number(rest.pop())
        return self._match_key(table, key), rest, options

    # Tables

    def do_show_tables(self, line: str) -> None:
        """List the tables: show_tables"""
        _words(line, 0)
        for table in self._program.tables.values():
            key = ",\t".join(f"{key.name}({key.kind}, {key.width})" for key in table.keys)
            print(f"{table.name:30} [implementation={table.profile}, mk={key}]")

    def do_show_actions(self, line: str) -> None:
        """List the actions: show_actions"""
        _words(line, 0)
        for action in self._program.actions.values():
            print(_action_line(action))

    def do_table_show_actions(self, line: str) -> None:
        """List the actions of a table: table_show_actions TABLE"""
        (name,) = _words(line, 1)
        for action in self._find("table", name).actions:
            print(_action_line(action))

    def do_table_info(self, line: str) -> None:
        """Show a table's key and actions: table_info TABLE"""
        (name,) = _words(line, 1)
        table = self._find("table", name)
        key = ",\t".join(f"{key.name}({key.kind}, {key.width})" for key in table.keys)
        print(f"{table.name:30} [implementation={table.profile}, mk={key}]")
        print("*" * 80)
        self.do_table_show_actions(name)

    def do_table_set_default(self, line: str) -> None:
        """Set the default action of a table: table_set_default TABLE ACTION [PARAMETER…]"""
        table_name, action_name, *words = _words(line, 2, more=True)
        table = self._find("table", table_name)
        action = self._table_action(table, action_name)
        data = self._action_data(action, words)
        print(f"Setting default action of {table_name}")
        _print_call(action_name, data)
        self.standard.bm_mt_set_default_action(0, table.name, action.name, data)

    def do_table_reset_default(self, line: str) -> None:
        """Restore the program's default action: table_reset_default TABLE"""
        self.standard.bm_mt_reset_default_entry(0, self._find("table", *_words(line, 1)).name)

    def do_table_num_entries(self, line: str) -> None:
        """Show the number of entries: table_num_entries TABLE"""
        print(self.standard.bm_mt_get_num_entries(0, self._find("table", *_words(line, 1)).name))

    def do_table_clear(self, line: str) -> None:
        """Remove all entries of a table: table_clear TABLE"""
        self.standard.bm_mt_clear_entries(0, self._find("table", *_words(line, 1)).name, False)

    def do_table_add(self, line: str) -> None:
        """Add an entry: table_add TABLE ACTION KEY… => [PARAMETER…] [PRIORITY]"""
        table_name, action_name, *words = _words(line, 2, more=True)
        table = self._find("table", table_name)
        action = self._table_action(table, action_name)
        key, rest, options = self._key_and_rest(table, words, len(action.parameters))
        data = self._action_data(action, rest)
        print(f"Adding entry to {table.match_type} match table {table_name}")
        print(f"{'match key:':20} " + "\t".join(map(_param_text, key)))
        _print_call(action_name, data)
        handle = self.standard.bm_mt_add_entry(0, table.name, key, action.name, data, options)
        print(f"Entry has been added with handle {handle}")

    def do_table_set_timeout(self, line: str) -> None:
        """Set after how many milliseconds an entry is idle: table_set_timeout TABLE HANDLE MILLISECONDS"""
        name, handle, timeout = _words(line, 3)
        print(f"Setting a {timeout} ms timeout for entry {handle}")
        self.standard.bm_mt_set_entry_ttl(
            0, self._find("table", name).name, _number(handle), _number(timeout)
        )

    def do_table_modify(self, line: str) -> None:
        """Replace an entry's action: table_modify TABLE ACTION HANDLE [=>] [PARAMETER…]"""
        table_name, action_name, handle, *words = _words(line, 3, more=True)
        table = self._find("table", table_name)
        action = self._table_action(table, action_name)
        data = self._action_data(action, words[1:] if words[:1] == ["=>"] else words)
        print(f"Modifying entry {handle} for {table.match_type} match table {table_name}")
        self.standard.bm_mt_modify_entry(0, table.name, _number(handle), action.name, data)

    def do_table_delete(self, line: str) -> None:
        """Remove an entry: table_delete TABLE HANDLE"""
        name, handle = _words(line, 2)
        print(f"Deleting entry {handle} from {name}")
        self.standard.bm_mt_delete_entry(0, self._find("table", name).name, _number(handle))

    def do_table_dump(self, line: str) -> None:
        """Show all entries of a table: table_dump TABLE"""
        table = self._find("table", *_words(line, 1))
        print("==========\nTABLE ENTRIES")
        for entry in self.standard.bm_mt_get_entries(0, table.name):
            print("**********")
            self._print_entry(table, entry)
        if table.profile:
            self._print_profile(table.profile)
        print("==========\nDumping default entry")
        print(_action_entry(self.standard.bm_mt_get_default_entry(0, table.name)))
        print("==========")

    def do_table_dump_entry(self, line: str) -> None:
        """Show an entry by its handle: table_dump_entry TABLE HANDLE"""
        name, handle = _words(line, 2)
        table = self._find("table", name)
        self._print_entry(table, self.standard.bm_mt_get_entry(0, table.name, _number(handle)))

    def do_table_dump_entry_from_key(self, line: str) -> None:
        """Show an entry by its key: table_dump_entry_from_key TABLE KEY… [PRIORITY]"""
        name, *words = _words(line, 1, more=True)
        table = self._find("table", name)
        options = bm.BmAddEntryOptions(_number(words.pop()) if _has_priority(table) and words else None)
        key = self._match_key(table, words)
        self._print_entry(table, self.standard.bm_mt_get_entry_from_key(0, table.name, key, options))

    def _print_entry(self, table: Table, entry: bm.BmMtEntry) -> None:
        print(f"Dumping entry {entry.entry_handle:#x}\nMatch key:")
        for key, param in zip(table.keys, entry.match_key, strict=False):
            kind, _, text = _param_text(param).replace(":", "").partition("-")
            print(f"* {key.name:20}: {kind:10}{text}")
        if entry.options.priority is not None and entry.options.priority >= 0:
            print(f"Priority: {entry.options.priority}")
        print(_action_entry(entry.action_entry))
        if entry.life is not None:
            print(f"Life: {entry.life.time_since_hit_ms}ms since hit, timeout is {entry.life.timeout_ms}ms")

    # Action profiles

    def do_act_prof_create_member(self, line: str) -> None:
        """Add a member: act_prof_create_member PROFILE ACTION [PARAMETER…]"""
        name, action_name, *words = _words(line, 2, more=True)
        profile = self._find("profile", name)
        action = self._find("action", action_name)
        data = self._action_data(action, words)
        handle = self.standard.bm_mt_act_prof_add_member(0, profile.name, action.name, data)
        print(f"Member has been created with handle {handle}")

    def do_act_prof_modify_member(self, line: str) -> None:
        """Replace a member's action: act_prof_modify_member PROFILE ACTION MEMBER [PARAMETER…]"""
        name, action_name, member, *words = _words(line, 3, more=True)
        action = self._find("action", action_name)
        data = self._action_data(action, words)
        profile = self._find("profile", name).name
        self.standard.bm_mt_act_prof_modify_member(0, profile, _number(member), action.name, data)

    def do_act_prof_delete_member(self, line: str) -> None:
        """Remove a member: act_prof_delete_member PROFILE MEMBER"""
        name, member = _words(line, 2)
        self.standard.bm_mt_act_prof_delete_member(0, self._find("profile", name).name, _number(member))

    def do_act_prof_create_group(self, line: str) -> None:
        """Add a group: act_prof_create_group PROFILE"""
        handle = self.standard.bm_mt_act_prof_create_group(0, self._find("profile", *_words(line, 1)).name)
        print(f"Group has been created with handle {handle}")

    def do_act_prof_delete_group(self, line: str) -> None:
        """Remove a group: act_prof_delete_group PROFILE GROUP"""
        name, group = _words(line, 2)
        self.standard.bm_mt_act_prof_delete_group(0, self._find("profile", name).name, _number(group))

    def do_act_prof_add_member_to_group(self, line: str) -> None:
        """Add a member to a group: act_prof_add_member_to_group PROFILE MEMBER GROUP"""
        name, member, group = _words(line, 3)
        self.standard.bm_mt_act_prof_add_member_to_group(
            0, self._find("profile", name).name, _number(member), _number(group)
        )

    def do_act_prof_remove_member_from_group(self, line: str) -> None:
        """Remove a member from a group: act_prof_remove_member_from_group PROFILE MEMBER GROUP"""
        name, member, group = _words(line, 3)
        self.standard.bm_mt_act_prof_remove_member_from_group(
            0, self._find("profile", name).name, _number(member), _number(group)
        )

    def do_act_prof_dump(self, line: str) -> None:
        """Show members and groups: act_prof_dump PROFILE"""
        self._print_profile(self._find("profile", *_words(line, 1)).name)

    def do_act_prof_dump_member(self, line: str) -> None:
        """Show a member: act_prof_dump_member PROFILE MEMBER"""
        name, member = _words(line, 2)
        _print_member(
            self.standard.bm_mt_act_prof_get_member(0, self._find("profile", name).name, _number(member))
        )

    def do_act_prof_dump_group(self, line: str) -> None:
        """Show a group: act_prof_dump_group PROFILE GROUP"""
        name, group = _words(line, 2)
        _print_group(
            self.standard.bm_mt_act_prof_get_group(0, self._find("profile", name).name, _number(group))
        )

    def _print_profile(self, name: str) -> None:
        print("==========\nMEMBERS")
        for member in self.standard.bm_mt_act_prof_get_members(0, name):
            print("**********")
            _print_member(member)
        if self._program.profiles[name].selector is not None:
            print("==========\nGROUPS")
            for group in self.standard.bm_mt_act_prof_get_groups(0, name):
                print("**********")
                _print_group(group)

    def do_table_indirect_add(self, line: str) -> None:
        """Add an entry with a member: table_indirect_add TABLE KEY… => MEMBER [PRIORITY]"""
        self._add_indirect(line, self.standard.bm_mt_indirect_add_entry)

    def do_table_indirect_add_with_group(self, line: str) -> None:
        """Add an entry with a group: table_indirect_add_with_group TABLE KEY… => GROUP [PRIORITY]"""
        self._add_indirect(line, self.standard.bm_mt_indirect_ws_add_entry)

    def _add_indirect(self, line: str, add: Callable[..., int]) -> None:
        name, *words = _words(line, 1, more=True)
        table = self._find("table", name)
        key, rest, options = self._key_and_rest(table, words, 1)
        if len(rest) != 1:
            raise CliError("write the handle of a member or group after =>")
        handle = add(0, table.name, key, _number(rest[0]), options)
        print(f"Adding entry to indirect match table {table.name}")
        print(f"Entry has been added with handle {handle}")

    def do_table_indirect_delete(self, line: str) -> None:
        """Remove an entry: table_indirect_delete TABLE HANDLE"""
        name, handle = _words(line, 2)
        self.standard.bm_mt_indirect_delete_entry(0, self._find("table", name).name, _number(handle))

    def do_table_indirect_set_default(self, line: str) -> None:
        """Let the default entry refer to a member: table_indirect_set_default TABLE MEMBER"""
        name, member = _words(line, 2)
        self.standard.bm_mt_indirect_set_default_member(0, self._find("table", name).name, _number(member))

    def do_table_indirect_set_default_with_group(self, line: str) -> None:
        """Let the default entry refer to a group: table_indirect_set_default_with_group TABLE GROUP"""
        name, group = _words(line, 2)
        self.standard.bm_mt_indirect_ws_set_default_group(0, self._find("table", name).name, _number(group))

    def do_table_indirect_reset_default(self, line: str) -> None:
        """Restore the program's default entry: table_indirect_reset_default TABLE"""
        self.standard.bm_mt_indirect_reset_default_entry(0, self._find("table", *_words(line, 1)).name)

    # Multicast

    def do_mc_mgrp_create(self, line: str) -> None:
        """Create a multicast group: mc_mgrp_create GROUP"""
        (group,) = _words(line, 1)
        print(f"Creating multicast group {group}")
        self._mc.bm_mc_mgrp_create(0, _number(group))

    def do_mc_mgrp_destroy(self, line: str) -> None:
        """Remove a multicast group: mc_mgrp_destroy GROUP"""
        (group,) = _words(line, 1)
        print(f"Destroying multicast group {group}")
        self._mc.bm_mc_mgrp_destroy(0, _number(group))

    def do_mc_node_create(self, line: str) -> None:
        """Create a node: mc_node_create INSTANCE PORT… [| LAG…]"""
        rid, *words = _words(line, 1, more=True)
        ports, lags = _ports_and_lags(words)
        print(f"Creating node with rid {rid} , port map {ports} and lag map {lags}")
        handle = self._mc.bm_mc_node_create(0, _number(rid), ports, lags)
        print(f"node was created with handle {handle}")

    def do_mc_node_update(self, line: str) -> None:
        """Replace the ports of a node: mc_node_update NODE PORT… [| LAG…]"""
        node, *words = _words(line, 1, more=True)
        self._mc.bm_mc_node_update(0, _number(node), *_ports_and_lags(words))

    def do_mc_node_associate(self, line: str) -> None:
        """Add a node to a group: mc_node_associate GROUP NODE"""
        group, node = _words(line, 2)
        print(f"Associating node {node} to multicast group {group}")
        self._mc.bm_mc_node_associate(0, _number(group), _number(node))

    def do_mc_node_dissociate(self, line: str) -> None:
        """Remove a node from a group: mc_node_dissociate GROUP NODE"""
        group, node = _words(line, 2)
        print(f"Dissociating node {node} from multicast group {group}")
        self._mc.bm_mc_node_dissociate(0, _number(group), _number(node))

    def do_mc_node_destroy(self, line: str) -> None:
        """Remove a node: mc_node_destroy NODE"""
        (node,) = _words(line, 1)
        print(f"Destroying node {node}")
        self._mc.bm_mc_node_destroy(0, _number(node))

    def do_mc_set_lag_membership(self, line: str) -> None:
        """Set the ports of a group of links: mc_set_lag_membership LAG PORT…"""
        lag, *words = _words(line, 1, more=True)
        self._mc.bm_mc_set_lag_membership(0, _number(lag), _port_map(words))

    def do_mc_dump(self, line: str) -> None:
        """Show groups and nodes: mc_dump"""
        _words(line, 0)
        entries = json.loads(self._mc.bm_mc_get_entries(0))
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

    # Counters, meters, registers

    def do_counter_read(self, line: str) -> None:
        """Show a counter: counter_read COUNTER INDEX, where the index of a direct counter is an entry's handle"""
        name, index = _words(line, 2)
        counter = self._find("counter", name)
        if counter.table:
            value = self.standard.bm_mt_read_counter(0, counter.table, _number(index))
        else:
            value = self.standard.bm_counter_read(0, counter.name, _number(index))
        print(f"{name}[{index}]=  BmCounterValue(packets={value.packets}, bytes={value.bytes})")

    def do_counter_write(self, line: str) -> None:
        """Set a counter: counter_write COUNTER INDEX PACKETS BYTES"""
        name, index, packets, size = _words(line, 4)
        counter = self._find("counter", name)
        value = bm.BmCounterValue(_number(size), _number(packets))
        if counter.table:
            self.standard.bm_mt_write_counter(0, counter.table, _number(index), value)
        else:
            self.standard.bm_counter_write(0, counter.name, _number(index), value)

    def do_counter_reset(self, line: str) -> None:
        """Set all cells of a counter to 0: counter_reset COUNTER"""
        counter = self._find("counter", *_words(line, 1))
        if counter.table:
            self.standard.bm_mt_reset_counters(0, counter.table)
        else:
            self.standard.bm_counter_reset_all(0, counter.name)

    def do_meter_array_set_rates(self, line: str) -> None:
        """Set the rates of all cells, per microsecond: meter_array_set_rates METER RATE:BURST [RATE:BURST]"""
        name, *words = _words(line, 1, more=True)
        meter = self._find("meter", name)
        self.standard.bm_meter_array_set_rates(0, meter.name, _rates(words, meter.rates))

    def do_meter_set_rates(self, line: str) -> None:
        """Set the rates of a cell, per microsecond: meter_set_rates METER INDEX RATE:BURST [RATE:BURST]"""
        name, index, *words = _words(line, 2, more=True)
        meter = self._find("meter", name)
        rates = _rates(words, meter.rates)
        if meter.table:
            self.standard.bm_mt_set_meter_rates(0, meter.table, _number(index), rates)
        else:
            self.standard.bm_meter_set_rates(0, meter.name, _number(index), rates)

    def do_meter_get_rates(self, line: str) -> None:
        """Show the rates of a cell: meter_get_rates METER INDEX"""
        name, index = _words(line, 2)
        meter = self._find("meter", name)
        if meter.table:
            rates = self.standard.bm_mt_get_meter_rates(0, meter.table, _number(index))
        else:
            rates = self.standard.bm_meter_get_rates(0, meter.name, _number(index))
        for number, rate in enumerate(rates):
            print(
                f"{number}: info rate = {rate.units_per_micros} units/µs, burst size = {rate.burst_size} units"
            )

    def do_register_read(self, line: str) -> None:
        """Show a cell of a register, or all: register_read REGISTER [INDEX]"""
        name, *words = _words(line, 1, more=True)
        register = self._find("register", name)
        if words:
            print(
                f"{name}[{words[0]}]= {self.standard.bm_register_read(0, register.name, _number(words[0]))}"
            )
        else:
            values = self.standard.bm_register_read_all(0, register.name)
            print(f"{name}= {', '.join(map(str, values))}")

    def do_register_write(self, line: str) -> None:
        """Set a cell of a register: register_write REGISTER INDEX VALUE"""
        name, index, value = _words(line, 3)
        self.standard.bm_register_write(0, self._find("register", name).name, _number(index), _number(value))

    def do_register_reset(self, line: str) -> None:
        """Set all cells of a register to 0: register_reset REGISTER"""
        self.standard.bm_register_reset(0, self._find("register", *_words(line, 1)).name)

    # Parser value sets

    def do_show_pvs(self, line: str) -> None:
        """List the parser value sets: show_pvs"""
        _words(line, 0)
        for value_set in self._program.value_sets.values():
            print(f"{value_set.name:30} [{_set_width(value_set)}]")

    def do_pvs_add(self, line: str) -> None:
        """Add a value: pvs_add SET VALUE"""
        name, value = _words(line, 2)
        value_set = self._find("value set", name)
        self.standard.bm_parse_vset_add(0, value_set.name, value_bytes(value, _set_width(value_set)))

    def do_pvs_remove(self, line: str) -> None:
        """Remove a value: pvs_remove SET VALUE"""
        name, value = _words(line, 2)
        value_set = self._find("value set", name)
        self.standard.bm_parse_vset_remove(0, value_set.name, value_bytes(value, _set_width(value_set)))

    def do_pvs_get(self, line: str) -> None:
        """Show all values: pvs_get SET"""
        for value in self.standard.bm_parse_vset_get(0, self._find("value set", *_words(line, 1)).name):
            print(f"0x{value.hex()}")

    def do_pvs_clear(self, line: str) -> None:
        """Remove all values: pvs_clear SET"""
        self.standard.bm_parse_vset_clear(0, self._find("value set", *_words(line, 1)).name)

    # Hashes

    def do_set_crc16_parameters(self, line: str) -> None:
        """Set a crc16_custom: set_crc16_parameters CALCULATION POLYNOMIAL INITIAL FINAL REFLECT_IN REFLECT_OUT"""
        name, config = self._crc(line, bm.BmCrc16Config, 16)
        self.standard.bm_set_crc16_custom_parameters(0, name, config)

    def do_set_crc32_parameters(self, line: str) -> None:
        """Set a crc32_custom: set_crc32_parameters CALCULATION POLYNOMIAL INITIAL FINAL REFLECT_IN REFLECT_OUT"""
        name, config = self._crc(line, bm.BmCrc32Config, 32)
        self.standard.bm_set_crc32_custom_parameters(0, name, config)

    def _crc(self, line: str, kind: Callable[..., _Object], width: int) -> tuple[str, _Object]:
        name, *numbers, reflect_in, reflect_out = _words(line, 6)
        signed = [int.from_bytes(value_bytes(word, width), "big", signed=True) for word in numbers]
        flags = [word.lower() in ("1", "true", "yes") for word in (reflect_in, reflect_out)]
        return self._find("calculation", name).name, kind(*signed, *flags)

    def do_set_toeplitz_hash_key(self, line: str) -> None:
        """Set the key of a toeplitz hash: set_toeplitz_hash_key CALCULATION KEY, where the key is hexadecimal"""
        name, key = _words(line, 2)
        try:
            octets = bytes.fromhex(key.removeprefix("0x"))
        except ValueError:
            raise CliError(f"{key} is not hexadecimal") from None
        self.standard.bm_set_toeplitz_hash_key(0, self._find("calculation", name).name, octets)

    # Mirroring and queues

    def do_mirroring_add(self, line: str) -> None:
        """Let a mirroring session send to a port: mirroring_add SESSION PORT"""
        session, port = map(_number, _words(line, 2))
        self._target.mirroring_session_add(session, bm.MirroringSessionConfig(port=port))

    def do_mirroring_add_mc(self, line: str) -> None:
        """Let a mirroring session send to a multicast group: mirroring_add_mc SESSION GROUP"""
        session, group = map(_number, _words(line, 2))
        self._target.mirroring_session_add(session, bm.MirroringSessionConfig(mgid=group))

    def do_mirroring_delete(self, line: str) -> None:
        """Remove a mirroring session: mirroring_delete SESSION"""
        self._target.mirroring_session_delete(*map(_number, _words(line, 1)))

    def do_mirroring_get(self, line: str) -> None:
        """Show a mirroring session: mirroring_get SESSION"""
        print(self._target.mirroring_session_get(*map(_number, _words(line, 1))))

    def do_set_queue_rate(self, line: str) -> None:
        """Set packets per second of a port, or of all: set_queue_rate RATE [PORT [PRIORITY]]"""
        self._set_queue(line, "rate")

    def do_set_queue_depth(self, line: str) -> None:
        """Set the packets that wait for a port, or for all: set_queue_depth PACKETS [PORT [PRIORITY]]"""
        self._set_queue(line, "depth")

    def _set_queue(self, line: str, what: str) -> None:
        value, *place = map(_number, _words(line, 1, more=True))
        names = {0: f"set_all_egress_queue_{what}s", 1: f"set_egress_queue_{what}"}
        if len(place) > 2:
            raise CliError("write a port and a priority at most")
        method = getattr(self._target, names.get(len(place), f"set_egress_priority_queue_{what}"))
        if method(*place, value):
            raise CliError("the switch has no such port, or the value is out of range")

    def do_get_time_elapsed(self, line: str) -> None:
        """Show the microseconds since the switch has opened its ports: get_time_elapsed"""
        _words(line, 0)
        print(self._target.get_time_elapsed_us())

    def do_get_time_since_epoch(self, line: str) -> None:
        """Show the microseconds since 1970: get_time_since_epoch"""
        _words(line, 0)
        print(self._target.get_time_since_epoch_us())

    # The switch

    def do_show_ports(self, line: str) -> None:
        """List the ports: show_ports"""
        _words(line, 0)
        print(f"{'port #':^10}{'iface name':^20}{'status':^10}{'extra info':^20}")
        print("=" * 50)
        for port in self.standard.bm_dev_mgr_show_ports():
            extra = ", ".join(f"{name}={value}" for name, value in port.extra.items())
            print(f"{port.port_num:^10}{port.iface_name:^20}{'UP' if port.is_up else 'DOWN':^10}{extra:^20}")

    def do_port_add(self, line: str) -> None:
        """Attach an interface as a port: port_add INTERFACE PORT"""
        interface, port = _words(line, 2)
        self.standard.bm_dev_mgr_add_port(interface, _number(port), "")

    def do_port_remove(self, line: str) -> None:
        """Detach the interface of a port: port_remove PORT"""
        self.standard.bm_dev_mgr_remove_port(*map(_number, _words(line, 1)))

    def do_switch_info(self, line: str) -> None:
        """Show what the switch was started with: switch_info"""
        _words(line, 0)
        for name, value in vars(self.standard.bm_mgmt_get_info()).items():
            print(f"{name:25}: {value}")

    def do_reset_state(self, line: str) -> None:
        """Remove all that was written: reset_state"""
        _words(line, 0)
        self.standard.bm_reset_state()

    def do_write_config_to_file(self, line: str) -> None:
        """Write the program as JSON: write_config_to_file FILE"""
        (name,) = _words(line, 1)
        self._to_file(name, self.standard.bm_get_config())

    def do_serialize_state(self, line: str) -> None:
        """Write the state: serialize_state FILE"""
        (name,) = _words(line, 1)
        self._to_file(name, self.standard.bm_serialize_state())

    @staticmethod
    def _to_file(name: str, text: str) -> None:
        try:
            Path(name).write_text(text)
        except OSError as error:
            raise CliError(f"{name}: {error.strerror}") from None

    def do_load_new_config_file(self, line: str) -> None:
        """Load a program, which swap_configs then runs: load_new_config_file FILE"""
        (name,) = _words(line, 1)
        try:
            config = Path(name).read_text()
        except OSError as error:
            raise CliError(f"{name}: {error.strerror}") from None
        self.standard.bm_load_new_config(config)
        self.load(config)

    def do_swap_configs(self, line: str) -> None:
        """Run the program that was loaded: swap_configs"""
        _words(line, 0)
        self.standard.bm_swap_configs()

    def do_shell(self, line: str) -> None:
        """Run a command of the system: shell COMMAND, or !COMMAND"""
        import subprocess  # not above: few use it

        subprocess.run(line, shell=True, check=False)


# Earlier names of the same commands.
for _name in ("create_member", "delete_member", "modify_member", "create_group", "delete_group"):
    setattr(RuntimeCli, f"do_table_indirect_{_name}", getattr(RuntimeCli, f"do_act_prof_{_name}"))
for _name in ("add_member_to_group", "remove_member_from_group"):
    setattr(RuntimeCli, f"do_table_indirect_{_name}", getattr(RuntimeCli, f"do_act_prof_{_name}"))
for _name in ("dump_member", "dump_group"):
    setattr(RuntimeCli, f"do_table_{_name}", getattr(RuntimeCli, f"do_act_prof_{_name}"))

_COMPLETED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("table_add", "table_set_default", "table_modify"), ("table", "action")),
    **dict.fromkeys(("act_prof_create_member", "act_prof_modify_member"), ("profile", "action")),
    **{
        name.removeprefix("do_"): (kind,)
        for name in dir(RuntimeCli)
        for prefix, kind in {
            "do_act_prof_": "profile",
            "do_table_": "table",
            "do_counter_": "counter",
            "do_meter_": "meter",
            "do_register_": "register",
            "do_pvs_": "value set",
            "do_set_crc": "calculation",
            "do_set_toeplitz": "calculation",
        }.items()
        if name.startswith(prefix)
        and name.removeprefix("do_table_") not in ("add", "set_default", "modify")
        and name.removeprefix("do_act_prof_") not in ("create_member", "modify_member")
    },
}


def _words(line: str, count: int, *, more: bool = False) -> list[str]:
    """Return the words of a line; `more` allows more than `count` of them."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise CliError(str(error)) from None
    if len(words) < count or (len(words) > count and not more):
        least = "at least " if more else ""
        raise CliError(
            f"the command needs {least}{count} words after its name, not {len(words)}; help NAME lists them"
        )
    return words


def _number(word: str) -> int:
    try:
        return int(word, 0)
    except ValueError:
        raise CliError(f"{word} is not a number") from None


def _has_priority(table: Table) -> bool:
    return any(key.kind in ("ternary", "range", "optional") for key in table.keys)


def _match_param(word: str, kind: str, width: int) -> bm.BmMatchParam:
    match kind:
        case "lpm":
            value, slash, length = word.rpartition("/")
            if not slash:
                raise CliError(f"{word}: write a prefix as VALUE/LENGTH, for example 10.0.0.0/8")
            lpm = bm.BmMatchParamLPM(value_bytes(value, width), _number(length))
            return bm.BmMatchParam(bm.BmMatchParamType.LPM, lpm=lpm)
        case "ternary" | "optional":
            value, ands, mask = word.partition("&&&")
            if not ands and kind == "ternary":
                raise CliError(f"{word}: write a ternary match as VALUE&&&MASK")
            every = ((1 << width) - 1).to_bytes((width + 7) // 8, "big")
            masked = bm.BmMatchParamTernary(
                value_bytes(value, width), value_bytes(mask, width) if ands else every
            )
            return bm.BmMatchParam(bm.BmMatchParamType.TERNARY, ternary=masked)
        case "range":
            low, arrow, high = word.partition("->")
            if not arrow:
                raise CliError(f"{word}: write a range as FIRST->LAST")
            ends = bm.BmMatchParamRange(value_bytes(low, width), value_bytes(high, width))
            return bm.BmMatchParam(bm.BmMatchParamType.RANGE, range=ends)
    if width == 1 and word.lower() in ("true", "false"):
        word = str(int(word.lower() == "true"))
    return bm.BmMatchParam(bm.BmMatchParamType.EXACT, exact=bm.BmMatchParamExact(value_bytes(word, width)))


def _param_text(param: bm.BmMatchParam) -> str:
    kind = bm.BmMatchParamType(param.type)
    match kind:
        case bm.BmMatchParamType.LPM:
            text = f"{param.lpm.key.hex(':')}/{param.lpm.prefix_length}"
        case bm.BmMatchParamType.TERNARY:
            text = f"{param.ternary.key.hex(':')} &&& {param.ternary.mask.hex(':')}"
        case bm.BmMatchParamType.RANGE:
            text = f"{param.range.start.hex(':')} -> {param.range.end_.hex(':')}"
        case _:
            text = param.exact.key.hex(":")
    return f"{kind.name}-{text}"


def _print_call(action: str, data: Iterable[bytes]) -> None:
    print(f"{'action:':20} {action}")
    print(f"{'runtime data:':20} " + "\t".join(value.hex(":") for value in data))


def _action_line(action: Action) -> str:
    parameters = ",\t".join(f"{p.name}({p.width})" for p in action.parameters)
    return f"{action.name:30} [{parameters}]"


def _action_entry(entry: bm.BmActionEntry) -> str:
    match entry.action_type:
        case bm.BmActionEntryType.ACTION_DATA:
            return f"Action entry: {entry.action_name} - {', '.join(d.hex() for d in entry.action_data)}"
        case bm.BmActionEntryType.MBR_HANDLE:
            return f"Index: member({entry.mbr_handle})"
        case bm.BmActionEntryType.GRP_HANDLE:
            return f"Index: group({entry.grp_handle})"
    return "EMPTY"


def _print_member(member: bm.BmMtActProfMember) -> None:
    data = ", ".join(value.hex() for value in member.action_data)
    print(f"Dumping member {member.mbr_handle}\nAction entry: {member.action_name} - {data}")


def _print_group(group: bm.BmMtActProfGroup) -> None:
    print(f"Dumping group {group.grp_handle}\nMembers: [{', '.join(map(str, group.mbr_handles))}]")


def _port_map(words: Iterable[str]) -> str:
    """Return a map of ports: a text of 0 and 1, of which the last one is for port 0."""
    numbers = list(map(_number, words))
    if twice := [number for number, times in Counter(numbers).items() if times > 1]:
        raise CliError(f"port {twice[0]} is given twice")
    if any(not 0 <= number < _MAX_PORTS for number in numbers):
        raise CliError(f"ports are from 0 to {_MAX_PORTS - 1}")
    return "".join(
        "1" if place in numbers else "0" for place in reversed(range(max(numbers, default=-1) + 1))
    )


def _ports_and_lags(words: Sequence[str]) -> tuple[str, str]:
    at = list(words).index("|") if "|" in words else len(words)
    return _port_map(words[:at]), _port_map(words[at + 1 :])


def _rates(words: Sequence[str], count: int) -> list[bm.BmMeterRateConfig]:
    if len(words) != count:
        raise CliError(
            f"the meter has {count} rates, not {len(words)}: write RATE:BURST for each, the lowest first"
        )
    found = []
    for word in words:
        rate, _, burst = word.partition(":")
        try:
            found.append(bm.BmMeterRateConfig(float(rate), int(burst)))
        except ValueError:
            raise CliError(f"{word}: write RATE:BURST, for example 0.5:1000") from None
    return found


def _set_width(value_set: Any) -> int:
    return sum(key.width for key in value_set.table.keys)
