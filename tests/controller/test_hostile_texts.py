"""Every text that a member of a job may send is refused, or harmless to whoever reads of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fanin.controller.job_service import jobs_pb2
from fanin.controller.job_service.messages import line_of
from fanin.controller.jobs.membership import JobService, NoMessageError, RefusedError
from tests.controller.job_service import FakeGrants

pb: Any = jobs_pb2

HOSTILE = ("\x1b]0;owned\x07\x1b[2J", "a\nb", "\u202e", "x" * 60_000)
Path = tuple[FieldDescriptor, ...]


def texts_of(message: Descriptor, before: Path = ()) -> Iterator[Path]:
    """The way to each text in a message."""
    for field in message.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            yield (*before, field)
        elif field.message_type is not None:
            yield from texts_of(field.message_type, (*before, field))


def put(message: Any, way: Path, text: str) -> None:
    field, *rest = way
    at = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        at[text] = 1
    elif not rest:
        at.append(text) if field.is_repeated else setattr(message, field.name, text)
    else:
        put(at.add() if field.is_repeated else at, tuple(rest), text)


PATHS = {".".join(field.name for field in way): way for way in texts_of(pb.ToService.DESCRIPTOR)}


class Told:
    """A connection that keeps what is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tell(self, message: Mapping[str, Any]) -> None:
        self.texts.extend(texts(message))

    def dismiss(self, why: str) -> None:
        self.texts.append(why)


def texts(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, Mapping):
        for name, value in document.items():
            yield from (name, *texts(value))
    elif isinstance(document, list | tuple):
        for each in document:
            yield from texts(each)


def test_there_are_texts_to_send() -> None:
    assert {"join.host", "join.names.names", "join.job", "report.ignored.key"} <= PATHS.keys()


@pytest.mark.parametrize("hostile", HOSTILE, ids=["escape", "lines", "direction", "long"])
@pytest.mark.parametrize("name", PATHS)
def test_none_reaches_anybody(name: str, hostile: str) -> None:
    join = pb.ToService(join=pb.JoinRequest(host="h1", process=1, count=1, job="job"))
    said = [join]
    if name.startswith("join."):
        put(join, PATHS[name], hostile)
    else:
        other = pb.ToService()
        put(other, PATHS[name], hostile)
        said.append(other)
    seen: list[str] = []

    async def check() -> None:
        grants, connection, member = FakeGrants(), Told(), Told()
        service = JobService(["h1", "h2"], grants.open, seen.append)

        async def messages() -> AsyncIterator[Mapping[str, Any]]:
            for message in said[1:]:
                yield line_of(message)
            seen.extend(texts(service.forming()))
            seen.extend(texts(service.jobs.documents()))

        async with service:
            request = line_of(said[0])["join"]
            try:
                await service.attend(request, connection, messages())
            except (RefusedError, NoMessageError) as error:
                seen.append(str(error))
            with suppress(RefusedError, NoMessageError):
                await service.attend({**request, "host": "h2", "hosts": 2}, member, messages())
            seen.extend([*connection.texts, *member.texts])

    asyncio.run(check())
    assert seen
    for text in seen:
        assert text.isprintable()
        assert len(text) < 1000
        assert hostile not in text, json.dumps(text)
