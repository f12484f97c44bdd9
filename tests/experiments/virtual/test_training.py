"""A training in virtual time: real gradients, and models that change by simulated sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fanin.experiments.results.measured import Measured, row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.training.digits import CLASSES, PIXELS, TRAINING_IMAGES, load_digits
from fanin.experiments.training.perceptron import Perceptron
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.training import _Learner
from fanin.p4switch.engine.engine import Engine

SHAPE = {"spines": 0, "leaves": 1, "hosts_per_leaf": 4, "rate": "10 Gb/s"}
TRAINING = {"epochs": 1, "batch": 64, "hidden": 16, "compute_time": "10 ms"}


def settings(training: dict[str, Any] | None = None, **rest: Any) -> Settings:
    said = {"topology": {"leaf_spine": SHAPE}, "training": TRAINING | (training or {})}
    return Settings.model_validate(said | rest).settled


def run(switch: Engine, training: dict[str, Any] | None = None, **rest: Any) -> Measured:
    measured = run_virtual(settings(training, **rest), switch)
    assert measured.violations == 0
    return measured


def test_the_sizes_are_those_of_the_data_set() -> None:
    digits = load_digits()
    assert digits.train_images.shape == (TRAINING_IMAGES, PIXELS)
    assert len(np.unique(digits.train_labels)) == CLASSES
    table = settings().training
    assert table
    assert table.vector_bytes == 4 * Perceptron(PIXELS, 16, CLASSES, 1).parameters.size


def test_with_one_local_step_it_is_synchronous_sgd(switch: Engine) -> None:
    """The batches are the same, and all workers have one momentum."""
    measured = run(switch)
    digits, table = load_digits(), settings().training
    assert table
    learners = [_Learner(table, 1, digits, rank, 4) for rank in range(4)]
    model = Perceptron(PIXELS, 16, CLASSES, 1)
    velocity = np.zeros_like(model.parameters)
    accuracy = []
    for _ in range(table.rounds(4)):
        gradients = []
        for learner in learners:
            if len(learner._order) < 16:
                learner._order = learner._draw.permutation(len(learner._labels))
            batch, learner._order = learner._order[:16], learner._order[16:]
            gradients.append(model.loss_and_gradient(learner._images[batch], learner._labels[batch])[1])
        velocity = 0.9 * velocity - 0.05 * sum(gradients) / 64
        model.parameters = (model.parameters + velocity).astype(np.float32)
        accuracy.append(model.accuracy(digits.test_images, digits.test_labels))
    assert measured.curve
    assert measured.curve.accuracy == pytest.approx(accuracy, abs=0.01)
    assert accuracy[-1] > accuracy[0] + 0.3


def test_a_round_takes_its_computing_and_its_sum(switch: Engine) -> None:
    measured = run(switch, {"local_steps": 5})
    assert measured.curve
    assert len(measured.seconds) == 22 // 5
    rounds = np.diff(measured.curve.seconds, prepend=0.0)
    assert rounds == pytest.approx([0.05 + seconds for seconds in measured.seconds], rel=1e-6)
    assert measured.gpu_idle_share == pytest.approx(1 - 0.05 / rounds.mean())
    assert measured.usage
    assert [len(one.ended) for one in measured.usage.workers] == [4] * 4


@pytest.mark.parametrize("algorithm", ["ring", "parameter-server"])
def test_all_algorithms_learn_the_same(switch: Engine, algorithm: str) -> None:
    in_network, other = run(switch), run(switch, algorithm=algorithm)
    assert in_network.curve
    assert other.curve
    assert other.curve.accuracy == pytest.approx(in_network.curve.accuracy, abs=0.01)


def test_integers_of_16_bits_train_as_well(switch: Engine) -> None:
    slow = {"topology": {"leaf_spine": SHAPE | {"rate": "100 Mb/s"}}}
    whole, half = run(switch, values=256, **slow), run(switch, values=512, **slow)
    assert whole.curve
    assert half.curve
    assert half.curve.accuracy == pytest.approx(whole.curve.accuracy, abs=0.01)
    assert sum(half.seconds) < 0.7 * sum(whole.seconds)


def test_models_of_different_images_move_apart(switch: Engine) -> None:
    said = {"epochs": 3, "local_steps": 11, "hidden": 32}
    mixed, sorted_by_digit = (run(switch, said | {"split": split}) for split in ("random", "by-label"))
    assert mixed.accuracy
    assert sorted_by_digit.accuracy
    assert mixed.accuracy > sorted_by_digit.accuracy + 0.05


def test_the_row_has_the_time_of_the_target(switch: Engine) -> None:
    point = settings({"target": 0.4})
    measured = run_virtual(point, switch)
    assert measured.curve
    columns = row(point, measured)
    first = next(i for i, accuracy in enumerate(measured.curve.accuracy) if accuracy >= 0.4)
    assert columns["target_seconds"] == measured.curve.seconds[first]
    assert columns["training_seconds"] == measured.curve.seconds[-1]
    assert row(settings({"target": 1}), measured)["target_seconds"] is None


@pytest.mark.parametrize(
    ("training", "rest", "message"),
    [
        ({"batch": 3}, {}, "training.batch: is 3, must be at least the 4 workers"),
        ({"local_steps": 50}, {}, "training.local_steps: is 50, more than the 22 steps"),
        ({}, {"repetitions": 2}, "repetitions: cannot be combined with training"),
        ({}, {"step": {"forward": "1 s", "backward": "1 s"}}, "step: cannot be combined with training"),
        ({"local_steps": 2}, {"world": "live"}, "training.local_steps: is virtual only"),
    ],
)
def test_what_does_not_fit_is_refused(training: dict[str, Any], rest: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings(training, **rest)
