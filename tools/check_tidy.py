#!/usr/bin/python3
"""Bans constructs, each with the replacement it names.

    check_tidy.py [ROOT]        exit status 1 and one line for each finding
    check_tidy.py --self-test   proves on a small made-up tree that every rule can fail
"""

import fnmatch
import pathlib
import re
import sys
from dataclasses import dataclass, field

import lint_check

MAX_LINES = 500
CODE = ["*.h", "*.hpp", "*.c", "*.cc", "*.cu", "*.cuh"]
BUILD = ["CMakeLists.txt", "*/CMakeLists.txt", "*.cmake", "CMakePresets.json"]
SCRIPTS = ["*.py", "*.sh", "Makefile", ".ci/*"]

# Files that turn typed memory into bytes or back by their nature. Everyone else goes through them.
CAST_FILES = ["wire/*", "shm/*", "codec/*", "client_lib/*", "net/*", "rdma/*", "tests/*", "bench/*",
              "daemon/lane/*.cc", "daemon/client*.cc", "daemon/*socket*.cc"]


@dataclass
class LineRule:
    """A pattern that no line of the files may match."""
    name: str
    pattern: str
    files: list
    instead: str
    example: str  # a line that must be found; the file it is found in, for the self-test, is `where`
    where: str
    exempt: list = field(default_factory=list)


@dataclass
class NameRule:
    """A pattern that no file name (without folder) may match."""
    name: str
    pattern: str
    files: list
    instead: str
    where: str
    exempt: list = field(default_factory=list)


LINE_RULES = [
    LineRule("cast", r"\breinterpret_cast\b", CODE,
             "std::as_bytes, memcpy, or a function of wire/ or shm/",
             "auto p = reinterpret_cast<int*>(q);", "collective/a.cc", CAST_FILES),
    LineRule("fence", r"\batomic_thread_fence\b", CODE,
             "acquire and release on the atomic itself; ThreadSanitizer does not see fences",
             "std::atomic_thread_fence(o);", "shm/a.h"),
    LineRule("lane-lock", r"\bstd::(recursive_|shared_|timed_)?mutex\b|\bstd::condition_variable\b",
             ["daemon/lane*", "daemon/tensor/*", "collective/*"],
             "a command ring to the lane or an event ring from it",
             "std::mutex m;", "daemon/lane/lane.h"),
    LineRule("isa-flag", r"(?<![\w-])-(march=|mavx|msse|mbmi)", BUILD,
             "Highway's run-time dispatch: a flag per file leaks into shared inline functions",
             "target_compile_options(x PRIVATE -mavx2)", "codec/CMakeLists.txt"),
    LineRule("marker", r"\b(TODO|FIXME|XXX|HACK)\b", CODE + BUILD + SCRIPTS,
             "do it now, or describe the limit in words",
             "// TODO: later", "base/b.cc", ["tools/check_tidy.py"]),
    LineRule("test-sleep", r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\(",
             ["tests/*.cc", "tests/*.h"],
             "ManualClock and do_work(), or a wait on the event itself",
             "std::this_thread::sleep_for(x);", "tests/base/c_test.cc"),
    LineRule("machine-path", r"(?<![\w.$}/])/(home|root|work|farm|mnt|Users)/\w", ["*"],
             "a path relative to the repository, or an argument",
             "cd /ho" "me/someone/tern", "tools/x.sh", ["tools/check_tidy.py"]),
    LineRule("assert", r"(?<![\w.])assert\s*\(|<cassert>|<assert\.h>", CODE,
             "TERN_CHECK for a defect of our own, an error value for what others send",
             "  assert(x > 0);", "base/e.cc"),
    LineRule("using-namespace", r"^using namespace\b", ["*.h", "*.hpp"],
             "the names that are needed, or a namespace of the header's own",
             "using namespace std;", "base/f.h"),
    LineRule("guard", r"^#ifndef \w+_(H|HPP)_?$", ["*.h", "*.hpp"],
             "#pragma once", "#ifndef BASE_G_H", "base/g.h",
             ["*/include/tern/*", "tests/client_lib/c_abi.h"]),
    LineRule("tracker", r"(?i)\b(issue|ticket|session|pull request) #?\d+\b", CODE + BUILD + SCRIPTS + ["*.md"],
             "what it is about, in words", "// see issue 12", "base/h.cc", ["tools/check_tidy.py"]),
    LineRule("comment-width", r"^\s*//.{99,}$", CODE, "100 columns; clang-format leaves comments as they are",
             "//" + " word" * 25, "base/i.h"),
    LineRule("tabs", r"\t", CODE, "spaces; make format", "\tint x;", "base/d.cc"),
]

NAME_RULES = [
    NameRule("word-packet", r"packet", ["*"],
             "frame (between nodes) or entry (in a ring)", "net/packet.cc",
             ["shm/packet_socket*", "tests/shm/packet_socket*"]),
    NameRule("word", r"message|manager|handler|util|common|helper|misc", CODE + SCRIPTS + BUILD,
             "a noun that says what the file holds; docs/glossary.md has ours", "base/string_util.h"),
]

LENGTH_FILES = CODE + ["*.py", "*.sh"]


def matches(path, globs):
    return any(fnmatch.fnmatchcase(path, glob) for glob in globs)


def text_of(path):
    """The file's text, or None for a binary file."""
    data = path.read_bytes()
    return None if b"\0" in data else data.decode("utf-8", errors="replace")


def check_file(root, name):
    for rule in NAME_RULES:
        if matches(name, rule.files) and not matches(name, rule.exempt):
            if re.search(rule.pattern, pathlib.PurePosixPath(name).name.lower()):
                yield f"{name}: [{rule.name}] the file's name; instead: {rule.instead}"
    rules = [(rule, re.compile(rule.pattern)) for rule in LINE_RULES
             if matches(name, rule.files) and not matches(name, rule.exempt)]
    text = text_of(root / name) if rules else None
    if text is None:
        return
    lines = text.split("\n")
    if matches(name, LENGTH_FILES) and len(lines) > MAX_LINES + 1:
        yield f"{name}: [length] {len(lines) - 1} lines; instead: split by verb, {MAX_LINES} at most"
    for number, line in enumerate(lines, start=1):
        for rule, pattern in rules:
            if pattern.search(line):
                yield f"{name}:{number}: [{rule.name}] {line.strip()[:60]}; instead: {rule.instead}"


def check(root):
    names = lint_check.tracked_files(root)
    return [finding for name in names for finding in check_file(root, name)], len(names)


def self_test():
    tree = {rule.where: rule.example + "\n" for rule in LINE_RULES}
    tree |= {rule.where: "\n" for rule in NAME_RULES}
    tree["base/long.cc"] = "\n" * (MAX_LINES + 1)
    tree["wire/cast_is_fine.cc"] = "reinterpret_cast<int*>(q);\n"
    tree["base/long_enough.cc"] = "\n" * MAX_LINES
    expected = {rule.name for rule in LINE_RULES + NAME_RULES} | {"length"}
    return lint_check.self_test(
        check, tree, expected, lambda finding: re.search(r"\[([\w-]+)\]", finding).group(1),
        f"{len(expected)} rules found what they are for, 2 good files passed")


if __name__ == "__main__":
    sys.exit(lint_check.run(check, self_test, "files"))
