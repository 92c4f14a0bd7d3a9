#!/usr/bin/python3
"""Draws the pictures of the study.

    plot_study.py STUDY.json FOLDER
"""

import json
import pathlib
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot_study: no matplotlib for this python; on Debian: python3-matplotlib")

import study_plan as plan
import study_report

matplotlib.use("Agg")
from matplotlib import pyplot  # after the choice of the backend


def grid(sets, title):
    """One pair of axes a data set."""
    rows = (len(sets) + 1) // 2
    figure, axes = pyplot.subplots(rows, 2, figsize=(11, 4.2 * rows), squeeze=False)
    figure.suptitle(title)
    flat = list(axes.flat)
    for spare in flat[len(sets):]:
        spare.set_visible(False)
    return figure, flat


def save(figure, folder, name):
    figure.tight_layout()
    figure.savefig(folder / name, dpi=90)
    pyplot.close(figure)


def draw_errors(sets, folder):
    figure, all_axes = grid(sets, "Error of a step against bits of a value")
    for data, axes in zip(sets, all_axes):
        families = {}
        for row in data["rows"].values():
            if row["step_error"] > 0:
                families.setdefault(row["family"], []).append(row)
        for family, rows in families.items():
            axes.plot([row["bits_per_value"] for row in rows], [row["step_error"] for row in rows],
                      marker="o", markersize=4, linestyle="none", label=family)
        best = study_report.frontier(data["rows"].values())
        axes.plot([row["bits_per_value"] for row in best], [row["step_error"] for row in best],
                  linewidth=0.8, color="grey")
        axes.set(xscale="log", yscale="log", title=data["title"], xlabel="bits a value",
                 ylabel="|x - decoded| / |x|")
        axes.grid(True, which="both", alpha=0.2)
    all_axes[0].legend(fontsize=7)
    save(figure, folder, "study_error.png")


def draw_links(sets, folder):
    figure, all_axes = grid(sets, "Time of a value, by that of raw (one core at each end)")
    links = [0.05 * 1.25 ** i for i in range(40)]
    for data, axes in zip(sets, all_axes):
        raw = data["rows"]["none(raw)"]
        names = {}
        for title, key, limit in plan.LIMITS[data["kind"]]:
            for link in plan.LINKS_GBIT:
                best = study_report.best_row(data, key, limit, link)
                names.setdefault(best["recipe"], best)
        for name, row in names.items():
            gain = [study_report.seconds(raw, link) / study_report.seconds(row, link)
                    for link in links]
            axes.plot(links, gain, label=name)
        axes.set(xscale="log", yscale="log", title=data["title"], xlabel="link, Gbit/s",
                 ylabel="times faster than raw")
        axes.grid(True, which="both", alpha=0.2)
        axes.legend(fontsize=6)
    save(figure, folder, "study_links.png")


def draw_coders(sets, folder):
    figure, all_axes = grid(sets, "Bits of a value with each coder, by those without")
    for data, axes in zip(sets, all_axes):
        stages = [stage for stage in plan.CODED + plan.CODED_PLAIN]
        for place, coder in enumerate(plan.CODERS):
            shares = [study_report.coder_share(data, stage, coder) for stage in stages]
            where = [index + 0.15 * (place - 2) for index in range(len(stages))]
            drawn = [(x, share) for x, share in zip(where, shares) if share is not None]
            axes.bar([x for x, _ in drawn], [share for _, share in drawn], 0.15, label=coder)
        axes.set_xticks(range(len(stages)), stages, rotation=30, fontsize=7)
        axes.set_title(data["title"])
        axes.axhline(1.0, color="grey", linewidth=0.8)
    all_axes[0].legend(fontsize=7)
    save(figure, folder, "study_coders.png")


def main():
    result, folder = sys.argv[1:]
    folder = pathlib.Path(folder)
    sets = json.loads(pathlib.Path(result).read_text(encoding="utf-8"))["sets"]
    draw_errors(sets, folder)
    draw_links(sets, folder)
    draw_coders(sets, folder)


if __name__ == "__main__":
    main()
