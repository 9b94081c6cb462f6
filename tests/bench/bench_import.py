"""Time of ``import trueup`` over that of ``import formulaic``, each in fresh processes.

Run ``python tests/bench/bench_import.py``; the aim is a ratio of at most 1.25. The two take turns,
so that whatever else the machine does slows both alike.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import numpy as np

AIM = 1.25
PACKAGES = ("formulaic", "trueup")


def import_time(package):
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {package}"], check=True)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    repeats = parser.parse_args().repeats
    for package in PACKAGES:
        import_time(package)  # compiles what is not compiled yet
    times = np.array([[import_time(package) for package in PACKAGES] for _ in range(repeats)])
    base, ours = np.median(times, axis=0)
    print(f"import formulaic {base:.2f} s, import trueup {ours:.2f} s: {ours / base:.2f}x")
    if ours > AIM * base:
        sys.exit(f"import trueup costs more than {AIM} times import formulaic.")


if __name__ == "__main__":
    main()
