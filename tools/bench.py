#!/usr/bin/python3
"""The benchmarks: codecs, and all-reduce between nodes beside Gloo and iperf3, link by link.

Writes build/bench/codec.json, codec_recorded.json, allreduce.json and report.md, and prints a table for
each link and what is aimed for beside what was measured. docs/benchmarks.md says how to read them.
"""

import argparse
import datetime
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import bench_codec
from bench_daemon import measure_idle, measure_system_calls
from bench_report import (all_aims, figures, finish_rows, markdown, median_rows, rate_gbit, short_figures,
                          text_table)
from nodes import Link, Nodes, NodesError
from origin import commit_name, processor_name
from page_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent
KIB = 1024
MIB = 1024 * KIB

# A bucket of 256 KiB is the smallest that lets tbf keep the rate; at 10 Gbit/s it would be empty all
# the time.
LINKS = {"100mbit": Link("100mbit"), "1gbit": Link("1gbit"), "10gbit": Link("10gbit", burst="4mb"),
         "unshaped": Link(None)}
# A round of all contestants at 64 MiB takes 20 s on the slowest link and shows nothing new.
LARGEST = {"100mbit": 16 * MIB}

FULL = {"sizes": [4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB],
        "links": list(LINKS),
        "recipes": ["raw", "bf16", "3lc:s=1", "3lc:s=1,scale=16384"],
        "recorded": ["1gbit"], "recorded_sizes": [16 * MIB],
        "many": {4: ["1gbit", "unshaped"], 8: ["1gbit", "unshaped"]},
        "many_size": 4 * MIB, "seconds": 9.0, "iperf_seconds": 3, "idle_seconds": 5.0,
        "codec": ["--size-mib", "64", "--iterations", "12"], "codec_aims": (64, 6)}
QUICK = FULL | {"sizes": [4 * KIB, MIB, 64 * MIB], "links": ["1gbit", "10gbit"],
                "recipes": ["raw", "3lc:s=1"], "many": {4: ["unshaped"]}, "seconds": 1.5,
                "iperf_seconds": 2, "idle_seconds": 3.0,
                "codec": ["--size-mib", "16", "--iterations", "5", "--recipe", "raw", "bf16",
                          "3lc:s=1", "3lc:s=1,scale=16384"], "codec_aims": (16, 3)}


def say(text):
    print(text, flush=True)


def run_codec(options, plan, gradients):
    say("== codecs")
    subprocess.run([options.programs / "tern-bench", "codec", "--json", options.out / "codec.json",
                    *plan["codec"]], check=True)
    rows = json.loads((options.out / "codec.json").read_text(encoding="utf-8"))["rows"]
    aims = bench_codec.measure(options.programs / "tern-bench", *plan["codec_aims"], options.out,
                               {row["target"] for row in rows})
    say(bench_codec.markdown(aims))
    say("\n== codecs on a recorded gradient")
    recorded = bench_codec.measure_recorded(options.programs / "tern-bench", gradients,
                                            *plan["codec_aims"], options.out)
    return aims, recorded


def run_iperf(nodes, seconds):
    """Gbit/s each way when both directions are busy; None without iperf3."""
    if not shutil.which("iperf3"):
        say("iperf3 is not installed: nothing is related to it")
        return None
    server = nodes.start(1, "iperf3-server", ["iperf3", "-s", "-1", "-p", "5299", "--forceflush"])
    # The server says when it listens, after a line of dashes.
    server.stdout.readline()
    server.stdout.readline()
    client = nodes.start(0, "iperf3-client", ["iperf3", "-c", nodes.address(1), "-p", "5299", "-J",
                                              "--bidir", "-t", seconds])
    text = client.stdout.read()
    nodes.stop([client, server])
    end = json.loads(text).get("end", {})
    try:
        return [round(1e-9 * end[key]["bits_per_second"], 3)
                for key in ("sum_received", "sum_received_bidir_reverse")]
    except KeyError:
        say("iperf3 failed: nothing is related to it")
        return None


