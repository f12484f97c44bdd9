"""Commands of simple_switch_CLI for counters, meters and registers."""

from __future__ import annotations

from fanin.bmv2_commands.runtime_cli.prompt import RuntimeCli, command, simple
from fanin.bmv2_commands.runtime_cli.words import number_of, rates_of
from fanin.p4switch.bmv2_runtime import interface as bm


@command("counter_read COUNTER INDEX", "Show a counter; the index of a direct counter is an entry's handle")
def _counter_read(cli: RuntimeCli, words: list[str]) -> None:
    name, index = words
    counter = cli.find("counter", name)
    if counter.table:
        value = cli.standard.bm_mt_read_counter(0, counter.table, number_of(index))
    else:
        value = cli.standard.bm_counter_read(0, counter.name, number_of(index))
    print(f"{name}[{index}]=  BmCounterValue(packets={value.packets}, bytes={value.bytes})")


@command("counter_write COUNTER INDEX PACKETS BYTES", "Set a counter")
def _counter_write(cli: RuntimeCli, words: list[str]) -> None:
    name, index, packets, size = words
    counter = cli.find("counter", name)
    value = bm.BmCounterValue(number_of(size), number_of(packets))
    if counter.table:
        cli.standard.bm_mt_write_counter(0, counter.table, number_of(index), value)
    else:
        cli.standard.bm_counter_write(0, counter.name, number_of(index), value)


@command("counter_reset COUNTER", "Set all cells of a counter to 0")
def _counter_reset(cli: RuntimeCli, words: list[str]) -> None:
    counter = cli.find("counter", *words)
    if counter.table:
        cli.standard.bm_mt_reset_counters(0, counter.table)
    else:
        cli.standard.bm_counter_reset_all(0, counter.name)


@command("meter_array_set_rates METER RATE:BURST [RATE:BURST]", "Set the rates of all cells, per microsecond")
def _meter_array_set_rates(cli: RuntimeCli, words: list[str]) -> None:
    name, *words = words
    meter = cli.find("meter", name)
    cli.standard.bm_meter_array_set_rates(0, meter.name, rates_of(words, meter.rates))


@command("meter_set_rates METER INDEX RATE:BURST [RATE:BURST]", "Set the rates of a cell, per microsecond")
def _meter_set_rates(cli: RuntimeCli, words: list[str]) -> None:
    name, index, *words = words
    meter = cli.find("meter", name)
    rates = rates_of(words, meter.rates)
    if meter.table:
        cli.standard.bm_mt_set_meter_rates(0, meter.table, number_of(index), rates)
    else:
        cli.standard.bm_meter_set_rates(0, meter.name, number_of(index), rates)


@command("meter_get_rates METER INDEX", "Show the rates of a cell")
def _meter_get_rates(cli: RuntimeCli, words: list[str]) -> None:
    name, index = words
    meter = cli.find("meter", name)
    if meter.table:
        rates = cli.standard.bm_mt_get_meter_rates(0, meter.table, number_of(index))
    else:
        rates = cli.standard.bm_meter_get_rates(0, meter.name, number_of(index))
    for number, rate in enumerate(rates):
        print(f"{number}: info rate = {rate.units_per_micros} units/µs, burst size = {rate.burst_size} units")


@command("register_read REGISTER [INDEX]", "Show a cell of a register, or all")
def _register_read(cli: RuntimeCli, words: list[str]) -> None:
    name, *words = words
    register = cli.find("register", name)
    if words:
        print(f"{name}[{words[0]}]= {cli.standard.bm_register_read(0, register.name, number_of(words[0]))}")
    else:
        values = cli.standard.bm_register_read_all(0, register.name)
        print(f"{name}= {', '.join(map(str, values))}")


# fmt: off
simple("register_write REGISTER INDEX VALUE", "Set a cell of a register", "bm_register_write")
simple("register_reset REGISTER", "Set all cells of a register to 0", "bm_register_reset")
# fmt: on
