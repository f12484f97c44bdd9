"""`fanin cost`: its table, its formulas with the numbers put in, its lines of JSON, and wrong options."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments.models.cost import Job, costs

GPT = ("cost", "--parameters", "175G", "--compute", "2 s", "--nics", "1", "--latency", "0s")


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, " ".join(done.output.split())


def test_a_row_for_each_cluster_and_algorithm_and_the_formula_with_its_numbers() -> None:
    """Ring: 62/32 of 700 GB at 50 GB/s are 27.125 s, of 29.125 s; see test_cost.py of models."""
    status, output = invoke(*GPT)
    assert status == 0
    assert "256 in-network 700 14 14 87.5% 161,280 34.13" in output
    assert "256 ring 1,356 27.12 27.12 93.1% 171,663 62.13" in output
    assert "4,096 in-network 700 14 14 87.5% 2,580,480 546.1" in output
    assert "L + S/B = 0 s + (700 GB)/(50 GB/s) = 14 s" in output
    assert "2·(32-1)/32·(700 GB)/(50 GB/s)" in output
    assert "14 s / (2 s + 14 s) = 87.5%" in output
    assert "87.5% · 256 GPUs · 30 $ = 6,720 $ an hour" in output
    assert "16 s · 256 GPUs · 30 $ an hour = 34.13 $" in output


def test_what_is_taken_for_granted_fits_what_is_asked() -> None:
    assert "integers of 32 or 16 bits" not in invoke(*GPT)[1]
    assert "switches add bf16 directly" in invoke(*GPT, "--dtype", "bf16")[1]
    assert "--flops" not in invoke(*GPT)[1]
    assert "Gradients are sent after the computing; --overlap" in invoke(*GPT)[1]
    assert "sent during the last 50% of the computing; --overlap" in invoke(*GPT, "--overlap", "50%")[1]
    computed = invoke("cost", "--model", "llama-3-8b", "--global-batch", "4096", "--gpus", "256")[1]
    assert "A GPU computes at 989 TFLOP/s, of which a step reaches 40%; --flops and --utilization" in computed
    assert "Gradients are sent in fp32, 4 B for each parameter" in invoke(*GPT)[1]
    assert "Gradients are sent in fp8, 1 B for each parameter" in invoke(*GPT, "--dtype", "fp8")[1]
    assert "In-network:" not in invoke(*GPT, "--algorithm", "ring")[1]


def test_json_has_the_same_numbers() -> None:
    done = CliRunner().invoke(app, [*GPT, "--json", "--gpus", "1024"])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["algorithm"] for row in rows] == ["in-network", "ring"]
    assert rows[0]["dollars_per_hour"] == pytest.approx(26_880)
    assert rows[0]["dollars_per_day"] == pytest.approx(645_120)


def test_clusters_and_algorithms_come_in_one_option_or_in_several() -> None:
    options = (
        "--json",
        "--gpus",
        "256",
        "--gpus",
        "512, 1024",
        "--algorithm",
        "ring",
        "--algorithm",
        "in-network",
    )
    done = CliRunner().invoke(app, [*GPT, *options])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    algorithms = ("ring", "in-network")
    assert [(row["gpus"], row["algorithm"]) for row in rows] == [
        (gpus, algorithm) for gpus in (256, 512, 1024) for algorithm in algorithms
    ]


def test_wrong_options_are_named_all_of_them() -> None:
    status, output = invoke(*GPT, "--dtype", "fp64", "--rate", "400", "--gpus", "12")
    assert status == 2
    assert "--dtype fp64: Input should be" in output
    assert "--rate 400: write a number and its unit, such as '100 Gb/s'" in output
    status, output = invoke(*GPT, "--gpus", "12", "--flops", "1 TFLOP/s")
    assert status == 2
    assert "--flops: has no effect with --compute; leave it out, or replace --compute with --tokens" in output
    assert "--gpus: 12 do not fill servers of 8; change --gpus-per-server" in output
    status, output = invoke("cost", "--model", "7Q", "--compute", "1 s")
    assert (status, output.partition("7Q: ")[0]) == (2, "fanin cost: --model ")


# Options, each list with at least one mistake, which find all messages of Job.
WRONG = (
    "--compute 1s",
    "--model resnet-50 --pipeline 2 --compute 1s",
    "--model 7B",
    "--model llama-3-8b",
    "--model 7B --tensor 3 --compute 1s",
    "--model 7B --data 8 --gpus 64 --compute 1s",
    "--model 7B --zero 1 --algorithm halving-doubling --compute 1s",
    "--model 7B --zero 2 --pipeline 2 --compute 1s --global-batch 1024",
    "--model llama-3-8b --tokens 4M --global-batch 1024",
    "--model 7B --pipeline 2 --compute 1s",
    "--model 7B --micro-batch 2 --compute 1s",
    "--model 7B --tensor 8 --gpus 12 --compute 1s",
    "--model 7B --tensor 4 --gpus 12 --compute 1s",
    "--model 7B --gpus 8 --compute 1s",
    "--model llama-3-8b --gpus 256 --global-batch 1000",
)


@pytest.mark.parametrize("options", WRONG)
def test_what_is_wrong_is_named_as_it_is_typed(options: str) -> None:
    status, output = invoke("cost", *options.split())
    assert status == 2
    keys = "|".join(name for name in Job.model_fields if "_" in name)
    assert not re.search(
        rf"`|(?<!-)\b({keys})\b|(give|change|or|and|with|from|out) ({'|'.join(Job.model_fields)})\b", output
    )


def test_a_model_by_name_or_by_count_cut_and_with_zero() -> None:
    cut = ("--tensor", "8", "--pipeline", "4", "--data", "16", "--zero", "1", "--global-batch", "1024")
    status, output = invoke("cost", "--model", "llama-3-70b", *cut)
    assert status == 0
    assert "512 ring 132.3 0.3308" in output
    assert "(4-1)·(19.94 s/64 micro-batches of each copy + two sends)" in output
    assert "70,553,706,496 parameters" in output
    assert "2 · (L + (n-1)/n·S/B) = 2 · (10 us + (16-1)/16·(70.55 GB)/(400 GB/s)) = 330.7 ms" in output
    assert invoke("cost", "--model", "7B", *cut, "--compute", "1 s")[0] == 0
    status, output = invoke("cost", "--model", "llama-3", "--compute", "1 s")
    assert status == 2
    assert "--model llama-3: no model has this name; did you mean 'llama-3-8b'" in output
    status, output = invoke("cost", "--model", "7B", "--parameters", "7B", "--compute", "1 s")
    assert status == 2
    assert "--parameters: replaces --model" in output


def test_the_documentation_shows_what_is_printed() -> None:
    document = (Path(__file__).parents[3] / "docs/reference/cost.md").read_text()
    shown = [line[4:] for line in document.splitlines() if line.startswith("    ")]
    first = next(line for line in shown if line.startswith("fanin cost"))
    printed = CliRunner().invoke(app, shlex.split(first)[1:]).output.splitlines()
    assert len(shown) > 10
    assert not [line for line in shown if line != first and line not in printed]


def test_the_table_of_the_documentation_is_what_closed_forms_say() -> None:
    document = (Path(__file__).parents[3] / "docs/reference/cost.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d) NICs? \| (\d s) \| (.*) \|$", document, re.MULTILINE)
    assert len(rows) == 8
    for dtype, nics, compute, cells in rows:
        job = {"parameters": "175G", "dtype": dtype, "nics": nics, "compute": compute, "gpus": "1024"}
        said = [
            (f"{one.communication_seconds:.4g}", f"{one.idle_share:.1%}", f"{one.dollars_per_day:,.0f}")
            for one in costs(Job.model_validate(job))
        ]
        assert cells.split(" | ") == [*said[0], *said[1]]
