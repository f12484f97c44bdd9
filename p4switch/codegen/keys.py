"""The packing of a table's key into 64-bit words, and of matches into masked keys. table.h reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from fanin.p4switch.bmv2json.program import MeterArray, Program, Table, TableKey
from fanin.p4switch.entries import (
    EntryKey,
    Exact,
    Lpm,
    Match,
    Optional_,
    Range,
    TableError,
    TableErrorCode,
    Ternary,
)
from fanin.p4switch.word_packing import to_words, word_count

_SIMPLE: dict[str, type[Any]] = {
    "exact": Exact,
    "valid": Exact,
    "lpm": Lpm,
    "ternary": Ternary,
    "optional": Exact,
}
METER_WORDS = 18  # struct meter in runtime/meter.h


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Word and shift of a key field. A field of over 64 bits has words of its own, the high one first."""

    word: int
    shift: int
    width: int


class PackedKey(NamedTuple):
    """Key as the table stores it: words, mask, upper ends of the ranges, and the priority (larger wins)."""

    words: tuple[int, ...]
    mask: tuple[int, ...]
    high: tuple[int, ...]
    priority: int


@dataclass(frozen=True, slots=True)
class EntryExtra:
    """Words that the data plane keeps in an entry: its direct meter first, then at `last_hit` a time."""

    words: int
    meter: MeterArray | None
    last_hit: int | None

    @classmethod
    def of(cls, program: Program, table: Table) -> EntryExtra:
        """Return the extra words of a table's entries."""
        meter = next((m for m in program.meters.values() if m.table == table.name), None)
        before = METER_WORDS if meter else 0
        ages = table.support_timeout
        return cls(before + ages, meter, before if ages else None)


