"""Causes of slowness in sizes and delays, whose cost the analytical model predicts, each a test of a case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, exp, fsum

import numpy as np

from fanin.controller.tree import SLOTS
from fanin.experiments.diagnosis.case import THRESHOLD, Case, percent
from fanin.experiments.diagnosis.finding import Cause, Finding
from fanin.experiments.diagnosis.network_causes import with_fast_uplinks
from fanin.experiments.diagnosis.packet_causes import lost, not_explained
from fanin.experiments.diagnosis.worker_causes import slowness, usual_computing
from fanin.experiments.models.packets import full_frame, full_payload
from fanin.experiments.models.paths import Delays, Paths, shares
from fanin.experiments.models.prediction import longest_message, predicted_seconds, predicted_training_step
from fanin.experiments.models.step import step_parts
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.step import Step
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.native.text import counted
from fanin.topologies.units import BYTES, exact_text, percent_text, quantity_text
from fanin.workers.host_based.algorithms.registry import algorithm_named

# -- A window that is smaller than the bandwidth-delay product of the path


_ROOM = 1.5  # times the bandwidth-delay product, for a window that is advised


def window(case: Case) -> Finding | None:
    """Look for a window that takes less time to send than a round trip, where vectors are longer than the window."""
    settings, packets = case.settings, case.row.get("window")
    parts = _parts(settings)
    # In half a round trip, a message reaches the next worker, which lets another one follow it.
    at_once = longest_message(settings, max(parts), len(settings.members)) * (
        1 if settings.algorithm == "in-network" else 2
    )
    if packets is None or packets >= at_once // full_payload(settings):
        return None
    paths = Paths(settings, full_frame(settings))
    open_at_once = packets * _windows(settings, paths)
    sending, there_and_back = open_at_once * paths.slowest, paths.round_trip
    if not 0 < sending < there_and_back:
        return None
    needed = ceil(there_and_back / sending * packets)
    enough = ceil(_ROOM * needed)
    larger = enough
    if enough <= SLOTS:
        change = f"use a window of {enough:,} packets or more (window)"
    elif packets < SLOTS:
        larger = SLOTS
        change = f"use a window of {SLOTS:,} packets, the largest (window); {enough:,} would fill the links"
    else:
        change = f"shorten the round trip: {SLOTS:,} is the largest window, and {enough:,} packets would fill the links"
    busiest = max(case.busy.values())
    now, then = case.predicted(), case.predicted(window=larger)
    if now is not None and then is not None:
        saved = (now - then) / case.step_seconds
    elif settings.step is None or case.computing is None:
        saved = 1 - packets / min(larger, needed)
    else:
        saved = case.exposed
    saved += _saved_stalls(case, _in_turn(settings, parts, packets), _in_turn(settings, parts, larger))
    # What a link sends cannot be saved.
    most = 1 - busiest if settings.step is None or case.computing is None else case.saved_at_most
    share = min(saved, most)
    return Finding(
        "window",
        max(0.0, share),
        f"a window of {open_at_once:,} packets takes {1e6 * sending:,.1f} us to send on the slowest link of its path, "
        f"but the first answer takes {1e6 * there_and_back:,.1f} us to arrive; the busiest link, {case.busiest.name}, "
        f"sent for {percent(busiest)} of the time",
        change,
    )


def _parts(settings: Settings) -> list[int]:
    """Return the bytes of the vectors that a worker sums one after another, in an all-reduce or a step."""
    size = settings.size or 0
    if settings.step is None:
        return [size]
    parts, _ = step_parts(settings.step, size // ELEMENT_BYTES)
    return [ELEMENT_BYTES * (part.stop - part.start) for part in parts]


_TIMERS = 6  # of a packet that is lost again and again
_FEWER = 0.5  # of the windows, from which fewer ones cost less for sure: which packets are lost is random


def _saved_stalls(case: Case, now: int, then: int) -> float:
    """Estimate which share of the time is saved if a worker waits for lost packets in fewer windows.

    However many packets of a window are lost, the worker waits for one timer, and for a longer one if a packet is lost
    again. So losses that are spread over fewer windows cost less.

    Args:
        case: The run.
        now: Windows that a worker fills one after another in an all-reduce or a step.
        then: Other windows.
    """
    if then > _FEWER * now or not lost(case):
        return 0.0
    each = lost(case) / len(case.usage.workers[0].began)
    again = lost(case) / sum(link.packets for link in case.links.values())
    before, after = (
        windows * fsum(2**time * (1 - exp(-each / windows * again**time)) for time in range(_TIMERS))
        for windows in (now, then)
    )
    return not_explained(case) * max(0.0, 1 - after / before)


def _in_turn(settings: Settings, sizes: Sequence[int], window: int) -> int:
    """Return how many windows a worker fills one after another to sum vectors of these bytes."""
    workers, windows = len(settings.members), 0
    for size in sizes:
        message, messages = max(1, longest_message(settings, size, workers)), 1
        if settings.algorithm != "in-network":
            vectors = sum(shares(settings.algorithm, workers, settings.shards)[0].values())
            messages = max(1, round(vectors * size / message))
        windows += messages * ceil(message / (window * full_payload(settings)))
    return windows


def _windows(settings: Settings, paths: Paths) -> int:
    """Return how many windows the busiest host has open at once: between hosts, one for each connection."""
    if settings.algorithm == "in-network" or settings.window_per == "host":
        return 1
    one_at_a_time = algorithm_named(settings.algorithm).one_peer_at_a_time
    return 1 if one_at_a_time else paths.most_connections


# -- Delays that are longer than usual, and vectors so small that the way through the network takes longer than sending


# Share of the time for which links send, above which larger vectors would not help much. Shorter delays would.
_SENDING = 0.26
_DELAYS: tuple[Delays, ...] = ("longest", "usual")
_LONGER = 2.0  # times as long as the median delay, from which the link with the longest one is named


def latency(case: Case) -> Finding | None:
    """Look for delays that the analytical model finds costly, or for all-reduces that it explains, but not by bytes."""
    settings, busiest, seconds = case.settings, max(case.busy.values()), case.step_seconds
    longest, usual = _with_delays(case, case.window)
    if not usual:
        return None
    most = 1 - busiest if settings.step is None else case.saved_at_most
    late, small_window = min(most, (longest - usual) / seconds), window(case)
    if small_window and small_window.share >= THRESHOLD:
        # A larger window is easier to have than shorter delays, so it comes first.
        there, near = _with_delays(case, SLOTS)
        late = min(late, max((there - near) / seconds, small_window.share))
    # In a step, vectors that are too small are small buckets.
    fixed = case.predicted(window=SLOTS) if settings.step is None else None
    small = 0.0 if fixed is None or busiest >= _SENDING else min(1.0, fixed / seconds) - busiest
    what = "a step" if settings.step else f"an all-reduce of {quantity_text(settings.size or 0, BYTES)}"
    times = (
        f"the analytical model predicts {1e6 * longest:,.1f} us with these delays, {1e6 * usual:,.1f} with usual ones"
        if late >= small
        else "the rest are latencies"
    )
    return Finding(
        "latency",
        max(0.0, late, small),
        f"{what} takes {1e6 * seconds:,.1f} us, for {percent(busiest)} of which the busiest link, {case.busiest.name}, "
        f"sends; {times}: {_delays(settings)}",
        "use shorter paths, or hosts that notice packets sooner (delay, jitter, coalescing), sum several vectors in "
        "one call (size; a list of arrays; DDP: raise bucket_cap_mb), or choose an algorithm with fewer steps "
        "(algorithm = 'in-network' or 'halving-doubling')",
    )


def _with_delays(case: Case, window: int) -> tuple[float, float]:
    """Predict the seconds with the longest delays and with usual ones for such a window; 0 if nothing predicts them."""
    longest, usual = (
        case.predicted(window=window, delays=delays, busiest=case.sending) or 0.0 for delays in _DELAYS
    )
    return longest, usual


def _delays(settings: Settings) -> str:
    """Describe how long links delay packets and hosts leave them unnoticed."""
    by_link = {}
    for link in settings.network.links:
        properties = link.properties
        fixed = (properties.delay or 0.0) if settings.world == "live" else properties.virtual_delay
        by_link[f"{link.a.node} - {link.b.node}"] = fixed + properties.jitter
    most, usual = max(by_link, key=by_link.__getitem__), float(np.median([*by_link.values()]))
    where = (
        f"the link {most} delays packets for"
        if by_link[most] >= _LONGER * usual
        else "links delay packets for"
    )
    unnoticed = (
        f", hosts notice them within {1e6 * settings.coalescing:,.4g} us" if settings.coalescing else ""
    )
    return f"{where} up to {1e6 * by_link[most]:,.4g} us{unnoticed}"


# -- Gradients that are summed in too many parts, in too few, or only when all are ready


_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # buckets that are tried


def buckets(case: Case) -> Finding | None:
    """Look for a size of buckets with which the analytical model predicts a shorter step."""
    settings, step = case.settings, case.settings.step
    if step is None or case.computing is None:
        return None
    elements = settings.elements or 1
    slices, _ = step_parts(step, elements)
    now, mean = len(slices), -(-elements // len(slices))
    present = predicted_training_step(settings, case.window, None, case.slowness, case.sending)
    tried = dict(_other_buckets(settings, elements))
    others = {
        size: seconds
        for size, table in tried.items()
        if (seconds := predicted_training_step(settings, case.window, table, case.slowness, case.sending))
        is not None
    }
    if present is None or not others:
        return None
    best = min(others, key=lambda size: (others[size], -size))
    # The step may be shorter already than the model predicts for the present buckets.
    saved = min(present, case.step_seconds) - others[best]
    few = len(step_parts(tried[best], elements)[0])
    then = [ELEMENT_BYTES * -(-elements // few)] * few
    saved_stalls = _saved_stalls(
        case, _in_turn(settings, _parts(settings), case.window), _in_turn(settings, then, case.window)
    )
    share = min(saved / case.step_seconds + saved_stalls, case.saved_at_most)
    if share <= 0:
        return None
    each, better = (quantity_text(ELEMENT_BYTES * -(-elements // count), BYTES) for count in (now, few))
    alone = 1e6 * (predicted_seconds(settings, ELEMENT_BYTES * mean, case.window) or 0.0)
    times = (
        f"the analytical model predicts a step of {1e6 * others[best]:,.0f} us with {counted(few, 'bucket')} of "
        f"{better}, and {1e6 * present:,.0f} us with the present ones"
        + ("; with fewer buckets, workers also wait for lost packets less often" if saved_stalls else "")
    )
    key = "workload" if settings.workload else "step"
    change = f"set {key}.bucket = '{exact_text(best, BYTES)}'"
    if best >= 2**20:
        change += f" (DDP: bucket_cap_mb={round(best / 2**20)})"
    if settings.workload and settings.workload.scale < 1:
        change += (
            f"; at a scale of {percent_text(settings.workload.scale)}, latencies weigh more than in the real step, "
            "unless links.delay and coalescing are scaled, too"
        )
    if few < now:
        return Finding(
            "small buckets",
            share,
            f"{now:,} buckets of {each} are summed one after another, {alone:,.1f} us each, mostly latency; {times}",
            change,
        )
    if now == 1:
        return Finding(
            "no overlap",
            share,
            f"the whole gradient of {each} is summed after the backward pass, for {alone:,.0f} us in which no worker "
            f"computes; {times}",
            f"sum parts of the gradient while the backward pass computes the others: {change}",
        )
    return Finding(
        "large buckets",
        share,
        f"the last of {now:,} buckets of {each} is ready only when the backward pass ends, and takes {alone:,.0f} us "
        f"in which no worker computes; {times}",
        change,
    )


def _other_buckets(settings: Settings, elements: int) -> Iterator[tuple[int, Step]]:
    """Yield sizes of a bucket in bytes, as its key has them, each with a table of such buckets."""
    step, workload = settings.step, settings.workload
    assert step is not None
    if workload is None:
        for count in _COUNTS:
            size = ELEMENT_BYTES * -(-elements // count)
            yield size, step.model_copy(update={"bucket": size, "buckets": ()})
        return
    # Those of a model end with its tensors, and have the bytes of the model before it is scaled.
    for count in _COUNTS:
        size = ELEMENT_BYTES * round(elements / count / workload.scale)
        filled = workload.model_copy(update={"bucket": size}).filled_in(None)
        yield size, step.model_copy(update={"buckets": Step.model_validate(filled["step"]).buckets})


# -- What is left


_LOADS: frozenset[Cause] = frozenset(
    ("slow link", "noisy neighbour", "oversubscription", "collision", "priority inversion")
)
_BUCKETS: frozenset[Cause] = frozenset(("no overlap", "small buckets", "large buckets"))


def idle_without(case: Case, found: Sequence[Finding], left: float) -> float:
    """Predict for which share of a step workers would still idle without what has been found.

    It may be much less than what their shares leave, if one cause hides what another one costs.

    Args:
        case: The run.
        found: The causes.
        left: What the shares of those that are named leave, which is returned if nothing predicts the step.
    """
    causes, computing = {finding.cause for finding in found}, case.in_each_step
    settings = None
    if "oversubscription" in causes:
        settings = with_fast_uplinks(case)
    elif "slow link" in causes:
        settings = case.healthy
    usual = float((usual_computing(computing) if "straggler" in causes else computing.mean(axis=0)).sum())
    hosts = max(share for way, share in case.own.items() if not case.between_switches(way))
    step = case.predicted(
        settings,
        SLOTS if "window" in causes else None,
        delays="usual" if "latency" in causes else "fixed",
        slowness=slowness(case, usual) if "straggler" in causes else None,
        busiest=case.step_seconds * (hosts if causes & _LOADS else max(case.busy.values())),
    )
    if step is None:
        return left
    step *= 1 - sum(finding.share for finding in found if finding.cause in _BUCKETS)
    loading = 0.0 if "data loader" in causes else float(case.loading.max())
    return max(0.0, 1 - usual / (step / case.step_seconds * case.seconds + loading))
