#!/usr/bin/python3
"""Finds dead relative links in the Markdown files, anchors included, and lines of more than 100
columns outside tables and code.

    check_docs.py [ROOT]        exit status 1 and one line for each finding
    check_docs.py --self-test   proves on made-up pages that both are found
"""

import re
import sys
import urllib.parse

import lint_check
from page_section import LINE_COLUMNS

LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
FENCE = re.compile(r"^\s*(```|~~~)")


def lines_outside_code(text):
    """(number, line) of the lines that are not in a fenced block, code spans taken out."""
    fenced = False
    for number, line in enumerate(text.split("\n"), start=1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


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
    for number, line in lines_outside_code(text):
        for target in LINK.findall(line):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            path, _, anchor = urllib.parse.unquote(target).partition("#")
            goal = page if not path else page.parent / path
            if not goal.exists():
                yield f"{name}:{number}: nothing at {target}"
            elif anchor and goal.suffix == ".md":
                if anchor not in anchors_of(goal.read_text(encoding="utf-8")):
                    yield f"{name}:{number}: no heading for {target}"


def check(root):
    names = lint_check.tracked_files(root, "*.md")
    return [finding for name in names for finding in check_page(root, name)], len(names)


def self_test():
    long = "x" * (LINE_COLUMNS + 1)
    tree = {
        "README.md": "# A title\n[good](docs/a.md) [good](docs/a.md#second-part) [good](#a-title)\n"
                     "[web](https://example.org/x)\n```\n[in code](nowhere.md)\n```\n"
                     "[dead](docs/b.md)\n",
        "docs/a.md": "## Second part\n[up](../README.md)\n[dead](#third-part)\n[dead](a.cc)\n",
        "docs/wide.md": f"{long}\n| {long} |\n```\n{long}\n```\n{long[:LINE_COLUMNS]}\n",
    }
    expected = ["README.md:7", "docs/a.md:3", "docs/a.md:4", "docs/wide.md:1"]
    return lint_check.self_test(check, tree, expected, lint_check.place,
                                "3 made-up dead links and a long line found, 5 good links and 3 "
                                "lines passed")


if __name__ == "__main__":
    sys.exit(lint_check.run(check, self_test, "pages"))
