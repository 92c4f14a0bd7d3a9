"""What the checks of `make lint` have in common: the files they read, the made-up tree on which they
prove that they can fail, and their command line."""

import contextlib
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def tracked_files(root, *patterns):
    """Names, relative to the root, of the files that git tracks or would track."""
    listing = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        check=True, capture_output=True, text=True).stdout.split("\0")
    return [name for name in listing if name and (root / name).is_file()]


@contextlib.contextmanager
def made_up_tree(tree):
    """A folder under git with these files, {name: text}."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in tree.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        subprocess.run(["git", "init", "-q", folder], check=True)
        yield pathlib.Path(folder)


def self_test(check, tree, expected, key, success):
    """Whether the findings in that tree, each reduced to its key, are the expected ones. The exit status."""
    with made_up_tree(tree) as root:
        findings, _ = check(root)
    if sorted(map(key, findings)) != sorted(expected):
        print(f"self-test: expected {sorted(expected)}, found {findings}")
        return 1
    print(f"self-test: {success}")
    return 0


def place(finding):
    """What stands before the words: file and line."""
    return finding.split(": ")[0]


def run(check, test, noun):
    """The command line: [ROOT] or --self-test. `check(root)` gives the findings and how many files it
    has read; none at all is a failure too. Returns the exit status."""
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return test()
    findings, count = check(pathlib.Path(arguments[0]) if arguments else ROOT)
    for finding in findings:
        print(finding)
    print(f"{count} {noun}, {len(findings)} findings")
    return 1 if findings or count == 0 else 0
