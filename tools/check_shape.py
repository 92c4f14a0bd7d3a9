#!/usr/bin/python3
"""Counts what a reader has to hold in mind at once, and says where it is too much:

- a class with more than 45 methods, or more than 700 lines over all its files (its body, what is defined
  outside of it, and the classes within it, but for one with a header of its own; methods of those count
  for themselves, and defaulted and deleted functions do not),
- a function with more than four parameters, unless tools/shape_exceptions.toml says why,
- an operation's kind in daemon/, client_lib/ or collective/ outside the files which that table names,
- a class of daemon/ or collective/ whose header has no test file at its path, unless the table says
  what tests it.

    check_shape.py [ROOT]        exit status 1 and one line for each finding, then the totals
    check_shape.py --self-test   proves on a small made-up tree that each kind of finding is found
"""

import re
import sys
import tomllib

import cpp_outline
import lint_check

MAX_METHODS = 45
MAX_CLASS_LINES = 700
MAX_PARAMETERS = 4
MAX_EXCEPTIONS = 40
SOURCES = ["*.h", "*.hpp", "*.c", "*.cc", "*.cu", "*.cuh"]
EXCEPTIONS = "tools/shape_exceptions.toml"
KINDLESS_FOLDERS = ("daemon/", "client_lib/", "collective/")
TESTED_FOLDERS = ("daemon/", "collective/")


def lines_by_class(outline):
    """{name: its lines and those of the classes within it that have no header of their own}."""
    within = {}
    for name in outline.classes:
        within.setdefault(name.rpartition("::")[0], []).append(name)

    def lines(name):
        found = outline.classes[name]
        inner = [one for one in within.get(name, []) if not has_own_header(outline.classes[one], found)]
        return found.lines() + sum(map(lines, inner))
    return {name: lines(name) for name in outline.classes}


def has_own_header(inner, outer):
    body = inner.places[0].file
    return body.endswith(".h") and body != outer.places[0].file


def check_classes(outline):
    lines = lines_by_class(outline)
    for name, found in outline.classes.items():
        if found.methods > MAX_METHODS:
            yield (f"{found.places[0]}: {found.name} has {found.methods} methods; instead: give an object "
                   f"that hides in it its members, {MAX_METHODS} at most")
        if lines[name] > MAX_CLASS_LINES:
            yield (f"{found.places[0]}: {found.name} has {lines[name]} lines in "
                   f"{len({place.file for place in found.places})} files; instead: give an object that "
                   f"hides in it its members, {MAX_CLASS_LINES} at most")


def check_functions(outline, exceptions):
    unused = {(row["name"], row["parameters"]) for row in exceptions}
    for function in outline.functions.values():
        # An override has no say in its parameters.
        if function.parameters <= MAX_PARAMETERS or function.overrides:
            continue
        key = (function.name, function.parameters)
        if any(key == (row["name"], row["parameters"]) for row in exceptions):
            unused.discard(key)
            continue
        # The header is where the signature is read.
        place = min(function.places, key=lambda place: (not place.file.endswith(".h"), place.file))
        yield (f"{place}: {function.name} has {function.parameters} parameters; instead: a struct with "
               f"named fields, {MAX_PARAMETERS} at most")
    for name, parameters in sorted(unused):
        yield f"{EXCEPTIONS}: no function {name} has {parameters} parameters; take the row out"
    for row in exceptions:
        if not row.get("reason"):
            yield f"{EXCEPTIONS}: {row['name']} has no reason"
    if len(exceptions) > MAX_EXCEPTIONS:
        yield f"{EXCEPTIONS}: {len(exceptions)} functions; {MAX_EXCEPTIONS} at most"


def plan_names(sources):
    """The constants of plan/ that are the plan of one kind."""
    return {b.text for name, tokens in sources.items() if name.startswith("plan/")
            for a, b in zip(tokens, tokens[1:]) if a.text == "Plan" and re.fullmatch(r"k[A-Z]\w*", b.text)}


def names_kind(plans, first, second, third):
    if (first.text, second.text) == ("OpKind", "::"):
        return True
    if (first.text, second.text) == ("plan", "::") and third.text in plans:
        return True
    return first.text.startswith("TERN_OP_") and first.text != "TERN_OP_INIT"


def check_kinds(sources, allowed):
    unused = set(allowed)
    plans = plan_names(sources)
    for name, tokens in sources.items():
        if not name.startswith(KINDLESS_FOLDERS):
            continue
        padded = tokens + tokens[-1:] * 2
        lines = sorted({three[0].line for three in zip(tokens, padded[1:], padded[2:])
                        if names_kind(plans, *three)})
        if name in allowed and lines:
            unused.discard(name)
            continue
        for line in lines:
            yield f"{name}:{line}: names an operation's kind; instead: ask its plan"
    for name in sorted(unused):
        yield f"{EXCEPTIONS}: {name} names no operation's kind; take it out of op_kinds"


