"""scikit-learn's handwritten digits (1,797 images of 8 × 8), split for training and for testing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TEST_SHARE = 0.2
SPLIT_SEED = 2021


@dataclass(frozen=True, slots=True)
class Digits:
    """Images as float32 [samples, 64] in 0..1 and their labels as int64 [samples]."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write them where `load` finds them: workers then need not import scikit-learn (a second each)."""
        np.savez(path, **{name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def load(cls, path: Path) -> Digits:
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            return cls(**{name: arrays[name] for name in cls.__slots__})


def load_digits() -> Digits:
    """The data set, with the same shuffled split every time."""
    from sklearn.datasets import load_digits as sklearn_digits

    images, labels = sklearn_digits(return_X_y=True)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    images = (images[order] / 16).astype(np.float32)
    labels = labels[order].astype(np.int64)
    tests = round(TEST_SHARE * len(labels))
    return Digits(images[tests:], labels[tests:], images[:tests], labels[:tests])
