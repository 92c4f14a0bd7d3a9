#!/usr/bin/python3
"""Runs the stages of tools/test_stages.toml one after the other and sums up.

    run_tests.py [--full] [--stage NAME ...] [--continue] [--minutes N]

A stage that fails does not stop the ones after it. The last line is `N passed, N failed`: GoogleTest
cases where a program reports them, and one for every other ctest entry, fuzz target and lint run,
and of a full one for every file that clang-tidy has checked.
A test that skips itself must be listed in tests/allowed_skips.txt with a probe that finds something
missing on this machine, or it counts as failed.

What has passed is recorded in build/. --continue leaves out what has passed on this very tree, and counts
it; --minutes N begins nothing more after N minutes, and exits with status 3 while something is left. So
a long run can be had in pieces:

    until run_tests.py --full --continue --minutes 25; [ $? != 3 ]; do :; done
"""

import argparse
import concurrent.futures
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

import machine_probes
from passed_tests import PassedTests, digest_of_tree

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = os.cpu_count() or 1
# Many tests wait, for one another or for time to pass.
JOBS = str(CORES + 1)
CASE = re.compile(r"^\[\s*(OK|FAILED|SKIPPED)\s*\] (\S+?),?(?: where .*)? \(\d+ ms\)$", re.MULTILINE)
NO_TESTS = re.compile(r"^\[=+\] Running 0 tests ", re.MULTILINE)
TARGETS = re.compile(r"^codecs tested on: .*$", re.MULTILINE)
# libFuzzer is given no more input than this; every parser of Tern has a smaller bound of its own.
FUZZ_MAX_BYTES = 65536
# The entries that test the packages in build/deb.
PACKAGED = frozenset(f"guest_{name}_test" for name in ("attacks", "rdma_unit", "service", "two_users"))
UNFINISHED_STATUS = 3  # of this program


@dataclass
class Outcome:
    passed: int = 0
    failures: list = field(default_factory=list)
    skipped: list = field(default_factory=list)
    targets: set = field(default_factory=set)  # what codec_test says of SIMD targets
    passed_tests: dict = field(default_factory=dict)  # entry: its number of cases
    is_unfinished: bool = False

    def add(self, other):
        self.passed += other.passed
        self.failures += other.failures
        self.skipped += other.skipped
        self.targets |= other.targets
        self.passed_tests |= other.passed_tests
        self.is_unfinished |= other.is_unfinished


@dataclass
class Stage:
    """A stage of this run: its keys in tools/test_stages.toml, what need not be run again, and until when it may
    begin something (seconds of time.monotonic(), or None)."""
    name: str
    keys: dict
    full: bool
    record: PassedTests
    passed_before: dict
    deadline: float | None

    def seconds_left(self):
        return None if self.deadline is None else self.deadline - time.monotonic()

    def is_over(self):
        return self.deadline is not None and time.monotonic() >= self.deadline

    def outstanding(self, names):
        return [name for name in names if name not in self.passed_before]


def run(command, **options):
    print("+ " + " ".join(map(str, command)), flush=True)
    return subprocess.run(command, cwd=ROOT, **options).returncode == 0


def build_targets(stage, build, targets, outcome):
    """Builds, for as long as the stage may. What is half built is taken up by the next run."""
    command = ["ninja", "-C", build, *targets]
    print("+ " + " ".join(command), flush=True)
    with subprocess.Popen(command, cwd=ROOT) as ninja:
        try:
            if ninja.wait(stage.seconds_left()) == 0:
                return True
            outcome.failures.append(f"building {stage.keys['preset']}")
        except subprocess.TimeoutExpired:
            ninja.terminate()  # it ends its compilers, and removes what they have half written
            outcome.is_unfinished = True
    return False


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