def check_tests(outline, names, exceptions):
    """Of classes with a source file: what is in a header alone is mostly plain data."""
    names = set(names)
    known = {row["header"] for row in exceptions if row.get("tested_by")}
    headers = {place.file for found in outline.classes.values() if found.methods
               for place in found.places if place.file.endswith(".h")}
    untested = set()
    for header in sorted(headers):
        path = header.removesuffix(".h")
        if header.startswith(TESTED_FOLDERS) and f"{path}.cc" in names and f"tests/{path}_test.cc" not in names:
            untested.add(header)
    for header in sorted(untested - known):
        test = f"tests/{header.removesuffix('.h')}_test.cc"
        yield f"{header}: there is no {test}; instead: a test of the class, at its path"
    for header in sorted({row["header"] for row in exceptions} - (untested & known)):
        yield f"{EXCEPTIONS}: {header} has a test at its path, or the row no tested_by; take the row out"


def outline_of(sources):
    """The outline of {name: tokens}, and a finding for each file that cannot be read."""
    outline = cpp_outline.Outline()
    findings = []
    for name, tokens in sources.items():
        try:
            outline.read(name, tokens)
        except cpp_outline.Unreadable as unreadable:
            findings.append(str(unreadable))
    outline.finish()
    return outline, findings


def totals(outline):
    classes = outline.classes.values()
    lines = lines_by_class(outline)
    longest = max(classes, key=lambda found: lines[found.name])
    widest = max(classes, key=lambda found: found.methods)
    most = max(outline.functions.values(), key=lambda function: function.parameters)
    return (f"{len(classes)} classes, the longest {longest.name} ({lines[longest.name]} lines), the widest "
            f"{widest.name} ({widest.methods} methods)\n"
            f"{len(outline.functions)} functions, the most parameters {most.name} ({most.parameters})")


def check(root, tell=lambda text: None):
    names = lint_check.tracked_files(root, *SOURCES)
    sources = {name: cpp_outline.tokens_of((root / name).read_text(encoding="utf-8", errors="replace"))
               for name in names}
    table = tomllib.loads((root / EXCEPTIONS).read_text(encoding="utf-8"))
    outline, findings = outline_of(sources)
    findings += check_classes(outline)
    findings += check_functions(outline, table.get("function", []))
    findings += check_kinds(sources, table["op_kinds"]["files"])
    findings += check_tests(outline, names, table.get("untested", []))
    if outline.classes and outline.functions:
        tell(totals(outline))
    return findings, len(names)


# What the outline must not stumble over: (text, whether a function of five parameters is in it).
TRICKY = {
    "initializers": ("struct A {\n  A(int a, int b)\n      : a_{a}, b_(f(b, {1}))... {}\n  int a_, b_;\n};\n"
                     "int after(int, int, int, int, int);\n", True),
    "template": ("template <typename T, int n = (3 > 2)>\nstd::map<T, std::array<int, n>> pairs(\n"
                 "    std::map<T, T> a, std::function<void(int, int)> b = [](int, int) { g<1, 2>(); });\n",
                 False),
    "lambda": ("const auto kSum = [](int a, int b, int c, int d, int e) { return a + b + c + d + e; };\n"
               "void run() {\n  auto f = [](int a, int b, int c, int d, int e) {};\n}\n", False),
    "pointer": ("struct Kernels {\n  std::size_t (*encode)(int, int, int, int, int);\n"
                "  std::function<void(int, int, int, int, int)> decode;\n};\n", False),
    "c_abi": ('#ifdef __cplusplus\nextern "C" {\n#endif\nTERN_API int tern_x(struct t* a, int b, int c,\n'
              "  int d, int e) TERN_NOEXCEPT;\n#ifdef __cplusplus\n}\n#endif\n", True),
    "operator": ("struct F {\n  bool operator<(const F&) const = default;\n"
                 "  int operator()(int, int, int, int, int) const { return '{' + 1'000; }\n};\n", True),
    "override": ("struct D : B {\n  void f(int, int, int, int, int) override;\n};\n"
                 "void D::f(int, int, int, int, int) {}\n", False),
    "macro": ("TERN_REGISTER(a, b, c, d, e)\nHWY_EXPORT(Table);\nTEST(Suite, Name) {\n  f(1, 2, 3, 4, 5);\n}\n"
              'const char* kText = R"(void f(int, int, int, int, int) {)";\n// void g(int a, int b,\n'
              "enum class E : int { a = 1, b = (2) };\nint x{f(1, 2, 3, 4, 5)};\n", False),
    "out_of_line": ("namespace n {\nvoid A::B::f(int, int, int, int, std::pair<int, int>) const noexcept {}\n"
                    "}\n", True),
}


