#!/usr/bin/python3
"""Frames over one link beside perftest, on one RDMA device of this machine, in one run.

    bench_rdma.py PROGRAMS [--device NAME] [--gid-index N] [--rounds N] [--frames N] [--pairs N]

PROGRAMS is the folder of tern-bench. Both ends are on this machine. Without a card, in a guest:
tests/vm/run_in_guest.py --timeout 900 -- tests/vm/with_rxe.sh tools/bench_rdma.py build/release/bin
There the ratios say something and the absolute figures nothing. A round runs everything once, every other one in
reverse order; a figure is the median of all rounds, its ratio to perftest that of the medians, with the least and the
greatest ratio of one round. System calls need strace; without it they are left out, and a line says so.
--pairs: nothing but ib_write_bw and the link in turns, so often, and the median of the ratios of one turn with its 95 %
interval by bootstrap. In a guest whose clock counts instructions (run_in_guest.py --icount) nothing else matters.
"""

import argparse
import collections
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

FRAME_BYTES = 256 << 10
MESSAGE_BYTES = 64 << 10  # what frames are cut into: rdma_slot_bytes
# The first word of what Soft-RoCE's provider writes to its device (rdma/ib_user_verbs.h), as strace prints it.
PROVIDER_CALLS = {r"\34": "doorbell", r"\27": "arming"}


