"""Actions: P4Runtime's `Action` messages and the engine's action calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fanin.native.text import counted
from fanin.p4switch.bmv2json.program import ActionParameter
from fanin.p4switch.entries import ActionCall
from fanin.p4switch.p4runtime.codec.translation import Codec, Translations
from fanin.p4switch.p4runtime.errors import invalid, listed
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
                f"action {self.name} has {counted(len(action.params), 'parameter')} in the P4Info, "
                f"{len(parameters)} in the device config"
            )
        self._codecs: list[tuple[int, Codec]] = []
        self._slots: dict[int, tuple[int, int, str, Callable[[bytes, int, str], int]]] = {}
        for position, (param, parameter) in enumerate(zip(action.params, parameters, strict=True)):
            what = f"parameter {param.name} of action {self.name}"
            codec = translations.of(param, parameter.width)
            self._codecs.append((param.id, codec))
            width = min(parameter.width, param.bitwidth or parameter.width)
            self._slots[param.id] = (position, width, what, codec.decode)
        self._names = {param.id: param.name for param in action.params}

    def decode(self, message: p4r.Action) -> ActionCall:
        """Decode a call.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT unless every parameter has exactly one value that fits.
        """
        slots = self._slots
        values: list[int | None] = [None] * len(slots)
        for param in message.params:
            slot = slots.get(param.param_id)
            if slot is None:
                names = listed(self._names)
                raise invalid(f"action {self.name} has no parameter {param.param_id}, only {names}")
            position, width, what, decode = slot
            if values[position] is not None:
                raise invalid(f"{what} is given more than once (id {param.param_id})")
            values[position] = decode(param.value, width, what)
        if None in values:
            given = {param.param_id for param in message.params}
            missing = listed({number: name for number, name in self._names.items() if number not in given})
            every = ", ".join(map(str, slots))
            raise invalid(f"action {self.name} takes the parameters {every} once each; missing: {missing}")
        return ActionCall(self.name, tuple(values))  # type: ignore[arg-type]

    def encode(self, call: ActionCall) -> p4r.Action:
        """Encode a call of this action."""
        message = p4r.Action(action_id=self.id)
        for (param_id, codec), value in zip(self._codecs, call.args, strict=True):
            message.params.add(param_id=param_id, value=codec.encode(value))
        return message
