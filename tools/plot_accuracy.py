#!/usr/bin/python3
"""Draws test accuracy against training time, a line for each recipe.

    plot_accuracy.py RESULT.json PICTURE.png
"""

import json
import pathlib
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot_accuracy: no matplotlib for this python; on Debian: python3-matplotlib")

matplotlib.use("Agg")
from matplotlib import pyplot  # after the choice of the backend


def main():
    result, picture = sys.argv[1:]
    data = json.loads(pathlib.Path(result).read_text(encoding="utf-8"))
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for run in data["runs"]:
        seconds = [point[0] for point in run["accuracy"]]
        percent = [100 * point[1] for point in run["accuracy"]]
        axes.plot(seconds, percent, marker=".", label=f"{run['recipe']} ({run['step_ms']:.1f} ms a step)")
    axes.set_xscale("log")
    axes.set_xlabel("training time, seconds (logarithmic)")
    axes.set_ylabel("test accuracy, %")
    axes.set_title(f"MNIST, 4 workers on 2 nodes, {data['link'] or 'unshaped'} link")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    main()
