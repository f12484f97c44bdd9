"""Thrift's types as Python declarations: structs, services, and clients and processors for them.

The library reads and writes structs by tables that a compiler generates from an interface file. Here the declarations
are the interface, and make these tables. It needs nothing but the library, so courses can import a copy of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import IntEnum
from functools import cached_property, partial
from typing import Any, ClassVar

from thrift.protocol.TBase import TBase, TExceptionBase
from thrift.Thrift import TApplicationException, TMessageType, TProcessor, TType

_log = logging.getLogger(__name__)

# A type is Thrift's number for it and what the library needs to know besides.
ThriftType = tuple[int, Any]

BOOL: ThriftType = (TType.BOOL, None)
I16: ThriftType = (TType.I16, None)
I32: ThriftType = (TType.I32, None)
I64: ThriftType = (TType.I64, None)
DOUBLE: ThriftType = (TType.DOUBLE, None)
TEXT: ThriftType = (TType.STRING, "UTF8")
BINARY: ThriftType = (TType.STRING, "BINARY")


def list_of(item: ThriftType) -> ThriftType:
    """Return the type of a list."""
    return TType.LIST, (*item, False)


def map_of(key: ThriftType, value: ThriftType) -> ThriftType:
    """Return the type of a map."""
    return TType.MAP, (*key, *value, False)


def declare(**fields: ThriftType) -> Mapping[str, ThriftType]:
    """Return the fields of a struct, in their order."""
    return fields


class Enumeration(IntEnum):
    """Enumeration that has the name of each number where clients of generated code look it up."""

    _VALUES_TO_NAMES: ClassVar[dict[int, str]]
    _NAMES_TO_VALUES: ClassVar[dict[str, int]]

    def __init_subclass__(cls) -> None:
        cls._VALUES_TO_NAMES = {member.value: member.name for member in cls}
        cls._NAMES_TO_VALUES = {member.name: member.value for member in cls}


class Struct(TBase):  # type: ignore[misc] # the library has no types
    """Struct with the fields that the class declares, numbered from 1. A field that is not given is None."""

    fields: ClassVar[Mapping[str, ThriftType]] = {}
    first = 1

    def __init_subclass__(cls) -> None:
        numbered = enumerate(cls.fields.items(), cls.first)
        table = tuple((number, kind, name, more, None) for number, (name, (kind, more)) in numbered)
        cls.thrift_spec = (*(None,) * cls.first, *table)

    def __init__(self, *values: Any, **named: Any) -> None:
        self.__dict__.update(dict.fromkeys(self.fields))
        self.__dict__.update(zip(self.fields, values, strict=False))
        self.__dict__.update(named)

    @classmethod
    def as_type(cls) -> ThriftType:
        """Return the struct as the type of a field."""
        return TType.STRUCT, [cls, cls.thrift_spec]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class ThriftError(Struct, TExceptionBase):  # type: ignore[misc]
    """Error that a method declares: a code of an enumeration."""

    fields = declare(code=I32)

    def __str__(self) -> str:
        return repr(self)


class Method:
    """Method of a service, with the structs of its arguments and of its answer.

    The structs are made when they are first used: a client uses few methods, and the structs of all take 0.7 MB.
    """

    def __init__(
        self,
        name: str,
        result: ThriftType | None,
        arguments: Mapping[str, ThriftType],
        error: type[ThriftError] | None,
    ) -> None:
        self.name = name
        self._result = result
        self._arguments = arguments
        self._error = error

    @cached_property
    def arguments(self) -> type[Struct]:
        """Return the struct of the arguments."""
        return type(f"{self.name}_args", (Struct,), {"fields": self._arguments})

    @cached_property
    def answer(self) -> type[Struct]:
        """Return the struct of the answer: `success`, and `ouch` if the method declares an error."""
        fields: dict[str, ThriftType] = {"success": self._result or BOOL}
        if self._error is not None:
            fields["ouch"] = self._error.as_type()
        return type(f"{self.name}_result", (Struct,), {"fields": fields, "first": 0})


class Service:
    """Service: its name, and its methods.

    `methods` has the type of the result, or None, and the types of the arguments by name. Their error is `error`,
    unless their name begins with a key of `errors`. Methods of `without_error` declare none.
    """

    def __init__(
        self,
        name: str,
        error: type[ThriftError],
        methods: Mapping[str, tuple[ThriftType | None, Mapping[str, ThriftType]]],
        without_error: Mapping[str, tuple[ThriftType | None, Mapping[str, ThriftType]]] | None = None,
        errors: Mapping[str, type[ThriftError]] | None = None,
    ) -> None:
        self.name = name
        self.methods: dict[str, Method] = {}
        for method, (result, arguments) in methods.items():
            by_prefix = (other for prefix, other in (errors or {}).items() if method.startswith(prefix))
            self.methods[method] = Method(method, result, arguments, next(by_prefix, error))
        for method, (result, arguments) in (without_error or {}).items():
            self.methods[method] = Method(method, result, arguments, None)


class Client:
    """Client of a service, over one of the library's protocols. Each method of the service is a method of it."""

    service: ClassVar[Service]

    def __init__(self, protocol: Any, _output: Any = None) -> None:
        self._protocol = protocol
        self._number = 0

    def __getattr__(self, name: str) -> Any:
        if name not in self.service.methods:
            raise AttributeError(f"the service {self.service.name} has no method {name}")
        return partial(self.call, name)

    def call(self, name: str, *values: object, **named: object) -> Any:
        """Call a method of the service.

        Raises:
            ThriftError: The method's error.
            TApplicationException: The server cannot carry it out.
        """
        method = self.service.methods[name]
        arguments = method.arguments(*values, **named)
        protocol = self._protocol
        self._number += 1
        protocol.writeMessageBegin(method.name, TMessageType.CALL, self._number)
        arguments.write(protocol)
        protocol.writeMessageEnd()
        protocol.trans.flush()
        _, kind, _ = protocol.readMessageBegin()
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            failure.read(protocol)
            protocol.readMessageEnd()
            raise failure
        answer = method.answer()
        answer.read(protocol)
        protocol.readMessageEnd()
        if getattr(answer, "ouch", None) is not None:
            raise answer.ouch
        return answer.success


