#!/usr/bin/python3
"""Compares `recipe=auto` with every static recipe of its level and with raw, on shaped links.

All contestants take turns in one run, so that what disturbs the machine disturbs all of them. A pair is a
round of auto and the same round of another contestant; the ratio of their times has a confidence interval
by bootstrap, over the pairs of all seeds. auto keeps a bound where the median of the ratios does: 1.05 to
the best static recipe and 1.03 to raw. Where a bound lies between the ends of the interval, the runs are
too noisy to tell, and the table says so.

--changing runs through several links in one run; the first rounds after a change are reported apart.
--cost runs auto alone, and says what share of the daemons' processor time the tuner takes.
--page writes a section of docs/tuner.md, with what these runs show and nothing that they do not. Runs are
kept one by one in build/tuner, but for those of --cost: who is interrupted goes on. Status 1 if a case
misses a bound.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

import bench_tuner_report as report
from bench import LINKS, refill_us, run_ranks, say
from bench_pair import hogs
from kept_runs import KeptRuns
from nodes import Link, Nodes, NodesError
from origin import commit_name, processor_name
from page_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/tuner.md"
MIB = 1 << 20
# What each level may send by, beside what the levels before it may.
BY_LEVEL = {"lossless": ["raw", "lossless"], "conservative": ["ef(bf16)", "ef(int:bits=8)"],
            "balanced": ["ef(int:bits=4)", "3lc:s=1"], "aggressive": ["3lc:s=1.75"]}


@dataclass(frozen=True)
class Setting:
    """Where `auto` is measured; `sizes` by link."""
    title: str
    nodes: int
    sizes: dict
    hogs: int = 0


SETTINGS = {
    "two": Setting("Two nodes", 2, {
        "unshaped": [64 * MIB, 4 * MIB, MIB // 16], "10gbit": [64 * MIB, 4 * MIB, MIB // 16],
        "1gbit": [16 * MIB, MIB, MIB // 16], "100mbit": [4 * MIB, MIB // 4]}),
    "eight": Setting("Eight nodes", 8, {
        "unshaped": [4 * MIB], "10gbit": [4 * MIB], "1gbit": [4 * MIB, MIB // 16], "100mbit": [MIB]}),
    "hog": Setting("Two nodes beside a process that keeps a processor busy", 2, {
        "unshaped": [4 * MIB], "10gbit": [4 * MIB], "1gbit": [4 * MIB, MIB // 16], "100mbit": [MIB]}, hogs=1),
}
COURSE = ["1gbit", "10gbit", "100mbit", "unshaped", "1gbit", "100mbit"]  # of a link that changes
COURSE_BYTES = 4 * MIB
MOST_ROUNDS = 4000  # of a case: more say no more, and each is resampled


def static_recipes(level):
    levels = list(BY_LEVEL)
    return [recipe for one in levels[:levels.index(level) + 1] for recipe in BY_LEVEL[one]]


def take_class(is_real_time):
    """This process and all that it starts then go before other work on the machine, or beside it."""
    policy, priority = (os.SCHED_RR, 1) if is_real_time else (os.SCHED_OTHER, 0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, policy, os.sched_param(priority))


class ChoiceWatch:
    """Asks the first node's tuner now and then while the ranks run: with their group it forgets the
    tensor. Within `with`; then `last` is the last answer. There is one tensor that auto chooses for."""

    SECONDS = 0.5

    def __init__(self, options, nodes):
        self._command = [options.programs / "ternctl", "--json", "--socket", nodes.control_socket(0), "tuner"]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.last = {"choice": None, "reason": "nobody has asked", "switches": 0, "ops": 0}

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _run(self):
        while not self._ended.wait(self.SECONDS):
            done = subprocess.run(self._command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                self.last["reason"] = done.stderr.strip()
            elif rows := json.loads(done.stdout):
                row = max(rows, key=lambda one: one["ops"])
                self.last = {"choice": row["recipe"], "reason": row["reason"], "switches": row["switches"],
                             "ops": row["ops"]}


class Bench:
    """Runs one case after the other, each with daemons of its own, and keeps what it has run."""

    def __init__(self, options, logs):
        self.options = options
        self.logs = logs
        self.commit = commit_name()
        self.kept = KeptRuns(options.out / "runs.jsonl")

    def nodes(self, level, count=2):
        return Nodes("tern-bench-tuner", self.options.programs, self.logs, count=count,
                     settings=f'[tuner]\npolicy = "* {level}"\n')

    def words(self, level, seed):
        more = ["--input", *self.options.input] if self.options.input else []
        return ["--all-times", "--settle", self.options.settle, "--seed", seed, *more,
                "--recipe", "auto", *static_recipes(level)]

    def kept_or(self, run, **key):
        """What `run` returns, or returned for the same key at the same commit."""
        key |= {"commit": self.commit, "settle": self.options.settle, "input": self.options.input}
        result = self.kept.find(key)
        if result is None:
            result = run()
            self.kept.keep(key, result)
        return result

    def run_case(self, name, level, link, size, seed):
        setting = SETTINGS[name]
        take_class(self.options.real_time and setting.hogs == 0)
        nodes = self.nodes(level, setting.nodes)
        try:
            if not nodes.network:
                raise NodesError("a shaped link needs network namespaces, and so root")
            nodes.network.shape(LINKS[link])
            nodes.start_daemons()
            with hogs(setting.hogs), ChoiceWatch(self.options, nodes) as watch:
                rows = run_ranks(nodes, f"{link}-{size}", lambda _: [
                    "--bytes", size, "--seconds", self.options.seconds, "--pause-us", refill_us(LINKS[link]),
                    "--min-rounds", self.options.rounds, "--max-rounds", MOST_ROUNDS,
                    *self.words(level, seed)])
            return watch.last | {
                "setting": name, "level": level, "link": link, "bytes": size, "seed": seed,
                "seconds": {row["contestant"].removeprefix("tern "): row["seconds"] for row in rows}}
        finally:
            nodes.close()

    def measure(self):
        """One result for each case. All cases have run with one seed before the next seed's turn."""
        options = self.options
        cases = [(name, level, link, size)
                 for name in options.settings for level in options.levels
                 for link, sizes in SETTINGS[name].sizes.items() if link in options.links
                 for size in sizes if not options.sizes or size in options.sizes]
        runs = {case: [] for case in cases}
        for seed in options.seeds:
            for number, case in enumerate(cases, start=1):
                run = self.kept_or(lambda case=case, seed=seed: self.run_case(*case, seed),
                                   case=list(case), seed=seed, seconds=options.seconds, rounds=options.rounds,
                                   real_time=options.real_time)
                runs[case].append(run)
                say(f"seed {seed}, {number} of {len(cases)}: {report.line(report.pool([run], seed))}")
        return [report.pool(of_case, options.seeds[0]) for of_case in runs.values()]

    def run_course(self, level, seed):
        """The times on each link of the course, while all contestants take turns and the link changes."""
        options = self.options
        take_class(options.real_time)
        nodes = self.nodes(level)
        changes = []
        ended = threading.Event()

        def change():
            for name in COURSE:
                nodes.network.shape(LINKS[name])
                changes.append((time.time(), name))
                if ended.wait(options.changing):
                    break
            changes.append((time.time(), None))
            nodes.network.shape(Link(None))  # what is still to come need not crawl

        changing = threading.Thread(target=change)
        try:
            if not nodes.network:
                raise NodesError("a link that changes needs network namespaces, and so root")
            nodes.network.shape(LINKS[COURSE[0]])
            nodes.start_daemons()
            rows = run_ranks(nodes, "course", lambda _: [
                "--bytes", COURSE_BYTES, "--seconds", options.changing * len(COURSE),
                "--min-rounds", options.rounds, "--max-rounds", 1000000, "--idle", 0.01,
                "--pause-us", options.pause_us, *self.words(level, seed)], on_event=changing.start)
        finally:
            ended.set()
            if changing.ident is not None:
                changing.join()
            nodes.close()
        return report.spans_of_course(rows, changes)

    def measure_courses(self):
        """{level: what report.judge_course returns}."""
        options = self.options
        levels = {}
        for level in options.levels:
            courses = [self.kept_or(lambda level=level, seed=seed: self.run_course(level, seed), course=level,
                                    seed=seed, seconds=options.changing, pause_us=options.pause_us,
                                    rounds=options.rounds, real_time=options.real_time)
                       for seed in options.seeds]
            levels[level] = report.judge_course(courses, options.seeds[0])
            for result in levels[level][0]:
                say(report.line(result | {"level": level}))
        return levels

    def tuner_seconds(self, nodes, node):
        text = subprocess.run([self.options.programs / "ternctl", "--json", "--socket",
                               nodes.control_socket(node), "counters"], check=True,
                              capture_output=True, text=True).stdout
        counters = {name: row["value"] for name, row in json.loads(text).items()}
        return 1e-9 * (counters["tuner_ns"] + counters["tuner_shadow_ns"])

    def run_cost(self, level, link, size):
        """Nothing but auto, at full speed."""
        take_class(self.options.real_time)
        nodes = self.nodes(level)
        try:
            if not nodes.network:
                raise NodesError("a shaped link needs network namespaces, and so root")
            nodes.network.shape(LINKS[link])
            daemons = nodes.start_daemons()
            rows = run_ranks(nodes, f"{link}-{size}", lambda _: [
                "--bytes", size, "--seconds", self.options.seconds, "--max-rounds", 1000000,
                "--seed", self.options.seeds[0], "--recipe", "auto"])
            return {"link": link, "bytes": size, "rounds": rows[0]["rounds"],
                    "tuner_seconds": sum(self.tuner_seconds(nodes, node) for node in range(nodes.count)),
                    "daemon_seconds": sum(map(processor_seconds, daemons))}
        finally:
            nodes.close()

    def measure_cost(self):
        results = []
        for link, sizes in SETTINGS["two"].sizes.items():
            for size in sizes if link in self.options.links else []:
                results.append(self.run_cost(self.options.levels[0], link, size))
                say(json.dumps(results[-1]))
        return results

    def made(self, more):
        """By whom the section was written, and where."""
        options = self.options
        return (f"Written by `tools/bench_tuner.py {' '.join(options.command)}` at commit {self.commit}, "
                f"{time.strftime('%Y-%m-%d')}, on {processor_name()} with {os.cpu_count()} cores: {more}")


