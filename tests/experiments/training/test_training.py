"""The model and its data-parallel training."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fanin.experiments.training.digits import Digits, load_digits
from fanin.experiments.training.perceptron import Perceptron, Vector
from fanin.experiments.training.sgd import Curve, TrainingConfig, train
from fanin.workers.values.compression import Compressor, ErrorFeedback, Rounded, TopK


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits()


@pytest.mark.slow
def test_every_image_is_in_one_part(digits: Digits) -> None:
    assert len(digits.train_labels) + len(digits.test_labels) == 1797
    assert digits.train_images.shape == (len(digits.train_labels), 64)
    assert 0 <= digits.train_images.min() <= digits.train_images.max() == 1


def test_the_gradient_is_that_of_the_loss(digits: Digits) -> None:
    model = Perceptron(64, 12, 10, seed=3)
    images, labels = digits.train_images[:20], digits.train_labels[:20]
    _, gradient = model.loss_and_gradient(images, labels)
    start = model.parameters
    rng = np.random.default_rng(0)
    for _ in range(5):
        direction = rng.standard_normal(start.size).astype(np.float32)
        direction /= np.linalg.norm(direction)
        losses = []
        for step in (1e-2, -1e-2):
            model.parameters = start + np.float32(step) * direction
            losses.append(model.loss_and_gradient(images, labels)[0])
        assert (losses[0] - losses[1]) / 2e-2 == pytest.approx(
            float(gradient @ direction), rel=2e-2, abs=2e-2
        )


def train_together(config: TrainingConfig, digits: Digits, workers: int) -> list[Curve]:
    """All workers as threads, their sums made in float64."""
    barrier = threading.Barrier(workers)
    contributions: dict[int, Vector] = {}
    curves: dict[int, Curve] = {}

    def worker(rank: int) -> None:
        feedback = None if config.compressor is None else ErrorFeedback(config.compressor)

        def all_reduce(vector: Vector) -> Vector:
            contributions[rank] = vector
            if feedback is not None:
                contributions[rank] = np.zeros_like(vector)
                feedback.add(feedback.packed(vector), contributions[rank])
            barrier.wait()
            parts = [contributions[r] for r in range(workers)]
            total = np.sum(parts, axis=0, dtype=np.float64).astype(np.float32)
            barrier.wait()
            return total

        curves[rank] = train(config, digits, rank, workers, all_reduce)

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [curves[rank] for rank in range(workers)]


@pytest.mark.parametrize("workers", [2, 5])
def test_shares_of_a_batch_add_up_to_the_batch(digits: Digits, workers: int) -> None:
    config = TrainingConfig(epochs=2, hidden=16)
    (alone,) = train_together(config, digits, 1)
    together = train_together(config, digits, workers)
    assert len(alone.loss) == config.steps(len(digits.train_labels))
    for curve in together:
        assert curve.loss == pytest.approx(alone.loss, rel=1e-3)
    assert together[0].accuracy == pytest.approx(alone.accuracy, abs=0.01)
    assert together[1].accuracy == []


def test_it_learns(digits: Digits) -> None:
    curve = train(TrainingConfig(epochs=8, hidden=64), digits, 0, 1, lambda vector: vector)
    assert curve.loss[-1] < curve.loss[0] / 4
    assert curve.accuracy[-1] > 0.9


@pytest.mark.parametrize("compressor", [TopK(0.05), Rounded(8), Rounded(4)], ids=str)
def test_with_compressed_gradients_it_learns_as_well(digits: Digits, compressor: Compressor) -> None:
    config = TrainingConfig(epochs=6, hidden=64)
    (whole,) = train_together(config, digits, 1)
    curves = train_together(replace(config, compressor=compressor), digits, 4)
    assert curves[0].accuracy[-1] == pytest.approx(whole.accuracy[-1], abs=0.05)
    assert all(curve.loss[-1] < curve.loss[0] / 3 for curve in curves)


def test_without_what_was_left_out_before_it_learns_less(
    digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainingConfig(epochs=8, hidden=64, compressor=TopK(0.002))
    with_it, *_ = train_together(config, digits, 4)
    monkeypatch.setattr(ErrorFeedback, "carried", lambda _self, gradient: gradient)
    without, *_ = train_together(config, digits, 4)
    assert without.accuracy[-1] < with_it.accuracy[-1]


def test_digits_survive_the_way_to_a_worker(digits: Digits, tmp_path: Path) -> None:
    digits.save(tmp_path / "digits.npz")
    again = Digits.load(tmp_path / "digits.npz")
    for name in Digits.__slots__:
        np.testing.assert_array_equal(getattr(again, name), getattr(digits, name))
