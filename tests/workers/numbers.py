"""Numbers that tests of quantization draw."""

import numpy as np
from hypothesis import strategies as st

LARGEST = np.nextafter(np.float32(2.0**127), np.float32(0))

FLOATS = st.floats(-float(LARGEST), float(LARGEST), width=32)

WORKERS = st.one_of(st.integers(1, 16), st.sampled_from([255, 256, 257, 1024, 4095, 65536]))
