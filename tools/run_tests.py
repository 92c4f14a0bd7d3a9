#!/usr/bin/python3
"""Runs the stages of tools/test_stages.toml one after the other and sums up.

    run_tests.py [--full] [--stage NAME ...]

A stage that fails does not stop the ones after it. The last line is `N passed, N failed`: GoogleTest
cases where a program reports them, and one for every other ctest entry, fuzz target and lint run.
A test that skips itself must be listed in tests/allowed_skips.txt, or it counts as failed.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = os.cpu_count() or 1
# Many tests wait, for one another or for time to pass.
JOBS = str(CORES + 1)
CASE = re.compile(r"^\[\s*(OK|FAILED|SKIPPED)\s*\] (\S+?),?(?: where .*)? \(\d+ ms\)$", re.MULTILINE)
TARGETS = re.compile(r"^codecs tested on: .*$", re.MULTILINE)
# libFuzzer is given no more input than this; every parser of Tern has a smaller bound of its own.
FUZZ_MAX_BYTES = 65536


@dataclass
class Outcome:
    passed: int = 0
    failures: list = field(default_factory=list)
    skipped: list = field(default_factory=list)
    targets: set = field(default_factory=set)  # what codec_test says of SIMD targets


def run(command, **options):
    print("+ " + " ".join(map(str, command)), flush=True)
    return subprocess.run(command, cwd=ROOT, **options).returncode == 0


def configure(preset, options=()):
    return run(["cmake", "--preset", preset, *options], stdout=subprocess.DEVNULL)


def names_of_tests(build, selection):
    listing = subprocess.run(
        ["ctest", "--test-dir", build, "--show-only=json-v1", *selection],
        cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [test["name"] for test in json.loads(listing)["tests"]]


def targets_of_build(build):
    listing = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"],
                             cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line.split(":")[0] for line in listing.split("\n")}


def read_junit(path, outcome):
    """Adds what ctest wrote. An entry without GoogleTest's lines counts as one test."""
    for entry in ElementTree.parse(path).getroot().iter("testcase"):
        name = entry.get("name")
        text = entry.findtext("system-out") or ""
        cases = CASE.findall(text)
        outcome.targets.update(TARGETS.findall(text))
        failed = [case for verdict, case in cases if verdict == "FAILED"]
        outcome.skipped += [case for verdict, case in cases if verdict == "SKIPPED"]
        outcome.passed += sum(verdict == "OK" for verdict, _ in cases)
        if entry.get("status") == "run":
            outcome.passed += 0 if cases else 1
        elif entry.get("status") in ("notrun", "disabled") or entry.find("skipped") is not None:
            outcome.skipped.append(name)
        else:
            outcome.failures += [f"{name}: {case}" for case in failed] or [name]


def ctest_stage(stage):
    outcome = Outcome()
    build = f"build/{stage['preset']}"
    if not configure(stage["preset"], stage.get("options", ())):
        outcome.failures.append(f"configuring {stage['preset']}")
        return outcome
    selection = []
    if stage["label"]:
        selection += ["-L", stage["label"]]
    if stage["exclude_label"]:
        selection += ["-LE", stage["exclude_label"]]
    targets = []
    if stage["label"]:
        known = targets_of_build(build)
        targets = [name for name in names_of_tests(build, selection) if name in known]
        targets += [name for name in stage.get("targets", []) if name in known]
    if not run(["ninja", "-C", build, *targets]):
        outcome.failures.append(f"building {stage['preset']}")
        return outcome
    if not names_of_tests(build, selection):
        outcome.failures.append(f"no test in {build} fits {' '.join(selection)}")
        return outcome
    junit = ROOT / build / "junit.xml"
    junit.unlink(missing_ok=True)
    run(["ctest", "--test-dir", build, *selection, "-j", JOBS, "--output-on-failure",
         "--test-output-size-passed", "10000000", "--test-output-size-failed", "10000000",
         "--output-junit", junit])
    if not junit.exists():
        outcome.failures.append(f"ctest in {build} left no report")
        return outcome
    read_junit(junit, outcome)
    return outcome


