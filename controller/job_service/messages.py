"""The messages of jobs.proto, and the equivalent documents that the service and its workers' lines use.

A document consists of JSON's types: a message is a dict by its fields' names, and absent fields are None. Small
messages with only numbers and an address are lists, for instance [first, last].
"""

from collections.abc import Mapping
from typing import Any

from fanin.controller.job_service import jobs_pb2 as pb

_LISTS = frozenset(each.DESCRIPTOR.full_name for each in (pb.Address, pb.HostCount, pb.Range))
_COUNT = ("count", "port")


def fill(message: Any, document: Any) -> None:
    """Set the fields of `message` to the values of `document`.

    Raises:
        KeyError: If the message has no such field.
        ValueError: If a value does not fit its field.
        TypeError: If a value has another type than its field.
    """
    descriptor = message.DESCRIPTOR
    if descriptor.full_name in _LISTS:
        document = dict(zip((field.name for field in descriptor.fields), document, strict=True))
    for name, value in document.items():
        field = descriptor.fields_by_name[name]
        if value is None:
            continue
        target = getattr(message, name)
        if field.message_type is None:
            if field.is_repeated:
                target.extend(value)
            else:
                setattr(message, name, value)
        elif field.message_type.GetOptions().map_entry:
            for key, each in value.items():
                if field.message_type.fields_by_name["value"].message_type is None:
                    target[key] = each
                else:
                    target[key].SetInParent()
                    fill(target[key], each)
        elif field.is_repeated:
            for each in value:
                fill(target.add(), each)
        else:
            target.SetInParent()
            fill(target, value)


def document_of(message: Any) -> Any:
    """Return the document of a message: the reverse of fill()."""
    descriptor = message.DESCRIPTOR
    if descriptor.full_name in _LISTS:
        return [getattr(message, field.name) for field in descriptor.fields]
    return {field.name: _value_of(message, field) for field in descriptor.fields}


def _value_of(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        plain = field.message_type.fields_by_name["value"].message_type is None
        return {key: value[key] if plain else document_of(value[key]) for key in value}
    return [document_of(each) for each in value] if field.is_repeated else document_of(value)


def line_of(message: pb.ToService) -> dict[str, Any]:
    """Return a worker's message in the form of its line.

    Raises:
        ValueError: If the message is empty.
    """
    match what := message.WhichOneof("message"):
        case None:
            raise ValueError("it has none of the messages of ToService")
        case "join":
            asked = document_of(message.join)
            names, count = asked.pop("names"), asked.pop("count")
            return {"join": asked | {"hosts": count if names is None else names["names"]}}
        case "finished":
            finished = message.finished
            number = {"round": finished.round} if finished.HasField("round") else {}
            return {"finished": [finished.count, finished.port], **number}
        case "report" | "call" | "failed" | "refused" | "times":
            return {what: document_of(getattr(message, what))}
        case _:
            return {what: getattr(message, what)}


def message_of(line: Mapping[str, Any]) -> pb.FromService:
    """Return the message that corresponds to a line for a worker."""
    message = pb.FromService()
    match line:
        case {"waiting_for": hosts}:
            fill(message, {"waiting_for": {"names": hosts}})
        case {"carry_on": numbers}:
            counts = [
                {"ended": True} if each is None else dict(zip(_COUNT, each, strict=True)) for each in numbers
            ]
            fill(message, {"carry_on": {"finished": counts}})
        case {"group": {"round": number, "finished": finished, "joined": joined, "refused": why, **rest}}:
            assignment = {**rest, "refused": why} if "rank" in rest else None
            group = {
                "round": number,
                "finished": finished,
                "joined": joined,
                "refused": why,
                "assignment": assignment,
            }
            fill(message, {"group": group})
        case {"where": None}:
            message.where.SetInParent()
        case {"rank": _}:
            fill(message, {"assignment": line})
        case _:
            fill(message, line)
    return message