class KeyLayout:
    """Positions of key fields in a packed key.

    `kind` is exact, lpm, ternary or range, chosen as simple_switch does. `has_priority` is True if entries may overlap,
    so that a priority has to decide. The last `ranges` words are for range fields; `joined` has bits for the words that
    continue the field of the word before.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        kinds = {key.kind for key in table.keys}
        if "range" in kinds:
            self.kind = "range"
        elif kinds & {"ternary", "optional"} or (table.match_type == "ternary"):
            self.kind = "ternary"
        else:
            self.kind = "lpm" if "lpm" in kinds else "exact"
        places: dict[int, KeyPart] = {}
        word, used = 0, 0
        for number, key in enumerate(table.keys):
            if key.kind == "range":
                continue
            if not key.width:  # takes no place, and is 0 wherever it is read
                places[number] = KeyPart(0, 0, 0)
                continue
            if key.width > 64 or used + key.width > 64:
                word, used = word + (used > 0), 0
            places[number] = KeyPart(word, used, key.width)
            if key.width > 64:
                word += word_count(key.width)
            else:
                used += key.width
        word += used > 0
        self.ranges, self.joined = 0, 0
        for number, key in enumerate(table.keys):
            if key.kind == "range":
                places[number] = KeyPart(word, 0, key.width)
                for more in range(word_count(key.width)):
                    self.joined |= (more > 0) << self.ranges
                    self.ranges += 1
                word += word_count(key.width)
        self.words = max(1, word)
        self.places = tuple(places[n] for n in range(len(table.keys)))
        self.has_priority = self.kind in ("ternary", "range")
        self._simple: tuple[tuple[type[Any], int, int], ...] | None = None
        if self.words == 1 and not self.ranges:
            self._simple = tuple(
                (_SIMPLE[key.kind], place.shift, (1 << place.width) - 1)
                for key, place in zip(table.keys, self.places, strict=True)
            )

    def pack(self, key: EntryKey) -> PackedKey:
        """Pack an entry's key.

        Raises:
            TableError: INVALID_ARGUMENT, with the name of the field that does not fit.
        """
        return self._pack_simple(key) or self._pack_any(key)

    def _pack_simple(self, key: EntryKey) -> PackedKey | None:
        """Pack a key of one word, as most are, in one step; None if it has to be looked at more closely."""
        if self._simple is None or len(key.match) != len(self._simple):
            return None
        word, mask, priority = 0, 0, key.priority
        if self.has_priority != (priority > 0):
            return None
        matches = cast("tuple[Any, ...]", key.match)  # of the type that each field's kind has
        for match, (kind, shift, full) in zip(matches, self._simple, strict=True):
            if type(match) is not kind:
                return None
            value: int = match.value
            if kind is Exact:
                bits = full
            elif kind is Ternary:
                bits = match.mask
            else:
                length: int = match.prefix_length
                if length < 0:
                    return None
                bits = full & ~(full >> length)
                if self.kind == "lpm":
                    priority = length
            if value & ~bits or bits & ~full:  # also of negative numbers
                return None
            word |= value << shift
            mask |= bits << shift
        return PackedKey((word,), (mask,), (), priority)

    def _pack_any(self, key: EntryKey) -> PackedKey:
        if len(key.match) != len(self.table.keys):
            raise self._invalid(f"{len(self.table.keys)} match fields are needed, not {len(key.match)}")
        words, mask, high = [0] * self.words, [0] * self.words, [0] * self.ranges
        priority = key.priority
        if self.has_priority:
            if not 0 <= priority < 1 << 32:
                raise self._invalid(f"priority {priority} is not in 0..2^32 - 1")
        elif priority:
            raise self._invalid(f"a table with {self.kind} match takes no priority")
        for match, field, place in zip(key.match, self.table.keys, self.places, strict=True):
            if isinstance(match, Range) and field.kind == "range":
                self._check(field, match.low)
                self._check(field, match.high)
                if match.low > match.high:
                    raise self._invalid(f"{field.name}: the range {match.low}..{match.high} is empty")
                count, fixed = word_count(place.width), self.words - self.ranges
                words[place.word : place.word + count] = to_words(match.low, place.width)
                high[place.word - fixed : place.word - fixed + count] = to_words(match.high, place.width)
                continue
            value, bits = self._value_and_mask(match, field)
            if self.kind == "lpm" and isinstance(match, Lpm):
                priority = match.prefix_length
            if place.width > 64:
                whole = slice(place.word, place.word + word_count(place.width))
                words[whole], mask[whole] = to_words(value, place.width), to_words(bits, place.width)
            else:
                words[place.word] |= value << place.shift
                mask[place.word] |= bits << place.shift
        return PackedKey(tuple(words), tuple(mask), tuple(high), priority)

    def matches(self, packed: PackedKey, key: tuple[int, ...]) -> bool:
        """Return whether an entry's key matches a packet's."""
        fixed = self.words - self.ranges
        masked = zip(key[:fixed], packed.words, packed.mask, strict=False)
        if any((number ^ word) & mask for number, word, mask in masked):
            return False
        ranges = [p for p, field in zip(self.places, self.table.keys, strict=True) if field.kind == "range"]
        for place in ranges:
            own = slice(place.word, place.word + word_count(place.width))
            high = packed.high[own.start - fixed : own.stop - fixed]
            if not packed.words[own] <= key[own] <= high:
                return False
        return True

    def _value_and_mask(self, match: Match, field: TableKey) -> tuple[int, int]:
        full = (1 << field.width) - 1
        match match:
            case Exact(value) if field.kind in ("exact", "valid", "ternary", "optional"):
                self._check(field, value)
                return value, full
            case Lpm(value, length) if field.kind == "lpm":
                self._check(field, value)
                if not 0 <= length <= field.width:
                    raise self._invalid(f"{field.name}: prefix length {length} is not in 0..{field.width}")
                bits = full & ~(full >> length)
                return self._inside(field, value, bits)
            case Ternary(value, bits) if field.kind in ("ternary", "optional"):
                self._check(field, value)
                self._check(field, bits)
                return self._inside(field, value, bits)
            case Optional_(None) if field.kind in ("ternary", "optional"):
                return 0, 0
            case Optional_(int() as value) if field.kind in ("ternary", "optional"):
                self._check(field, value)
                return value, full
        raise self._invalid(f"{field.name}: a match of kind {field.kind} is needed, not {match}")

    def _inside(self, field: TableKey, value: int, bits: int) -> tuple[int, int]:
        if value & ~bits:
            raise self._invalid(f"{field.name}: the value {value:#x} has bits outside its mask {bits:#x}")
        return value, bits

    def _check(self, field: TableKey, value: int) -> None:
        if not 0 <= value < 1 << field.width:
            raise self._invalid(f"{field.name}: {value} does not fit into {field.width} bits")

    def _invalid(self, message: str) -> TableError:
        return TableError(TableErrorCode.INVALID_ARGUMENT, f"table {self.table.name}: {message}")
