#!/usr/bin/python3
"""Writes down which stages of `make test-full` have ended without a failure on this commit: in
tests/full_runs.json, and the table in CONTRIBUTING.md.

A full run takes longer than most machines are free for. So it may be had in pieces, and on more than one
commit: a row says on which one its stage last ran to its end.
"""

import datetime
import json
import pathlib
import subprocess
import sys
import tomllib

import page_section
from origin import processor_name
from passed_tests import PassedTests, digest_of_tree

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = "tests/full_runs.json"
PAGE = "CONTRIBUTING.md"
SECTION = "full-runs"
HEAD = ("| stage | commit | date | machine | passed | minutes | run again |\n"
        "|---|---|---|---|---:|---:|---|\n")


def commit():
    def git(*arguments):
        return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True,
                              text=True).stdout.strip()
    if git("status", "--porcelain"):
        raise ValueError("the tree differs from the commit; commit it and run the stages again")
    return git("rev-parse", "--short=8", "HEAD")


def again(run):
    """What failed before it passed; that was not kept always."""
    failed = run.get("failed_before")
    return "not kept" if failed is None else ", ".join(failed) or "nothing"


def table(stages, runs):
    """One row for each stage in the order of `stages`; `runs` by stage, as in the record."""
    rows = []
    for stage in stages:
        run = runs.get(stage)
        rows.append(f"| {stage} | not run | | | | | |" if run is None else
                    f"| {stage} | {run['commit']} | {run['date']} | {run['machine']} | {run['cases']:,} "
                    f"| {run['seconds'] / 60:.0f} | {again(run)} |")
    return HEAD + "\n".join(rows)


def main():
    stages = list(tomllib.loads((ROOT / "tools/test_stages.toml").read_text(encoding="utf-8")))
    record = PassedTests(ROOT / "build/passed_tests.json", digest_of_tree(ROOT), full=True)
    record.read()
    ended = record.ended()
    if not ended:
        sys.exit("no stage of `make test-full` has ended without a failure on this tree")
    path = ROOT / RECORD
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    try:
        place = {"commit": commit(), "date": str(datetime.date.today()), "machine": processor_name()}
    except ValueError as error:
        sys.exit(str(error))
    runs |= {stage: {**place, **result} for stage, result in ended.items()}
    path.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    page_section.replace_section(ROOT / PAGE, SECTION, table(stages, runs))


if __name__ == "__main__":
    main()
