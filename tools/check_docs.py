#!/usr/bin/python3
"""Finds dead relative links in the Markdown files, anchors included.

    check_docs.py [ROOT]        exit status 1 and one line for each dead link
    check_docs.py --self-test   proves on made-up pages that dead links are found
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse

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


def check_page(root, name):
    page = root / name
    text = page.read_text(encoding="utf-8")
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
    root = pathlib.Path(root)
    names = subprocess.run(
        ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        check=True, capture_output=True, text=True).stdout.split()
    names = [name for name in names if (root / name).is_file()]
    return [finding for name in names for finding in check_page(root, name)], len(names)


def self_test():
    tree = {
        "README.md": "# A title\n[good](docs/a.md) [good](docs/a.md#second-part) [good](#a-title)\n"
                     "[web](https://example.org/x)\n```\n[in code](nowhere.md)\n```\n"
                     "[dead](docs/b.md)\n",
        "docs/a.md": "## Second part\n[up](../README.md)\n[dead](#third-part)\n[dead](a.cc)\n",
    }
    expected = ["README.md:7", "docs/a.md:3", "docs/a.md:4"]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in tree.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        subprocess.run(["git", "init", "-q", folder], check=True)
        findings, _ = check(folder)
    found = sorted(finding.split(": ")[0] for finding in findings)
    if found != expected:
        print(f"self-test: expected {expected}, found {findings}")
        return 1
    print(f"self-test: {len(expected)} made-up dead links found, 5 good ones passed")
    return 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent
    findings, count = check(root)
    for finding in findings:
        print(finding)
    print(f"{count} pages, {len(findings)} findings")
    return 1 if findings or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
