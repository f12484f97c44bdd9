"""The page of results: whole and well formed, nothing in it from anywhere else, and no value taken for HTML."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.report.html_report import _MEASURED, page
from fanin.experiments.results.files import read_results, write_results
from fanin.experiments.results.measured import Row, failed_row
from fanin.experiments.scenario.settings import Settings
from fanin.run_points import _OF_TRAININGS
from tests.experiments.results.runs import made

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert('1' & \"2\")</script>"
VOID = {"meta", "br"}
ABOUT = {
    "name": "try",
    "scenario": 'description = "Two of them."\n[plot]\nx = "algorithm"\ny = "median_seconds"\n',
}
ROWS = [
    made([0.002, 0.002, 0.004]) | {"closed_form_seconds": 0.0016, "commit": "abc"},
    made([0.003, 0.003, 0.003], algorithm="ring") | {"closed_form_seconds": 0.003, "commit": "abc"},
]


class Reader(HTMLParser):
    """The content of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.cells: list[list[str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1][-1] += data


def read(about: dict[str, Any], rows: list[Row]) -> Reader:
    reader = Reader(page(about, [(row, None) for row in rows], "results/try"))
    assert reader.open == []
    return reader


def measured_cells(reader: Reader) -> list[list[str]]:
    """Return the table of measurements, with its headings."""
    first = next(place for place, cells in enumerate(reader.cells) if "median (ms)" in cells)
    return reader.cells[first:]


def test_measured_stands_beside_predicted_in_readable_units() -> None:
    heading, first, second = measured_cells(read(ABOUT, ROWS))[:3]
    measured = dict(zip(heading, first, strict=True))
    assert measured["algorithm"] == "in-network"
    assert measured["median (ms)"] == "2"
    assert measured["analytical model (ms)"] == "1.6"
    assert measured["measured / analytical model"] == "1.25"
    assert measured["key"] == ROWS[0]["key"]
    assert dict(zip(heading, second, strict=True))["measured / analytical model"] == "1"


def test_times_are_all_in_the_unit_of_their_medians() -> None:
    """0.9 s and 1.1 s, or nobody can compare them: 900 ms and 1,100 ms."""
    row = made([0.9, 0.9, 0.9, 0.9, 3.0]) | {"closed_form_seconds": 1.1}
    heading, first = measured_cells(read({}, [row]))[:2]
    measured = dict(zip(heading, first, strict=True))
    assert (measured["median (ms)"], measured["analytical model (ms)"]) == ("900", "1,100")
    assert measured["95th percentile (ms)"] == "2,580"


def test_without_a_scenario_there_is_a_figure_if_few_settings_vary() -> None:
    assert read({}, ROWS).tags["svg"] == 2
    many = [
        ROWS[0],
        made([1.0], window=64, values=64, coalescing="1 us", links={"loss": 0.1, "jitter": "1 us"}),
    ]
    assert read({}, many).tags["svg"] == 0


def test_one_point_alone_has_no_figure() -> None:
    assert read({}, ROWS[:1]).tags["svg"] == 0


def test_points_are_named_by_what_tells_them_apart() -> None:
    """The transport follows from the algorithm; the figure has the size, a number, on its axis."""
    rows = [
        made([0.001], **settings, size=size)
        for settings in ({"algorithm": "in-network"}, {"algorithm": "ring", "transport": "tcp"})
        for size in ("1 MB", "2 MB")
    ]
    reader = read({}, rows)
    assert [cells[0] for cells in reader.cells[1:5]] == [
        "in-network, vector 1 MB",
        "in-network, vector 2 MB",
        "ring, vector 1 MB",
        "ring, vector 2 MB",
    ]
    assert ("aria-label", "time of an all-reduce, median over vector") in reader.attributes


def test_settings_that_are_shared_program_and_commands_are_there() -> None:
    reader = read(ABOUT | {"set": ["loss=0, 1"]}, ROWS)
    assert ["rate (Gb/s)", "10"] in reader.cells
    assert ["commit", "abc"] in reader.cells
    text = "".join(reader.texts)
    assert "Two of them." in text
    assert "fanin rerun results/try" in text
    assert "fanin run try.toml '--set=loss=0, 1'" in text
    assert "every sum lies within its bound" in text


def test_sums_that_were_not_checked_are_not_said_to_be_right() -> None:
    for share, found in ((1 / 16, "at least 6.2% of the elements were checked"), (0.0, "at least 0.0% of")):
        text = "".join(read(ABOUT, [ROWS[0], ROWS[1] | {"checked_share": share}]).texts)
        assert "whose sums were not all checked" in text
        assert found in text
        assert "every sum lies" not in text


def test_a_figure_is_in_the_page_and_the_names_of_its_parts_are_its_own() -> None:
    reader = read(ABOUT, ROWS)
    assert reader.tags["svg"] == 2
    ids = [value for name, value in reader.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 10
    referred = re.findall(r"#(figure\d-\w+)", " ".join(value for _, value in reader.attributes))
    assert referred
    assert set(referred) <= set(ids)


def test_nothing_comes_from_anywhere_else_and_nothing_runs() -> None:
    reader = read(ABOUT, ROWS)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(reader.tags)
    for name, value in reader.attributes:
        assert name != "src"
        assert not name.startswith("on")
        assert not name.endswith("href") or value.startswith("#")
        assert "url(" not in value or "url(#" in value
    text = page(ABOUT, [(row, None) for row in ROWS], "results/try")
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_no_value_is_taken_for_html() -> None:
    """Names of a scenario, of topologies in lines of figures, errors, changes, places."""
    network = ROWS[0] | {"leaves": None, "topology": HOSTILE}
    rows = [network, ROWS[1] | {"leaves": None, "topology": "other", "commit": HOSTILE}]
    settings = Settings.model_validate_json(made([1.0], algorithm="parameter-server")["settings"])
    rows.append(failed_row(settings, HOSTILE))
    plot = 'x = "algorithm"\ny = "median_seconds"\nby = ["topology"]'
    about = {
        "name": HOSTILE,
        "scenario": f"description = '''{HOSTILE}'''\n[plot]\n{plot}\ntitle = '''{HOSTILE}'''",
        "set": [HOSTILE],
        "compute_seconds": 0.01,
    }
    text = page(about, [(row, None) for row in rows], HOSTILE)
    reader = Reader(text)
    assert reader.open == []
    assert "script" not in reader.tags
    assert "<script" not in text
    assert reader.tags["svg"] == 3
    assert text.count(html.escape("<script>")) > 10
    assert any(HOSTILE in cell for row in reader.cells for cell in row)


def test_prices_are_there_if_it_is_known_how_long_gpus_compute() -> None:
    """2 ms of waiting after 2 ms of computing: half of the time, of 256 GPUs at 30 $."""
    reader = read(ABOUT | {"compute_seconds": 0.002}, ROWS)
    assert ["in-network", "", "50.0%", "3,840", "92,160"] in [row[:5] for row in reader.cells]
    assert "256 GPUs" not in "".join(read(ABOUT, ROWS).texts)


def test_the_report_has_every_column_of_the_table_that_a_run_prints() -> None:
    assert {*_OF_TRAININGS, "other_job_seconds", "traffic_flows", "traffic_p99_seconds"} <= {*_MEASURED}


def test_a_chosen_algorithm_and_faults_are_explained_as_a_run_does() -> None:
    chosen = made([1.0]) | {
        "algorithm": "ring",
        "candidates": ["ring", "chain", "in-network"],
        "candidate_seconds": [0.001, 0.002, None],
        "candidate_problems": [None, None, "there is no tree"],
        "faults": ["leaf1 restarts: the job continues"],
        "fault_seconds": [8e-6],
        "fault_found_seconds": [28e-6],
        "fault_next_end_seconds": [None],
    }
    text = page({}, [(chosen, None)], "results")
    assert "chose ring; predicted: ring 1 ms, chain 2 ms; not in-network: there is no tree." in text
    assert "at 8 us leaf1 restarts: the job continues; detected at 28 us." in text


def test_failures_are_told_first() -> None:
    wrong = [
        ROWS[0] | {"violations": 3},
        failed_row(Settings.model_validate_json(ROWS[1]["settings"]), "Stall"),
    ]
    reader = read(ABOUT, wrong)
    assert "2 points, of which 2 failed or have sums outside their bound." in "".join(reader.texts)
    assert any(row[-1] == "Stall" for row in reader.cells)
    all_failed = read(
        {}, [failed_row(Settings.model_validate_json(one["settings"]), "Stall") for one in ROWS]
    )
    assert "all 2 rows failed" in "".join(all_failed.texts)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["results.json", "results.parquet"])
def test_files_give_what_was_written_and_the_same_page_each_time(tmp_path: Path, kind: str) -> None:
    write_results(ROWS, ABOUT, tmp_path)
    about, rows = read_results(tmp_path / kind)
    assert about == ABOUT
    assert json.loads(json.dumps(rows)) == json.loads(json.dumps(ROWS))
    assert page(about, [(row, None) for row in rows], "here") == page(
        ABOUT, [(row, None) for row in ROWS], "here"
    )


def test_rows_of_others_need_no_more_than_a_number() -> None:
    reader = read({}, [{"workers": 2, "median_seconds": 1.0}])
    assert "1 point." in "".join(reader.texts)
    assert "bound." not in "".join(reader.texts).split("Times are")[0]


def test_settings_that_cannot_be_read_leave_the_columns() -> None:
    rows = [ROWS[0] | {"settings": "{"}, ROWS[1] | {"settings": "[]"}]
    heading, *cells = measured_cells(read(ABOUT, rows))[:3]
    assert [dict(zip(heading, row, strict=True))["algorithm"] for row in cells] == ["in-network", "ring"]
