#!/usr/bin/python3
"""What a job that floods the nodes leaves to others: a small operation's time alone and beside it.

    bench_fairness.py [--rate 1gbit] [--rounds 5] [--recipe raw] [--small-kib 64] [--loopback]

Two nodes. In every round a latency-bound job measures all-reduces of a small tensor, first alone, then
while another job keeps several operations of 64 MiB in flight; the figure is the median of the rounds'
ratios. It does so back to back, where its own operations queue behind each other on a shaped link, and
with pauses, as a job that computes. Then two jobs flood at once, with weights 3 and 1, and the ratio of
their speeds is shown.

As in tools/bench.py all processes run in the real-time class where that is allowed. The link's token
bucket is small: a wire has none, and through a large one a small operation after a pause goes for free.
"""

import json
import statistics
import subprocess
import threading
import time

from bench import KIB, run_ranks, take_real_time
from bench_rounds import empty_logs, in_rounds, options_of, run_or_exit
from nodes import Link, Nodes, NodesError

WEIGHTS = (3, 1)
PAUSES_US = {"back to back": 0, "with pauses": 2000}


class Flood:
    """A job on all nodes that never rests. Its speed is that of the seconds between two looks."""

    def __init__(self, nodes, job, recipe, in_flight):
        self._nodes = nodes
        self._speeds = []
        folder = nodes.folder / job
        folder.mkdir()
        self._ranks = [nodes.start(rank, f"{job}-rank{rank}", [
            nodes.programs / "tern-bench", "flood", "--folder", folder, "--rank", rank,
            "--size", nodes.count, "--socket", nodes.socket(rank), "--job", job,
            "--recipe", recipe, "--in-flight", in_flight]) for rank in reversed(range(nodes.count))]
        if not self._ranks[-1].stdout.readline():
            raise NodesError(f"{job} does not run:\n" + nodes.log_tail(f"{job}-rank0"))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._ranks[-1].stdout:
            self._speeds.append(json.loads(line)["bytes_per_s"])

    def forget(self):
        self._speeds.clear()

    def speed(self):
        if not self._speeds:
            raise NodesError("the flood has ended nothing in a second:\n"
                             + self._nodes.log_tail("ternd0"))
        return statistics.mean(self._speeds)

    def stop(self):
        for rank in self._ranks:
            rank.kill()
        self._reader.join()
        self._nodes.stop(self._ranks)


def small_times(nodes, name, options):
    times = {}
    for kind, pause_us in PAUSES_US.items():
        row = run_ranks(nodes, f"{name}-{pause_us}", lambda _, pause_us=pause_us: [
            "--bytes", options.small_kib * KIB, "--recipe", "raw", "--seconds", options.seconds,
            "--max-rounds", 100000, "--warm-up", 20, "--pause-us", pause_us])[0]
        times[kind] = {key: row[key] for key in ("median_us", "p99_us", "rounds")}
    return times


def beside_a_flood(nodes, options, number):
    alone = small_times(nodes, f"alone-{number}", options)
    flood = Flood(nodes, f"flood-{number}", options.recipe, options.in_flight)
    flood.forget()
    beside = small_times(nodes, f"beside-{number}", options)
    speed = flood.speed()
    flood.stop()
    return {"alone": alone, "beside": beside, "flood_bytes_per_s": speed}


def by_weight(nodes, options):
    rules = "; ".join(f"heavy{i}/* weight={weight}" for i, weight in enumerate(WEIGHTS))
    for node in range(nodes.count):
        subprocess.run([nodes.programs / "ternctl", "--socket", nodes.control_socket(node), "policy",
                        rules], check=True, stdout=subprocess.DEVNULL)
    floods = [Flood(nodes, f"heavy{i}", options.recipe, options.in_flight)
              for i in range(len(WEIGHTS))]
    for flood in floods:
        flood.forget()
    time.sleep(3 * options.seconds)
    speeds = [flood.speed() for flood in floods]
    for flood in floods:
        flood.stop()
    return speeds


def report(rounds, speeds):
    for kind in PAUSES_US:
        for figure in ("median_us", "p99_us"):
            alone = [one["alone"][kind][figure] for one in rounds]
            beside = [one["beside"][kind][figure] for one in rounds]
            ratios = sorted(b / a for a, b in zip(alone, beside))
            print(f"{kind:13} {figure:10} alone {statistics.median(alone):8.0f}  beside "
                  f"{statistics.median(beside):8.0f}  ratio {statistics.median(ratios):6.2f} "
                  f"({ratios[0]:.2f} to {ratios[-1]:.2f})")
    flood = statistics.median(one["flood_bytes_per_s"] for one in rounds)
    print(f"the flood meanwhile: {flood / 1e6:.0f} MB/s")
    if speeds:
        print(f"floods with weights {WEIGHTS[0]} and {WEIGHTS[1]}: {speeds[0] / 1e6:.0f} and "
              f"{speeds[1] / 1e6:.0f} MB/s, ratio {speeds[0] / speeds[1]:.2f}")


def run(options):
    nodes = Nodes("tern-bench-fairness", options.programs, empty_logs(options),
                  link=Link(options.rate, burst=options.burst), loopback=options.loopback,
                  daemon_options=options.daemon_option)
    try:
        nodes.start_daemons()
        rounds = in_rounds(nodes, options, lambda number: beside_a_flood(nodes, options, number))
        speeds = by_weight(nodes, options) if options.weights else []
        report(rounds, speeds)
        (options.out / "fairness.json").write_text(
            json.dumps({"rounds": rounds, "weights": list(WEIGHTS), "bytes_per_s": speeds}, indent=2),
            encoding="utf-8")
    finally:
        nodes.close()


def main():
    parser = options_of(__doc__, "bench-fairness", rate="1gbit")
    parser.add_argument("--burst", default="32kb",
                        help="of the link's token bucket: what leaves faster than the rate after a pause")
    parser.add_argument("--no-real-time", dest="real_time", action="store_false",
                        help="stay in the ordinary scheduling class, where what else runs decides the p99")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--recipe", default="raw", help="of the flood")
    parser.add_argument("--in-flight", type=int, default=2, help="operations of the flood")
    parser.add_argument("--small-kib", type=int, default=64, help="size of the small operation")
    parser.add_argument("--no-weights", dest="weights", action="store_false")
    parser.add_argument("--daemon-option", action="append", default=[], metavar="--NAME=VALUE",
                        help="of ternd's command line, as --daemon-option=--socket-send-buffer=96KiB")
    options = parser.parse_args()
    if not take_real_time(options):
        print("in the ordinary scheduling class: what else runs on this machine decides the p99")
    run_or_exit(run, options)


if __name__ == "__main__":
    main()
