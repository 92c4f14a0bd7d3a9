#!/usr/bin/python3
"""Frames over one link beside perftest, on one RDMA device of this machine, in one run.

    bench_rdma.py PROGRAMS [DEVICE [ROUNDS]]

PROGRAMS is the folder of tern-bench. Both ends are on this machine. Without a card, in a guest:
tests/vm/run_in_guest.py --timeout 900 -- tests/vm/with_rxe.sh tools/bench_rdma.py build/release/bin
There the ratios say something and the absolute figures nothing. Counts of system calls need strace; without it
they are left out, and a line says so.
"""

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAMS = sys.argv[1]
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "rxe0"
FRAME_BYTES = 256 << 10
FRAMES = 400
ROUNDS = 3 if len(sys.argv) < 4 else int(sys.argv[3])
GID = "1"


def both_ends(listen, connect):
    """Runs a pair of programs; the output of the one that connects."""
    server = subprocess.Popen(listen, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(100):
            time.sleep(0.2)
            done = subprocess.run(connect, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return done.stdout
            if server.poll() is not None:
                break
        server.kill()
        sys.exit(f"{' '.join(connect)}: {done.stderr}{done.stdout}{server.stderr.read()}")
    finally:
        server.kill()
        server.wait()


def perftest(program, size, count):
    words = [program, "-d", DEVICE, "-x", GID, "-F", "-s", str(size), "-n", str(count)]
    out = both_ends(words, words + ["127.0.0.1"])
    rows = [line.split() for line in out.split("\n") if re.match(rf"^\s*{size}\s", line)]
    if not rows:
        sys.exit(f"{program} printed no row of {size} bytes:\n{out}")
    return rows[-1]


def link(port, transport, *more, frames=FRAMES, small=300, under=()):
    where = f"127.0.0.1:{port}"
    words = [f"{PROGRAMS}/tern-bench", "link", "--transport", transport, *more]
    out = both_ends([*words, "--listen", where],
                    [*under, *words, "--connect", where, "--frames", str(frames), "--small-frames", str(small)])
    return json.loads(out.strip().split("\n")[-1])


def system_calls(port, transport):
    """Per frame of FRAME_BYTES, at the sending end: more frames less fewer, so that the set-up falls out."""
    counts = []
    for run, frames in enumerate((200, 600)):
        with tempfile.NamedTemporaryFile(mode="r", encoding="utf-8") as log:
            link(port + run, transport, frames=frames, small=1, under=("strace", "-f", "-c", "-U", "name,calls", "-o", log.name))
            counts.append({words[0]: int(words[1]) for words in map(str.split, log)
                           if len(words) == 2 and words[1].isdigit()})
    return {name: round((calls - counts[0].get(name, 0)) / 400, 3) for name, calls in counts[1].items()
            if name != "total" and calls - counts[0].get(name, 0) > 4}


def main():
    rounds = []
    for number in range(ROUNDS):
        port = 7800 + 10 * number
        rounds.append({
            "ib_write_bw 64 KiB, MB/s": float(perftest("ib_write_bw", 65536, 1000)[3]) * 1.048576,
            "link rdma, no payload CRC, MB/s": link(port, "rdma", "--no-payload-crc")["mb_per_s"],
            "link rdma, MB/s": link(port + 1, "rdma")["mb_per_s"],
            "link tcp, MB/s": link(port + 2, "tcp")["mb_per_s"],
            "ib_send_lat 64 B, us": float(perftest("ib_send_lat", 64, 300)[4]),
            "link rdma 64 B, us": link(port + 3, "rdma", frames=1)["latency_us"],
            "link tcp 64 B, us": link(port + 4, "tcp", frames=1)["latency_us"],
        })
        print(json.dumps(rounds[-1]), flush=True)
    medians = {name: statistics.median(row[name] for row in rounds) for name in rounds[0]}
    bandwidth, latency = medians["ib_write_bw 64 KiB, MB/s"], medians["ib_send_lat 64 B, us"]
    for name, value in medians.items():
        print(f"{name:34} {value:9.1f}  {value / (bandwidth if 'MB/s' in name else latency):6.2f} of perftest")
    print(json.dumps(link(7890, "rdma")))
    if not shutil.which("strace"):
        print("system calls: strace is not installed")
        return
    for port, transport in ((7900, "rdma"), (7910, "tcp")):
        print(f"system calls per frame, {transport}: {system_calls(port, transport)}", flush=True)


if __name__ == "__main__":
    main()
