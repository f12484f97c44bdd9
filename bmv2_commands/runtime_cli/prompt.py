"""The prompt of simple_switch_CLI: it reads commands, and carries out those that the other modules register."""

from __future__ import annotations

import cmd
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from thrift.Thrift import TApplicationException

from fanin.bmv2_commands.runtime_cli.words import CliError, number_of
from fanin.native.text import printable
from fanin.p4switch.bmv2_runtime import interface as bm
from fanin.p4switch.bmv2_runtime.types import Client, ThriftError
from fanin.p4switch.bmv2json.program import Program
from fanin.p4switch.reader import read_program

_HISTORY = Path("~/.simple_switch_CLI_history").expanduser()

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


COMMANDS: dict[str, Command] = {}
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


def command(usage: str, help_text: str) -> Callable[[_Run], _Run]:
    """Register a method as the one that carries out a command."""

    def register(method: _Run) -> _Run:
        COMMANDS[usage.split()[0]] = Command(usage, help_text, method)
        return method

    return register


def simple(usage: str, help_text: str, method: str, *more: object, says: str = "", answers: str = "") -> None:
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

    COMMANDS[usage.split()[0]] = Command(usage, help_text, run)


class RuntimeCli(cmd.Cmd):
    """Prompt with BMv2's commands. Objects are named by any unique ending of their name: `ipv4_lpm`."""

    prompt = "RuntimeCmd: "
    intro = "Control utility for runtime P4 table manipulation"

    def __init__(self, standard: Client, replication: Client, target: Client) -> None:
        super().__init__()
        self.standard: Any = standard
        self.mc: Any = replication
        self.target: Any = target
        self.program: Program
        self._names: dict[str, dict[str, Any]] = {}

    def load(self, config: str) -> None:
        """Take the objects' names from a program."""
        program = self.program = read_program(config.encode())
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
            case str() if name in COMMANDS:
                self._carry_out(COMMANDS[name], rest or "")
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
        elif arg in COMMANDS:
            print(f"{COMMANDS[arg].help}: {COMMANDS[arg].usage}")
        else:
            print(f"Error: unknown command {printable(arg)}; help lists the commands")

    def completenames(self, text: str, *_: Any) -> list[str]:
        """Return the commands that begin with a text."""
        return sorted(name for name in (*COMMANDS, *_PROMPT) if name.startswith(text))

    def complete_help(self, text: str, *_: Any) -> list[str]:
        """Return the commands whose help a word may ask for."""
        return self.completenames(text)

    def completedefault(self, text: str, line: str, _begin: int, _end: int) -> list[str]:
        """Return the objects that a word may name."""
        words = line.split()
        place = len(words) - (0 if line.endswith(" ") else 1)
        kinds = COMMANDS[words[0]].kinds if words[0] in COMMANDS else []
        if not 1 <= place <= len(kinds):
            return []
        known = self._names[kinds[place - 1]]
        if kinds[place - 1] == "action" and place > 1:
            with suppress(CliError):
                known = {action.name: action for action in self.find("table", words[1]).actions}
        return [
            name
            for name in known
            if _is_offered(name) and (name.startswith(text) or name.rpartition(".")[2].startswith(text))
        ]

    # Arguments

    def find(self, kind: str, name: str) -> Any:
        """Return the object of this kind with this name, or with any unique ending of it.

        Raises:
            CliError: If there is none, or more than one.
        """
        known = self._names[kind]
        if name in known:
            return known[name]
        found = [each for each in known if each.endswith(f".{name}")]
        if len(found) == 1:
            return known[found[0]]
        if found:
            raise CliError(f"{name} may be any of {', '.join(found)}: write more of its name")
        raise CliError(
            f"Invalid {kind} name ({name}); there are {', '.join(filter(_is_offered, known)) or 'none'}"
        )

    def call(self, method: str, *values: object) -> Any:
        """Call a method of any of the three services, in the switch's only context."""
        client = next(c for c in (self.standard, self.mc, self.target) if method in c.service.methods)
        context = (0,) if "cxt_id" in client.service.methods[method].arguments.fields else ()
        return client.call(method, *context, *values)

    def value(self, placeholder: str, word: str) -> str | int:
        """Return what a word stands for: the full name of an object, a text, or a number."""
        if placeholder in _KINDS:
            return str(self.find(_KINDS[placeholder], word).name)
        return word if placeholder in _TEXTS else number_of(word)


def _is_offered(name: str) -> bool:
    """Return whether an object is the program's own. p4c makes tables such as tbl_main42 for statements.

    `show_tables` lists them all the same, as in BMv2.
    """
    return not name.startswith("tbl_")