def run_ranks(nodes, name, words, on_event=None, sockets=True, command="allreduce"):
    """Runs a rank of tern-bench's command on every node and returns the rows of rank 0; `on_event` sees
    its other lines. Without `sockets` the words name them."""
    folder = nodes.folder / name
    folder.mkdir()
    ranks = []
    for rank in reversed(range(nodes.count)):
        ranks.append(nodes.start(rank, f"{name}-rank{rank}", [
            nodes.programs / "tern-bench", command, "--folder", folder, "--rank", rank,
            "--size", nodes.count, *(["--socket", nodes.socket(rank)] if sockets else []),
            *words(rank)]))
    rows = []
    for line in ranks[-1].stdout:
        row = json.loads(line)
        if row.pop("event") == "row":
            rows.append(row)
        elif on_event:
            on_event()
            on_event = None
    for rank in ranks:
        try:
            rank.wait(30)
        except subprocess.TimeoutExpired:
            pass
    if any(rank.returncode != 0 for rank in ranks):
        names = [f"{name}-rank{rank}" for rank in range(nodes.count)]
        names += [f"ternd{node}" for node in range(nodes.count)]
        tails = [tail for tail in map(nodes.log_tail, names) if tail]
        raise NodesError("\n".join([f"{name}: a rank failed", *tails]))
    nodes.stop(ranks)
    return rows


def refill_us(link):
    """How long the bucket of a link takes to fill again; until then the next operation would pay for
    what the one before has sent."""
    if not link.rate:
        return 0
    number, unit = re.fullmatch(r"(\d+)([km])b", link.burst).groups()
    burst = int(number) * (KIB if unit == "k" else MIB)
    return round(1.2 * 8e-3 * burst / rate_gbit(link))


def contest(nodes, name, options, plan, link, sizes, inputs):
    """The rows of one link; `inputs` are files of one tensor at successive steps, or none for Gaussians."""
    pause = refill_us(link) if nodes.network else 0
    seconds = plan["seconds"] / len(options.seeds)

    def words(seed, rank):
        more = ["--gloo-address", nodes.address(rank)] if options.gloo else []
        more += ["--input", *inputs] if inputs else []
        return [*more, "--bytes", ",".join(map(str, sizes)), "--seconds", seconds,
                "--pause-us", pause, "--seed", seed, "--recipe", *plan["recipes"]]
    runs = []
    for seed in options.seeds:
        daemons = nodes.start_daemons()
        runs.append(run_ranks(nodes, f"{name}-{seed}", functools.partial(words, seed)))
        nodes.stop(daemons)
    return median_rows(runs)


def run_pair(options, plan, logs, gradients):
    """Two nodes on every link; on some also with recorded gradients, if there are any."""
    sections = []
    nodes = Nodes("tern-bench", options.programs, logs, loopback=options.loopback)
    try:
        names = plan["links"] if nodes.network else ["loopback"]
        if not nodes.network:
            say(f"NO NETWORK NAMESPACES ({nodes.why_no_network}): both nodes are on the loopback "
                "interface, which is not shaped. Times then say little about any real link.")
        for name in names:
            link = LINKS.get(name, Link(None))
            if nodes.network:
                nodes.network.shape(link)
            iperf = run_iperf(nodes, plan["iperf_seconds"])
            sizes = [size for size in plan["sizes"] if size <= LARGEST.get(name, size)]
            rows = contest(nodes, f"pair-{name}", options, plan, link, sizes, options.input)
            sections.append(finish_rows(name, link, iperf, rows))
            say(text_table(sections[-1]))
            if gradients and name in plan["recorded"]:
                rows = contest(nodes, f"pair-{name}-recorded", options, plan, link,
                               plan["recorded_sizes"], gradients)
                sections.append(finish_rows(f"{name}, recorded", link, None, rows))
                say(text_table(sections[-1]))
        if nodes.network:
            nodes.network.shape(Link(None))
        idle = measure_idle(nodes, run_ranks, plan["idle_seconds"])
        calls = measure_system_calls(nodes, run_ranks)
    finally:
        nodes.close()
    return sections, idle, calls


def run_many(options, plan, logs):
    """More nodes on a bridge, one size."""
    sections = []
    for count, names in plan["many"].items():
        nodes = Nodes("tern-bench", options.programs, logs, count=count, loopback=options.loopback)
        try:
            for name in names if nodes.network else ["loopback"]:
                link = LINKS.get(name, Link(None))
                if nodes.network:
                    nodes.network.shape(link)
                rows = contest(nodes, f"many-{name}", options, plan, link,
                               [plan["many_size"]], options.input)
                sections.append(finish_rows(name, link, None, rows))
                say(text_table(sections[-1]))
        finally:
            nodes.close()
    return sections


def take_real_time(options):
    """This process and all that it starts then go before other work on the machine."""
    if not options.real_time:
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return False
    return True


