"""Settings for all tests."""

import os

# Two workers on two cores: more BLAS threads would only get in each other's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

from hypothesis import settings

settings.register_profile("ci", deadline=None, max_examples=20, derandomize=True)
settings.load_profile("ci")
