"""A window that is smaller than the bandwidth-delay product of the path."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.models.packets import full_frame, full_payload
from fanin.experiments.models.paths import Paths
from fanin.experiments.models.step import step_parts
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.workers.host_based.algorithms.registry import algorithm_named


def window(case: Case) -> Finding | None:
    """Look for a window that takes less time to send than a round trip, where vectors are longer than the window."""
    settings, packets = case.settings, case.row.get("window")
    if packets is None or packets >= _longest_message(settings) // full_payload(settings):
        return None
    paths = Paths(settings, full_frame(settings))
    packets *= _windows(settings, paths)
    sending, there_and_back = packets * paths.packet_seconds(settings.host_link), paths.round_trip
    if sending >= there_and_back:
        return None
    busiest = max(case.busy.values())
    return Finding(
        "window",
        1 - max(sending / there_and_back, busiest),
        f"a window of {packets:,} packets takes {1e6 * sending:,.1f} us to send, but the first answer takes "
        f"{1e6 * there_and_back:,.1f} us to arrive; the busiest link, {case.busiest.name}, sent for "
        f"{percent(busiest)} of the time",
        f"use a window of {round(1.5 * there_and_back / sending * packets):,} packets or more",
    )


def _windows(settings: Settings, paths: Paths) -> int:
    """Return how many windows the busiest host has open at once: between hosts, one for each connection."""
    if settings.algorithm == "in-network" or settings.window_per == "host":
        return 1
    one_at_a_time = algorithm_named(settings.algorithm).one_peer_at_a_time
    return 1 if one_at_a_time else paths.most_connections


def _longest_message(settings: Settings) -> int:
    """Return the most bytes that a worker sends at once to one other worker, or to the switches."""
    size = settings.size or 0
    if settings.step is not None:
        parts, _ = step_parts(settings.step, size // ELEMENT_BYTES)
        size = ELEMENT_BYTES * max(part.stop - part.start for part in parts)
    if settings.algorithm == "in-network":
        return size
    algorithm = algorithm_named(settings.algorithm)
    return algorithm.longest_message(size, len(settings.members), settings.shards)