def self_test():
    body = "".join(f"  int method{i}() const;\n" for i in range(MAX_METHODS))
    long_one = "void Long::work() {\n" + "\n" * (MAX_CLASS_LINES - 6) + "}\n"
    tree = {
        EXCEPTIONS: '[op_kinds]\nfiles = ["daemon/entry.cc", "daemon/gone.cc"]\n'
                    '[[function]]\nname = "n::known"\nparameters = 5\nreason = "a C ABI"\n'
                    '[[function]]\nname = "n::gone"\nparameters = 6\nreason = "it was"\n'
                    '[[function]]\nname = "n::unreasoned"\nparameters = 5\n'
                    '[[untested]]\nheader = "daemon/known.h"\ntested_by = "another"\n'
                    '[[untested]]\nheader = "daemon/tested.h"\ntested_by = "none"\n',
        "base/wide.h": f"class Wide {{\n public:\n  Wide() = default;\n{body}  int one_more();\n}};\n",
        "base/fits.h": f"class Fits {{\n public:\n  Fits() = default;\n{body}  int count = 0;\n}};\n",
        "base/long.h": "namespace n {\nclass Long {\n  void work();\n  void rest();\n};\n}\n",
        "base/long.cc": f"namespace n {{\n{long_one}void Long::rest() {{}}\n}}\n",
        "base/table.h": "namespace n {\nclass Table {\n  struct Row;\n  void work();\n};\n}\n",
        "base/table.cc": "namespace n {\nstruct Table::Row {\n" + "\n" * (MAX_CLASS_LINES // 2) + "};\n"
                         "void Table::work() {\n" + "\n" * (MAX_CLASS_LINES // 2) + "}\n}\n",
        "base/handle.h": "namespace n {\nclass Handle {\n  struct Inside;\n  void work();\n};\n}\n",
        "base/inside.h": "namespace n {\nstruct Handle::Inside {\n" + "\n" * (MAX_CLASS_LINES - 10) + "};\n}\n",
        "base/handle.cc": "void n::Handle::work() {\n" + "\n" * (MAX_CLASS_LINES // 2) + "}\n",
        "base/known.cc": "namespace n {\nvoid known(int, int, int, int, int) {}\n"
                         "void unreasoned(int, int, int, int, int);\n}\n",
        "base/broken.cc": "void f() {\n",
        "daemon/entry.cc": "auto kind = OpKind::barrier;\n",
        "daemon/other.cc": "// OpKind::barrier\nauto kind = shm::OpKind::barrier;\n",
        "daemon/by_plan.cc": "auto number = plan::kBarrier.number;\nauto most = plan::kMost;\n",
        "client_lib/by_c.cc": "tern_op op = TERN_OP_INIT;\nint kind = TERN_OP_BARRIER;\n",
        "plan/barrier.h": "inline constexpr Plan kBarrier{3};\nconstexpr int kMost = 2;\n",
        "daemon/part.h": "class Part {\n  int work();\n};\n", "daemon/part.cc": "int Part::work() {}\n",
        "daemon/known.h": "class Known {\n  int work();\n};\n", "daemon/known.cc": "int Known::work() {}\n",
        "daemon/tested.h": "class Tested {\n  int work();\n};\n",
        "daemon/tested.cc": "int Tested::work() {}\n", "tests/daemon/tested_test.cc": "int a;\n",
        "plan/plan.cc": "auto kind = OpKind::barrier;\nauto plan = plan::kBarrier;\n",
    }
    tree |= {f"tricky/{name}.cc": text for name, (text, _) in TRICKY.items()}
    expected = ["base/broken.cc:1", "base/long.h:2", "base/table.h:2", "base/wide.h:1", "client_lib/by_c.cc:2",
                "daemon/by_plan.cc:1", "daemon/other.cc:2",
                "daemon/part.h", EXCEPTIONS, EXCEPTIONS, EXCEPTIONS, EXCEPTIONS]
    expected += [f"tricky/{name}.cc" for name, (_, found) in TRICKY.items() if found]

    def key(finding):
        place = lint_check.place(finding)
        return place.partition(":")[0] if place.startswith("tricky/") else place

    return lint_check.self_test(check, tree, expected, key,
                                f"{len(expected)} made-up findings found, {len(TRICKY)} tricky files read")


if __name__ == "__main__":
    sys.exit(lint_check.run(lambda root: check(root, print), self_test, "files"))
