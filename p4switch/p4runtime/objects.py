"""The objects of a program by their P4Info ids, from which the entities of a pipeline are made."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Protocol, TypeVar

from fanin.p4switch.bmv2json.program import Program
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.p4runtime.codec.actions import ActionCodec
from fanin.p4switch.p4runtime.codec.meters import meter_type
from fanin.p4switch.p4runtime.codec.tables import P4InfoTable
from fanin.p4switch.p4runtime.codec.translation import Translations
from fanin.p4switch.p4runtime.codec.watch import WatchedPorts
from fanin.p4switch.p4runtime.constraints import Constraints
from fanin.p4switch.p4runtime.errors import invalid, listed
from fanin.p4switch.p4runtime.proto import p4i
from fanin.p4switch.wakeup import WakeUp

_Object = TypeVar("_Object")


class _Described(Protocol):
    @property
    def preamble(self) -> p4i.Preamble: ...


_Info = TypeVar("_Info", bound=_Described)


class ById(dict[int, _Object]):
    """Objects of one kind by their P4Info ids, with their names for messages."""

    def __init__(self, kind: str, objects: Iterable[tuple[p4i.Preamble, _Object]]) -> None:
        found = list(objects)
        super().__init__((preamble.id, each) for preamble, each in found)
        self.kind = kind
        self.names = {preamble.id: preamble.name for preamble, _ in found}

    def find(self, object_id: int) -> _Object:
        """Return the object with an id.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if there is none. The message lists those there are.
        """
        found = self.get(object_id)
        if found is None:
            names = listed(self.names)
            raise invalid(
                f"the pipeline has no {self.kind} with the id {object_id:#x} ({object_id}); there are {names}"
            )
        return found

    def select(self, object_id: int) -> Iterable[tuple[int, _Object]]:
        """Return the object with an id, together with the id; or all objects if it is 0.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if there is none.
        """
        return [(object_id, self.find(object_id))] if object_id else self.items()


class PipelineObjects:
    """Actions and tables of one pipeline, and everything else that its entities share.

    `wakeup` wakes the notifier. Only objects that the program has are included: a compiler may omit unused ones from
    the device config.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if P4Info and program do not belong together.
    """

    def __init__(self, p4info: p4i.P4Info, engine: Engine, ports: WatchedPorts) -> None:
        program = engine.program
        described = {table.preamble.name for table in p4info.tables}
        dropped = described - program.tables.keys()
        unknown = {table.name for table in program.tables.values() if not table.is_call} - described
        if dropped and unknown:
            raise invalid(
                f"the P4Info has a table {min(dropped)}, the device config has {min(unknown)} instead"
            )
        self.p4info = p4info
        self.engine = engine
        self.ports = ports
        self.wakeup = WakeUp()
        self.translations = Translations(p4info.type_info)
        # An action that a control also calls exists twice, the second time with bound parameters.
        by_count = sorted(program.actions.values(), key=lambda action: len(action.parameters))
        parameters = {action.name: action.parameters for action in by_count}
        self.actions = self.by_id(
            "action",
            (*p4info.actions, *_hidden_actions(p4info, program)),
            parameters,
            lambda info: ActionCodec(info, parameters[info.preamble.name], self.translations),
        )
        profiles = {profile.preamble.id: profile for profile in p4info.action_profiles}
        counted = {counter.direct_table_id for counter in p4info.direct_counters}
        meters = {meter.direct_table_id: meter_type(meter) for meter in p4info.direct_meters}
        self.tables = self.by_id(
            "table",
            p4info.tables,
            program.tables,
            lambda info: P4InfoTable(
                info,
                engine.table(info.preamble.name),
                self.actions,
                profiles.get(info.implementation_id),
                ports,
                self.translations,
                is_counted=info.preamble.id in counted,
                meter=meters.get(info.preamble.id),
            ),
        )
        self.constraints = Constraints(
            p4info, self.tables, self.translations, lambda group: group in engine.multicast.all()
        )

    def by_id(
        self, kind: str, described: Iterable[_Info], there: Container[str], make: Callable[[_Info], _Object]
    ) -> ById[_Object]:
        """Return objects by their P4Info ids.

        Args:
            kind: What messages call them.
            described: Their descriptions in P4Info.
            there: The names of those that the program has. Others are left out.
            make: Returns the object for a description.
        """
        found = (info for info in described if info.preamble.name in there)
        return ById(kind, ((info.preamble, make(info)) for info in found))


def _hidden_actions(p4info: p4i.P4Info, program: Program) -> Iterable[p4i.Action]:
    """Describe the actions that P4Info refers to and does not describe, because the program hides them.

    References of a table are in the order of its actions in the program.
    """
    described = {action.preamble.id: action.preamble.name for action in p4info.actions}
    found: dict[int, p4i.Action] = {}
    for table in p4info.tables:
        if table.preamble.name not in program.tables:
            continue
        hidden = [ref.id for ref in table.action_refs if ref.id not in described]
        actions = {action.name: action for action in program.tables[table.preamble.name].actions}
        names = [name for name in actions if name not in described.values()]
        if len(hidden) != len(names):
            continue
        for number, name in zip(hidden, names, strict=True):
            made = p4i.Action(preamble=p4i.Preamble(id=number, name=name, alias=name))
            for position, parameter in enumerate(actions[name].parameters, 1):
                made.params.add(id=position, name=parameter.name, bitwidth=parameter.width)
            found[number] = made
    return found.values()
