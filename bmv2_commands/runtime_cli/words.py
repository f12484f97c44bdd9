"""The words of a command: the values that they stand for, in the form that the switch takes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address

from fanin.p4switch.bmv2_runtime import interface as bm

_MAX_PORTS = 512


class CliError(Exception):
    """Command that is not correct. The message explains what is wrong, and what to write."""


def value_bytes(text: str, width: int) -> bytes:
    """Return a value as the switch takes it: decimal, 0x…, an address of Ethernet, IPv4 or IPv6.

    Raises:
        CliError: If it is no number, or does not fit.
    """
    number: int | None = None
    if re.fullmatch(r"[0-9a-fA-F]{1,2}(:[0-9a-fA-F]{1,2}){5}", text):
        number = int.from_bytes(bytes(int(part, 16) for part in text.split(":")), "big")
    elif "." in text or ":" in text:
        with suppress(ValueError):
            number = int(ip_address(text))
    else:
        with suppress(ValueError):
            number = int(text, 0) if text.lower().startswith(("0x", "0b")) else int(text)
    if number is None:
        raise CliError(f"{text} is not a number or an address")
    if not 0 <= number < 1 << width:
        raise CliError(f"{text} does not fit into {width} bits")
    return number.to_bytes((width + 7) // 8, "big")


def number_of(word: str) -> int:
    """Return a number, written as in Python.

    Raises:
        CliError: If it is none.
    """
    try:
        return int(word, 0)
    except ValueError:
        raise CliError(f"{word} is not a number") from None


def match_param(word: str, kind: str, width: int) -> bm.BmMatchParam:
    """Return the part of a key that a word states, for this kind of match and this width.

    Raises:
        CliError: If it is not written as this kind of match is.
    """
    match kind:
        case "lpm":
            value, slash, length = word.rpartition("/")
            if not slash:
                raise CliError(f"{word}: write a prefix as VALUE/LENGTH, for example 10.0.0.0/8")
            lpm = bm.BmMatchParamLPM(value_bytes(value, width), number_of(length))
            return bm.BmMatchParam(bm.BmMatchParamType.LPM, lpm=lpm)
        case "ternary" | "optional":
            value, ands, mask = word.partition("&&&")
            if not ands and kind == "ternary":
                raise CliError(f"{word}: write a ternary match as VALUE&&&MASK")
            every = ((1 << width) - 1).to_bytes((width + 7) // 8, "big")
            masked = bm.BmMatchParamTernary(
                value_bytes(value, width), value_bytes(mask, width) if ands else every
            )
            return bm.BmMatchParam(bm.BmMatchParamType.TERNARY, ternary=masked)
        case "range":
            low, arrow, high = word.partition("->")
            if not arrow:
                raise CliError(f"{word}: write a range as FIRST->LAST")
            ends = bm.BmMatchParamRange(value_bytes(low, width), value_bytes(high, width))
            return bm.BmMatchParam(bm.BmMatchParamType.RANGE, range=ends)
    if width == 1 and word.lower() in ("true", "false"):
        word = str(int(word.lower() == "true"))
    return bm.BmMatchParam(bm.BmMatchParamType.EXACT, exact=bm.BmMatchParamExact(value_bytes(word, width)))


def port_map(words: Iterable[str]) -> str:
    """Return a map of ports: a text of 0 and 1, of which the last one is for port 0."""
    numbers = list(map(number_of, words))
    if twice := [number for number, times in Counter(numbers).items() if times > 1]:
        raise CliError(f"port {twice[0]} is given twice")
    if any(not 0 <= number < _MAX_PORTS for number in numbers):
        raise CliError(f"ports are from 0 to {_MAX_PORTS - 1}")
    return "".join(
        "1" if place in numbers else "0" for place in reversed(range(max(numbers, default=-1) + 1))
    )


def ports_and_lags(words: Sequence[str]) -> tuple[str, str]:
    """Return maps of the ports before `|` and of the groups of links behind it."""
    at = list(words).index("|") if "|" in words else len(words)
    return port_map(words[:at]), port_map(words[at + 1 :])


def rates_of(words: Sequence[str], count: int) -> list[bm.BmMeterRateConfig]:
    """Return the rates of a meter that has `count` of them.

    Raises:
        CliError: If there are not so many, or one is not RATE:BURST.
    """
    if len(words) != count:
        raise CliError(
            f"the meter has {count} rates, not {len(words)}: write RATE:BURST for each, the lowest first"
        )
    found = []
    for word in words:
        rate, _, burst = word.partition(":")
        try:
            found.append(bm.BmMeterRateConfig(float(rate), int(burst)))
        except ValueError:
            raise CliError(f"{word}: write RATE:BURST, for example 0.5:1000") from None
    return found
