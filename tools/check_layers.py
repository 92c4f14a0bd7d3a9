#!/usr/bin/python3
"""Checks every #include against the table in tools/layers.toml, and that no file includes itself by way of
others. (A source may include the header of what it makes, even where that header includes the source's.)

    check_layers.py [ROOT]        exit status 1 and one line for each include that goes up or sideways,
                                  for each circle, and for each allowed arrow that no include needs
    check_layers.py --self-test   proves on a small made-up tree that each kind of finding is found
"""

import pathlib
import re
import sys
import tomllib

import lint_check

SOURCE_SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# The public header is included as "tern/tern.h" but lies in client_lib/include.
PUBLIC_PREFIX = "tern/"


def source_files(root):
    """Paths relative to root of all C++ files that git tracks or would track."""
    paths = map(pathlib.PurePosixPath, lint_check.tracked_files(root))
    return [path for path in paths if path.suffix in SOURCE_SUFFIXES]


def layer_of(path, table):
    """The longest row of the table that contains the path, or None."""
    text = str(path)
    fitting = [row for row in table if text.startswith(row + "/")]
    return max(fitting, key=len, default=None)


def allowed(layer, table):
    """The rows that the layer may include from, besides its own."""
    rows = list(table)
    may = table[layer]["may"]
    return rows[:rows.index(layer)] if may == ["*"] else may


def public_header(name, paths):
    """Of <tern/name.h> the file in the folder of whoever publishes it, or None."""
    return next((path for path in paths if str(path).endswith(f"/include/{name}")), None)


def includes_of(root, path, table, paths):
    """Of each include its line, its bracket, what it names, and the row that this is of, or None."""
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.split("\n"), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        bracket, target = match.groups()
        if target.startswith(PUBLIC_PREFIX):
            public = public_header(target, paths)
            other = layer_of(public, table) if public is not None else None
        else:
            other = layer_of(target, table)
        yield number, bracket, target, other


def check_file(root, path, table, paths, used):
    """`used`: takes the pairs of rows that an include is an arrow between."""
    layer = layer_of(path, table)
    if layer is None:
        yield f"{path}: the folder has no row in tools/layers.toml"
        return
    row = table[layer]
    for number, bracket, target, other in includes_of(root, path, table, paths):
        used.add((layer, other))
        if bracket == "<" and target.startswith(tuple(row.get("forbidden_system", []))):
            yield f"{path}:{number}: {layer} must not include <{target}>"
        if other is None:
            # Written from the root, so that the row can be told; `beside` rows may leave that out.
            if bracket == '"' and not (row.get("beside") and (root / path.parent / target).exists()):
                yield f'{path}:{number}: "{target}" is no path from the root; write folder/file.h'
            continue
        if other != layer and other not in allowed(layer, table):
            yield f"{path}:{number}: {layer} must not include {target}; it may include " + (
                ", ".join(row["may"]) or "nothing of Tern")


def included(root, path, paths):
    """The files of the project that this one includes."""
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    for line in text.split("\n"):
        match = INCLUDE.match(line)
        if not match:
            continue
        bracket, name = match.groups()
        target = pathlib.PurePosixPath(name)
        candidates = [public_header(name, paths) if name.startswith(PUBLIC_PREFIX) else target]
        if bracket == '"':
            candidates.append(path.parent / target)
        found = next((candidate for candidate in candidates if candidate in paths), None)
        if found is not None:
            yield found


def circles(graph):
    """For each file that can reach itself, once for all on its circle: the way round."""
    done = set()
    for start in sorted(graph):
        # Breadth first, so that the way round is a shortest one.
        came_from = {}
        waiting = [start]
        for at in waiting:
            for to in sorted(graph[at]):
                if to not in came_from:
                    came_from[to] = at
                    waiting.append(to)
        if start in came_from and start not in done:
            way = [start]
            while len(way) == 1 or way[-1] != start:
                way.append(came_from[way[-1]])
            done.update(way)
            yield way[::-1]


def check_circles(root, paths):
    known = set(paths)
    graph = {path: set(included(root, path, known)) for path in paths}
    for way in circles(graph):
        yield f"{way[0]}: these include each other: " + " -> ".join(map(str, way))


def check_table(table):
    rows = list(table)
    for layer in rows:
        for name in allowed(layer, table):
            if name not in table:
                yield f"tools/layers.toml: {layer} names {name}, which has no row"
            elif rows.index(name) > rows.index(layer):
                yield f"tools/layers.toml: {layer} names {name}, whose row is below its own"


def check_use(table, used):
    """A row that allows more than there is lets the next arrow in unseen."""
    for layer, row in table.items():
        for name in row["may"]:
            if name != "*" and name in table and (layer, name) not in used:
                yield f"tools/layers.toml: {layer} may include {name}, and no file of it does"


def check(root):
    table = tomllib.loads((root / "tools/layers.toml").read_text(encoding="utf-8"))
    paths = source_files(root)
    findings = list(check_table(table))
    public = [path for path in paths if "/include/" in str(path)]
    used = set()
    findings += [finding for path in paths for finding in check_file(root, path, table, public, used)]
    findings += check_use(table, used)
    findings += check_circles(root, paths)
    return findings, len(paths)


def self_test():
    tree = {
        "tools/layers.toml": '[base]\nmay = []\n[net]\nmay = ["base"]\n["net/tcp"]\nmay = ["net"]\n'
                             '[client_lib]\nmay = ["base", "shm"]\nforbidden_system = ["boost/"]\n'
                             '[shm]\nmay = ["base", "gone"]\n',
        "base/good.h": "#include <vector>\n",
        "net/good.cc": '#include "base/good.h"\n#include "net/other.h"\n',
        "base/up.cc": '#include "net/other.h"\n',
        "net/tcp/skips.cc": '#include "base/good.h"\n',
        "net/uses_tcp.cc": '#include "net/tcp/link.h"\n',
        "client_lib/heavy.cc": "#include <boost/asio.hpp>\n",
        "client_lib/good.cc": '#include "tern/tern.h"\n',
        "client_lib/include/tern/tern.h": "\n",
        "net/public.cc": "#include <tern/tern.h>\n",
        "base/relative.cc": '#include "good.h"\n',
        "stray/file.cc": "\n",
        # From x.h to y.h and back, with a third between; their sources make no circle.
        "base/x.h": '#include "base/between.h"\n',
        "base/x.cc": '#include "base/x.h"\n#include "base/z.h"\n',
        "base/between.h": '#include "base/y.h"\n#include "base/good.h"\n',
        "base/y.h": '#include "base/x.h"\n',
        "base/z.h": '#include "base/x.h"\n',
    }
    expected = ["base/between.h", "base/relative.cc:1", "base/up.cc:1", "client_lib/heavy.cc:1",
                "net/public.cc:1", "net/tcp/skips.cc:1", "net/uses_tcp.cc:1", "stray/file.cc",
                # Two rows that are not there or too low; four arrows that no include needs.
                *["tools/layers.toml"] * 6]
    return lint_check.self_test(check, tree, expected, lint_check.place,
                                f"{len(expected)} made-up violations found, 3 good files passed")


if __name__ == "__main__":
    sys.exit(lint_check.run(check, self_test, "files"))