class Processor(TProcessor):  # type: ignore[misc]
    """Server's side of a service: it calls the handler's method of the same name for each request, under a lock."""

    def __init__(self, service: Service, handler: object, lock: AbstractContextManager[object]) -> None:
        self._service = service
        self._handlers: dict[str, Callable[..., Any]] = {
            name: getattr(handler, name) for name in service.methods
        }
        self._lock = lock

    def process(self, incoming: Any, outgoing: Any) -> None:
        """Serve one request."""
        name, _, number = incoming.readMessageBegin()
        method = self._service.methods.get(name)
        if method is None:
            incoming.skip(TType.STRUCT)
            incoming.readMessageEnd()
            unknown = TApplicationException(
                TApplicationException.UNKNOWN_METHOD, f"there is no method {name}"
            )
            _reply(outgoing, name, TMessageType.EXCEPTION, number, unknown)
            return
        arguments = method.arguments()
        arguments.read(incoming)
        incoming.readMessageEnd()
        answer = method.answer()
        try:
            given = dict(vars(arguments))
            given.pop("cxt_id", None)  # there is one context
            with self._lock:
                answer.success = self._handlers[name](**given)
        except ThriftError as error:
            if "ouch" not in method.answer.fields:
                raise
            answer.ouch = error
        except TApplicationException as error:
            _reply(outgoing, name, TMessageType.EXCEPTION, number, error)
            return
        except Exception as error:
            _log.exception("%s failed", name)
            failure = TApplicationException(TApplicationException.INTERNAL_ERROR, f"{name}: {error}")
            _reply(outgoing, name, TMessageType.EXCEPTION, number, failure)
            return
        _reply(outgoing, name, TMessageType.REPLY, number, answer)


def _reply(outgoing: Any, name: str, kind: int, number: int, content: Any) -> None:
    outgoing.writeMessageBegin(name, kind, number)
    content.write(outgoing)
    outgoing.writeMessageEnd()
    outgoing.trans.flush()
