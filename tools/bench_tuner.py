#!/usr/bin/python3
"""Compares `recipe=auto` with every static recipe of its level and with raw, on shaped links.

All contestants take turns in one run, so that what disturbs the machine disturbs all of them. A pair is a
round of auto and the same round of another contestant; the ratio of their times has a confidence interval
by bootstrap. auto passes where the median of the ratios is at most 1.05 against the best static recipe and
at most 1.03 against raw. Where a bound lies between the ends of the interval, the run is too noisy to tell,
and says so: such a row passes or fails by its median, and is no evidence of either.

--page FILE writes the table into docs/tuner.md, with what this run shows and nothing that it does not.

--changing runs through several links in one run; the first rounds after a change are reported apart.
--cost runs auto alone, and says what share of the daemons' processor time the tuner takes.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

from bench import LINKS, refill_us, run_ranks, say, take_real_time
from nodes import Link, Nodes, NodesError
from page_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
# What each level may send by, beside what the levels before it may.
BY_LEVEL = {"lossless": ["raw", "lossless"], "conservative": ["ef(bf16)", "ef(int:bits=8)"],
            "balanced": ["ef(int:bits=4)", "3lc:s=1"], "aggressive": ["3lc:s=1.75"]}
PLAN = {"unshaped": [64 * MIB, 4 * MIB, MIB // 16], "10gbit": [64 * MIB, 4 * MIB, MIB // 16],
        "1gbit": [16 * MIB, MIB, MIB // 16], "100mbit": [4 * MIB, MIB // 4]}
COURSE = ["1gbit", "10gbit", "100mbit", "unshaped", "1gbit", "100mbit"]  # of a link that changes
COURSE_BYTES = 4 * MIB
FIRST_ROUNDS = 3  # after a change
SLOW = ("100mbit", "1gbit")  # from 1 MiB on every level compresses there
WITHIN = {"vs_best": 1.05, "vs_raw": 1.03}
RESAMPLES = 2000


def static_recipes(level):
    levels = list(BY_LEVEL)
    return [recipe for one in levels[:levels.index(level) + 1] for recipe in BY_LEVEL[one]]


def settings_of(options):
    return f'[tuner]\npolicy = "* {options.level}"\n'


def look_at_choice(options, nodes, link, size, result):
    """What the tuner says of its choice: the recipe, why it is in use now, and how often it changed."""
    rows = json.loads(subprocess.run(
        [options.programs / "ternctl", "--json", "--socket", nodes.control_socket(0), "tuner"],
        check=True, capture_output=True, text=True).stdout)
    row = max(rows, key=lambda one: one["ops"])
    result |= {"choice": row["recipe"], "reason": row["reason"], "switches": row["switches"],
               "ops": row["ops"], "faults": []}
    slow = link in SLOW and size >= MIB
    if slow and row["recipe"] == "raw":
        result["faults"].append("auto sends raw on a slow link")
    if "nothing is known yet" in row["reason"]:
        result["faults"].append(f"after {row['ops']} operations auto says that nothing is known")
    # One switch in fifty without a change; the link has not changed here.
    if row["switches"] > 3 + row["ops"] // 50:
        result["faults"].append(f"auto has changed {row['switches']} times in {row['ops']} operations")


def interval(ratios, generator):
    """The 95 % bootstrap interval of the median of the ratios."""
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios)))
                     for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


def compare(auto, other, bound, generator):
    """`certain`: the whole interval is on one side of the bound."""
    ratios = [mine / theirs for mine, theirs in zip(auto["seconds"], other["seconds"])]
    low, high = interval(ratios, generator)
    median = statistics.median(ratios)
    return {"median": median, "low": low, "high": high, "bound": bound, "passes": median <= bound,
            "certain": high <= bound or low > bound}


def judge(rows, generator):
    named = {row["contestant"].removeprefix("tern "): row for row in rows}
    auto = named.pop("auto")
    best = min(named, key=lambda name: named[name]["median_us"])
    return {"auto_us": auto["median_us"], "recipe": auto["recipe"], "ratio": auto["ratio"],
            "best": best, "best_us": named[best]["median_us"], "raw_us": named["raw"]["median_us"],
            "vs_best": compare(auto, named[best], WITHIN["vs_best"], generator),
            "vs_raw": compare(auto, named["raw"], WITHIN["vs_raw"], generator),
            "all_us": {name: row["median_us"] for name, row in named.items()}}


def processor_seconds(process):
    """Of a process so far, all threads, user and kernel."""
    stat = pathlib.Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def tuner_seconds(options, nodes, node):
    text = subprocess.run([options.programs / "ternctl", "--json", "--socket",
                           nodes.control_socket(node), "counters"], check=True,
                          capture_output=True, text=True).stdout
    counters = {name: row["value"] for name, row in json.loads(text).items()}
    return 1e-9 * (counters["tuner_ns"] + counters["tuner_shadow_ns"])


def measure_cost(options, generator):
    """Nothing but auto, at full speed."""
    del generator
    logs = options.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    nodes = Nodes("tern-bench-tuner", options.programs, logs, loopback=options.loopback,
                  settings=settings_of(options))
    results = []
    try:
        for name in options.links:
            if nodes.network:
                nodes.network.shape(LINKS.get(name, Link(None)))
            for size in options.sizes or PLAN[name]:
                daemons = nodes.start_daemons()
                rows = run_ranks(nodes, f"{name}-{size}", lambda _: [
                    "--bytes", size, "--seconds", options.seconds, "--max-rounds", 1000000,
                    "--seed", options.seed, "--recipe", "auto"])
                spent = sum(tuner_seconds(options, nodes, node) for node in range(nodes.count))
                used = sum(map(processor_seconds, daemons))
                nodes.stop(daemons)
                results.append({"link": name, "bytes": size, "tuner_seconds": spent,
                                "daemon_seconds": used, "rounds": rows[0]["rounds"]})
                say(f"{name:>9} {size / MIB:8.3f} MiB: {rows[0]['rounds']} operations, the tuner "
                    f"{1e3 * spent:.1f} ms of {used:.2f} s of the daemons' processor time, "
                    f"{100 * spent / used:.2f} %")
    finally:
        nodes.close()
    return results


def rounds_within(rows, begin, end):
    """The numbers of the rounds in which every contestant began and ended in that span, in their order."""
    count = min(len(row["at"]) for row in rows)
    return [number for number in range(count)
            if all(begin <= row["at"][number] and row["at"][number] + row["seconds"][number] < end
                   for row in rows)]


def judge_course(rows, changes, generator):
    """One result for each link of the course, and one of the first rounds after all changes."""
    results, first = [], {"auto": [], "best": [], "raw": []}
    for (begin, name), (end, _) in zip(changes, changes[1:]):
        numbers = rounds_within(rows, begin, end)
        count = len(numbers)
        spans = {row["contestant"]: [row["seconds"][number] for number in numbers] for row in rows}
        cut = [row | {"seconds": spans[row["contestant"]][FIRST_ROUNDS:count]} for row in rows]
        for row in cut:
            row["median_us"] = 1e6 * statistics.median(row["seconds"])
        result = judge(cut, generator) | {"link": name, "bytes": COURSE_BYTES, "rounds": count}
        result["first"] = {key: [1e6 * one for one in spans[f"tern {recipe}"][:FIRST_ROUNDS]]
                           for key, recipe in (("auto", "auto"), ("best", result["best"]),
                                               ("raw", "raw"))}
        for key, values in result["first"].items():
            first[key] += values
        results.append(result)
    return results, {key: statistics.median(values) for key, values in first.items()}


def measure_course(options, generator):
    """All contestants take turns while the link changes under them."""
    logs = options.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    nodes = Nodes("tern-bench-tuner", options.programs, logs, settings=settings_of(options))
    changes = []
    ended = threading.Event()

    def change():
        for name in COURSE:
            nodes.network.shape(LINKS.get(name, Link(None)))
            changes.append((time.time(), name))
            if ended.wait(options.changing):
                break
        changes.append((time.time(), None))
        nodes.network.shape(Link(None))  # what is still to come need not crawl

    try:
        if not nodes.network:
            raise NodesError("a link that changes needs network namespaces, and so root")
        nodes.network.shape(LINKS[COURSE[0]])
        nodes.start_daemons()
        changing = threading.Thread(target=change)
        rows = run_ranks(nodes, "course", lambda _: [
            "--bytes", COURSE_BYTES, "--seconds", options.changing * len(COURSE),
            "--min-rounds", options.rounds, "--max-rounds", 1000000, "--settle", options.settle,
            "--all-times", "--idle", 0.01, "--pause-us", options.pause_us, "--seed", options.seed,
            *input_words(options), "--recipe", "auto", *static_recipes(options.level)],
            on_event=changing.start)
        ended.set()
        changing.join()
    finally:
        nodes.close()
    results, first = judge_course(rows, changes, generator)
    for result in results:
        say(f"{line(result)}; {result['rounds']} rounds")
    say(f"the first {FIRST_ROUNDS} rounds after a change: auto {first['auto']:.0f} us, "
        f"best {first['best']:.0f} us, raw {first['raw']:.0f} us")
    return results


def measure(options, generator):
    logs = options.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    results = []
    nodes = Nodes("tern-bench-tuner", options.programs, logs, loopback=options.loopback,
                  settings=settings_of(options))
    try:
        for name in options.links:
            link = LINKS.get(name, Link(None))
            if nodes.network:
                nodes.network.shape(link)
            pause = refill_us(link) if nodes.network else 0
            for size in options.sizes or PLAN[name]:
                daemons = nodes.start_daemons()
                rows = run_ranks(nodes, f"{name}-{size}", lambda _: [
                    "--bytes", size, "--seconds", options.seconds, "--pause-us", pause,
                    "--min-rounds", options.rounds, "--settle", options.settle, "--all-times",
                    "--seed", options.seed, *input_words(options), "--recipe", "auto",
                    *static_recipes(options.level)])
                if options.explain:
                    say(subprocess.run([options.programs / "ternctl", "--socket",
                                        nodes.control_socket(0), "tuner"], check=False,
                                       capture_output=True, text=True).stdout)
                result = judge(rows, generator) | {"link": name, "bytes": size}
                look_at_choice(options, nodes, name, size, result)
                nodes.stop(daemons)
                results.append(result)
                say(line(result))
    finally:
        nodes.close()
    return results


def input_words(options):
    return ["--input", *options.input] if options.input else []


def line(result):
    def text(pair):
        return (f"{pair['median']:.3f} ({pair['low']:.3f} to {pair['high']:.3f})"
                f"{'' if pair['passes'] else ' FAILS'}{'' if pair['certain'] else ' (uncertain)'}")
    return (f"{result['link']:>9} {result['bytes'] / MIB:8.3f} MiB: auto {result['auto_us']:10.0f} us "
            f"[{result['recipe']}], best {result['best']} {result['best_us']:.0f} us, raw "
            f"{result['raw_us']:.0f} us; auto/best {text(result['vs_best'])}, auto/raw "
            f"{text(result['vs_raw'])}")


def passes(result):
    return all(result[key]["passes"] for key in WITHIN) and not result.get("faults")


def claims(results):
    """What the rows show, and nothing else."""
    failed = [result for result in results if not passes(result)]
    uncertain = [result for result in results
                 if not all(result[key]["certain"] for key in WITHIN)]
    lines = [f"{len(results) - len(failed)} of {len(results)} cases pass by their medians; in "
             f"{len(uncertain)} a bound lies within the interval, so that the run is too noisy to tell."]
    for result in failed:
        for key, other in (("vs_best", f"the best static recipe, {result['best']}"), ("vs_raw", "raw")):
            if not result[key]["passes"]:
                lines.append(f"- {result['link']}, {size_text(result['bytes'])}: auto takes "
                             f"{result[key]['median']:.2f} times as long as {other}.")
        lines += [f"- {result['link']}, {size_text(result['bytes'])}: {fault}."
                  for fault in result.get("faults", [])]
    return lines


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB"


def page_text(results, options):
    rows = ["| link | tensor | auto, ms | best static, ms | raw, ms | auto / best | auto / raw |",
            "|---|---|---|---|---|---|---|"]
    for result in results:
        pairs = [f"{result[key]['median']:.2f} ({result[key]['low']:.2f} to {result[key]['high']:.2f})"
                 f"{'' if result[key]['passes'] else ', **fails**'}" for key in WITHIN]
        rows.append(f"| {result['link']} | {size_text(result['bytes'])} | {result['auto_us'] / 1e3:.2f} | "
                    f"{result['best']}, {result['best_us'] / 1e3:.2f} | {result['raw_us'] / 1e3:.2f} | "
                    f"{pairs[0]} | {pairs[1]} |")
    made = (f"Written by `tools/bench_tuner.py --page`, level `{options.level}`, seed {options.seed}, "
            f"{options.seconds:g} seconds a row, from operation {options.settle} on.")
    return "\n".join([made, "", *rows, "", *claims(results)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--level", choices=list(BY_LEVEL), default="balanced")
    parser.add_argument("--links", nargs="+", choices=list(PLAN), default=list(PLAN))
    parser.add_argument("--sizes", nargs="+", type=int)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each size, all together")
    parser.add_argument("--rounds", type=int, default=9, help="at least, for each size")
    parser.add_argument("--changing", type=float, metavar="SECONDS",
                        help="one run whose link changes so often, in place of --links")
    parser.add_argument("--cost", action="store_true", help="what the tuner costs, in place of times")
    parser.add_argument("--pause-us", type=int, default=2000, help="between operations of --changing")
    parser.add_argument("--settle", type=int, default=40, help="operations before the clock runs")
    parser.add_argument("--input", nargs="+", metavar="FILE",
                        help="instead of Gaussians one tensor at successive steps, .npy, a file or more for each rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--explain", action="store_true", help="show `ternctl tuner` of each case")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/tuner")
    parser.add_argument("--page", type=pathlib.Path, help="also write the table into this page")
    parser.add_argument("--loopback", action="store_true")
    options = parser.parse_args()
    take_real_time(options)
    say(f"seed {options.seed}")
    try:
        run = (measure_cost if options.cost else measure_course if options.changing
               else measure)
        results = run(options, random.Random(options.seed))
    except (NodesError, subprocess.CalledProcessError) as error:
        print(f"bench_tuner: {error}", file=sys.stderr)
        return 1
    name = "cost.json" if options.cost else "changing.json" if options.changing else "links.json"
    (options.out / name).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.cost:
        return 0
    say("\n".join(claims(results)))
    if options.page and not options.changing:
        replace_section(options.page, "real-links", page_text(results, options))
    return 0 if all(passes(result) for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