def record(result):
    """One line more of the history, which is kept with the code."""
    keys = ("link", "nodes", "bytes", "spread", "contestant", "median_us", "p99_us", "ratio", "vs_gloo",
            "of_iperf3")
    line = {key: result[key] for key in ("date", "commit", "processor", "cores", "kernel",
                                         "real_time", "seeds", "command", "aims", "idle", "system_calls")}
    line["links"] = [{"link": section["link"], "iperf3_gbit": section["iperf3_gbit"]}
                     for section in result["sections"] if section["iperf3_gbit"]]
    line["codec_aims"] = [{key: row[key] for key in ("aim", "recipe", "target", "gb_per_s", "measured",
                                                     "limit")} for row in result["codec_aims"]]
    line["rows"] = [{key: row[key] for key in keys if row.get(key) is not None}
                    for section in result["sections"] for row in section["rows"]]
    path = ROOT / "bench/history/allreduce.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    say(f"recorded: {path.relative_to(ROOT)}")
    page = ROOT / "docs/benchmarks.md"
    replace_section(page, "figures", figures(result))
    replace_section(ROOT / "README.md", "all-reduce", short_figures(result))
    if result["codec_aims"]:
        replace_section(page, "codec-aims", bench_codec.markdown(result["codec_aims"]))


def run(options):
    plan = QUICK if options.quick else FULL
    plan = plan | {key: getattr(options, key) for key in ("links", "recipes", "seconds", "many")
                   if getattr(options, key) is not None}
    logs = options.out / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    related = not options.input and not options.loopback and set(plan["links"]) & set(plan["recorded"])
    records = options.codec or related
    for program in ["ternd", "ternctl", "tern-bench"] + (["train_mnist"] if records else []):
        if not (options.programs / program).exists():
            raise NodesError(f"{options.programs / program} is not there; run make bench")
    gradients = bench_codec.record_gradients(options.programs, options.out) if records else []
    codec_aims, recorded = run_codec(options, plan, gradients) if options.codec else ([], [])
    real_time = take_real_time(options)
    say("\n== all-reduce" + (", in the real-time class" if real_time else ""))
    sections, idle, calls = run_pair(options, plan, logs, gradients if related else [])
    sections += run_many(options, plan, logs)
    aims = all_aims(sections, idle)
    result = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "commit": commit_name(), "processor": processor_name(), "cores": os.cpu_count(),
              "kernel": os.uname().release.split("-")[0], "real_time": real_time, "quick": options.quick,
              "seeds": options.seeds, "command": shlex.join(["tools/bench.py", *sys.argv[1:]]),
              "input": options.input or "gaussian", "sections": sections, "idle": idle,
              "system_calls": calls, "aims": aims, "codec_aims": codec_aims,
              "codec_recorded": recorded}
    (options.out / "allreduce.json").write_text(json.dumps(result, indent=1) + "\n",
                                                encoding="utf-8")
    report = markdown(result, bench_codec.recorded_markdown(recorded) if recorded else "")
    (options.out / "report.md").write_text(report, encoding="utf-8")
    say(report[report.index("## Daemon"):])
    say(f"written: {options.out}/allreduce.json, report.md"
        + (", codec.json, codec_recorded.json" if options.codec else ""))
    if options.record:
        record(result)


def stop_on_signal(number, _frame):
    raise KeyboardInterrupt(signal.Signals(number).name)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="few sizes, links and rounds")
    parser.add_argument("--record", action="store_true", help="add a line to bench/history, and write docs/benchmarks.md and the README's table")
    parser.add_argument("--links", nargs="+", choices=list(LINKS), help="of two nodes")
    parser.add_argument("--recipes", nargs="+", help="besides Gloo")
    parser.add_argument("--seconds", type=float, help="for each size, all contestants together")
    parser.add_argument("--no-many", dest="many", action="store_const", const={},
                        help="two nodes only")
    parser.add_argument("--no-codec", dest="codec", action="store_false")
    parser.add_argument("--no-gloo", dest="gloo", action="store_false")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false",
                        help="in the ordinary class, in which other work on the machine disturbs")
    parser.add_argument("--input", nargs="+", metavar="FILE",
                        help="instead of Gaussians one tensor at successive steps, .npy, a file or more for each rank")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3],
                        help="the time is divided among them")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench")
    parser.add_argument("--loopback", action="store_true", help="without namespaces and shaping")
    options = parser.parse_args()
    # The page and its history say nothing of how a plan was cut short.
    if options.record and (options.quick or options.loopback or not options.gloo or any(
            getattr(options, part) is not None for part in ("seconds", "recipes", "links", "many"))):
        parser.error("--record writes what the whole plan has measured: leave out --quick, --loopback, --no-gloo, "
                     "--seconds, --recipes, --links and --no-many")
    return options


def main():
    options = parse_arguments()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_on_signal)
    try:
        run(options)
        return 0
    except (NodesError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nbench: interrupted; everything is cleaned up", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
