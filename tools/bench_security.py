#!/usr/bin/python3
"""What TLS between daemons costs: all-reduce over TLS and in plaintext, in turns, in one run.

    bench_security.py [--rate 10gbit] [--rounds 5] [--largest-mib 64] [--loopback]

Every round starts two daemons for each mode, measures each recipe, and ends them; the modes take turns
at being first. A figure is the median of the rounds, the ratio that of the rounds' ratios, so that what
the machine does meanwhile cancels out.
"""

import json
import statistics

from bench import KIB, LINKS, MIB, contest
from bench_rounds import empty_logs, in_rounds, options_of, run_or_exit
from nodes import Link, Nodes
from nodes_security import MODES

RECIPES = ["raw", "3lc:s=1"]


def measure(nodes, options, plan, link, round_number):
    """Median milliseconds by (mode, recipe, bytes)."""
    times = {}
    first = round_number % len(options.modes)
    for mode in options.modes[first:] + options.modes[:first]:
        nodes.mode = mode
        name = f"{mode}-{round_number}"
        for row in contest(nodes, name, options, plan, link, options.sizes):
            times[mode, row["contestant"], row["bytes"]] = 1e-3 * row["median_us"]
    return times


def table(rounds, modes):
    lines = [f"{'recipe':10} {'bytes':>10} {modes[0]:>12}"
             + "".join(f" {mode:>12} {'ratio':>7} {'rounds':>13}" for mode in modes[1:])]
    for recipe, size in sorted({key[1:] for key in rounds[0]}):
        def of(mode):
            return [times[mode, recipe, size] for times in rounds]
        line = f"{recipe:10} {size:10} {statistics.median(of(modes[0])):9.3f} ms"
        for mode in modes[1:]:
            ratios = sorted(b / a for a, b in zip(of(modes[0]), of(mode)))
            line += f" {statistics.median(of(mode)):9.3f} ms {statistics.median(ratios):7.3f}" \
                    f" {ratios[0]:6.3f}-{ratios[-1]:.3f}"
        lines.append(line)
    return "\n".join(lines)


def run(options):
    link = LINKS.get(options.rate, Link(options.rate))
    plan = {"seconds": options.seconds, "recipes": options.recipes}
    nodes = Nodes("tern-bench-security", options.programs, empty_logs(options), link=link,
                  loopback=options.loopback)
    try:
        rounds = in_rounds(nodes, options,
                           lambda number: measure(nodes, options, plan, link, number))
        print(table(rounds, options.modes))
        text = json.dumps([{"/".join(map(str, key)): value for key, value in times.items()}
                           for times in rounds], indent=2)
        (options.out / "security.json").write_text(text, encoding="utf-8")
    finally:
        nodes.close()


def main():
    parser = options_of(__doc__, "bench-security", rate="10gbit")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each size of each mode")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["plaintext", "tls"])
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--largest-mib", type=int, default=64, help="the largest tensor")
    options = parser.parse_args()
    options.sizes = [64 * KIB, 4 * MIB, options.largest_mib * MIB]
    options.gloo, options.input, options.seeds = False, None, [1]
    run_or_exit(run, options)


if __name__ == "__main__":
    main()
