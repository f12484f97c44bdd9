"""The tables on the pages of lessons have the numbers that the lessons print."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

import pytest

from fanin.experiments.models.cost import CLUSTERS, idle_price
from fanin.experiments.models.transports import packets_per_second
from fanin.experiments.results.measured import Row
from tests.fanin.verbs.lesson_runs import run_lesson
from tests.sizes import sized

PAGES = Path(__file__).parents[3] / "docs" / "tutorials" / "lessons"

Rows = Sequence[Row]


def by(rows: Rows, *columns: str) -> Iterator[tuple[Hashable, list[Row]]]:
    """Yield the rows that agree in these columns, with the values of the columns."""
    found: defaultdict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        key = tuple(row[name] for name in columns)
        found[key if len(key) > 1 else key[0]].append(row)
    yield from found.items()


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def price(name: str, share: float) -> str:
    """A line of a table of prices."""
    hourly = [idle_price(share, gpus) for gpus in CLUSTERS]
    return line(name, f"{share:.1%}", *(f"{one:,.0f} / {24 * one:,.0f}" for one in hourly))


def failures(rows: Rows) -> Iterator[str]:
    takes = {63_000: "3.1 s", 252_000: "12.3 s"}
    does = {"blocking": "waits", "background": "continues"}
    for (algorithm, size, writing), of in by(rows, "algorithm", "traffic_size", "failures_writing"):
        assert {f"{row['checkpoint_seconds']:.1f} s" for row in of} == {takes[size]}
        if algorithm == "in-network":
            yield line(takes[size], does[writing], *(f"{row['lost_share']:.1%}" for row in of))
            yield line(takes[size], does[writing], *(f"{row['predicted_lost_share']:.1%}" for row in of))
        if (size, writing) == (63_000, "blocking"):
            for row in of:
                if row["failures_interval"] in (240, 1800):
                    minutes = f"{row['failures_interval'] / 60:.0f} min"
                    yield line(algorithm, minutes, f"{row['steps_per_day']:,.0f}")
                    yield price(f"{algorithm}, {minutes}", row["gpu_idle_share"])


def roofline(rows: Rows) -> Iterator[str]:
    for (algorithm, model), of in by(rows, "algorithm", "workload_model"):
        cells = [(f"{row['achieved_flops'] / 1e12:.0f}", f"{row['roofline_flops'] / 1e12:.0f}") for row in of]
        yield line(model, algorithm, *(f"{reached} of {roof}" for reached, roof in cells))
        for row in of:
            if row["workload_micro_batch"] == 16:
                yield price(f"{model}, {algorithm}", row["gpu_idle_share"])


def tuner(rows: Rows) -> Iterator[str]:
    for (algorithm, paths, ratio), of in by(rows, "algorithm", "paths", "oversubscription"):
        name = algorithm if algorithm == "in-network" else f"{algorithm}, {paths}"
        yield line(name, f"{ratio:g}", *(f"{1e6 * row['median_seconds']:.1f}" for row in of))


def sixteen_bits(rows: Rows) -> Iterator[str]:
    names = {256: "in-network, 32 bits", 512: "in-network, 16 bits"}
    for (algorithm, values), of in by(rows, "algorithm", "values"):
        ring = algorithm == "ring"
        cells = [1e6 * row["median_seconds"] for row in of]
        yield line("ring, float32" if ring else names[values], *(f"{x:.3g}" for x in cells))
        if not ring:
            yield line(names[values], *(_millionths(row["max_abs_error"]) for row in of))
        if values == 512:
            yield line("guaranteed bound", *(_millionths(row["error_bound"]) for row in of))
        [eight] = (row for row in of if row["workers"] == 8)
        idle = eight["median_seconds"] / (eight["median_seconds"] + 1e-3)  # the lesson's key compute
        yield price(f"{'ring' if ring else names[values]}, 8 workers", idle)


def _millionths(x: float) -> str:
    return f"{1e6 * x:.2f}" if x < 1e-4 else f"{1e6 * x:,.0f}"


def data_centres(rows: Rows) -> Iterator[str]:
    for (algorithm, delay, split), of in by(rows, "algorithm", "uplink_delay", "split"):
        if split == "random":
            cells = [f"{row['target_seconds']:.1f}" for row in of]
            yield line(algorithm, f"{4e3 * delay:g} ms", *cells, *(f"{row['accuracy']:.1%}" for row in of))
        if algorithm == "in-network" and delay == 0.025:
            yield line(split, *(f"{row['accuracy']:.1%}" for row in of))


def decoding(rows: Rows) -> Iterator[str]:
    networks = {3_600_000_000_000: "NVLink", 400_000_000_000: "Ethernet"}
    for (rate, algorithm, _), of in by(rows, "rate", "algorithm", "decoding_sequences"):
        yield line(networks[rate], algorithm, *(f"{row['tokens_per_second']:.0f}" for row in of))
        for row in of:
            if (row["workers"], row["decoding_sequences"]) == (8, 1) and algorithm != "double-binary-tree":
                yield price(f"{networks[rate]}, {algorithm}", row["gpu_idle_share"])


def serving(rows: Rows) -> Iterator[str]:
    times = ("median_seconds", "p95_seconds", "p99_seconds")
    predicted = ("predicted_p50_seconds", "predicted_p95_seconds", "predicted_p99_seconds")
    for row in rows:
        fan_out, load, connections = (row[f"serving_{name}"] for name in ("fan_out", "load", "connections"))
        micros = {name: f"{1e6 * row[name]:,.0f}" for name in (*times, *predicted, "mean_request_seconds")}
        percent = f"{100 * load:.0f} %"
        if connections == "reused":
            pairs = (
                f"{micros[here]} ({micros[there]})" for here, there in zip(times, predicted, strict=True)
            )
            yield line(str(fan_out), percent, *pairs)
            if load in (0.2, 0.6):
                by_law = row["requests_per_second"] * row["mean_request_seconds"]
                rate = f"{row['requests_per_second']:,.0f}"
                cells = (
                    rate,
                    micros["mean_request_seconds"],
                    f"{by_law:.2f}",
                    f"{row['requests_in_progress']:.2f}",
                )
                yield line(str(fan_out), percent, *cells)
            if fan_out == 1:
                yield price(percent, row["gpu_idle_share"])
        elif load == 0.2:
            yield line(f"{fan_out}, new", percent, *(micros[name] for name in times))


def storage(rows: Rows) -> Iterator[str]:
    asks = ("when it needs data", "a step ahead")
    for (algorithm, prefetch, written, writers), of in by(
        rows, "algorithm", "storage_prefetch", "storage_checkpoint", "storage_writers"
    ):
        if not written:
            cells = [(1e6 * row["step_seconds"], 1e6 * row["predicted_step_seconds"]) for row in of]
            yield line(algorithm, asks[prefetch], *(f"{found:.0f} ({model:.0f})" for found, model in cells))
        for row in of:
            if written and prefetch and row["workers"] in (12, 20):
                times = ("step_seconds", "max_seconds", "checkpoint_seconds", "predicted_checkpoint_seconds")
                cells = [f"{1e6 * row[name]:,.0f}" for name in times]
                at_once = str(min(writers, row["workers"]))
                sent_again = f"{row['storage_retransmissions']:,}"
                last = f"{cells[2]} ({cells[3]})"
                yield line(str(row["workers"]), at_once, algorithm, *cells[:2], last, sent_again)
            if row["workers"] == 12 and (not written or (prefetch, writers) == (1, 1)):
                name = f"{algorithm}, {'one writes at a time' if written else asks[prefetch]}"
                yield price(name, row["gpu_idle_share"])


def transports(rows: Rows) -> Iterator[str]:
    off = 40_000_000  # bytes: a pause never comes
    for (algorithm, transport, pfc), of in by(rows, "algorithm", "transport", "xoff_bytes"):
        ring = algorithm == "ring"
        name = f"{algorithm}, {transport}" if ring else algorithm
        if pfc == off:
            yield line(name, *(f"{row['goodput_bits_per_second'] / 1e9:.3g}" for row in of))
            yield line(f"{name}: retransmissions", *(f"{row['retransmissions']:,}" for row in of))
            for row in of:
                if row["loss"] in (0, 0.001):
                    idle = row["median_seconds"] / (row["median_seconds"] + 1e-3)  # the lesson's key compute
                    yield price(f"{name}, {row['loss']:.1%} lost", idle)
        if ring:
            for row in of:
                if row["loss"] in (0, 0.001):
                    times = (f"{1e6 * row[f'traffic_{p}_seconds']:.0f}" for p in ("p50", "p99"))
                    drops, pauses = f"{row['link_queue_drops']:,}", f"{row['link_pauses']:,}"
                    pfc_is = "off" if pfc == off else "on"
                    yield line(transport, pfc_is, f"{row['loss']:.1%}", *times, drops, pauses)
    packet, trip = (1024 + 66 + 24) * 8 / 100e9, 20e-6
    for transport in ("selective-repeat", "go-back-n", "tcp"):
        shares = (
            packet * packets_per_second(transport, packet, trip, 256, loss)
            for loss in (0, 0.0001, 0.001, 0.01)
        )
        yield line(transport, *(f"{share:.0%}" for share in shares))


def circuits(rows: Rows) -> Iterator[str]:
    for (algorithm, change), of in by(rows, "algorithm", "reconfiguration"):
        network = "fat tree" if change is None else f"circuits, {1e6 * change:.0f} µs"
        cells = [(1e6 * row["median_seconds"], 1e6 * row["closed_form_seconds"]) for row in of]
        yield line(network, algorithm, *(f"{found:.1f} ({model:.1f})" for found, model in cells))
        for row in of:
            if row["size"] == 1_000_000 and change in (None, 1e-5):
                idle = row["median_seconds"] / (row["median_seconds"] + 1e-3)  # the lesson's key compute
                yield price(f"{network}, {algorithm}", idle)


TABLES: dict[str, Callable[[Rows], Iterator[str]]] = {
    "failures": failures,
    "roofline": roofline,
    "tuner": tuner,
    "sixteen-bits": sixteen_bits,
    "data-centres": data_centres,
    "decoding": decoding,
    "serving": serving,
    "circuits": circuits,
    "storage": storage,
    "transports": transports,
}

# Changes that leave the lines that `make test-long` checks; without them, it runs all points of the lesson.
MOST = {"serving": ["serving_connections=reused", "serving_load=0.2,0.4"]}

# Changes that leave whole lines of the tables, and little to run.
FEWER = {
    "failures": ["algorithm=in-network", "traffic_size=63 kB", "failures_writing=blocking"],
    "roofline": ["algorithm=in-network", "workload_model=resnet-50"],
    "tuner": ["algorithm=in-network"],
    "sixteen-bits": ["algorithm=in-network"],
    "data-centres": ["algorithm=in-network", "uplink_delay=25 ms", "split=random"],
    "serving": ["serving_load=0.2", "serving_fan_out=8"],
    "storage": ["algorithm=in-network", "storage_prefetch=1", "storage_checkpoint=0 B"],
    "circuits": ["topology=networks/optical-10us.toml"],
    "transports": ["transport=go-back-n", "xoff_bytes=40 MB"],
    "decoding": ["algorithm=in-network,ring", "decoding_sequences=1"],
}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in TABLES])
def test_a_page_has_the_numbers_of_its_lesson(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"--set={change}" for change in sized(FEWER[name], MOST.get(name, []))]
    _, rows = run_lesson(name, words, tmp_path, monkeypatch)
    page = (PAGES / f"{name}.md").read_text()
    missing = [line for line in TABLES[name](rows) if line not in page]
    assert not missing


@pytest.mark.few(0)
@pytest.mark.slow
def test_the_page_on_circuits_compares_them_with_in_network_aggregation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is not among the lesson's points, since an optical switch adds up nothing."""
    changes = ["--set=topology=networks/fat-tree-16.toml", "--set=algorithm=in-network"]
    _, rows = run_lesson("circuits", changes, tmp_path, monkeypatch)
    page = (PAGES / "circuits.md").read_text()
    assert not [line for line in circuits(rows) if line not in page]
