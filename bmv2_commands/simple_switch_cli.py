"""Command `simple_switch_CLI`: what BMv2's command line tool does, over the same interface (Thrift)."""

from __future__ import annotations

import argparse
import cmd
import json
import re
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import takewhile
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
    try:
        with connected(arguments.thrift_ip, arguments.thrift_port) as cli:
            cli.load(arguments.json.read_text() if arguments.json else cli.standard.bm_get_config())
            cli.run()
    except CliError as error:
        print(error, file=sys.stderr)
        return 1
    except (TTransportException, TApplicationException, OSError) as error:
        print(f"simple_switch_CLI: {printable(str(error))}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def connected(host: str, port: int) -> Iterator[RuntimeCli]:
    """Connect to a switch.

    Raises:
        CliError: If there is none.
    """
    transport = TBufferedTransport(TSocket(host, port))
    try:
        transport.open()
    except TTransportException:
        raise CliError(
            f"Could not connect to a switch at {host}:{port}: start it with "
            f"--thrift-port {port}, or give its port here with --thrift-port"
        ) from None
    protocol = TBinaryProtocol(transport)

    def client(service: Service) -> Client:
        kind: type[Client] = type("Client", (Client,), {"service": service})
        return kind(TMultiplexedProtocol(protocol, service.name))

    try:
        yield RuntimeCli(client(bm.STANDARD), client(bm.SIMPLE_PRE_LAG), client(bm.SIMPLE_SWITCH))
    finally:
        transport.close()


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


@dataclass(frozen=True, slots=True)
class Command:
    """Command of the prompt.

    Attributes:
        usage: Its name and its words. Those in brackets may be missing, those with … may be several.
        help: What it does.
        run: Carries it out: takes the prompt, and the words after the command's name.
    """

    usage: str
    help: str
    run: Callable[[RuntimeCli, list[str]], None]

    @property
    def placeholders(self) -> list[str]:
        """The words after its name."""
        return self.usage.split()[1:]

    @property
    def kinds(self) -> list[str]:
        """The kinds of objects that its first words name."""
        return [_KINDS[word] for word in takewhile(_KINDS.__contains__, self.placeholders)]

    def words(self, text: str) -> list[str]:
        """Return the words of a line.

        Raises:
            CliError: If there are too few, or too many.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise CliError(str(error)) from None
        needed = list(takewhile(lambda word: not re.search(r"[\[…]", word), self.placeholders))
        more = len(needed) < len(self.placeholders)
        if len(words) < len(needed) or (len(words) > len(needed) and not more):
            least = "at least " if more else ""
            raise CliError(
                f"the command needs {least}{len(needed)} words after its name, not {len(words)}: {self.usage}"
            )
        return words


_COMMANDS: dict[str, Command] = {}
_PROMPT = ("exit", "quit", "EOF", "help", "shell")  # what the prompt itself does
# The words of a usage that name an object, and its kind.
_KINDS = {
    "TABLE": "table",
    "ACTION": "action",
    "PROFILE": "profile",
    "COUNTER": "counter",
    "METER": "meter",
    "REGISTER": "register",
    "SET": "value set",
    "CALCULATION": "calculation",
}
_TEXTS = ("INTERFACE", "FILE")
_Run = Callable[["RuntimeCli", list[str]], None]


def _command(usage: str, help_text: str) -> Callable[[_Run], _Run]:
    """Register a method as the one that carries out a command."""

    def register(method: _Run) -> _Run:
        _COMMANDS[usage.split()[0]] = Command(usage, help_text, method)
        return method

    return register


def _simple(
    usage: str, help_text: str, method: str, *more: object, says: str = "", answers: str = ""
) -> None:
    """Register a command that makes one call.

    Args:
        usage: Its usage. Words that name objects become their full names, and all others except texts become numbers.
        help_text: What it does.
        method: The method that it calls, with these values.
        more: Further arguments of the method.
        says: A text to print before the call, with the words as typed.
        answers: A text to print after it, with its result.
    """

    def run(cli: RuntimeCli, words: list[str]) -> None:
        if says:
            print(says.format(*words))
        placeholders = usage.split()[1:]
        values = (cli.value(kind, word) for kind, word in zip(placeholders, words, strict=True))
        result = cli.call(method, *values, *more)
        if answers:
            print(answers.format(result))

    _COMMANDS[usage.split()[0]] = Command(usage, help_text, run)


class RuntimeCli(cmd.Cmd):
    """Prompt with BMv2's commands. Objects are named by any unique ending of their name: `ipv4_lpm`."""

    prompt = "RuntimeCmd: "
    intro = "Control utility for runtime P4 table manipulation"

    def __init__(self, standard: Client, replication: Client, target: Client) -> None:
        super().__init__()
        self.standard: Any = standard
        self.mc: Any = replication
        self.target: Any = target
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
        name, rest, _ = self.parseline(line)
        match name:
            case "exit" | "quit" | "EOF":
                if name == "EOF":
                    print()  # what follows the prompt
                return True
            case "help":
                self.do_help(rest or "")
            case "shell":
                import subprocess  # not above: few use it

                subprocess.run(rest or "", shell=True, check=False)
            case str() if name in _COMMANDS:
                self._carry_out(_COMMANDS[name], rest or "")
            case _ if line.strip() and not line.startswith("#"):
                print(f"Error: unknown command {printable(line.split()[0])}; help lists the commands")
        return False

    def _carry_out(self, command: Command, rest: str) -> None:
        try:
            command.run(self, command.words(rest))
        except CliError as error:
            print(f"Error: {printable(str(error))}")
        except ThriftError as error:
            what, codes = _ERRORS.get(type(error), (type(error).__name__, None))
            name = codes(error.code).name if codes and error.code in iter(codes) else error.code
            print(f"Invalid {what} operation ({name})")
        except TApplicationException as error:
            print(f"Error: {printable(str(error.message or error))}")

    def do_help(self, arg: str) -> None:
        """List the commands, or show how one is used."""
        if not arg:
            print("Commands; help NAME shows how one is used:\n")
            print(textwrap.fill(" ".join(self.completenames("")), 80))
        elif arg in _COMMANDS:
            print(f"{_COMMANDS[arg].help}: {_COMMANDS[arg].usage}")
        else:
            print(f"Error: unknown command {printable(arg)}; help lists the commands")

    def completenames(self, text: str, *_: Any) -> list[str]:
        """Return the commands that begin with a text."""
        return sorted(name for name in (*_COMMANDS, *_PROMPT) if name.startswith(text))

    def complete_help(self, text: str, *_: Any) -> list[str]:
        """Return the commands whose help a word may ask for."""
        return self.completenames(text)

    def completedefault(self, text: str, line: str, _begin: int, _end: int) -> list[str]:
        """Return the objects that a word may name."""
        words = line.split()
        place = len(words) - (0 if line.endswith(" ") else 1)
        kinds = _COMMANDS[words[0]].kinds if words[0] in _COMMANDS else []
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

    def call(self, method: str, *values: object) -> Any:
        """Call a method of any of the three services, in the switch's only context."""
        client = next(c for c in (self.standard, self.mc, self.target) if method in c.service.methods)
        context = (0,) if "cxt_id" in client.service.methods[method].arguments.fields else ()
        return getattr(client, method)(*context, *values)

    def value(self, placeholder: str, word: str) -> str | int:
        """Return what a word stands for: the full name of an object, a text, or a number."""
        if placeholder in _KINDS:
            return str(self._find(_KINDS[placeholder], word).name)
        return word if placeholder in _TEXTS else _number(word)

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

    @_command("show_tables", "List the tables")
    def _show_tables(self, _words: list[str]) -> None:
        for table in self._program.tables.values():
            key = ",\t".join(f"{key.name}({key.kind}, {key.width})" for key in table.keys)
            print(f"{table.name:30} [implementation={table.profile}, mk={key}]")

    @_command("show_actions", "List the actions")
    def _show_actions(self, _words: list[str]) -> None:
        for action in self._program.actions.values():
            print(_action_line(action))

    @_command("table_show_actions TABLE", "List the actions of a table")
    def _table_show_actions(self, words: list[str]) -> None:
        (name,) = words
        for action in self._find("table", name).actions:
            print(_action_line(action))

    @_command("table_info TABLE", "Show a table's key and actions")
    def _table_info(self, words: list[str]) -> None:
        (name,) = words
        table = self._find("table", name)
        key = ",\t".join(f"{key.name}({key.kind}, {key.width})" for key in table.keys)
        print(f"{table.name:30} [implementation={table.profile}, mk={key}]")
        print("*" * 80)
        self._table_show_actions([name])

    @_command("table_set_default TABLE ACTION [PARAMETER…]", "Set the default action of a table")
    def _table_set_default(self, words: list[str]) -> None:
        table_name, action_name, *words = words
        table = self._find("table", table_name)
        action = self._table_action(table, action_name)
        data = self._action_data(action, words)
        print(f"Setting default action of {table_name}")
        _print_call(action_name, data)
        self.standard.bm_mt_set_default_action(0, table.name, action.name, data)

    @_command("table_add TABLE ACTION KEY… => [PARAMETER…] [PRIORITY]", "Add an entry")
    def _table_add(self, words: list[str]) -> None:
        table_name, action_name, *words = words
        table = self._find("table", table_name)
        action = self._table_action(table, action_name)
        key, rest, options = self._key_and_rest(table, words, len(action.parameters))
        data = self._action_data(action, rest)
        print(f"Adding entry to {table.match_type} match table {table_name}")
        print(f"{'match key:':20} " + "\t".join(map(_param_text, key)))
        _print_call(action_name, data)
        handle = self.standard.bm_mt_add_entry(0, table.name, key, action.name, data, options)
        print(f"Entry has been added with handle {handle}")

    @_command("table_modify TABLE ACTION HANDLE [=>] [PARAMETER…]", "Replace an entry's action")
    def _table_modify(self, words: list[str]) -> None:
        table_name, action_name, handle, *words = words
        table = self._find("table", table_name)
        action = self._table_action(table, action_name)
        data = self._action_data(action, words[1:] if words[:1] == ["=>"] else words)
        print(f"Modifying entry {handle} for {table.match_type} match table {table_name}")
        self.standard.bm_mt_modify_entry(0, table.name, _number(handle), action.name, data)

    @_command("table_dump TABLE", "Show all entries of a table")
    def _table_dump(self, words: list[str]) -> None:
        table = self._find("table", *words)
        print("==========\nTABLE ENTRIES")
        for entry in self.standard.bm_mt_get_entries(0, table.name):
            print("**********")
            self._print_entry(table, entry)
        if table.profile:
            self._print_profile(table.profile)
        print("==========\nDumping default entry")
        print(_action_entry(self.standard.bm_mt_get_default_entry(0, table.name)))
        print("==========")

    @_command("table_dump_entry TABLE HANDLE", "Show an entry by its handle")
    def _table_dump_entry(self, words: list[str]) -> None:
        name, handle = words
        table = self._find("table", name)
        self._print_entry(table, self.standard.bm_mt_get_entry(0, table.name, _number(handle)))

    @_command("table_dump_entry_from_key TABLE KEY… [PRIORITY]", "Show an entry by its key")
    def _table_dump_entry_from_key(self, words: list[str]) -> None:
        name, *words = words
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

    @_command("act_prof_create_member PROFILE ACTION [PARAMETER…]", "Add a member")
    def _act_prof_create_member(self, words: list[str]) -> None:
        name, action_name, *words = words
        profile = self._find("profile", name)
        action = self._find("action", action_name)
        data = self._action_data(action, words)
        handle = self.standard.bm_mt_act_prof_add_member(0, profile.name, action.name, data)
        print(f"Member has been created with handle {handle}")

    @_command("act_prof_modify_member PROFILE ACTION MEMBER [PARAMETER…]", "Replace a member's action")
    def _act_prof_modify_member(self, words: list[str]) -> None:
        name, action_name, member, *words = words
        action = self._find("action", action_name)
        data = self._action_data(action, words)
        profile = self._find("profile", name).name
        self.standard.bm_mt_act_prof_modify_member(0, profile, _number(member), action.name, data)

    @_command("act_prof_dump PROFILE", "Show members and groups")
    def _act_prof_dump(self, words: list[str]) -> None:
        self._print_profile(self._find("profile", *words).name)

    @_command("act_prof_dump_member PROFILE MEMBER", "Show a member")
    def _act_prof_dump_member(self, words: list[str]) -> None:
        name, member = words
        _print_member(
            self.standard.bm_mt_act_prof_get_member(0, self._find("profile", name).name, _number(member))
        )

    @_command("act_prof_dump_group PROFILE GROUP", "Show a group")
    def _act_prof_dump_group(self, words: list[str]) -> None:
        name, group = words
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

    @_command("table_indirect_add TABLE KEY… => MEMBER [PRIORITY]", "Add an entry with a member")
    def _table_indirect_add(self, words: list[str]) -> None:
        self._add_indirect(words, self.standard.bm_mt_indirect_add_entry)

    @_command("table_indirect_add_with_group TABLE KEY… => GROUP [PRIORITY]", "Add an entry with a group")
    def _table_indirect_add_with_group(self, words: list[str]) -> None:
        self._add_indirect(words, self.standard.bm_mt_indirect_ws_add_entry)

    def _add_indirect(self, words: list[str], add: Callable[..., int]) -> None:
        name, *words = words
        table = self._find("table", name)
        key, rest, options = self._key_and_rest(table, words, 1)
        if len(rest) != 1:
            raise CliError("write the handle of a member or group after =>")
        handle = add(0, table.name, key, _number(rest[0]), options)
        print(f"Adding entry to indirect match table {table.name}")
        print(f"Entry has been added with handle {handle}")

    # Multicast

    @_command("mc_node_create INSTANCE PORT… [| LAG…]", "Create a node")
    def _mc_node_create(self, words: list[str]) -> None:
        rid, *words = words
        ports, lags = _ports_and_lags(words)
        print(f"Creating node with rid {rid} , port map {ports} and lag map {lags}")
        handle = self.mc.bm_mc_node_create(0, _number(rid), ports, lags)
        print(f"node was created with handle {handle}")

    @_command("mc_node_update NODE PORT… [| LAG…]", "Replace the ports of a node")
    def _mc_node_update(self, words: list[str]) -> None:
        node, *words = words
        self.mc.bm_mc_node_update(0, _number(node), *_ports_and_lags(words))

    @_command("mc_set_lag_membership LAG PORT…", "Set the ports of a group of links")
    def _mc_set_lag_membership(self, words: list[str]) -> None:
        lag, *words = words
        self.mc.bm_mc_set_lag_membership(0, _number(lag), _port_map(words))

    @_command("mc_dump", "Show groups and nodes")
    def _mc_dump(self, _words: list[str]) -> None:
        entries = json.loads(self.mc.bm_mc_get_entries(0))
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

    @_command(
        "counter_read COUNTER INDEX", "Show a counter; the index of a direct counter is an entry's handle"
    )
    def _counter_read(self, words: list[str]) -> None:
        name, index = words
        counter = self._find("counter", name)
        if counter.table:
            value = self.standard.bm_mt_read_counter(0, counter.table, _number(index))
        else:
            value = self.standard.bm_counter_read(0, counter.name, _number(index))
        print(f"{name}[{index}]=  BmCounterValue(packets={value.packets}, bytes={value.bytes})")

    @_command("counter_write COUNTER INDEX PACKETS BYTES", "Set a counter")
    def _counter_write(self, words: list[str]) -> None:
        name, index, packets, size = words
        counter = self._find("counter", name)
        value = bm.BmCounterValue(_number(size), _number(packets))
        if counter.table:
            self.standard.bm_mt_write_counter(0, counter.table, _number(index), value)
        else:
            self.standard.bm_counter_write(0, counter.name, _number(index), value)

    @_command("counter_reset COUNTER", "Set all cells of a counter to 0")
    def _counter_reset(self, words: list[str]) -> None:
        counter = self._find("counter", *words)
        if counter.table:
            self.standard.bm_mt_reset_counters(0, counter.table)
        else:
            self.standard.bm_counter_reset_all(0, counter.name)

    @_command(
        "meter_array_set_rates METER RATE:BURST [RATE:BURST]", "Set the rates of all cells, per microsecond"
    )
    def _meter_array_set_rates(self, words: list[str]) -> None:
        name, *words = words
        meter = self._find("meter", name)
        self.standard.bm_meter_array_set_rates(0, meter.name, _rates(words, meter.rates))

    @_command(
        "meter_set_rates METER INDEX RATE:BURST [RATE:BURST]", "Set the rates of a cell, per microsecond"
    )
    def _meter_set_rates(self, words: list[str]) -> None:
        name, index, *words = words
        meter = self._find("meter", name)
        rates = _rates(words, meter.rates)
        if meter.table:
            self.standard.bm_mt_set_meter_rates(0, meter.table, _number(index), rates)
        else:
            self.standard.bm_meter_set_rates(0, meter.name, _number(index), rates)

    @_command("meter_get_rates METER INDEX", "Show the rates of a cell")
    def _meter_get_rates(self, words: list[str]) -> None:
        name, index = words
        meter = self._find("meter", name)
        if meter.table:
            rates = self.standard.bm_mt_get_meter_rates(0, meter.table, _number(index))
        else:
            rates = self.standard.bm_meter_get_rates(0, meter.name, _number(index))
        for number, rate in enumerate(rates):
            print(
                f"{number}: info rate = {rate.units_per_micros} units/µs, burst size = {rate.burst_size} units"
            )

    @_command("register_read REGISTER [INDEX]", "Show a cell of a register, or all")
    def _register_read(self, words: list[str]) -> None:
        name, *words = words
        register = self._find("register", name)
        if words:
            print(
                f"{name}[{words[0]}]= {self.standard.bm_register_read(0, register.name, _number(words[0]))}"
            )
        else:
            values = self.standard.bm_register_read_all(0, register.name)
            print(f"{name}= {', '.join(map(str, values))}")

    # Parser value sets

    @_command("show_pvs", "List the parser value sets")
    def _show_pvs(self, _words: list[str]) -> None:
        for value_set in self._program.value_sets.values():
            print(f"{value_set.name:30} [{_set_width(value_set)}]")

    @_command("pvs_add SET VALUE", "Add a value")
    def _pvs_add(self, words: list[str]) -> None:
        name, value = words
        value_set = self._find("value set", name)
        self.standard.bm_parse_vset_add(0, value_set.name, value_bytes(value, _set_width(value_set)))

    @_command("pvs_remove SET VALUE", "Remove a value")
    def _pvs_remove(self, words: list[str]) -> None:
        name, value = words
        value_set = self._find("value set", name)
        self.standard.bm_parse_vset_remove(0, value_set.name, value_bytes(value, _set_width(value_set)))

    @_command("pvs_get SET", "Show all values")
    def _pvs_get(self, words: list[str]) -> None:
        for value in self.standard.bm_parse_vset_get(0, self._find("value set", *words).name):
            print(f"0x{value.hex()}")

    # Hashes

    @_command(
        "set_crc16_parameters CALCULATION POLYNOMIAL INITIAL FINAL REFLECT_IN REFLECT_OUT",
        "Set a crc16_custom",
    )
    def _set_crc16_parameters(self, words: list[str]) -> None:
        name, config = self._crc(words, bm.BmCrc16Config, 16)
        self.standard.bm_set_crc16_custom_parameters(0, name, config)

    @_command(
        "set_crc32_parameters CALCULATION POLYNOMIAL INITIAL FINAL REFLECT_IN REFLECT_OUT",
        "Set a crc32_custom",
    )
    def _set_crc32_parameters(self, words: list[str]) -> None:
        name, config = self._crc(words, bm.BmCrc32Config, 32)
        self.standard.bm_set_crc32_custom_parameters(0, name, config)

    def _crc(self, words: list[str], kind: Callable[..., _Object], width: int) -> tuple[str, _Object]:
        name, *numbers, reflect_in, reflect_out = words
        signed = [int.from_bytes(value_bytes(word, width), "big", signed=True) for word in numbers]
        flags = [word.lower() in ("1", "true", "yes") for word in (reflect_in, reflect_out)]
        return self._find("calculation", name).name, kind(*signed, *flags)

    @_command(
        "set_toeplitz_hash_key CALCULATION KEY", "Set the key of a toeplitz hash; the key is hexadecimal"
    )
    def _set_toeplitz_hash_key(self, words: list[str]) -> None:
        name, key = words
        try:
            octets = bytes.fromhex(key.removeprefix("0x"))
        except ValueError:
            raise CliError(f"{key} is not hexadecimal") from None
        self.standard.bm_set_toeplitz_hash_key(0, self._find("calculation", name).name, octets)

    # Mirroring and queues

    @_command("mirroring_add SESSION PORT", "Let a mirroring session send to a port")
    def _mirroring_add(self, words: list[str]) -> None:
        session, port = map(_number, words)
        self.target.mirroring_session_add(session, bm.MirroringSessionConfig(port=port))

    @_command("mirroring_add_mc SESSION GROUP", "Let a mirroring session send to a multicast group")
    def _mirroring_add_mc(self, words: list[str]) -> None:
        session, group = map(_number, words)
        self.target.mirroring_session_add(session, bm.MirroringSessionConfig(mgid=group))

    @_command("set_queue_rate RATE [PORT [PRIORITY]]", "Set packets per second of a port, or of all")
    def _set_queue_rate(self, words: list[str]) -> None:
        self._set_queue(words, "rate")

    @_command("set_queue_depth PACKETS [PORT [PRIORITY]]", "Set the packets that wait for a port, or for all")
    def _set_queue_depth(self, words: list[str]) -> None:
        self._set_queue(words, "depth")

    def _set_queue(self, words: list[str], what: str) -> None:
        value, *place = map(_number, words)
        names = {0: f"set_all_egress_queue_{what}s", 1: f"set_egress_queue_{what}"}
        if len(place) > 2:
            raise CliError("write a port and a priority at most")
        method = getattr(self.target, names.get(len(place), f"set_egress_priority_queue_{what}"))
        if method(*place, value):
            raise CliError("the switch has no such port, or the value is out of range")

    # The switch

    @_command("show_ports", "List the ports")
    def _show_ports(self, _words: list[str]) -> None:
        print(f"{'port #':^10}{'iface name':^20}{'status':^10}{'extra info':^20}")
        print("=" * 50)
        for port in self.standard.bm_dev_mgr_show_ports():
            extra = ", ".join(f"{name}={value}" for name, value in port.extra.items())
            print(f"{port.port_num:^10}{port.iface_name:^20}{'UP' if port.is_up else 'DOWN':^10}{extra:^20}")

    @_command("switch_info", "Show what the switch was started with")
    def _switch_info(self, _words: list[str]) -> None:
        for name, value in vars(self.standard.bm_mgmt_get_info()).items():
            print(f"{name:25}: {value}")

    @_command("write_config_to_file FILE", "Write the program as JSON")
    def _write_config_to_file(self, words: list[str]) -> None:
        (name,) = words
        self._to_file(name, self.standard.bm_get_config())

    @_command("serialize_state FILE", "Write the state")
    def _serialize_state(self, words: list[str]) -> None:
        (name,) = words
        self._to_file(name, self.standard.bm_serialize_state())

    @staticmethod
    def _to_file(name: str, text: str) -> None:
        try:
            Path(name).write_text(text)
        except OSError as error:
            raise CliError(f"{name}: {error.strerror}") from None

    @_command("load_new_config_file FILE", "Load a program, which swap_configs then runs")
    def _load_new_config_file(self, words: list[str]) -> None:
        (name,) = words
        try:
            config = Path(name).read_text()
        except OSError as error:
            raise CliError(f"{name}: {error.strerror}") from None
        self.standard.bm_load_new_config(config)
        self.load(config)


# Commands that convert their words and make one call.
# fmt: off
_simple("table_reset_default TABLE", "Restore the program's default action", "bm_mt_reset_default_entry")
_simple("table_num_entries TABLE", "Show the number of entries", "bm_mt_get_num_entries", answers="{}")
_simple("table_clear TABLE", "Remove all entries of a table", "bm_mt_clear_entries", False)
_simple("table_set_timeout TABLE HANDLE MILLISECONDS", "Set after how many milliseconds an entry is idle",
        "bm_mt_set_entry_ttl", says="Setting a {2} ms timeout for entry {1}")
_simple("table_delete TABLE HANDLE", "Remove an entry", "bm_mt_delete_entry", says="Deleting entry {1} from {0}")
_simple("act_prof_delete_member PROFILE MEMBER", "Remove a member", "bm_mt_act_prof_delete_member")
_simple("act_prof_create_group PROFILE",
        "Add a group", "bm_mt_act_prof_create_group", answers="Group has been created with handle {}")
_simple("act_prof_delete_group PROFILE GROUP", "Remove a group", "bm_mt_act_prof_delete_group")
_simple("act_prof_add_member_to_group PROFILE MEMBER GROUP",
        "Add a member to a group", "bm_mt_act_prof_add_member_to_group")
_simple("act_prof_remove_member_from_group PROFILE MEMBER GROUP",
        "Remove a member from a group", "bm_mt_act_prof_remove_member_from_group")
_simple("table_indirect_delete TABLE HANDLE", "Remove an entry", "bm_mt_indirect_delete_entry")
_simple("table_indirect_set_default TABLE MEMBER",
        "Let the default entry refer to a member", "bm_mt_indirect_set_default_member")
_simple("table_indirect_set_default_with_group TABLE GROUP",
        "Let the default entry refer to a group", "bm_mt_indirect_ws_set_default_group")
_simple("table_indirect_reset_default TABLE",
        "Restore the program's default entry", "bm_mt_indirect_reset_default_entry")
_simple("mc_mgrp_create GROUP", "Create a multicast group", "bm_mc_mgrp_create", says="Creating multicast group {0}")
_simple("mc_mgrp_destroy GROUP",
        "Remove a multicast group", "bm_mc_mgrp_destroy", says="Destroying multicast group {0}")
_simple("mc_node_associate GROUP NODE",
        "Add a node to a group", "bm_mc_node_associate", says="Associating node {1} to multicast group {0}")
_simple("mc_node_dissociate GROUP NODE",
        "Remove a node from a group", "bm_mc_node_dissociate", says="Dissociating node {1} from multicast group {0}")
_simple("mc_node_destroy NODE", "Remove a node", "bm_mc_node_destroy", says="Destroying node {0}")
_simple("register_write REGISTER INDEX VALUE", "Set a cell of a register", "bm_register_write")
_simple("register_reset REGISTER", "Set all cells of a register to 0", "bm_register_reset")
_simple("pvs_clear SET", "Remove all values", "bm_parse_vset_clear")
_simple("mirroring_delete SESSION", "Remove a mirroring session", "mirroring_session_delete")
_simple("mirroring_get SESSION", "Show a mirroring session", "mirroring_session_get", answers="{}")
_simple("get_time_elapsed",
        "Show the microseconds since the switch has opened its ports", "get_time_elapsed_us", answers="{}")
_simple("get_time_since_epoch", "Show the microseconds since 1970", "get_time_since_epoch_us", answers="{}")
_simple("port_add INTERFACE PORT", "Attach an interface as a port", "bm_dev_mgr_add_port", "")
_simple("port_remove PORT", "Detach the interface of a port", "bm_dev_mgr_remove_port")
_simple("reset_state", "Remove all that was written", "bm_reset_state")
_simple("swap_configs", "Run the program that was loaded", "bm_swap_configs")
# fmt: on

# Earlier names of the same commands.
for _name in (
    *("create_member", "modify_member", "delete_member", "create_group", "delete_group"),
    *("add_member_to_group", "remove_member_from_group"),
):
    _COMMANDS[f"table_indirect_{_name}"] = _COMMANDS[f"act_prof_{_name}"]
for _name in ("dump_member", "dump_group"):
    _COMMANDS[f"table_{_name}"] = _COMMANDS[f"act_prof_{_name}"]


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
