#!/usr/bin/python3
"""Where the time of a build and of its tests went: compilations, headers and test programs, costliest first.

    build_times.py [--top N] [--summary | --tests PATTERN] BUILD ...

Reads what a run leaves in a build folder: .ninja_log (start and end of each command), junit.xml (of
tools/run_tests.py) and, where clang compiled with -ftime-trace, its traces beside the object files. A
command's time is that on the clock, while others ran beside it: for comparison, not for a sum of work.
--tests prints how long the test programs took whose names have the pattern (a regular expression), together
and each.
"""

import argparse
import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

COMPILED = (".o", ".gch", ".pch")


def commands(log):
    """(seconds, output) of each command's last run; one command may have several outputs."""
    last = {}
    for line in log.splitlines():
        if line.startswith("#"):
            continue
        begin, end, _, output, digest = line.split("\t")
        last[output] = (int(begin), int(end), digest)
    first_output = {}
    for output, command in last.items():
        first_output.setdefault(command, output)
    return sorted((((end - begin) / 1000, output) for (begin, end, _), output in first_output.items()), reverse=True)


def readable(output):
    """daemon/CMakeFiles/tern_lane.dir/Unity/unity_0_cxx.cxx.o: daemon tern_lane, part 0."""
    folder, _, rest = output.partition("/CMakeFiles/")
    target, _, file = rest.partition(".dir/")
    file = file.replace("Unity/unity_", "part ").replace("_cxx.cxx.o", "").replace("cmake_pch.hxx", "its headers")
    return f"{folder} {target}, {file}" if rest else output


def tests(report):
    root = ElementTree.fromstring(report)
    return sorted(((float(entry.get("time")), entry.get("name")) for entry in root.iter("testcase")), reverse=True)


def headers(traces):
    """Seconds that clang spent in each header, with all that it includes, over all files."""
    seconds = collections.Counter()
    for trace in traces:
        for event in json.loads(trace)["traceEvents"]:
            if event.get("name") == "Source":
                seconds[event["args"]["detail"]] += event["dur"] / 1e6
    return [(spent, name) for name, spent in seconds.most_common()]


def table(title, rows, top):
    total = sum(seconds for seconds, _ in rows)
    yield f"{title}: {len(rows)}, together {total:.0f} s"
    yield ""
    yield "| seconds | what |"
    yield "|---:|---|"
    for seconds, name in rows[:top]:
        yield f"| {seconds:.1f} | {name} |"
    yield ""


def report_of(build, top):
    log = build / ".ninja_log"
    if not log.exists():
        raise FileNotFoundError(f"{log} is not there: build first")
    done = commands(log.read_text(encoding="utf-8"))
    compiled = [(seconds, readable(output)) for seconds, output in done if output.endswith(COMPILED)]
    yield from table(f"{build.name}, compilations", compiled, top)
    yield from table(f"{build.name}, links and the rest",
                     [(seconds, output) for seconds, output in done if not output.endswith(COMPILED)], min(top, 3))
    traces = [path.read_text(encoding="utf-8") for path in build.rglob("*.dir/**/*.json")]
    if traces:
        yield from table(f"{build.name}, headers", headers(traces), top)
    junit = build / "junit.xml"
    if junit.exists():
        yield from table(f"{build.name}, test programs", tests(junit.read_text(encoding="utf-8")), top)


def named(rows, top):
    """The costliest: sim_test 77, e2e_failure_test 22."""
    return ", ".join(f"{name.split(', ')[0].split(' ')[-1]} {seconds:.0f}" for seconds, name in rows[:top])


def summary_of(build, top):
    """A row of Markdown: compilations, their seconds together, the costliest; and the same of tests."""
    done = commands((build / ".ninja_log").read_text(encoding="utf-8"))
    compiled = [(seconds, readable(output)) for seconds, output in done if output.endswith(COMPILED)]
    tested = tests((build / "junit.xml").read_text(encoding="utf-8"))
    columns = [build.name, str(len(compiled)), f"{sum(seconds for seconds, _ in compiled):.0f}", named(compiled, top),
               str(len(tested)), f"{sum(seconds for seconds, _ in tested):.0f}", named(tested, top)]
    return f"| {' | '.join(columns)} |"


def matching(builds, pattern):
    """The test programs whose names have the pattern, in all builds that ran any."""
    reports = [(build.name, build / "junit.xml") for build in builds]
    rows = [(seconds, f"{name}, {test}") for name, path in reports if path.exists()
            for seconds, test in tests(path.read_text(encoding="utf-8")) if re.search(pattern, test)]
    return table(f"test programs with {pattern}", sorted(rows, reverse=True), len(rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("builds", nargs="+", type=pathlib.Path, metavar="BUILD", help="such as build/release")
    parser.add_argument("--top", type=int, default=10, help="rows of each table (10)")
    parser.add_argument("--summary", action="store_true", help="a row of a table for each build")
    parser.add_argument("--tests", metavar="PATTERN", help="the test programs whose names have this, of all builds")
    options = parser.parse_args()
    try:
        if options.tests:
            print("\n".join(matching(options.builds, options.tests)))
            return 0
        for build in options.builds:
            print(summary_of(build, options.top) if options.summary else "\n".join(report_of(build, options.top)))
    except FileNotFoundError as error:
        print(f"build_times.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
