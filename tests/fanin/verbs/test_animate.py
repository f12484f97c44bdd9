"""`fanin animate`: a file that a browser shows, or a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app

README_PICTURE = Path(__file__).parents[3] / "docs/animation.svg"


def animate(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["animate", *arguments], env={"COLUMNS": "400"})
    return done.exit_code, done.output


def test_the_picture_of_the_readme_is_what_the_command_draws(tmp_path: Path) -> None:
    """If it differs, run `fanin animate scenario:in-network-and-ring -o docs/animation.svg`, and look at it."""
    status, said = animate("scenario:in-network-and-ring", "-o", str(tmp_path / "drawn.svg"))
    assert (status, said) == (0, f"wrote {tmp_path / 'drawn.svg'}; open it in a browser\n")
    assert (tmp_path / "drawn.svg").read_text() == README_PICTURE.read_text()


def test_without_a_name_the_drawing_is_among_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _ = animate("scenario:in-network-and-ring", "--set", "algorithm=in-network", "--duration", "3")
    assert status == 0
    assert 'dur="5s"' in (tmp_path / "results/in-network-and-ring/animation.svg").read_text()


@pytest.mark.parametrize("name", ["trace.json", "page.html"])
def test_only_drawings_have_a_duration(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    status, said = animate("scenario:in-network-and-ring", "--duration", "3", "-o", str(path))
    assert status == 2
    assert f"--duration 3: is for drawings, and {path} has the times of the run; leave it out" in said
    assert not path.exists()


@pytest.mark.slow
def test_an_output_in_json_is_a_trace_with_any_number_of_packets(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    status, said = animate("scenario:in-network-and-ring", "--set", "size=100 kB", "-o", str(path))
    assert (status, said) == (0, f"wrote {path}; open it in ui.perfetto.dev or chrome://tracing\n")
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {
        "in-network: workers",
        "in-network: links",
        "in-network: buckets",
        *(f"in-network: slots of {name}" for name in ("leaf1", "leaf2", "spine1")),
        "ring, selective-repeat: workers",
        "ring, selective-repeat: links",
        "ring, selective-repeat: buckets",
    }
    assert sum(event["ph"] == "X" and event["cat"] == "packet" for event in events) > 2 * 3000


def test_an_output_in_html_plays_both_points(tmp_path: Path) -> None:
    path = tmp_path / "new/theatre.html"
    status, said = animate("scenario:in-network-and-ring", "--set", "size=4 kB", "-o", str(path))
    assert (status, said) == (0, f"wrote {path}; open it in a browser\n")
    (found,) = re.findall(r'id="recording">(.*?)</script>', path.read_text())
    document = json.loads(found)
    assert document["name"] == "in-network-and-ring, size=4 kB"
    assert "<title>in-network-and-ring, size=4 kB: packets of a run</title>" in path.read_text()
    assert [point["title"] for point in document["points"]] == ["in-network", "ring, selective-repeat"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("lesson:loss",), "choose at most 4 with --set"),
        (
            ("scenario:in-network-and-ring", "--set", "size=10 MB"),
            "packets on links are too many for one drawing (3,000); choose a smaller vector",
        ),
        (
            ("scenario:in-network-and-ring", "--set", "size=10 MB", "-o", "theatre.html"),
            "packets on links are too many for one drawing (20,000); choose a smaller vector",
        ),
        (("scenario:in-network-and-ring", "--set", "world=live"), "add --set world=virtual"),
        (("scenario:in-network-and-ring", "--duration", "0"), "greater than or equal to 1"),
        (("nowhere.toml",), "nowhere.toml cannot be read"),
    ],
)
def test_what_cannot_be_drawn_is_explained(
    arguments: tuple[str, ...], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, said = animate(*arguments)
    assert status == 2
    assert reason in said
    assert not list(tmp_path.rglob("*"))