def read_junit(path):
    """What ctest wrote. An entry without GoogleTest's lines counts as one test."""
    outcome = Outcome()
    for entry in ElementTree.parse(path).getroot().iter("testcase"):
        name = entry.get("name")
        text = entry.findtext("system-out") or ""
        cases = CASE.findall(text)
        outcome.targets.update(TARGETS.findall(text))
        failed = [case for verdict, case in cases if verdict == "FAILED"]
        skipped = [case for verdict, case in cases if verdict == "SKIPPED"]
        outcome.skipped += skipped
        good = sum(verdict == "OK" for verdict, _ in cases)
        outcome.passed += good
        if entry.get("status") == "run" and NO_TESTS.search(text):
            outcome.failures.append(f"{name}: its filter fits no test")
        elif entry.get("status") == "run":
            outcome.passed += 0 if cases else 1
            if not skipped and not failed:
                outcome.passed_tests[name] = good if cases else 1
        elif entry.get("status") in ("notrun", "disabled") or entry.find("skipped") is not None:
            outcome.skipped.append(name)
        else:
            outcome.failures += [f"{name}: {case}" for case in failed] or [name]
    return outcome


def run_ctest(build, selection):
    junit = ROOT / build / "junit.xml"
    junit.unlink(missing_ok=True)
    run(["ctest", "--test-dir", build, *selection, "-j", JOBS, "--output-on-failure",
         "--test-output-size-passed", "10000000", "--test-output-size-failed", "10000000",
         "--output-junit", junit])
    if not junit.exists():
        return Outcome(failures=[f"ctest in {build} left no report"])
    return read_junit(junit)


def pieces_of(stage, names):
    """All at once, or a few at a time where a run may have to end early."""
    size = 2 * CORES if stage.deadline is not None else max(1, len(names))
    return [names[begin:begin + size] for begin in range(0, len(names), size)]


def has_packages_of(tree):
    digest = ROOT / "build/deb/tree.digest"
    return digest.is_file() and digest.read_text(encoding="utf-8").strip() == tree


def ctest_stage(stage):
    outcome = Outcome()
    keys = stage.keys
    build = f"build/{keys['preset']}"
    if not configure(keys["preset"], keys.get("options", ())):
        outcome.failures.append(f"configuring {keys['preset']}")
        return outcome
    selection = []
    if keys["label"]:
        selection += ["-L", keys["label"]]
    if keys["exclude_label"]:
        selection += ["-LE", keys["exclude_label"]]
    targets = []
    if keys["label"]:
        known = targets_of_build(build)
        targets = [name for name in names_of_tests(build, selection) if name in known]
        targets += [name for name in keys.get("targets", []) if name in known]
    if not build_targets(stage, build, targets, outcome):
        return outcome
    names = names_of_tests(build, selection)
    if not names:
        outcome.failures.append(f"no test in {build} fits {' '.join(selection)}")
        return outcome
    outstanding = stage.outstanding(names)
    if not PACKAGED.isdisjoint(outstanding) and not has_packages_of(stage.record.tree):
        outcome.failures.append("build/deb has packages of another tree, or none: run tools/make_deb.sh")
        outstanding = [name for name in outstanding if name not in PACKAGED]
    for piece in pieces_of(stage, outstanding):
        if stage.is_over():
            outcome.is_unfinished = True
            break
        is_whole = len(piece) == len(names)
        done = run_ctest(build, selection if is_whole else ["-R", f"^({'|'.join(map(re.escape, piece))})$"])
        stage.record.add(stage.name, done.passed_tests)
        outcome.add(done)
    outcome.passed += sum(stage.passed_before[name] for name in names if name in stage.passed_before)
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


def each_at_once(stage, names, run_one):
    """What `run_one(name)` says of each outstanding one, as many at a time as there are processors."""
    outcome = Outcome(passed=sum(name in stage.passed_before for name in names))
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        for done in pool.map(lambda name: Outcome(is_unfinished=True) if stage.is_over() else run_one(name),
                             stage.outstanding(names)):
            stage.record.add(stage.name, done.passed_tests)
            outcome.add(done)
    return outcome


