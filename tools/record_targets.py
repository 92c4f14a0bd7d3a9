#!/usr/bin/python3
"""Runs the tests of the codecs on a processor with AVX-512 and writes down that they have passed there:
tests/codec/data/avx512_last_run.txt, and the sentence in docs/codecs.md that says so.

    record_targets.py [--program build/release/tests/codec/codec_test]

No other processor runs these kernels, so the page says when one last did. tools/check_docs.py compares the
page with the file.
"""

import argparse
import datetime
import pathlib
import re
import subprocess
import sys

import page_section
from origin import processor_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = "tests/codec/data/avx512_last_run.txt"
PAGE = "docs/codecs.md"
SECTION = "avx512-last-run"
FIELDS = ("date", "processor", "commit", "targets")
TESTED = re.compile(r"^codecs tested on: ([^;]*);", re.MULTILINE)


def sentence(record):
    """What the page says of a record's text. Raises: ValueError."""
    fields = dict(line.split(": ", 1) for line in record.strip().split("\n"))
    if tuple(fields) != FIELDS:
        raise ValueError(f"{RECORD} has {', '.join(fields)} in place of {', '.join(FIELDS)}")
    return (f"{fields['date']}, {fields['processor']}, commit {fields['commit']}:\n"
            f"{', '.join(f'`{target}`' for target in fields['targets'].split())}.")


def commit():
    def git(*arguments):
        return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True,
                              text=True).stdout.strip()
    if git("status", "--porcelain", "--", "codec"):
        raise ValueError("codec/ differs from the commit; commit it first")
    return git("log", "-1", "--format=%h", "--", "codec")


def run(program):
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    found = TESTED.search(result.stdout)
    if result.returncode != 0 or not found:
        raise ValueError(f"{program} failed:\n{result.stdout[-2000:]}")
    targets = found.group(1).split()
    if not any(target.startswith("avx512") for target in targets):
        raise ValueError(f"this processor has no AVX-512; tested were {' '.join(targets)}")
    record = (f"date: {datetime.date.today()}\nprocessor: {processor_name()}\ncommit: {commit()}\n"
              f"targets: {' '.join(targets)}\n")
    (ROOT / RECORD).write_text(record, encoding="utf-8")
    page_section.replace_section(ROOT / PAGE, SECTION, sentence(record))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build/release/tests/codec/codec_test")
    try:
        run(parser.parse_args().program)
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