def fuzz(build, name, runs):
    # New inputs go to the build folder; the recorded corpus is only read.
    found = ROOT / build / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    recorded = ROOT / "tests/fuzz/corpus" / name
    command = [f"{build}/fuzz/{name}", f"-runs={runs}", f"-max_len={FUZZ_MAX_BYTES}",
               "-seed=1", "-timeout=60", f"-artifact_prefix={build}/{name}-", found]
    command += [recorded] if recorded.is_dir() else []
    log = ROOT / build / f"{name}.log"
    with log.open("w", encoding="utf-8") as stream:
        good = run(command, stdout=stream, stderr=subprocess.STDOUT)
    if not good:
        print(log.read_text(encoding="utf-8", errors="replace")[-4000:])
    return good


def fuzz_stage(stage):
    outcome = Outcome()
    build = f"build/{stage['preset']}"
    if not configure(stage["preset"], stage.get("options", ())):
        outcome.failures.append("configuring the fuzz targets")
        return outcome
    known = targets_of_build(build)
    targets = sorted(name for name in known if name.startswith("fuzz/") and "." not in name)
    if not targets:
        outcome.failures.append("there is no fuzz target")
        return outcome
    if not run(["ninja", "-C", build, *targets]):
        outcome.failures.append("building the fuzz targets")
        return outcome
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        good = pool.map(lambda target: fuzz(build, target.removeprefix("fuzz/"), stage["runs"]), targets)
        for target, is_good in zip(targets, good):
            if is_good:
                outcome.passed += 1
            else:
                outcome.failures.append(target.replace("fuzz/", "fuzz target "))
    return outcome


def lint_stage(stage, full):
    good = configure("tidy") and run(["tools/lint.sh"] + (["--all"] if full else []))
    return Outcome(passed=1) if good else Outcome(failures=["lint"])


def allowed_skips():
    """fnmatch patterns of GoogleTest cases or ctest names; # begins the reason."""
    path = ROOT / "tests/allowed_skips.txt"
    if not path.exists():
        return []
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").split("\n"))
    return [line for line in lines if line]


def run_stage(stage, full):
    if stage["kind"] == "ctest":
        outcome = ctest_stage(stage)
    elif stage["kind"] == "fuzz":
        outcome = fuzz_stage(stage)
    else:
        outcome = lint_stage(stage, full)
    patterns = allowed_skips()
    for name in outcome.skipped:
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            outcome.failures.append(f"{name} skips itself and is not in tests/allowed_skips.txt")
    return outcome


def main():
    stages = tomllib.loads((ROOT / "tools/test_stages.toml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description="Run Tern's tests.")
    parser.add_argument("--full", action="store_true", help="everything at length")
    parser.add_argument("--stage", action="append", choices=list(stages), help="only this stage")
    options = parser.parse_args()
    if options.full:
        os.environ["TERN_TESTS_AT_LENGTH"] = "1"  # tests/rounds.h

    rows = []
    total = Outcome()
    for name, stage in stages.items():
        full_values = stage.pop("full", {})
        if stage.get("only_full") and not options.full and name not in (options.stage or []):
            continue
        if options.stage and name not in options.stage:
            continue
        print(f"\n==== {name}", flush=True)
        begin = time.monotonic()
        outcome = run_stage(stage | (full_values if options.full else {}), options.full)
        rows.append((name, outcome, time.monotonic() - begin))
        total.passed += outcome.passed
        total.failures += [f"{name}: {failure}" for failure in outcome.failures]

    print(f"\n{'stage':10} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for name, outcome, seconds in rows:
        print(f"{name:10} {outcome.passed:7} {len(outcome.failures):7} "
              f"{len(outcome.skipped):8} {seconds:8.0f}")
    for name, outcome, _ in rows:
        for line in sorted(outcome.targets):
            print(f"{name}: {line}")
    for failure in total.failures:
        print(f"FAILED {failure}")
    print(f"{total.passed} passed, {len(total.failures)} failed", flush=True)
    return 1 if total.failures or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