def fuzz_stage(stage):
    outcome = Outcome()
    build = f"build/{stage.keys['preset']}"
    if not configure(stage.keys["preset"], stage.keys.get("options", ())):
        outcome.failures.append("configuring the fuzz targets")
        return outcome
    known = targets_of_build(build)
    targets = sorted(name for name in known if name.startswith("fuzz/") and "." not in name)
    if not targets:
        outcome.failures.append("there is no fuzz target")
        return outcome
    if not build_targets(stage, build, targets, outcome):
        return outcome

    def run_one(target):
        if not fuzz(build, target.removeprefix("fuzz/"), stage.keys["runs"]):
            return Outcome(failures=[target.replace("fuzz/", "fuzz target ")])
        return Outcome(passed=1, passed_tests={target: 1})

    outcome.add(each_at_once(stage, targets, run_one))
    return outcome


def tidy(source):
    """clang-tidy takes some seconds for a file."""
    done = subprocess.run(["clang-tidy", "--quiet", "-p", "build/tidy", source], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return Outcome(passed=1, passed_tests={source: 1})
    print(done.stdout[-4000:], flush=True)
    return Outcome(failures=[f"clang-tidy: {source}"])


def lint_stage(stage):
    if not configure("tidy"):
        return Outcome(failures=["configuring tidy"])
    if not stage.full:
        return Outcome(passed=1) if run(["tools/lint.sh"]) else Outcome(failures=["lint"])
    listed = subprocess.run(["tools/lint.sh", "--list"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.split()
    if not listed:
        return Outcome(failures=["there is no file for clang-tidy"])
    outcome = each_at_once(stage, listed, tidy)
    if run(["tools/lint.sh", "--no-tidy"]):
        outcome.passed += 1
    else:
        outcome.failures.append("lint")
    return outcome


def run_stage(stage):
    if stage.is_over():
        return Outcome(is_unfinished=True)
    kinds = {"ctest": ctest_stage, "fuzz": fuzz_stage, "lint": lint_stage}
    outcome = kinds[stage.keys["kind"]](stage)
    allowed = machine_probes.read_allowed_skips((ROOT / "tests/allowed_skips.txt").read_text(encoding="utf-8"))
    outcome.failures += machine_probes.refusals(outcome.skipped, allowed)
    return outcome


def main():
    stages = tomllib.loads((ROOT / "tools/test_stages.toml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description="Run Tern's tests.")
    parser.add_argument("--full", action="store_true", help="everything at length")
    parser.add_argument("--stage", action="append", choices=list(stages), help="only this stage")
    parser.add_argument("--continue", action="store_true", dest="go_on",
                        help="leave out what has passed on this very tree")
    parser.add_argument("--minutes", type=float, help="begin nothing more after so many minutes")
    options = parser.parse_args()
    record = PassedTests(ROOT / "build/passed_tests.json", digest_of_tree(ROOT), options.full,
                         tree_now=lambda: digest_of_tree(ROOT))
    if options.go_on:
        record.read()
    deadline = time.monotonic() + 60 * options.minutes if options.minutes is not None else None
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
        outcome = run_stage(Stage(name, stage | (full_values if options.full else {}), options.full, record,
                                  record.of_stage(name) if options.go_on else {}, deadline))
        rows.append((name, outcome, time.monotonic() - begin))
        record.spend(name, time.monotonic() - begin)
        record.cover(name, outcome.targets)
        outcome.targets |= record.covered(name)
        if "codec_test" in record.of_stage(name) | outcome.passed_tests and not outcome.targets:
            outcome.failures.append("codec_test has passed, and did not say which targets it covered")
        record.fail(name, outcome.failures)
        if not record.confirm():
            outcome.failures.append("a file of the tree has changed while it was tested")
        if not outcome.is_unfinished:
            record.end(name, outcome.passed if not outcome.failures else None)
        total.add(Outcome(outcome.passed, [f"{name}: {failure}" for failure in outcome.failures],
                          is_unfinished=outcome.is_unfinished))

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
    if total.is_unfinished:
        print("the time is up, and not all was begun: go on with --continue", flush=True)
    if total.failures:
        return 1
    if total.is_unfinished:
        return UNFINISHED_STATUS
    return 1 if total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
