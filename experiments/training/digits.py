"""scikit-learn's handwritten digits (1,797 images of 8 × 8), split for training and for testing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PIXELS, CLASSES = 64, 10  # of an image, of all images
TEST_SHARE = 0.2
TRAINING_IMAGES = 1438  # the others of all 1,797
SPLIT_SEED = 2021


@dataclass(frozen=True, slots=True)
class Digits:
    """The data set.

    Attributes:
        train_images: float32 [samples, 64], from 0 to 1.
        train_labels: int64 [samples].
        test_images: float32 [samples, 64], from 0 to 1.
        test_labels: int64 [samples].
    """

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write the arrays to a file for `load`, so that workers need not import scikit-learn, which takes a second."""
        np.savez(path, **{name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def load(cls, path: Path) -> Digits:
        """Read a file that `save` has written."""
        with np.load(path) as arrays:
            return cls(**{name: arrays[name] for name in cls.__slots__})


def load_digits() -> Digits:
    """Return the data set, with the same shuffled split every time."""
    from sklearn.datasets import load_digits as sklearn_digits

    images, labels = sklearn_digits(return_X_y=True)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    images = (images[order] / 16).astype(np.float32)
    labels = labels[order].astype(np.int64)
    tests = round(TEST_SHARE * len(labels))
    return Digits(images[tests:], labels[tests:], images[:tests], labels[:tests])
