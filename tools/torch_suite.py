#!/usr/bin/env python3
"""Runs PyTorch's own suite of torch.distributed under gloo and under Tern, and compares.

    torch_suite.py --world-size 2 3 4            exit status 1 if a test passes under gloo alone
    torch_suite.py --world-size 2 3 4 --record   also writes the results into the repository

tools/torch_tests.sh calls it in an environment with PyTorch. What gloo leaves out on a machine
without accelerators Tern leaves out too, and it is not counted. The results are
bench/history/torch_suite.json, from which docs/torch.md has its table: the last run of each version
of PyTorch with each number of ranks.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

from page_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNNER = ROOT / "python/tests/torch/pytorch_suite.py"
RESULTS = ROOT / "bench/history/torch_suite.json"
PAGE = ROOT / "docs/torch.md"


def run(backend, world_size, tests=()):
    """The outcome of each test, by name, and the seconds of the whole."""
    with tempfile.TemporaryDirectory(prefix="tern-suite-") as folder:
        out = pathlib.Path(folder, "found.json")
        began = time.monotonic()
        subprocess.run([sys.executable, RUNNER, "--backend", backend, "--world-size",
                        str(world_size), "--out", out, *tests], check=True,
                       stderr=subprocess.DEVNULL)
        return json.loads(out.read_text())["tests"], round(time.monotonic() - began)


def compare(world_size):
    """Tests that gloo does not leave out, as both backends end them."""
    gloo, gloo_seconds = run("gloo", world_size)
    shared = sorted(name for name, found in gloo.items() if found["outcome"] != "skipped")
    tern, tern_seconds = run("tern", world_size, shared)
    outcomes = {name: {"gloo": gloo[name]["outcome"], "tern": tern[name]["outcome"]}
                for name in shared}
    return {"world_size": world_size, "gloo_leaves_out": len(gloo) - len(shared),
            "gloo_seconds": gloo_seconds, "tern_seconds": tern_seconds, "tests": outcomes}


def behind(result):
    """What passes under gloo and not under Tern."""
    return [name for name, each in result["tests"].items()
            if each["gloo"] == "passed" != each["tern"]]


def passed(result, backend):
    return sum(each[backend] == "passed" for each in result["tests"].values())


def commit():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, check=True, text=True,
                              capture_output=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "python")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def version_of(result):
    return [int(part) for part in result["torch"].split("+")[0].split(".")]


def table(results):
    lines = ["| PyTorch | ranks | tests that gloo runs | pass under gloo | pass under Tern | commit "
             "| date |", "|---|---:|---:|---:|---:|---|---|"]
    for result in results:
        lines.append(f"| {result['torch']} | {result['world_size']} | {len(result['tests'])} "
                     f"| {passed(result, 'gloo')} | {passed(result, 'tern')} "
                     f"| {result['commit']} | {result['date']} |")
    missing = sorted({name for result in results for name in behind(result)})
    if missing:
        lines += ["", f"Under gloo alone pass: {', '.join(f'`{name}`' for name in missing)}."]
    return "\n".join(lines)


def record(results):
    """Puts the results in place of those of the same version and size."""
    import torch

    about = {"commit": commit(), "date": time.strftime("%Y-%m-%d"), "torch": torch.__version__,
             "python": platform.python_version(), "cores": os.cpu_count()}
    kept = {(each["torch"], each["world_size"]): each
            for each in json.loads(RESULTS.read_text())["results"]}
    kept |= {(about["torch"], each["world_size"]): about | each for each in results}
    every = sorted(kept.values(), key=lambda each: (version_of(each), each["world_size"]))
    RESULTS.write_text(json.dumps({"results": every}, indent=1) + "\n")
    replace_section(PAGE, "suite", table(every))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, nargs="+", default=[2])
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    results = [compare(world_size) for world_size in options.world_size]
    for result in results:
        print(f"{result['world_size']} ranks: gloo passes {passed(result, 'gloo')} of "
              f"{len(result['tests'])}, Tern {passed(result, 'tern')}")
    if options.record:
        record(results)
    missing = [name for result in results for name in behind(result)]
    if missing:
        sys.exit(f"pass under gloo and not under Tern: {', '.join(sorted(set(missing)))}")


if __name__ == "__main__":
    main()
