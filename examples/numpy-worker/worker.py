"""Fit a line to noisy points: each worker has its own points, and all average their gradients."""

import numpy as np

import fanin

comm = fanin.init()  # returns when this program runs on every host
random = np.random.default_rng(comm.rank)
x = random.uniform(-1, 1, 1000)
y = 3 * x + 2 + random.normal(0, 0.1, x.size)

slope, intercept = 0.0, 0.0
for _ in range(100):
    error = slope * x + intercept - y
    gradient = np.array([np.mean(error * x), np.mean(error)], np.float32)
    gradient = comm.allreduce(gradient, "mean")
    slope -= float(gradient[0])
    intercept -= float(gradient[1])
print(f"worker {comm.rank} of {comm.size}: y = {slope:.2f} x + {intercept:.2f}")
