"""Draw what cnn.py has written: the loss and accuracy of each run, and how far its loss is from the first one's.

python docs/how-to/torch/curves.py gloo.csv fanin.csv gloo-lossy.csv fanin-lossy.csv --figure curves.png
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument(
    "curves", nargs="+", type=Path, help="files of cnn.py --curve; the first is the reference"
)
parser.add_argument("--figure", default="curves.png", help="file to write, .png or .svg")
options = parser.parse_args()

runs = {path.stem: np.genfromtxt(path, delimiter=",", names=True) for path in options.curves}
reference, *others = runs
figure, (losses, accuracies, distances) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
for place, (name, run) in enumerate(runs.items()):
    # They lie on one another: each is thinner than the one below.
    style = {"color": f"C{place}", "linewidth": 1 + 2 * (len(runs) - 1 - place), "label": name}
    losses.plot(run["step"], run["loss"], **style)
    accuracies.plot(run["step"], run["accuracy"], **style)
    apart = np.abs(run["loss"] - runs[reference]["loss"])
    if name != reference:
        distances.plot(run["step"], apart, **style)
        end = run["accuracy"][-1]
        print(f"{name}: loss within {apart.max():.1e} of {reference}'s, accuracy {end:.1%} at the end")
losses.set(title="loss of the batch", ylim=(0, None))
accuracies.set(title="accuracy on images never shown", ylim=(0, 1))
distances.set(title=f"distance of the loss from that of {reference}")
for axes in (losses, accuracies, distances):
    axes.set_xlabel("step")
losses.legend()
figure.savefig(options.figure, dpi=100)
