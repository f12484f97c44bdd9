"""Hints for errors about unknown names: the closest names, and which names there are."""

from collections import Counter
from collections.abc import Sequence

from fanin.native.text import nearest

_FEW = 20  # names that an error lists
_FAMILY = 4  # names, at least, with the same first word


def instead(name: str, there: Sequence[str], kind: str, source: str) -> str:
    """Return nearest(), and then which names there are: of more than a few how many, and their families.

    Args:
        name: The name that is not known.
        there: All names that are. Those of a family have the first word in common, up to an underscore.
        kind: What they are, in the plural.
        source: Where to find them all, as "listed in results.csv".
    """
    if len(there) <= _FEW:
        return nearest(name, there, f"there are {', '.join(there)}")
    counts = Counter(one.partition("_")[0] for one in there)
    families = [f"{word}_… ({count})" for word, count in counts.most_common() if count >= _FAMILY]
    among = f"; among them {', '.join(families)}" if families else ""
    return nearest(name, there, f"there are {len(there)} {kind}, {source}{among}")