def parse_options():
    parser = argparse.ArgumentParser(description="Frames over RDMA beside perftest.")
    parser.add_argument("programs")
    parser.add_argument("--device", default="rxe0")
    parser.add_argument("--gid-index", default="1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=0)
    return parser.parse_args()


OPTIONS = parse_options()


def both_ends(listen, connect):
    """Runs a pair of programs; the output of the one that connects."""
    server = subprocess.Popen(listen, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(100):
            time.sleep(0.2)
            done = subprocess.run(connect, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                server.wait(60)
                return done.stdout
            if server.poll() is not None:
                break
        server.kill()
        sys.exit(f"{' '.join(connect)}: {done.stderr}{done.stdout}{server.stderr.read()}")
    finally:
        server.kill()
        server.wait()


def perftest(program, size, count):
    words = [program, "-d", OPTIONS.device, "-x", OPTIONS.gid_index, "-F", "-s", str(size), "-n", str(count)]
    out = both_ends(words, words + ["127.0.0.1"])
    rows = [line.split() for line in out.split("\n") if re.match(rf"^\s*{size}\s", line)]
    if not rows:
        sys.exit(f"{program} printed no row of {size} bytes:\n{out}")
    return rows[-1]


def write_bandwidth(size):
    """MB/s; perftest counts in MiB."""
    return float(perftest("ib_write_bw", size, OPTIONS.frames * FRAME_BYTES // size)[3]) * 1.048576


def link(transport, *more, frames=None, small=1, under=((), ())):
    where = f"127.0.0.1:{link.port}"
    link.port += 1  # the last one may not be free yet
    words = [f"{OPTIONS.programs}/tern-bench", "link", "--transport", transport, *more]
    if transport == "rdma":
        words += ["--device", OPTIONS.device, "--gid-index", OPTIONS.gid_index]
    out = both_ends([*under[0], *words, "--listen", where],
                    [*under[1], *words, "--connect", where, "--frames", str(frames or OPTIONS.frames),
                     "--small-frames", str(small)])
    return json.loads(out.strip().split("\n")[-1])


link.port = 7800


def latency(transport, *more):
    return link(transport, *more, frames=1, small=300)["latency_us"]


def run_round(is_reversed):
    measures = {
        "ib_write_bw, 64 KiB, MB/s": lambda: write_bandwidth(MESSAGE_BYTES),
        "ib_write_bw, 256 KiB, MB/s": lambda: write_bandwidth(FRAME_BYTES),
        "link rdma, no payload CRC, MB/s": lambda: link("rdma", "--no-payload-crc")["mb_per_s"],
        "link rdma, MB/s": lambda: link("rdma")["mb_per_s"],
        "link tcp, MB/s": lambda: link("tcp")["mb_per_s"],
        "ib_send_lat, 64 B, us": lambda: float(perftest("ib_send_lat", 64, 300)[4]),
        "link rdma, 64 B, both spin, us": lambda: latency("rdma", "--no-payload-crc", "--spin"),
        "link rdma, 64 B, us": lambda: latency("rdma", "--no-payload-crc", "--no-spin"),
        "link tcp, 64 B, us": lambda: latency("tcp", "--no-spin"),
    }
    row = {}
    for name in reversed(measures) if is_reversed else measures:
        row[name] = round(measures[name](), 2)
    return {name: row[name] for name in measures}


def print_ratios(rounds):
    for name in rounds[0]:
        reference = "ib_write_bw, 64 KiB, MB/s" if "MB/s" in name else "ib_send_lat, 64 B, us"
        mine = [row[name] for row in rounds]
        ratios = [row[name] / row[reference] for row in rounds]
        ratio = statistics.median(mine) / statistics.median(row[reference] for row in rounds)
        print(f"{name:32} {statistics.median(mine):9.1f}  {ratio:5.2f} of perftest, {min(ratios):.2f} to {max(ratios):.2f}")


def calls_in(log):
    """Names of system calls, those to the device by what its provider asks there."""
    counts = collections.Counter()
    for line in log:
        found = re.match(r'\d+ +(\w+)\((?:\d+<([^>]*)>)?(?:, "(\\[0-7]+))?', line)
        if not found:
            continue
        name, path, written = found.groups()
        if name == "write" and path and "uverbs" in path:
            name = "provider's " + PROVIDER_CALLS.get(written, "write")
        counts[name] += 1
    return counts


def system_calls(transport, *more):
    """Per frame at the sending and the receiving end: a long run less a short one, so that the set-up falls out."""
    short, long = OPTIONS.frames // 2, OPTIONS.frames * 3 // 2
    counts = {}
    for frames in (short, long):
        with (tempfile.NamedTemporaryFile(mode="r", encoding="utf-8") as receiver,
              tempfile.NamedTemporaryFile(mode="r", encoding="utf-8") as sender):
            under = [("strace", "-f", "-y", "-s", "4", "-o", log.name) for log in (receiver, sender)]
            link(transport, *more, frames=frames, under=under)
            counts[frames] = {"sender": calls_in(sender), "receiver": calls_in(receiver)}
    return {end: {name: round((calls - counts[short][end][name]) / (long - short), 3)
                  for name, calls in counts[long][end].most_common() if calls - counts[short][end][name] > 4}
            for end in ("sender", "receiver")}


def median_with_interval(values):
    """And the 95 % interval of the median by bootstrap."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return f"{statistics.median(values):.3f}, 95 % interval {medians[50]:.3f} to {medians[1949]:.3f}"


def run_pairs(count):
    measures = {
        "ib_write_bw": lambda: write_bandwidth(MESSAGE_BYTES),
        "link, no payload CRC": lambda: link("rdma", "--no-payload-crc")["mb_per_s"],
        "link": lambda: link("rdma")["mb_per_s"],
    }
    rounds = []
    for number in range(count):
        # Whichever comes last is not always the same.
        row = {name: measures[name]() for name in (reversed(measures) if number % 2 else measures)}
        rounds.append(row)
        print("MB/s: " + ", ".join(f"{name} {row[name]:.1f}" for name in measures), flush=True)
    for name in list(measures)[1:]:
        print(f"{name}: {median_with_interval([row[name] / row['ib_write_bw'] for row in rounds])} of ib_write_bw")


def main():
    if OPTIONS.pairs > 0:
        run_pairs(OPTIONS.pairs)
        return
    rounds = []
    for number in range(OPTIONS.rounds):
        rounds.append(run_round(number % 2 == 1))
        print(json.dumps(rounds[-1]), flush=True)
    print_ratios(rounds)
    print(json.dumps(link("rdma", "--no-payload-crc")), flush=True)
    if not shutil.which("strace"):
        print("system calls: strace is not installed")
        return
    for words in (("rdma", "--no-payload-crc", "--spin"), ("rdma", "--no-payload-crc", "--no-spin"), ("tcp", "--no-spin")):
        print(f"system calls per frame, {' '.join(words)}: {json.dumps(system_calls(*words))}", flush=True)


if __name__ == "__main__":
    main()
