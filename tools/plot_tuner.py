#!/usr/bin/python3
"""Draws a run of the tuner's simulator, and writes its table into docs/tuner.md.

    tern-bench tuner --seeds 8 --json RESULT.json > TABLE.md
    plot_tuner.py RESULT.json PICTURE.png [TABLE.md PAGE.md]
"""

import json
import pathlib
import sys

from page_section import replace_section

try:
    import matplotlib
except ImportError:
    sys.exit("plot_tuner: no matplotlib for this python; on Debian: python3-matplotlib")

matplotlib.use("Agg")
from matplotlib import pyplot  # after the choice of the backend

# The times of single operations, from the course of a row.
TUNER, ORACLE, RAW = range(3)


def draw(result, picture):
    rows = [row for row in result["rows"] if row["bytes"] == result["rows"][0]["bytes"]]
    columns = 3
    lines = (len(rows) + columns - 1) // columns
    figure, axes = pyplot.subplots(lines, columns, figsize=(14, 2.6 * lines), squeeze=False)
    flat = list(axes.flat)
    for spare in flat[len(rows):]:
        spare.set_visible(False)
    for row, place in zip(rows, flat):
        ops = range(len(row["course"]))
        for which, label, width in ((RAW, "raw", 0.6), (ORACLE, "oracle", 2.0), (TUNER, "auto", 0.8)):
            place.plot(ops, [op[which] / 1e6 for op in row["course"]], label=label, linewidth=width)
        place.set(yscale="log", ylabel="ms")
        place.set_title(f"{row['trace']}: regret {100 * row['regret']:.1f} %", fontsize=8)
        place.grid(True, which="both", alpha=0.2)
    flat[0].legend(fontsize=7)
    figure.suptitle(f"Expected time of each operation, {rows[0]['bytes'] / 1e6:g} MB, "
                    f"level {result['level']}")
    figure.tight_layout()
    figure.savefig(picture, dpi=70)
    pyplot.close(figure)


def main():
    if len(sys.argv) not in (3, 5):
        sys.exit(__doc__)
    result = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    draw(result, sys.argv[2])
    if len(sys.argv) == 5:
        table = pathlib.Path(sys.argv[3]).read_text(encoding="utf-8").strip()
        last = result["first_seed"] + max(row["seeds"] for row in result["rows"]) - 1
        head = (f"Level `{result['level']}`, {result['ops']} operations, seeds "
                f"{result['first_seed']} to {last}.\n\n")
        replace_section(pathlib.Path(sys.argv[4]), "simulation", head + table)


if __name__ == "__main__":
    main()
