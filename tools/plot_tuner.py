#!/usr/bin/python3
"""Draws a run of the tuner's simulator, and writes what it shows into docs/tuner.md.

    tern-bench tuner --seeds 8 --json RESULT.json
    plot_tuner.py RESULT.json PICTURE.png|- [PAGE.md]

The page gets a line for each level, and a row and its causes for what falls short. It says nothing that this run
does not show.
"""

import json
import pathlib
import sys

from page_section import replace_section

# The times of single operations, from the course of a row.
TUNER, ORACLE, RAW = range(3)
DRAWN = "balanced"


def draw(result, picture):
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot_tuner: no matplotlib for this python; on Debian: python3-matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot  # after the choice of the backend

    rows = [row for row in result["rows"]
            if row["bytes"] == result["rows"][0]["bytes"] and row["level"] == DRAWN]
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
    figure.suptitle(f"Expected time of each operation, {rows[0]['bytes'] / 1e6:.3g} MB, level {DRAWN}")
    figure.tight_layout()
    figure.savefig(picture, dpi=70)
    pyplot.close(figure)


def percent(part):
    return f"{100 * part:.1f} %"


def summary(rows):
    """A line for each level."""
    lines = ["| level | rows in which all holds | regret, median | worst row | worst 50 operations to raw, "
             "median row | switches in 50, at most | error violations |", "|---|---|---|---|---|---|---|"]
    for level in dict.fromkeys(row["level"] for row in rows):
        own = [row for row in rows if row["level"] == level]
        regrets = sorted(row["regret"] for row in own)
        windows = sorted(row["worst_window_to_raw"] for row in own)
        lines.append(
            f"| `{level}` | {sum(not row['shortfall'] for row in own)} of {len(own)} | "
            f"{percent(regrets[len(own) // 2])} | {percent(regrets[-1])} | {percent(windows[len(own) // 2])} | "
            f"{max(row['most_switches_in_window'] for row in own)} | {sum(row['violations'] for row in own)} |")
    return lines


def shortfalls(rows):
    lines = ["| level | link, Gbit/s | regret | who knew all before | worst 50 ops to raw | who knew | "
             "switches in 50 | late after changes | falls short in |", "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(
            f"| `{row['level']}` | {row['trace']} | {percent(row['regret'])} | {percent(row['informed_regret'])} | "
            f"{percent(row['worst_window_to_raw'])} | {percent(row['informed_window_to_raw'])} | "
            f"{row['most_switches_in_window']} | {row['late_recoveries']} of {row['changes']} | "
            f"{row['shortfall']} |")
    return lines


def causes(rows):
    lines = []
    for row in rows:
        if row["regret"] > row["aim"]:
            lines.append(f"- `{row['level']}`, {row['trace']}, regret: {row['regret_cause']}.")
        if row["worst_window_to_raw"] > 0.03:
            lines.append(f"- `{row['level']}`, {row['trace']}, worst window: {row['window_cause']}.")
    return lines


def page_text(result):
    rows = result["rows"]
    short = [row for row in rows if row["shortfall"]]
    last = result["first_seed"] + max(row["seeds"] for row in rows) - 1
    sizes = ", ".join(f"{size / 2**20:.3g} MiB" for size in dict.fromkeys(row["bytes"] for row in rows))
    text = [f"{sizes}, {result['ops']} operations, seeds {result['first_seed']} to {last}. All that is promised "
            f"holds in {len(rows) - len(short)} of {len(rows)} rows.", "", *summary(rows)]
    if short:
        text += ["", "What falls short:", "", *shortfalls(short)]
        found = causes(short)
        if found:
            text += ["", "What that loses by, of the worst seed:", "", *found]
    return "\n".join(text)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    result = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    if sys.argv[2] != "-":
        draw(result, sys.argv[2])
    if len(sys.argv) == 4:
        replace_section(pathlib.Path(sys.argv[3]), "simulation", page_text(result))


if __name__ == "__main__":
    main()
