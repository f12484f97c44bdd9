"""gNMI paths as text, and their selection in the tree (gNMI specification 2.2.2 and 2.4; gNMI path conventions)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fanin.p4switch.gnmi.proto import gnmi
from fanin.p4switch.gnmi.schema import LEAVES, Leaf
from fanin.p4switch.p4runtime.errors import invalid, not_found

LIST = ("interfaces", "interface")  # where the tree has its list; everything is below it
KEY = "name"
_ORIGINS = ("", "openconfig")


class Selected(NamedTuple):
    """Leaf of one port that a path selects through the element at depth `depth`."""

    name: str
    leaf: Leaf
    depth: int


def absolute(prefix: gnmi.Path, path: gnmi.Path) -> list[gnmi.PathElem]:
    """Return the elements of a prefix and a path.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if the path is not supported.
    """
    for part in prefix, path:
        if part.origin not in _ORIGINS:
            raise invalid(f"{text(part.elem)}: origin {part.origin!r} is unknown; there is 'openconfig'")
        if part.element:
            raise invalid(f"/{'/'.join(part.element)}: write the path in the field elem, as since gNMI 0.4")
    elements = [*prefix.elem, *path.elem]
    for element in elements:
        if element.key.keys() - {KEY}:
            raise invalid(f"{text(elements)}: an interface has the key {KEY} only")
    return elements


def select(elements: Sequence[gnmi.PathElem], names: Iterable[str]) -> list[Selected]:
    """Return the leaves that a path selects: its node and everything below, for each port.

    Wildcards are `*`, `...` and a missing key.

    Raises:
        P4RuntimeError: NOT_FOUND if no port could have such a node.
    """
    depths = [(leaf, _depth(elements, (*LIST, *leaf.path), None)) for leaf in LEAVES]
    fitting = [leaf for leaf, depth in depths if depth is not None]
    if not fitting:
        raise not_found(f"there is no {text(elements)}: the tree is /interfaces of openconfig-interfaces")
    selected = []
    for name in names:
        for leaf in fitting:
            depth = _depth(elements, (*LIST, *leaf.path), name)
            if depth is not None:
                selected.append(Selected(name, leaf, depth))
    return selected


def names_one(elements: Iterable[gnmi.PathElem]) -> bool:
    """Return whether a path names an interface."""
    return any(element.key.get(KEY, "*") != "*" for element in elements)


def path_of(selected: Selected, depth: int) -> gnmi.Path:
    """Return the path of a selected leaf, cut off `depth` elements from the root."""
    path = gnmi.Path(elem=[gnmi.PathElem(name=name) for name in (*LIST, *selected.leaf.path)[:depth]])
    if depth >= len(LIST):
        path.elem[len(LIST) - 1].key[KEY] = selected.name
    return path


def text(elements: Iterable[gnmi.PathElem]) -> str:
    """Format a path as in /interfaces/interface[name=s1-eth1]/state."""
    return "/" + "/".join(
        element.name + "".join(f"[{key}={value}]" for key, value in sorted(element.key.items()))
        for element in elements
    )


def _depth(pattern: Sequence[gnmi.PathElem], names: tuple[str, ...], port: str | None) -> int | None:
    """Return how many of the names a path matches, or None if it does not match.

    Args:
        pattern: The elements of the path.
        names: The names of the elements down to a leaf.
        port: The key of the list; None matches any.
    """

    def fits(at: int, depth: int) -> int | None:
        if at == len(pattern):
            return depth
        wanted = pattern[at]
        if wanted.name == "...":
            ends = (fits(at + 1, further) for further in range(depth, len(names) + 1))
            return next((end for end in ends if end is not None), None)
        if depth == len(names) or wanted.name not in ("*", names[depth]):
            return None
        if wanted.key:
            if depth + 1 != len(LIST):
                return None
            if port is not None and wanted.key[KEY] not in ("*", port):
                return None
        return fits(at + 1, depth + 1)

    return fits(0, 0)