def processor_seconds(process):
    """Of a process so far, all threads, user and kernel."""
    stat = pathlib.Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def run_links(bench, options):
    results = bench.measure()
    say("\n".join(report.claims(results)))
    made = bench.made(
        f"{options.seconds:g} seconds a case and seed, from operation {options.settle} on, all seeds' pairs "
        "together. Medians in milliseconds; ratios of pairs with their 95 % interval by bootstrap.")
    return results, ("real-links", report.links_section(
        results, made, {name: setting.title for name, setting in SETTINGS.items()})), all(map(report.passes, results))


def run_courses(bench, options):
    levels = bench.measure_courses()
    made = bench.made(f"the link changes every {options.changing:g} s in one run, while all contestants take "
                      f"turns with {report.size_text(COURSE_BYTES)}.")
    results = {level: {"links": links, "first": first} for level, (links, first) in levels.items()}
    return results, ("changing-links", report.course_section(levels, made)), all(
        report.passes(result) for links, _ in levels.values() for result in links)


def run_costs(bench, options):
    results = bench.measure_cost()
    made = bench.made(f"`auto` alone, level `{options.levels[0]}`, at full speed, {options.seconds:g} seconds a "
                      "row; the share is of the processor time of both daemons.")
    return results, ("tuner-cost", report.cost_section(results, made)), True


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--levels", nargs="+", choices=list(BY_LEVEL), default=["balanced"])
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=["two"])
    parser.add_argument("--links", nargs="+", choices=list(LINKS), default=list(LINKS))
    parser.add_argument("--sizes", nargs="+", type=int, help="only these, in bytes")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each case, all contestants together")
    parser.add_argument("--rounds", type=int, default=9, help="at least, for each case")
    parser.add_argument("--changing", type=float, metavar="SECONDS",
                        help="runs whose link changes so often, in place of --settings")
    parser.add_argument("--cost", action="store_true", help="what the tuner costs, in place of times: of the first level and seed")
    parser.add_argument("--pause-us", type=int, default=2000, help="between operations of --changing")
    parser.add_argument("--settle", type=int, default=20, help="operations before the clock runs")
    parser.add_argument("--input", nargs="+", metavar="FILE",
                        help="instead of Gaussians one tensor at successive steps, .npy, a file or more for each rank")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--no-real-time", dest="real_time", action="store_false")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/tuner")
    parser.add_argument("--page", action="store_true", help="writes the table into docs/tuner.md")
    options = parser.parse_args()
    options.command = sys.argv[1:]
    return options


def main():
    options = parse_options()
    say(f"seeds {', '.join(map(str, options.seeds))}")
    kind = "cost" if options.cost else "changing" if options.changing else "links"
    run = {"cost": run_costs, "changing": run_courses, "links": run_links}[kind]
    try:
        with tempfile.TemporaryDirectory(prefix="bench-tuner-logs-") as logs:
            results, section, is_kept = run(Bench(options, pathlib.Path(logs)), options)
    except (NodesError, ValueError, subprocess.CalledProcessError) as error:
        print(f"bench_tuner: {error}", file=sys.stderr)
        return 1
    (options.out / f"{kind}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.page:
        replace_section(PAGE, *section)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
