"""Hints for errors about unknown names: the names that a person probably means, and where to find all names."""

import re
from collections.abc import Collection, Mapping, Sequence

from fanin.native.text import alike, did_you_mean

_FEW = 20  # names that an error lists
_MOST = 3  # names that an error suggests
_BEGINNING = 3  # letters of a word that are enough to recognize it
# Words that say nothing about which name is meant.
_FILLERS = frozenset(
    {"avg", "average", "count", "link", "links", "mean", "n", "network", "num", "number", "of", "the"}
)
# What people call a thing, and the words or whole names by which fanin calls it, the likeliest first.
_CALLED: Mapping[str, tuple[str, ...]] = {
    "bandwidth": ("rate", "goodput_bits_per_second"),
    "ber": ("corruption",),
    "buffer": ("queue", "queue_bytes"),
    "capacity": ("rate", "queue_bytes"),
    "chunk": ("values", "payload"),
    "cwnd": ("window",),
    "drop": ("loss",),
    "drop_rate": ("loss",),
    "dropped": ("loss", "retransmissions"),
    "duration": ("median_seconds",),
    "error": ("corruption",),
    "error_rate": ("loss", "corruption"),
    "gpu": ("workers",),
    "host": ("workers", "hosts_per_leaf"),
    "inflight": ("window",),
    "iteration": ("repetitions",),
    "latency": ("delay", "median_seconds"),
    "leaf": ("leaves",),
    "loss_rate": ("loss",),
    "lost": ("loss", "link_lost"),
    "message": ("size",),
    "mtu": ("payload", "values"),
    "node": ("workers", "hosts_per_leaf"),
    "overlap": ("step",),
    "packet_loss": ("loss",),
    "process": ("workers",),
    "ps": ("parameter-server",),
    "rack": ("leaves",),
    "rank": ("workers",),
    "repeat": ("repetitions",),
    "repetition": ("repetitions",),
    "resent": ("retransmissions",),
    "rounds": ("repetitions",),
    "rtt": ("delay",),
    "runs": ("repetitions",),
    "runtime": ("median_seconds", "run_seconds"),
    "server": ("workers", "servers"),
    "size": ("bytes",),
    "speed": ("rate", "goodput_bits_per_second"),
    "throughput": ("rate", "goodput_bits_per_second"),
    "threshold": ("bytes",),
    "time": ("median_seconds",),
    "timeout": ("rto", "initial_rto", "min_rto"),
    "tor": ("leaves",),
    "vector": ("size",),
    "world_size": ("workers",),
}


def instead(name: str, there: Sequence[str], kind: str, source: str) -> str:
    """Return the end of a message: which names were perhaps meant, and which names there are.

    Args:
        name: The name that is not known.
        there: All names that are.
        kind: What they are, in the plural.
        source: What to do to see them all, such as "see results.csv"; a few are listed instead.
    """
    few = len(there) <= _FEW
    return did_you_mean(
        likely(name, there),
        f"there are {', '.join(there)}" if few else f"for all {len(there)} {kind}, {source}",
    )


def likely(name: str, there: Sequence[str]) -> list[str]:
    """Return the names that a person probably means by an unknown one, the likeliest first.

    These are names that mean the same, or have all its words; otherwise, names that are spelled nearly the same, or
    share a word with it.
    """
    words = _words(name)
    wanted = [word for word in words if word not in _FILLERS] or words
    if called := [one for one in _CALLED.get("_".join(wanted), ()) if one in there]:
        return called[:_MOST]
    if found := [one for one in there if _words(one) == wanted]:
        return found[:_MOST]
    meanings = [{word, *(one for one in _CALLED.get(word, ()) if "_" not in one)} for word in wanted]
    shared = {one: sum(_names(one, meaning) for meaning in meanings) for one in there}
    best = max(((count, -len(_words(one))) for one, count in shared.items() if count), default=(0, 0))
    by_word = [one for one, count in shared.items() if (count, -len(_words(one))) == best]
    return (by_word if best[0] == len(wanted) else alike(name, there) or by_word)[:_MOST]


def _names(name: str, meaning: Collection[str]) -> bool:
    """Return whether a word of a name is one of these words, or begins with one."""
    return any(
        word == one or (len(one) >= _BEGINNING and word.startswith(one))
        for word in _words(name)
        for one in map(_singular, meaning)
    )


def _words(name: str) -> list[str]:
    """Return the words of a name in the singular."""
    return [_singular(word) for word in re.findall(r"[a-z0-9]+", name.lower())]


def _singular(word: str) -> str:
    """Return a word without the s of a plural."""
    return word[:-1] if len(word) > _BEGINNING and word.endswith("s") and not word.endswith("ss") else word
