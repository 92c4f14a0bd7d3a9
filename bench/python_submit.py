#!/usr/bin/env python3
"""What the submission of a small all_reduce costs from Python, and from C.

    python_submit.py [--rounds N] [--record]

A group of one rank at a daemon that is found or started as tern.connect() does, with 1 KiB in the
arena. Both programs time the submission alone, not the wait, in turns, and print the median of the
rounds' medians in microseconds: by the clock, and the processor's time of the submitting thread.
The two differ where the kernel runs the lane that a submission has woken in the submitter's place,
on a machine with few cores. Both programs pause before each submission, so that the lane sleeps for
both: a submission that comes at once finds it awake, and waking it costs more than all else.
Needs the package `tern`, a C compiler and TERN_LIBRARY. --record writes the table of
docs/python.md.
"""

import argparse
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import tern

OPS = 1000
PAUSE_S = 0.0005
BATCH = 100
COUNT = 256
ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "client_lib" / "include"

C_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <tern/tern.h>
#include <time.h>

static double now_us(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
static void check(tern_status status) {
  if (status != TERN_OK) exit(1);
}
static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  const int ops = atoi(argv[1]), count = atoi(argv[2]), batch = atoi(argv[3]);
  double* times = malloc(sizeof(double) * ops);
  double* processor = malloc(sizeof(double) * ops);
  tern_ticket tickets[512];
  tern_client* client;
  tern_group_id id;
  tern_group* group;
  tern_join_options join = TERN_JOIN_OPTIONS_INIT;
  void* memory;
  check(tern_connect(NULL, &client));
  check(tern_group_mint(client, &id));
  check(tern_group_join(client, &id, &join, &group));
  check(tern_alloc(client, sizeof(float) * count * batch, &memory));
  for (int i = 0; i < ops; ++i) {
    const struct timespec pause = {0, atol(argv[4])};
    nanosleep(&pause, NULL);
    const double processor_begin = now_us(CLOCK_THREAD_CPUTIME_ID);
    const double begin = now_us(CLOCK_MONOTONIC);
    for (int k = 0; k < batch; ++k) {
      tern_op op = TERN_OP_INIT;
      op.input = op.output = (float*)memory + k * count;
      op.count = count;
      check(tern_all_reduce(group, &op, &tickets[k]));
    }
    times[i] = now_us(CLOCK_MONOTONIC) - begin;
    processor[i] = now_us(CLOCK_THREAD_CPUTIME_ID) - processor_begin;
    for (int k = 0; k < batch; ++k) check(tern_wait(client, tickets[k], TERN_FOREVER));
  }
  qsort(times, ops, sizeof *times, ascending);
  qsort(processor, ops, sizeof *processor, ascending);
  printf("%f %f\\n", times[ops / 2], processor[ops / 2]);
  check(tern_disconnect(client));
  return argc - argc;
}
"""


class Cost(NamedTuple):
    """Of one submission or of all of a batch, in microseconds."""

    clock: float
    processor: float


def median(costs):
    return Cost(*(statistics.median(values) for values in zip(*costs)))


def timed(ops, submit):
    """The median cost of submit(), which returns tickets."""
    costs = []
    for _ in range(ops):
        time.sleep(PAUSE_S)
        processor_begin = time.thread_time_ns()
        begin = time.perf_counter_ns()
        tickets = submit()
        end = time.perf_counter_ns()
        costs.append(((end - begin) / 1e3, (time.thread_time_ns() - processor_begin) / 1e3))
        for ticket in tickets:
            ticket.wait()
    return median(costs)


def python_cost(group, ops, batch):
    arrays = [group.client.empty(COUNT) for _ in range(batch)]
    return timed(ops, lambda: [group.all_reduce(x) for x in arrays])


def prepared_cost(group, ops, batch):
    """Of a tern.Batch that was made before."""
    prepared = group.batch()
    for _ in range(batch):
        prepared.add("all_reduce", group.client.empty(COUNT))
    return timed(ops, lambda: [prepared.submit()])


def record(rows):
    """Writes (name, costs of Python, C and Batch) to the page, with what was measured."""
    sys.path.insert(0, str(ROOT / "tools"))
    import numpy
    from page_section import replace_section

    from bench import commit_name, processor_name

    lines = ["| | Python | C | as one `tern.Batch` |", "|---|---:|---:|---:|"]
    for name, *costs in rows:
        lines += [f"| {name}, by the clock | " + " | ".join(f"{c.clock:.1f} us" for c in costs),
                  f"| {name}, processor's time | "
                  + " | ".join(f"{c.processor:.1f} us" for c in costs)]
    lines = [f"{line} |" if line.endswith("us") else line for line in lines]
    lines += ["", f"Commit {commit_name()}, {time.strftime('%Y-%m-%d')}, {processor_name()} with "
              f"{os.cpu_count()} cores and a load of {os.getloadavg()[0]:.1f}, Python "
              f"{platform.python_version()}, NumPy {numpy.__version__}."]
    replace_section(ROOT / "docs/python.md", "submit", "\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    rounds, rows = options.rounds, []
    library = os.environ["TERN_LIBRARY"]
    with tempfile.TemporaryDirectory() as folder, tern.connect() as client:
        program = pathlib.Path(folder, "submit")
        program.with_suffix(".c").write_text(C_PROGRAM, encoding="utf-8")
        subprocess.run(["cc", "-O2", f"-I{HEADERS}", program.with_suffix(".c"), library,
                        f"-Wl,-rpath,{pathlib.Path(library).parent}", "-o", program], check=True)
        group = client.join(client.mint(), 0, 1)
        environment = {**os.environ, "TERN_SOCKET": client.socket}
        for batch, ops in ((1, OPS), (BATCH, OPS // BATCH * 10)):
            ours, theirs, together = [], [], []
            words = list(map(str, (program, ops, COUNT, batch, round(PAUSE_S * 1e9))))
            for _ in range(rounds):
                ours.append(python_cost(group, ops, batch))
                together.append(prepared_cost(group, ops, batch))
                said = subprocess.run(words, check=True, capture_output=True, text=True,
                                      env=environment).stdout
                theirs.append(tuple(map(float, said.split())))
            python, c, one = map(median, (ours, theirs, together))
            for kind in Cost._fields:
                print(f"batch of {batch}, {kind}: Python {getattr(python, kind):.1f} us, "
                      f"C {getattr(c, kind):.1f} us, difference "
                      f"{getattr(python, kind) - getattr(c, kind):.1f} us; as one tern.Batch "
                      f"{getattr(one, kind):.1f} us")
            rows.append(("one operation" if batch == 1 else f"{batch} operations", python, c, one))
    if options.record:
        record(rows)


if __name__ == "__main__":
    main()
