"""Commands of simple_switch_CLI for tables and their entries, and for action profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fanin.bmv2_commands.runtime_cli.prompt import COMMANDS, RuntimeCli, command, simple
from fanin.bmv2_commands.runtime_cli.words import CliError, match_param, number_of, value_bytes
from fanin.p4switch.bmv2_runtime import interface as bm
from fanin.p4switch.bmv2json.program import Action, Table


@command("show_tables", "List the tables")
def _show_tables(cli: RuntimeCli, _words: list[str]) -> None:
    for table in cli.program.tables.values():
        key = ",\t".join(f"{key.name}({key.kind}, {key.width})" for key in table.keys)
        print(f"{table.name:30} [implementation={table.profile}, mk={key}]")


@command("show_actions", "List the actions")
def _show_actions(cli: RuntimeCli, _words: list[str]) -> None:
    for action in cli.program.actions.values():
        print(_action_line(action))


@command("table_show_actions TABLE", "List the actions of a table")
def _table_show_actions(cli: RuntimeCli, words: list[str]) -> None:
    (name,) = words
    for action in cli.find("table", name).actions:
        print(_action_line(action))


@command("table_info TABLE", "Show a table's key and actions")
def _table_info(cli: RuntimeCli, words: list[str]) -> None:
    (name,) = words
    table = cli.find("table", name)
    key = ",\t".join(f"{key.name}({key.kind}, {key.width})" for key in table.keys)
    print(f"{table.name:30} [implementation={table.profile}, mk={key}]")
    print("*" * 80)
    _table_show_actions(cli, [name])


@command("table_set_default TABLE ACTION [PARAMETER…]", "Set the default action of a table")
def _table_set_default(cli: RuntimeCli, words: list[str]) -> None:
    table_name, action_name, *words = words
    table = cli.find("table", table_name)
    action = _table_action(table, action_name)
    data = _action_data(action, words)
    print(f"Setting default action of {table_name}")
    _print_call(action_name, data)
    cli.standard.bm_mt_set_default_action(0, table.name, action.name, data)


@command("table_add TABLE ACTION KEY… => [PARAMETER…] [PRIORITY]", "Add an entry")
def _table_add(cli: RuntimeCli, words: list[str]) -> None:
    table_name, action_name, *words = words
    table = cli.find("table", table_name)
    action = _table_action(table, action_name)
    key, rest, options = _key_and_rest(table, words, len(action.parameters))
    data = _action_data(action, rest)
    print(f"Adding entry to {table.match_type} match table {table_name}")
    print(f"{'match key:':20} " + "\t".join(map(_param_text, key)))
    _print_call(action_name, data)
    handle = cli.standard.bm_mt_add_entry(0, table.name, key, action.name, data, options)
    print(f"Entry has been added with handle {handle}")


@command("table_modify TABLE ACTION HANDLE [=>] [PARAMETER…]", "Replace an entry's action")
def _table_modify(cli: RuntimeCli, words: list[str]) -> None:
    table_name, action_name, handle, *words = words
    table = cli.find("table", table_name)
    action = _table_action(table, action_name)
    data = _action_data(action, words[1:] if words[:1] == ["=>"] else words)
    print(f"Modifying entry {handle} for {table.match_type} match table {table_name}")
    cli.standard.bm_mt_modify_entry(0, table.name, number_of(handle), action.name, data)


@command("table_dump TABLE", "Show all entries of a table")
def _table_dump(cli: RuntimeCli, words: list[str]) -> None:
    table = cli.find("table", *words)
    print("==========\nTABLE ENTRIES")
    for entry in cli.standard.bm_mt_get_entries(0, table.name):
        print("**********")
        _print_entry(table, entry)
    if table.profile:
        _print_profile(cli, table.profile)
    print("==========\nDumping default entry")
    print(_action_entry(cli.standard.bm_mt_get_default_entry(0, table.name)))
    print("==========")


@command("table_dump_entry TABLE HANDLE", "Show an entry by its handle")
def _table_dump_entry(cli: RuntimeCli, words: list[str]) -> None:
    name, handle = words
    table = cli.find("table", name)
    _print_entry(table, cli.standard.bm_mt_get_entry(0, table.name, number_of(handle)))


@command("table_dump_entry_from_key TABLE KEY… [PRIORITY]", "Show an entry by its key")
def _table_dump_entry_from_key(cli: RuntimeCli, words: list[str]) -> None:
    name, *words = words
    table = cli.find("table", name)
    options = bm.BmAddEntryOptions(number_of(words.pop()) if _has_priority(table) and words else None)
    key = _match_key(table, words)
    _print_entry(table, cli.standard.bm_mt_get_entry_from_key(0, table.name, key, options))


def _print_entry(table: Table, entry: bm.BmMtEntry) -> None:
    print(f"Dumping entry {entry.entry_handle:#x}\nMatch key:")
    for key, param in zip(table.keys, entry.match_key, strict=False):
        kind, _, text = _param_text(param).replace(":", "").partition("-")
        print(f"* {key.name:20}: {kind:10}{text}")
    if entry.options.priority is not None and entry.options.priority >= 0:
        print(f"Priority: {entry.options.priority}")
    print(_action_entry(entry.action_entry))
    if entry.life is not None:
        print(f"Life: {entry.life.time_since_hit_ms}ms since hit, timeout is {entry.life.timeout_ms}ms")


# -- action profiles


@command("act_prof_create_member PROFILE ACTION [PARAMETER…]", "Add a member")
def _act_prof_create_member(cli: RuntimeCli, words: list[str]) -> None:
    name, action_name, *words = words
    profile = cli.find("profile", name)
    action = cli.find("action", action_name)
    data = _action_data(action, words)
    handle = cli.standard.bm_mt_act_prof_add_member(0, profile.name, action.name, data)
    print(f"Member has been created with handle {handle}")


@command("act_prof_modify_member PROFILE ACTION MEMBER [PARAMETER…]", "Replace a member's action")
def _act_prof_modify_member(cli: RuntimeCli, words: list[str]) -> None:
    name, action_name, member, *words = words
    action = cli.find("action", action_name)
    data = _action_data(action, words)
    profile = cli.find("profile", name).name
    cli.standard.bm_mt_act_prof_modify_member(0, profile, number_of(member), action.name, data)


@command("act_prof_dump PROFILE", "Show members and groups")
def _act_prof_dump(cli: RuntimeCli, words: list[str]) -> None:
    _print_profile(cli, cli.find("profile", *words).name)


@command("act_prof_dump_member PROFILE MEMBER", "Show a member")
def _act_prof_dump_member(cli: RuntimeCli, words: list[str]) -> None:
    name, member = words
    _print_member(
        cli.standard.bm_mt_act_prof_get_member(0, cli.find("profile", name).name, number_of(member))
    )


@command("act_prof_dump_group PROFILE GROUP", "Show a group")
def _act_prof_dump_group(cli: RuntimeCli, words: list[str]) -> None:
    name, group = words
    _print_group(cli.standard.bm_mt_act_prof_get_group(0, cli.find("profile", name).name, number_of(group)))


def _print_profile(cli: RuntimeCli, name: str) -> None:
    print("==========\nMEMBERS")
    for member in cli.standard.bm_mt_act_prof_get_members(0, name):
        print("**********")
        _print_member(member)
    if cli.program.profiles[name].selector is not None:
        print("==========\nGROUPS")
        for group in cli.standard.bm_mt_act_prof_get_groups(0, name):
            print("**********")
            _print_group(group)


@command("table_indirect_add TABLE KEY… => MEMBER [PRIORITY]", "Add an entry with a member")
def _table_indirect_add(cli: RuntimeCli, words: list[str]) -> None:
    _add_indirect(cli, words, cli.standard.bm_mt_indirect_add_entry)


@command("table_indirect_add_with_group TABLE KEY… => GROUP [PRIORITY]", "Add an entry with a group")
def _table_indirect_add_with_group(cli: RuntimeCli, words: list[str]) -> None:
    _add_indirect(cli, words, cli.standard.bm_mt_indirect_ws_add_entry)


def _add_indirect(cli: RuntimeCli, words: list[str], add: Callable[..., int]) -> None:
    name, *words = words
    table = cli.find("table", name)
    key, rest, options = _key_and_rest(table, words, 1)
    if len(rest) != 1:
        raise CliError("write the handle of a member or group after =>")
    handle = add(0, table.name, key, number_of(rest[0]), options)
    print(f"Adding entry to indirect match table {table.name}")
    print(f"Entry has been added with handle {handle}")


# fmt: off
simple("table_reset_default TABLE", "Restore the program's default action", "bm_mt_reset_default_entry")
simple("table_num_entries TABLE", "Show the number of entries", "bm_mt_get_num_entries", answers="{}")
simple("table_clear TABLE", "Remove all entries of a table", "bm_mt_clear_entries", False)
simple("table_set_timeout TABLE HANDLE MILLISECONDS", "Set after how many milliseconds an entry is idle",
       "bm_mt_set_entry_ttl", says="Setting a {2} ms timeout for entry {1}")
simple("table_delete TABLE HANDLE", "Remove an entry", "bm_mt_delete_entry", says="Deleting entry {1} from {0}")
simple("act_prof_delete_member PROFILE MEMBER", "Remove a member", "bm_mt_act_prof_delete_member")
simple("act_prof_create_group PROFILE",
       "Add a group", "bm_mt_act_prof_create_group", answers="Group has been created with handle {}")
simple("act_prof_delete_group PROFILE GROUP", "Remove a group", "bm_mt_act_prof_delete_group")
simple("act_prof_add_member_to_group PROFILE MEMBER GROUP",
       "Add a member to a group", "bm_mt_act_prof_add_member_to_group")
simple("act_prof_remove_member_from_group PROFILE MEMBER GROUP",
       "Remove a member from a group", "bm_mt_act_prof_remove_member_from_group")
simple("table_indirect_delete TABLE HANDLE", "Remove an entry", "bm_mt_indirect_delete_entry")
simple("table_indirect_set_default TABLE MEMBER",
       "Let the default entry refer to a member", "bm_mt_indirect_set_default_member")
simple("table_indirect_set_default_with_group TABLE GROUP",
       "Let the default entry refer to a group", "bm_mt_indirect_ws_set_default_group")
simple("table_indirect_reset_default TABLE",
       "Restore the program's default entry", "bm_mt_indirect_reset_default_entry")
# fmt: on

# Earlier names of the same commands.
for _name in (
    *("create_member", "modify_member", "delete_member", "create_group", "delete_group"),
    *("add_member_to_group", "remove_member_from_group"),
):
    COMMANDS[f"table_indirect_{_name}"] = COMMANDS[f"act_prof_{_name}"]
for _name in ("dump_member", "dump_group"):
    COMMANDS[f"table_{_name}"] = COMMANDS[f"act_prof_{_name}"]


# -- arguments and output


def _table_action(table: Table, name: str) -> Action:
    found = [a for a in table.actions if a.name == name or a.name.endswith(f".{name}")]
    if len(found) != 1:
        raise CliError(
            f"Table {table.name} has no action {name}; it has {', '.join(a.name for a in table.actions)}"
        )
    return found[0]


def _action_data(action: Action, words: Sequence[str]) -> list[bytes]:
    if len(words) != len(action.parameters):
        names = " ".join(f"{p.name}(bit<{p.width}>)" for p in action.parameters)
        raise CliError(
            f"Action {action.name} needs {len(action.parameters)} parameters"
            + (f": {names}" if names else "")
        )
    return [value_bytes(word, p.width) for word, p in zip(words, action.parameters, strict=True)]


def _match_key(table: Table, words: Sequence[str]) -> list[bm.BmMatchParam]:
    if len(words) != len(table.keys):
        names = " ".join(f"{key.name}({key.kind}, bit<{key.width}>)" for key in table.keys)
        raise CliError(f"Table {table.name} needs {len(table.keys)} key fields: {names}")
    return [match_param(w, key.kind, key.width) for w, key in zip(words, table.keys, strict=True)]


def _key_and_rest(
    table: Table, words: Sequence[str], values: int
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
            raise CliError(f"Table {table.name} needs a priority as the last word; the smallest number wins")
        options.priority = number_of(rest.pop())
    return _match_key(table, key), rest, options


def _has_priority(table: Table) -> bool:
    return any(key.kind in ("ternary", "range", "optional") for key in table.keys)


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
