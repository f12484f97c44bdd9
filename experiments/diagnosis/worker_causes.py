"""Causes of slowness at the workers, each a test of a case."""

from __future__ import annotations

from math import ceil
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.scenario.settings import Settings

_Limit = Literal["bytes", "latencies"]

# -- A worker for which the others wait because it calls late or computes longer


def straggler(case: Case) -> Finding:
    """Measure how much later than the median the last worker called, how much longer it computed, or stood still."""
    slow = _late(case) if case.computing is None else _slow(case)
    stopped = _stopped(case)
    return stopped if stopped is not None and stopped.share > slow.share else slow


def _stopped(case: Case) -> Finding | None:
    """Measure for how long workers were stopped, one after the other."""
    stopped = sorted(
        (worker for worker in case.usage.workers if worker.stopped_seconds),
        key=lambda worker: -(worker.stopped_seconds or 0.0),
    )
    if not stopped:
        return None
    first, *others = (f"{one.host} ({1e6 * (one.stopped_seconds or 0.0):,.0f} us)" for one in stopped)
    who = f"{', '.join((first, *others[:-1]))} and {others[-1]} were" if others else f"{stopped[0].host} was"
    which = "each of them" if others else stopped[0].host
    return Finding(
        "straggler",
        # A worker that is stopped while it waits delays nobody.
        min(case.exposed, case.stopped_seconds / case.seconds, 1 - case.closed_form),
        f"{who} stopped for {1e6 * case.stopped_seconds:,.0f} of {1e6 * case.seconds:,.0f} us, and the others waited",
        f"find out what stops {which} (garbage collection, another process); workers do not wait for the network",
    )


