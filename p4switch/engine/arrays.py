"""Indirect counters, meters and registers: their cells in the switch's memory, by index."""

from __future__ import annotations

import ctypes

from fanin.p4switch.bmv2json.program import CounterArray, MeterArray, RegisterArray
from fanin.p4switch.engine.meters import Counter, Meter
from fanin.p4switch.engine.switch import RunningSwitch, locked
from fanin.p4switch.entries import CounterValue, MeterConfig, MeterCounters, TableError, TableErrorCode


class CounterCells:
    """Cells of one counter, which begin `offset` bytes after the beginning of the switch's state.

    An index out of range is raised as TableError, INVALID_ARGUMENT.
    """

    def __init__(self, switch: RunningSwitch, counter: CounterArray, offset: int) -> None:
        self.name, self.size = counter.name, counter.size
        self._switch = switch
        self._cells = (Counter * counter.size).from_address(switch.base + offset)

    @locked
    def read(self, index: int) -> CounterValue:
        """Return one cell."""
        _check_index(self, index)
        return self._cells[index].value()

    @locked
    def read_all(self) -> list[CounterValue]:
        """Return all cells."""
        return [cell.value() for cell in self._cells]

    def keep(self, previous: CounterCells | None) -> None:
        """Copy the cells of another switch's counter, unless it has another size."""
        if previous is not None and previous.size == self.size:
            ctypes.memmove(self._cells, previous._cells, ctypes.sizeof(self._cells))

    @locked
    def write(self, index: int, value: CounterValue) -> None:
        """Set one cell."""
        _check_index(self, index)
        self._cells[index] = Counter(value.packets, value.bytes)


class MeterCells:
    """Cells of one meter, which begin `offset` bytes after the beginning of the switch's state.

    An index out of range and invalid rates are raised as TableError, INVALID_ARGUMENT.
    """

    def __init__(self, switch: RunningSwitch, meter: MeterArray, offset: int) -> None:
        self.name, self.size = meter.name, meter.size
        self._rates = meter.rates
        self._switch = switch
        self._first = switch.base + offset

    @locked
    def config(self, index: int) -> MeterConfig | None:
        """Return the rates of one cell; None if it is not configured, so that everything is green."""
        return self._cell(index).config()

    @locked
    def configure(self, index: int, config: MeterConfig | None) -> None:
        """Set the rates of one cell, with full buckets."""
        self._cell(index).configure(config, self._rates)

    @locked
    def counters(self, index: int) -> MeterCounters:
        """Return the packets and bytes that one cell has marked green, yellow and red."""
        return self._cell(index).counters()

    @locked
    def set_counters(self, index: int, counters: MeterCounters) -> None:
        """Set the counters of one cell."""
        self._cell(index).set_counters(counters)

    def _cell(self, index: int) -> Meter:
        _check_index(self, index)
        return Meter.from_address(self._first + index * ctypes.sizeof(Meter))


class RegisterCells:
    """Cells of one register.

    Each cell has `cell_bytes` bytes. The first begins `offset` bytes after the beginning of the switch's state, and the
    others follow at intervals of `step` bytes. Values are unsigned. An index out of range and a value that does not fit
    are raised as TableError, INVALID_ARGUMENT.
    """

    def __init__(
        self, switch: RunningSwitch, register: RegisterArray, cell_bytes: int, offset: int, step: int
    ) -> None:
        self.name, self.size, self.width = register.name, register.size, register.width
        self._switch = switch
        self._bytes = cell_bytes
        self._first, self._step = switch.base + offset, step

    @locked
    def read(self, start: int = 0, count: int | None = None) -> list[int]:
        """Return `count` cells from `start`, by default all."""
        end = self.size if count is None else start + count
        if not 0 <= start <= end <= self.size:
            raise TableError(
                TableErrorCode.INVALID_ARGUMENT, f"{self.name}: {start}..{end} of {self.size} cells"
            )
        if start == end:
            return []
        size, step = self._bytes, self._step
        data = ctypes.string_at(self._first + start * step, (end - start - 1) * step + size)
        return [int.from_bytes(data[at : at + size], "little") for at in range(0, (end - start) * step, step)]

    def keep(self, previous: RegisterCells | None) -> None:
        """Copy the cells of another switch's register, unless it has another size or width."""
        if previous is None or (previous.size, previous.width) != (self.size, self.width):
            return
        if self._step == previous._step == self._bytes:
            ctypes.memmove(self._first, previous._first, self.size * self._step)
        else:
            for index, value in enumerate(previous.read()):
                self.write(index, value)

    @locked
    def write(self, index: int, value: int) -> None:
        """Set one cell."""
        _check_index(self, index)
        if not 0 <= value < 1 << self.width:
            raise TableError(
                TableErrorCode.INVALID_ARGUMENT, f"{self.name}: {value} does not fit into {self.width} bits"
            )
        ctypes.memmove(self._first + index * self._step, value.to_bytes(self._bytes, "little"), self._bytes)


def _check_index(cells: CounterCells | MeterCells | RegisterCells, index: int) -> None:
    if not 0 <= index < cells.size:
        raise TableError(
            TableErrorCode.INVALID_ARGUMENT, f"{cells.name}: index {index} is not in 0..{cells.size - 1}"
        )
