"""Commands of simple_switch_CLI for parser value sets, hashes, ports and the switch itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fanin.bmv2_commands.runtime_cli.prompt import RuntimeCli, command, simple
from fanin.bmv2_commands.runtime_cli.words import CliError, value_bytes
from fanin.p4switch.bmv2_runtime import interface as bm

_Object = TypeVar("_Object")


@command("show_pvs", "List the parser value sets")
def _show_pvs(cli: RuntimeCli, _words: list[str]) -> None:
    for value_set in cli.program.value_sets.values():
        print(f"{value_set.name:30} [{_set_width(value_set)}]")


@command("pvs_add SET VALUE", "Add a value")
def _pvs_add(cli: RuntimeCli, words: list[str]) -> None:
    name, value = words
    value_set = cli.find("value set", name)
    cli.standard.bm_parse_vset_add(0, value_set.name, value_bytes(value, _set_width(value_set)))


@command("pvs_remove SET VALUE", "Remove a value")
def _pvs_remove(cli: RuntimeCli, words: list[str]) -> None:
    name, value = words
    value_set = cli.find("value set", name)
    cli.standard.bm_parse_vset_remove(0, value_set.name, value_bytes(value, _set_width(value_set)))


@command("pvs_get SET", "Show all values")
def _pvs_get(cli: RuntimeCli, words: list[str]) -> None:
    for value in cli.standard.bm_parse_vset_get(0, cli.find("value set", *words).name):
        print(f"0x{value.hex()}")


# -- hashes


@command(
    "set_crc16_parameters CALCULATION POLYNOMIAL INITIAL FINAL REFLECT_IN REFLECT_OUT",
    "Set a crc16_custom",
)
def _set_crc16_parameters(cli: RuntimeCli, words: list[str]) -> None:
    name, config = _crc(cli, words, bm.BmCrc16Config, 16)
    cli.standard.bm_set_crc16_custom_parameters(0, name, config)


@command(
    "set_crc32_parameters CALCULATION POLYNOMIAL INITIAL FINAL REFLECT_IN REFLECT_OUT",
    "Set a crc32_custom",
)
def _set_crc32_parameters(cli: RuntimeCli, words: list[str]) -> None:
    name, config = _crc(cli, words, bm.BmCrc32Config, 32)
    cli.standard.bm_set_crc32_custom_parameters(0, name, config)


def _crc(cli: RuntimeCli, words: list[str], kind: Callable[..., _Object], width: int) -> tuple[str, _Object]:
    name, *numbers, reflect_in, reflect_out = words
    signed = [int.from_bytes(value_bytes(word, width), "big", signed=True) for word in numbers]
    flags = [word.lower() in ("1", "true", "yes") for word in (reflect_in, reflect_out)]
    return cli.find("calculation", name).name, kind(*signed, *flags)


@command("set_toeplitz_hash_key CALCULATION KEY", "Set the key of a toeplitz hash; the key is hexadecimal")
def _set_toeplitz_hash_key(cli: RuntimeCli, words: list[str]) -> None:
    name, key = words
    try:
        octets = bytes.fromhex(key.removeprefix("0x"))
    except ValueError:
        raise CliError(f"{key} is not hexadecimal") from None
    cli.standard.bm_set_toeplitz_hash_key(0, cli.find("calculation", name).name, octets)


# -- the switch


@command("show_ports", "List the ports")
def _show_ports(cli: RuntimeCli, _words: list[str]) -> None:
    print(f"{'port #':^10}{'iface name':^20}{'status':^10}{'extra info':^20}")
    print("=" * 50)
    for port in cli.standard.bm_dev_mgr_show_ports():
        extra = ", ".join(f"{name}={value}" for name, value in port.extra.items())
        print(f"{port.port_num:^10}{port.iface_name:^20}{'UP' if port.is_up else 'DOWN':^10}{extra:^20}")


@command("switch_info", "Show what the switch was started with")
def _switch_info(cli: RuntimeCli, _words: list[str]) -> None:
    for name, value in vars(cli.standard.bm_mgmt_get_info()).items():
        print(f"{name:25}: {value}")


@command("write_config_to_file FILE", "Write the program as JSON")
def _write_config_to_file(cli: RuntimeCli, words: list[str]) -> None:
    (name,) = words
    _to_file(name, cli.standard.bm_get_config())


@command("serialize_state FILE", "Write the state")
def _serialize_state(cli: RuntimeCli, words: list[str]) -> None:
    (name,) = words
    _to_file(name, cli.standard.bm_serialize_state())


def _to_file(name: str, text: str) -> None:
    try:
        Path(name).write_text(text)
    except OSError as error:
        raise CliError(f"{name}: {error.strerror}") from None


@command("load_new_config_file FILE", "Load a program, which swap_configs then runs")
def _load_new_config_file(cli: RuntimeCli, words: list[str]) -> None:
    (name,) = words
    try:
        config = Path(name).read_text()
    except OSError as error:
        raise CliError(f"{name}: {error.strerror}") from None
    cli.standard.bm_load_new_config(config)
    cli.load(config)


# fmt: off
simple("pvs_clear SET", "Remove all values", "bm_parse_vset_clear")
simple("get_time_elapsed",
       "Show the microseconds since the switch has opened its ports", "get_time_elapsed_us", answers="{}")
simple("get_time_since_epoch", "Show the microseconds since 1970", "get_time_since_epoch_us", answers="{}")
simple("port_add INTERFACE PORT", "Attach an interface as a port", "bm_dev_mgr_add_port", "")
simple("port_remove PORT", "Detach the interface of a port", "bm_dev_mgr_remove_port")
simple("reset_state", "Remove all that was written", "bm_reset_state")
simple("swap_configs", "Run the program that was loaded", "bm_swap_configs")
# fmt: on


def _set_width(value_set: Any) -> int:
    return sum(key.width for key in value_set.table.keys)
