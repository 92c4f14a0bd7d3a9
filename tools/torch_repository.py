#!/usr/bin/env python3
"""Runs tests of PyTorch's repository under gloo and under Tern, and compares.

    torch_repository.py TESTS [--areas FSDP2 ...] [--minutes N]   exit status 1 if a test passes
                                                                  under gloo alone
    torch_repository.py TESTS --record        also writes the results into the repository
    torch_repository.py TESTS --record --rest --minutes 60    only files that have no result yet

TESTS is what tools/torch_source.sh prints. tools/torch_tests.sh calls this in an environment with
PyTorch. Which tests count: those that pass under gloo on a machine without accelerators, of which
each rank is a process, and of which a rank makes a group. Where the tests are of another version than
PyTorch, those that it no longer passes under gloo do not count either. The results are
bench/history/torch_repository.json, from which docs/torch.md has its table. They are written file by
file, each with its commit: all of them take hours, and may be had in pieces.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time

from page_section import replace_section
from torch_suite import ROOT, commit

RUNNER = ROOT / "python/tests/torch/repository_suite.py"
RESULTS = ROOT / "bench/history/torch_repository.json"
PAGE = ROOT / "docs/torch.md"

# Folders and files of test/distributed.
AREAS = {
    "functional collectives": ["test_functional_api.py"],
    "FSDP2": ["_composable/fsdp"],
    "DTensor": ["tensor"],
    "checkpoint": ["checkpoint"],
}
# A file that has not ended by then has hung.
SECONDS_OF_A_FILE = 1800


def files_of(tests, area):
    for place in AREAS[area]:
        path = tests / place
        yield from sorted(path.rglob("test_*.py")) if path.is_dir() else [path]


def run(backend, file, names=()):
    """The outcome of each test of a file, by `Class.test`. None: the file does not load, or hangs."""
    with tempfile.TemporaryDirectory(prefix="tern-suite-") as folder:
        out, log = pathlib.Path(folder, "found.json"), pathlib.Path(folder, "log")
        with log.open("w") as told:
            # Ranks and daemons end with it.
            runner = subprocess.Popen(
                [sys.executable, RUNNER, "--backend", backend, "--out", out, file, *names],
                stdout=subprocess.DEVNULL, stderr=told, start_new_session=True)
            try:
                status = runner.wait(SECONDS_OF_A_FILE)
            except subprocess.TimeoutExpired:
                os.killpg(runner.pid, signal.SIGKILL)
                status = runner.wait()
        if status == 0:
            return json.loads(out.read_text())
        print(f"{file.name} under {backend}: status {status}: {log.read_text()[-500:]}", flush=True)
        return None


def compare_file(file):
    """Tests that gloo passes, as Tern ends them: "passed", "failed" or "skipped", "without Tern" if
    Tern has made no group, or "hung" if its run of the file has. A test for which gloo makes no
    group is none of them. None: the file does not load."""
    gloo = run("gloo", file)
    if gloo is None:
        return None
    shared = [name for name, each in gloo.items()
              if each["outcome"] == "passed" and each["made_group"]]
    if not shared:
        return {}
    tern = run("tern", file, shared)
    if tern is None:
        return {name: "hung" for name in shared}
    # A class that cannot be set up has no entry of its tests.
    found = {name: tern.get(name, {"outcome": "failed", "made_group": True}) for name in shared}
    return {name: each["outcome"] if each["made_group"] or each["outcome"] != "passed"
            else "without Tern" for name, each in found.items()}


def compare(tests, areas, options, keep):
    """By area: by file, as compare_file() says. Calls keep(area, file, result) for each file. Files that
    the time is too short for are left out."""
    deadline = time.monotonic() + 60 * options.minutes
    found = {}
    for area, files in areas.items():
        for file in files:
            if time.monotonic() > deadline:
                print(f"the time is up in {area}", flush=True)
                return found
            found.setdefault(area, {})
            name = str(file.relative_to(tests))
            result = found[area][name] = compare_file(file)
            said = ("does not load" if result is None else
                    f"{sum(each == 'passed' for each in result.values())} of {len(result)}")
            print(f"{name}: {said}", flush=True)
            keep(area, name, result)
    return found


def ends(files):
    """(file, test, how Tern ended it) of an area."""
    return [(file, test, outcome) for file, result in files.items() if result
            for test, outcome in result.items()]


def behind(areas):
    return sorted(f"{file}: {test}" for files in areas.values()
                  for file, test, outcome in ends(files) if outcome != "passed")


def table(results):
    lines = ["| tests of | PyTorch | area | files | pass under gloo | of these, under Tern | commits "
             "| dates |", "|---|---|---|---:|---:|---:|---|---|"]
    for result in results:
        found = ends(result["files"])
        passed = sum(outcome == "passed" for *_, outcome in found)
        run = f"{len(result['files'])} of {result['of_files']}"
        lines.append(f"| {result['tests_of']} | {result['torch']} | {result['area']} | {run} "
                     f"| {len(found)} | {passed} | {several(result['commits'])} "
                     f"| {several(result['dates'])} |")
    missing = sorted({name for result in results
                      for name in behind({result["area"]: result["files"]})})
    if missing:
        lines += ["", "Under gloo alone pass:", ""]
        lines += [f"- `{name}`" for name in missing]
    return "\n".join(lines)


def several(by_file):
    return ", ".join(dict.fromkeys(by_file.values()))


class Record:
    """The results of all versions, a file at a time."""

    def __init__(self, tests):
        import torch

        self.tests, self.tests_of, self.torch = tests, version_of(tests), torch.__version__
        text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else '{"results": []}'
        self.results = json.loads(text)["results"]

    def files(self, area):
        """The results that there are of an area of these versions, by file."""
        entry = self._find(area)
        return {} if entry is None else entry["files"]

    def add(self, area, file, result):
        entry = self._find(area)
        if entry is None:
            entry = {"tests_of": self.tests_of, "torch": self.torch, "area": area, "files": {},
                     "commits": {}, "dates": {}}
            self.results.append(entry)
            self.results.sort(key=self._place)
        entry |= {"python": platform.python_version(), "cores": os.cpu_count()}
        entry["of_files"] = len(list(files_of(self.tests, area)))
        entry["files"][file] = result
        entry["commits"][file], entry["dates"][file] = commit(), time.strftime("%Y-%m-%d")
        RESULTS.write_text(json.dumps({"results": self.results}, indent=1) + "\n", encoding="utf-8")
        replace_section(PAGE, "repository", table(self.results))

    def _find(self, area):
        wanted = self.tests_of, self.torch, list(AREAS).index(area)
        return next((each for each in self.results if self._place(each) == wanted), None)

    @staticmethod
    def _place(entry):
        return entry["tests_of"], entry["torch"], list(AREAS).index(entry["area"])


def version_of(tests):
    """Of the sources; a checkout has it in version.txt."""
    named = re.search(r"pytorch-v([0-9.]+)", str(tests))
    if named:
        return named[1]
    return (tests.parents[1] / "version.txt").read_text(encoding="utf-8").strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tests", type=pathlib.Path)
    parser.add_argument("--areas", nargs="+", choices=list(AREAS), default=list(AREAS))
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--rest", action="store_true")
    options = parser.parse_args()
    record = Record(options.tests)
    wanted = {}
    for area in options.areas:
        known = record.files(area) if options.rest else {}
        wanted[area] = [file for file in files_of(options.tests, area)
                        if str(file.relative_to(options.tests)) not in known]
    areas = compare(options.tests, wanted, options,
                    record.add if options.record else lambda *_: None)
    for area, files in areas.items():
        found = ends(files)
        print(f"{area}: Tern passes {sum(end == 'passed' for *_, end in found)} of {len(found)}")
    if not options.rest and not all(ends(files) for files in areas.values()):
        sys.exit("no test of an area passes under gloo")
    if behind(areas):
        sys.exit("pass under gloo and not under Tern: " + ", ".join(behind(areas)))


if __name__ == "__main__":
    main()
