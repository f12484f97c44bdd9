"""A multilayer perceptron with one hidden layer in numpy; its parameters are one flat vector for all-reduce."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


class Perceptron:
    """A model: inputs → ReLU(hidden) → softmax over classes.

    Attributes:
        parameters: All weights and biases, float32 [size].
    """

    def __init__(self, inputs: int, hidden: int, classes: int, seed: int) -> None:
        self._shapes = ((inputs, hidden), (hidden,), (hidden, classes), (classes,))
        rng = np.random.default_rng(seed)
        # He et al. 2015 for the weights before a ReLU; biases start at zero.
        self.parameters: Vector = np.concatenate(
            [
                rng.normal(0, np.sqrt(2 / shape[0]), shape).ravel() if len(shape) == 2 else np.zeros(shape)
                for shape in self._shapes
            ]
        ).astype(np.float32)

    def _split(self, flat: Vector) -> list[Vector]:
        ends = np.cumsum([np.prod(shape) for shape in self._shapes])[:-1]
        parts = np.split(flat, ends)
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _forward(self, images: Vector) -> tuple[Vector, Vector]:
        weights_1, bias_1, weights_2, bias_2 = self._split(self.parameters)
        hidden = np.maximum(images @ weights_1 + bias_1, 0)
        logits = hidden @ weights_2 + bias_2
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)

    def loss_and_gradient(self, images: Vector, labels: NDArray[np.int64]) -> tuple[float, Vector]:
        """Return the cross-entropy summed over the samples, and its gradient, float32 [size].

        Args:
            images: float32 [samples, inputs].
            labels: int64 [samples].
        """
        hidden, probabilities = self._forward(images)
        rows = np.arange(len(labels))
        loss = -np.log(probabilities[rows, labels] + 1e-12).sum()
        slope = probabilities.copy()
        slope[rows, labels] -= 1
        _, _, weights_2, _ = self._split(self.parameters)
        back = (slope @ weights_2.T) * (hidden > 0)
        gradient = np.concatenate(
            [
                (images.T @ back).ravel(),
                back.sum(axis=0),
                (hidden.T @ slope).ravel(),
                slope.sum(axis=0),
            ]
        )
        return float(loss), gradient.astype(np.float32)

    def accuracy(self, images: Vector, labels: NDArray[np.int64]) -> float:
        """Return the share of samples whose most probable class is the label.

        Args:
            images: float32 [samples, inputs].
            labels: int64 [samples].
        """
        return float((self._forward(images)[1].argmax(axis=1) == labels).mean())