def usual_computing(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of the workers, of an even number the faster one in the middle, for times [workers, steps]."""
    usual: NDArray[np.float64] = np.sort(times, axis=0)[(len(times) - 1) // 2]
    return usual


def _slow(case: Case) -> Finding:
    """Find the slowest worker of each training step, which all workers begin together."""
    computing, steps = case.in_each_step, len(case.usage.workers[0].began)
    usual, last = usual_computing(computing), computing.argmax(axis=0)
    slower = computing.max(axis=0) - usual
    most = int(np.bincount(last, weights=slower).argmax())
    host, times = case.usage.workers[most].host, int(np.count_nonzero(last == most))
    often = "" if times == computing.shape[1] else f"; {host} was the slowest in {times} of {steps} steps"
    who = "the slowest worker" if often else host
    each, middle, whole = (1e6 * one / steps for one in (case.longest_computing, usual.sum(), case.seconds))
    return Finding(
        "straggler",
        min(float(slower.sum() / case.seconds), _saved_without_slow(case, float(usual.sum()))),
        f"{who} computed for {each:,.0f} us of a step of {whole:,.0f} us, "
        f"the median worker for {middle:,.0f} us{often}",
        f"find out what slows {host} down, or give it less work (a smaller batch, fewer layers); "
        "workers do not wait for the network",
    )


def _saved_without_slow(case: Case, usual: float) -> float:
    """Predict which share of the time is saved if all workers compute for the `usual` seconds in all steps.

    It is less than what the slow worker computes longer where sums are hidden behind that.
    """
    sending = max(case.busy.values()) * case.step_seconds
    now, then = (case.predicted(slowness=each, busiest=sending) for each in (None, slowness(case, usual)))
    return 1.0 if now is None or then is None else max(0.0, (now - then) / case.step_seconds)


def slowness(case: Case, computing: float) -> float:
    """Return by which factor a worker that computes for so many seconds is slower than the table `step` has it."""
    return case.slowness * computing / (case.longest_computing or 1.0) if case.settings.step else 1.0


def _late(case: Case) -> Finding:
    """Find the worker that calls last because of what it does, and not because of a barrier that ended late there."""
    workers = case.usage.workers
    own = [worker.own_seconds for worker in workers if worker.own_seconds is not None]
    began = np.array(own or [worker.began for worker in workers])
    # Without own_seconds, the barrier may have let a worker go before the others.
    late = began.max(axis=0) - (began.min(axis=0) if own else usual_computing(began))
    last = began.argmax(axis=0)
    most = int(np.bincount(last, weights=late).argmax())
    times = int(np.count_nonzero(last == most))
    other = "first" if own else "median"
    return Finding(
        "straggler",
        float(late.sum() / case.seconds),
        f"the last worker called {1e6 * late.mean():,.0f} us after the {other} one, on average, of "
        f"{1e6 * case.seconds / len(late):,.0f} us; {workers[most].host} was the last {times} of {len(late)} times",
        f"find out what {workers[most].host} computes before it calls; workers do not wait for the network",
    )


# -- Workers that wait for the data of their next batch


def data_loader(case: Case) -> Finding | None:
    """Measure how long the worker that waits longest for its data does so."""
    most = int(case.loading.argmax())
    share = float(case.loading[most]) / case.seconds
    if not share:
        return None
    each = 1e6 * share * case.step_seconds
    return Finding(
        "data loader",
        share,
        f"{case.usage.workers[most].host} waited {each:,.0f} us for its data in a step of "
        f"{1e6 * case.step_seconds:,.0f} us, {percent(share)} of the time, in which it neither computed nor sent",
        "ask for data earlier (storage.prefetch), or spread it over more file servers (storage.servers)"
        if case.settings.storage
        else "load data in the background (step.loading; PyTorch's DataLoader: num_workers, prefetch_factor, "
        "pin_memory), or from a faster disk",
    )


_AIM = 0.1  # share of a step that a bubble may take


def pipeline_bubble(case: Case) -> Finding | None:
    """Calculate the time in which a pipeline fills and drains (Narayanan et al., 2021)."""
    cut = case.settings.parallelism
    if cut is None or cut.pipeline == 1 or case.computing is None:
        return None
    others, each = cut.pipeline - 1, cut.micro_batches_each(len(case.settings.members))
    share = others / (each * cut.chunks) * float(np.median(case.computing)) / case.seconds
    # Never fewer than now, where the bubble is smaller already.
    enough = max(
        ceil(others / cut.chunks * (1 - _AIM) / _AIM) * cut.copies(len(case.settings.members)),
        2 * cut.micro_batches,
    )
    return Finding(
        "pipeline bubble",
        min(share, case.idle or 0.0),
        f"{each} micro-batches pass {cut.pipeline} stages in a step, so that each stage waits for {percent(share)} of "
        f"the time while the pipeline fills and drains; workers compute for {percent(1 - (case.idle or 0.0))} of it",
        f"{_more_micro_batches(case.settings, enough)}, interleave stages "
        "(parallelism.chunks), or use fewer stages (parallelism.pipeline)",
    )


def _more_micro_batches(settings: Settings, enough: int) -> str:
    """Return how to have `enough` micro-batches in a step that sums gradients of as many samples as before."""
    if settings.workload:
        keys = f"a smaller workload.micro_batch, or a larger workload.global_batch; {enough} or more micro-batches"
        return f"use more micro-batches ({keys} leave a bubble of at most {percent(_AIM)})"
    assert settings.parallelism is not None
    less = enough / settings.parallelism.micro_batches
    return (
        f"use more and smaller micro-batches (parallelism.micro_batches = {enough}, with forward, backward and "
        f"activations divided by {less:g}, leaves a bubble of at most {percent(_AIM)})"
    )


# -- Communication that delays workers although nothing is wrong with it


def communication(case: Case) -> Finding | None:
    """Measure the time in which workers neither compute nor wait for data or for a slower worker."""
    if case.computing is None:
        return None
    exposed, share = case.exposed, max(case.busy.values())
    cut = case.settings.parallelism
    fewer = (
        "" if cut is None or cut.tensor == 1 else ", or tensor groups of fewer workers (parallelism.tensor)"
    )
    limit: _Limit = "bytes" if share >= exposed / 2 else "latencies"
    return Finding(
        "communication",
        exposed,
        f"for {percent(exposed)} of the time even the slowest worker only waits for sums; {case.busiest_text}, so "
        f"mostly {limit} set it",
        _less_communication(limit) + fewer,
    )


def waiting(case: Case, compute: float, idle: float) -> Finding:
    """Return the finding for all-reduces with which nothing is wrong, but which take long for what workers compute.

    Args:
        case: The run, whose workers only sum.
        compute: Seconds of computing between two all-reduces.
        idle: The share of both together in which workers wait.
    """
    limit: _Limit = "bytes" if max(case.busy.values()) >= 1 / 2 else "latencies"
    return Finding(
        "communication",
        idle,
        f"an all-reduce takes {1e6 * case.step_seconds:,.0f} us, and workers compute for {1e6 * compute:,.0f} us "
        f"between two of them (compute), so they idle for {percent(idle)} of the time; {case.busiest_text}, so mostly "
        f"{limit} set it",
        _less_communication(limit) + ", or overlap both (step)",
    )


def _less_communication(limit: _Limit) -> str:
    return (
        "let workers compute more for each sum (larger batches, gradient accumulation), send less (compression), or "
        "use " + ("faster links" if limit == "bytes" else "shorter paths and fewer, larger sums")
    )
