#!/usr/bin/python3
"""Finds dead relative links in the Markdown files, anchors included, lines of more than 100 columns
outside tables and code, pages that C++ names and that are not there, and what a page says of a run
that the run's file does not.

    check_docs.py [ROOT]        exit status 1 and one line for each finding
    check_docs.py --self-test   proves on made-up pages that they are found
"""

import re
import sys
import urllib.parse

import lint_check
import record_targets
from page_section import LINE_COLUMNS

LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
PAGE_NAME = re.compile(r"[\w/-]+\.md\b")
FENCE = re.compile(r"^\s*(```|~~~)")


def lines_outside_code(text):
    """(number, line) of the lines that are not in a fenced block, code spans taken out."""
    fenced = False
    for number, line in enumerate(text.split("\n"), start=1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


def links(text):
    """(number of the line, target) of each link; a link may begin on one line and end on the next."""
    lines = dict(lines_outside_code(text))
    joined = "\n".join(lines.get(number, "") for number in range(1, text.count("\n") + 2))
    for match in LINK.finditer(joined):
        yield joined.count("\n", 0, match.start(1)) + 1, match[1]


def anchors_of(text):
    """The anchors GitHub makes of the headings: lower case, blanks to dashes, punctuation gone."""
    anchors = set()
    fenced = False
    for line in text.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        match = None if fenced else HEADING.match(line)
        if match:
            words = re.sub(r"[^\w\- ]", "", match.group(1).lower())
            anchors.add(words.replace(" ", "-"))
    return anchors


def long_lines(text):
    """(number, columns) of the lines that are too long; tables and fenced blocks cannot be wrapped."""
    fenced = False
    for number, line in enumerate(text.split("\n"), start=1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith("|") and len(line) > LINE_COLUMNS:
            yield number, len(line)


def check_page(root, name):
    page = root / name
    text = page.read_text(encoding="utf-8")
    for number, columns in long_lines(text):
        yield f"{name}:{number}: {columns} columns; instead: {LINE_COLUMNS} at most"
    for number, target in links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = urllib.parse.unquote(target).partition("#")
        goal = page if not path else page.parent / path
        if not goal.exists():
            yield f"{name}:{number}: nothing at {target}"
        elif anchor and goal.suffix == ".md":
            if anchor not in anchors_of(goal.read_text(encoding="utf-8")):
                yield f"{name}:{number}: no heading for {target}"


def check_comments(root):
    """Pages that C++ names must be there: by their path from the root, or by their name alone."""
    pages = lint_check.tracked_files(root, "*.md")
    known = set(pages) | {page.rpartition("/")[2] for page in pages}
    for name in lint_check.tracked_files(root, "*.h", "*.hpp", "*.c", "*.cc"):
        text = (root / name).read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.split("\n"), start=1):
            for page in PAGE_NAME.findall(line):
                if page not in known:
                    yield f"{name}:{number}: there is no page {page}"


def check_last_run(root):
    """The page on codecs says where the AVX-512 kernels were last tested; a file knows."""
    record = root / record_targets.RECORD
    if not record.is_file():
        return
    page = root / record_targets.PAGE
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    _, begun, rest = text.partition(f"<!-- {record_targets.SECTION}:begin -->\n")
    said, ended, _ = rest.partition(f"\n<!-- {record_targets.SECTION}:end -->")
    try:
        known = record_targets.sentence(record.read_text(encoding="utf-8"))
    except ValueError as error:
        yield f"{record_targets.RECORD}: {error}"
        return
    if not begun or not ended or said != known:
        yield f"{record_targets.PAGE}: differs from {record_targets.RECORD}, which says {known!r}"


def check(root):
    names = lint_check.tracked_files(root, "*.md")
    findings = [finding for name in names for finding in check_page(root, name)]
    return findings + list(check_comments(root)) + list(check_last_run(root)), len(names)


def self_test():
    long = "x" * (LINE_COLUMNS + 1)
    tree = {
        "README.md": "# A title\n[good](docs/a.md) [good](docs/a.md#second-part) [good](#a-title)\n"
                     "[web](https://example.org/x)\n```\n[in code](nowhere.md)\n```\n"
                     "[dead](docs/b.md)\n[dead\non two lines](docs/c.md)\n",
        record_targets.RECORD: "date: 2030-01-02\nprocessor: P\ncommit: abc\ntargets: avx512 scalar\n",
        record_targets.PAGE: "<!-- avx512-last-run:begin -->\n2030-01-01, P, commit abc:\n"
                             "`avx512`, `scalar`.\n<!-- avx512-last-run:end -->\n",
        "base/a.cc": "// docs/a.md, codecs.md and\n// docs/gone.md\n",
        "docs/a.md": "## Second part\n[up](../README.md)\n[dead](#third-part)\n[dead](a.cc)\n",
        "docs/wide.md": f"{long}\n| {long} |\n```\n{long}\n```\n{long[:LINE_COLUMNS]}\n",
    }
    expected = ["README.md:7", "README.md:9", "docs/a.md:3", "docs/a.md:4", "docs/wide.md:1", "base/a.cc:2",
                record_targets.PAGE]
    return lint_check.self_test(check, tree, expected, lint_check.place,
                                f"{len(expected)} made-up findings found, 8 good ones passed")


if __name__ == "__main__":
    sys.exit(lint_check.run(check, self_test, "pages"))
