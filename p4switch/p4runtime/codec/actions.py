"""Actions: P4Runtime's `Action` messages and the engine's action calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fanin.p4switch.bmv2json.program import ActionParameter
from fanin.p4switch.entries import ActionCall
from fanin.p4switch.p4runtime.codec.translation import Codec, Translations
from fanin.p4switch.p4runtime.errors import invalid
from fanin.p4switch.p4runtime.proto import p4i, p4r


class ActionCodec:
    """Codec for one action, with the positions of its parameters looked up by id in advance.

    See "Action Specification" in the P4Runtime specification. `parameters` are the program's: values must fit them.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if P4Info has another number of parameters.
    """

    def __init__(
        self, action: p4i.Action, parameters: Sequence[ActionParameter], translations: Translations
    ) -> None:
        self.id = action.preamble.id
        self.name = action.preamble.name
        if len(action.params) != len(parameters):
            raise invalid(
                f"action {self.name} has {len(action.params)} parameters in the P4Info, "
                f"{len(parameters)} in the device config"
            )
        self._codecs: list[tuple[int, Codec]] = []
        self._slots: dict[int, tuple[int, int, str, Codec]] = {}
        for position, (param, parameter) in enumerate(zip(action.params, parameters, strict=True)):
            what = f"parameter {param.name} of action {self.name}"
            codec = translations.of(param)
            self._codecs.append((param.id, codec))
            width = min(parameter.width, param.bitwidth or parameter.width)
            self._slots[param.id] = (position, width, what, codec)

    def decode(self, message: p4r.Action) -> ActionCall:
        """Decode a call.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT unless every parameter has exactly one value that fits.
        """
        slots = self._slots
        values: dict[int, int] = {}
        for param in message.params:
            slot = slots.get(param.param_id)
            if slot is None:
                raise invalid(f"action {self.name} has no parameter {param.param_id}, only {_listed(slots)}")
            position, width, what, codec = slot
            values[position] = codec.decode(param.value, width, what)
        if len(values) != len(slots) or len(message.params) != len(slots):
            given = _listed(param.param_id for param in message.params)
            raise invalid(f"action {self.name} takes the parameters {_listed(slots)} once each, got {given}")
        return ActionCall(self.name, tuple([values[position] for position in range(len(values))]))

    def encode(self, call: ActionCall) -> p4r.Action:
        """Encode a call of this action."""
        message = p4r.Action(action_id=self.id)
        for (param_id, codec), value in zip(self._codecs, call.args, strict=True):
            message.params.add(param_id=param_id, value=codec.encode(value))
        return message


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "none"
