"""Data-parallel stochastic gradient descent: each worker has a share of every batch, all-reduce adds the gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.training.digits import Digits
from fanin.experiments.training.perceptron import Perceptron, Vector
from fanin.workers.values.compression import Compressor


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Settings on which all workers must agree; the same seed gives all of them the same model and the same batches.

    Attributes:
        compressor: How gradients are compressed for all-reduces; None: not at all.
    """

    epochs: int = 12
    batch: int = 256
    hidden: int = 2048
    learning_rate: float = 0.05
    momentum: float = 0.9
    seed: int = 1
    compressor: Compressor | None = None

    def steps(self, samples: int) -> int:
        """Return how many all-reduces the training takes."""
        return self.epochs * (samples // self.batch)

    def elements(self, digits: Digits) -> int:
        """Return the number of float32 values in one all-reduce.

        This is the gradient and, if gradients are not compressed, the loss.
        """
        return perceptron_for(self, digits).parameters.size + (self.compressor is None)

    def batches(self, samples: int) -> Iterator[NDArray[np.int64]]:
        """Yield the indices [batch] of each batch.

        Samples are shuffled in each epoch, and a short last batch is left out.
        """
        rng = np.random.default_rng(self.seed)
        for _ in range(self.epochs):
            order = rng.permutation(samples)
            for start in range(0, samples - self.batch + 1, self.batch):
                yield order[start : start + self.batch]


@dataclass(slots=True)
class Curve:
    """The progress of a training, with one value for each step."""

    seconds: list[float] = field(default_factory=list)  # since the training began
    # Cross-entropy per sample of the whole batch, or of the worker's own share if gradients are compressed.
    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)  # on the test images, after the step


def perceptron_for(config: TrainingConfig, digits: Digits) -> Perceptron:
    """Return the untrained model, the same for the same seed."""
    return Perceptron(digits.train_images.shape[1], config.hidden, 10, config.seed)


def train(
    config: TrainingConfig,
    digits: Digits,
    rank: int,
    workers: int,
    all_reduce: Callable[[Vector], Vector],
) -> Curve:
    """Train as worker `rank` of `workers` and return the progress.

    Args:
        config: Settings of the training.
        digits: The data set.
        rank: Number of this worker.
        workers: Number of workers.
        all_reduce: Returns the sum of all workers' vectors, float32 [size].
    """
    model = perceptron_for(config, digits)
    velocity = np.zeros_like(model.parameters)
    curve = Curve()
    begin = time.monotonic()
    for batch in config.batches(len(digits.train_labels)):
        share = batch[rank::workers]
        loss, gradient = model.loss_and_gradient(digits.train_images[share], digits.train_labels[share])
        if config.compressor is not None:
            total = all_reduce(gradient / np.float32(config.batch))
            shown = loss / max(len(share), 1)
        else:
            # The loss is one more element of the vector, so that its sum is the loss of the whole batch.
            summed = all_reduce(np.append(gradient, np.float32(loss)) / np.float32(config.batch))
            total, shown = summed[:-1], float(summed[-1])
        velocity = np.float32(config.momentum) * velocity - np.float32(config.learning_rate) * total
        model.parameters = model.parameters + velocity
        curve.seconds.append(time.monotonic() - begin)
        curve.loss.append(shown)
        # Only rank 0 tests, as its curve is the one shown. All-reduce times do not grow: they start at the last call.
        if rank == 0:
            curve.accuracy.append(model.accuracy(digits.test_images, digits.test_labels))
    return curve
