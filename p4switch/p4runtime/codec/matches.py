"""Match fields: P4Runtime's `FieldMatch` messages and the engine's matches.

P4Runtime specification, "Match Format": a field that matches anything is omitted from the message, and bits
that a prefix or mask ignores must be zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from fanin.p4switch.bmv2json.program import TableKey
from fanin.p4switch.entries import Exact, Lpm, Match, Optional_, Range, Ternary
from fanin.p4switch.p4runtime.codec.translation import NUMBERS, Codec, Translations, signed_numbers
from fanin.p4switch.p4runtime.errors import invalid, unimplemented
from fanin.p4switch.p4runtime.proto import p4i, p4r

_KINDS = {
    p4i.MatchField.EXACT: "exact",
    p4i.MatchField.LPM: "lpm",
    p4i.MatchField.TERNARY: "ternary",
    p4i.MatchField.RANGE: "range",
    p4i.MatchField.OPTIONAL: "optional",
}
_IPV4 = "@format(IPV4_ADDRESS)"  # an annotation that sonic-pins has introduced
PRIORITIZED_KINDS = frozenset({"ternary", "range", "optional"})
"""Match kinds that may overlap, so that a table with one of them needs priorities."""


@dataclass(frozen=True, slots=True)
class MatchField:
    """Field of a table's key: its P4Info id, name and width, its kind as `FieldMatch` names it, and its codec.

    `given` is the width of the control plane's type. It differs from `width` if the type is a translated one. Numbers
    of a `signed` field are in two's complement. `text` formats a value for messages, as people write it.
    """

    id: int
    name: str
    width: int
    kind: str
    codec: Codec
    given: int
    text: Callable[[int], str] = hex
    signed: bool = False

    @classmethod
    def of(
        cls,
        field: p4i.MatchField,
        key: TableKey,
        table: str,
        translations: Translations,
        text: Callable[[int], str],
    ) -> MatchField:
        """Return the field for a key of the program. Its values must fit the program's field.

        Args:
            field: The field in P4Info.
            key: The key of the program.
            table: The name of its table.
            translations: The codecs of the program's types.
            text: Formats a number of the field for messages, unless its type or annotation has another form.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if P4Info and the program disagree on the kind;
                UNIMPLEMENTED for values that this kind cannot match.
        """
        what = f"key {field.name} of table {table}"
        kind = _KINDS.get(field.match_type, "unspecified")
        # BMv2 has no optional matches: p4c writes them as ternary ones.
        if kind != ("exact" if key.kind == "valid" else key.kind) and (kind, key.kind) != (
            "optional",
            "ternary",
        ):
            raise invalid(f"{what}: the device config has a {key.kind} match here, the P4Info another")
        codec = _codec(field, key.width, kind, what, translations)
        signed = key.signed and key.width > 0 and codec is NUMBERS
        if signed:
            codec = signed_numbers(key.width)
        if _IPV4 in field.annotations:
            text = _ipv4_text
        return cls(
            field.id,
            what,
            key.width,
            kind,
            codec,
            field.bitwidth or key.width,
            codec.text or text,
            signed,
        )

    @classmethod
    def of_value_set(
        cls, field: p4i.MatchField, width: int, value_set: str, translations: Translations
    ) -> MatchField:
        """Return a field of a value set, from P4Info alone: the device config does not contain its kind.

        Raises:
            P4RuntimeError: UNIMPLEMENTED for an unknown kind, or values that this kind cannot match.
        """
        what = f"field {field.id} of value set {value_set}"
        kind = _KINDS.get(field.match_type, "unspecified")
        if kind == "unspecified":
            raise unimplemented(f"{what}: {kind} matches are not supported")
        codec = _codec(field, width, kind, what, translations)
        return cls(field.id, what, width, kind, codec, field.bitwidth or width)

    @property
    def dont_care(self) -> Match | None:
        """Return the match that an omitted field stands for; None if it must be given."""
        match self.kind:
            case "lpm":
                return Lpm(0, 0)
            case "ternary":
                return Ternary(0, 0)
            case "range":
                return self.every_value
            case "optional":
                return Optional_(None)
        return None

    @property
    def every_value(self) -> Range:
        """Return the range of all values that the control plane can give."""
        return Range(0, (1 << min(self.width, self.given)) - 1)

    def decode(self, message: p4r.FieldMatch) -> Match:
        """Decode a match.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if it breaks one of the rules of its kind; UNIMPLEMENTED for a range of
                numbers of both signs.
        """
        return DECODERS[self.kind](message, self)

    def value(self, data: bytes, message: p4r.FieldMatch) -> int:
        """Decode a value of a match.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if it is not a value of the field, or the match is of another kind.
        """
        if not data:  # as it is where the match is of another kind
            kind = message.WhichOneof("field_match_type")
            if kind != self.kind:
                raise invalid(f"{self.name}: this field has {self.kind} matches, the request a {kind} match")
        width = self.width if self.width < self.given else self.given
        return self.codec.decode(data, width, self.name)

    def encode(self, match: Match) -> p4r.FieldMatch | None:
        """Encode a match; None for one that matches anything, which P4Runtime omits."""
        message, encode_value = p4r.FieldMatch(field_id=self.id), self.codec.encode
        if self.kind == "optional" and isinstance(match, Ternary):  # in an entry that the program declares
            match = Optional_(match.value if match.mask else None)
        match match:
            case Lpm(_, 0) | Ternary(_, 0) | Optional_(None):
                return None
            case Range() if match == self.every_value:
                return None
            case Exact(value):
                message.exact.value = encode_value(value)
            case Lpm(value, prefix_length):
                message.lpm.value = encode_value(value)
                message.lpm.prefix_len = prefix_length + self.given - self.width
            case Ternary(value, mask):
                message.ternary.value = encode_value(value)
                message.ternary.mask = NUMBERS.encode(mask)
            case Range(low, high):
                message.range.low = encode_value(low)
                message.range.high = encode_value(high)
            case Optional_(int() as value):
                message.optional.value = encode_value(value)
        return message


def _ipv4_text(number: int) -> str:
    return str(IPv4Address(number)) if number >> 32 == 0 else hex(number)


def _codec(field: p4i.MatchField, width: int, kind: str, what: str, translations: Translations) -> Codec:
    codec = translations.of(field, width)
    if codec is not NUMBERS and kind not in ("exact", "optional"):
        raise unimplemented(
            f"{what}: values translated to strings have exact and optional matches, not {kind}"
        )
    return codec


def _exact(message: p4r.FieldMatch, field: MatchField) -> Match:
    return Exact(field.value(message.exact.value, message))


def _lpm(message: p4r.FieldMatch, field: MatchField) -> Match:
    given, width = field.given, field.width
    value, length = field.value(message.lpm.value, message), message.lpm.prefix_len
    # A translated type's upper bits that the field lacks are zero, and so are the field's that the type lacks.
    if not max(0, given - width) < length <= given:
        raise invalid(
            f"{field.name}: prefix length {length} is not in {max(0, given - width) + 1}..{given}; "
            "leave the field out to match anything"
        )
    length += width - given
    if value & (1 << width - length) - 1:
        prefix = field.text(value >> width - length << width - length)
        raise invalid(
            f"{field.name}: {field.text(value)} has ones after its prefix of {message.lpm.prefix_len} bits; "
            f"the prefix is {prefix}/{message.lpm.prefix_len}"
        )
    return Lpm(value, length)


def _ternary(message: p4r.FieldMatch, field: MatchField) -> Match:
    value = field.value(message.ternary.value, message)
    mask = NUMBERS.decode(message.ternary.mask, field.given, field.name)
    if field.given > field.width:
        mask &= (1 << field.width) - 1
    if mask == 0:
        raise invalid(f"{field.name}: the mask is zero; leave the field out to match anything")
    if value & ~mask:
        raise invalid(
            f"{field.name}: {field.text(value)} has ones where its mask {mask:#x} has zeros; "
            f"the masked value is {field.text(value & mask)}"
        )
    return Ternary(value, mask)


def _range(message: p4r.FieldMatch, field: MatchField) -> Match:
    low = field.value(message.range.low, message)
    high = field.value(message.range.high, message)
    if field.signed and (low ^ high) >> field.width - 1:
        if low < high:
            raise invalid(f"{field.name}: the range is empty: its lower end is the larger one")
        raise unimplemented(
            f"{field.name}: a range of signed numbers has either negative or other numbers here"
        )
    if low > high:
        raise invalid(f"{field.name}: the range {field.text(low)}..{field.text(high)} is empty")
    if Range(low, high) == field.every_value:
        raise invalid(f"{field.name}: the range covers every value; leave the field out to match anything")
    return Range(low, high)


def _optional(message: p4r.FieldMatch, field: MatchField) -> Match:
    return Optional_(field.value(message.optional.value, message))


DECODERS: dict[str, Callable[[p4r.FieldMatch, MatchField], Match]] = {
    "exact": _exact,
    "lpm": _lpm,
    "ternary": _ternary,
    "range": _range,
    "optional": _optional,
}
