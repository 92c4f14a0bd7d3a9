#!/usr/bin/python3
"""The study of codecs: trains two small models, records their gradients and weights, and measures
every family of recipes on them.

Writes build/study/study.json, the pictures in docs/images, and the section between the markers
study:begin and study:end of docs/codecs.md.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import study_plan as plan
import study_report
from origin import commit_name, processor_name
from page_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent


class StudyError(Exception):
    """Says what failed, for people."""


def say(text):
    print(text, flush=True)


class Bar:
    """How far one part is: a bar on a terminal, its first and last line elsewhere."""

    WIDTH = 30

    def __init__(self, title, total):
        self.title, self.total, self.done = title, total, 0
        self.terminal = sys.stdout.isatty()
        if not self.terminal:
            say(f"{title}: {total} rows")

    def step(self):
        self.done = min(self.done + 1, self.total)
        if self.terminal:
            filled = self.WIDTH * self.done // self.total
            sys.stdout.write(f"\r[{'#' * filled}{'.' * (self.WIDTH - filled)}] "
                             f"{self.done}/{self.total} {self.title} ")
            sys.stdout.flush()

    def end(self):
        if self.terminal:
            sys.stdout.write("\n")


def run_bench(options, title, command, words, rows):
    """Runs tern-bench and returns its lines; each line that names a recipe is a step of the bar."""
    bar = Bar(title, rows)
    lines = []
    with subprocess.Popen([options.programs / "tern-bench", command, *map(str, words)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            lines.append(line.rstrip())
            if "(" in line.split(" ")[0]:
                bar.step()
    bar.end()
    if process.returncode != 0:
        raise StudyError("\n".join([f"tern-bench {command} failed on {title}:", *lines[-5:]]))
    return lines


def measure(options, title, files, recipes, chunk_kib=256, books=()):
    """The rows of `tern-bench codec`, by recipe."""
    out = options.out / "rows.json"
    words = ["--input", *files, "--chunk-kib", chunk_kib, "--json", out,
             "--size-mib", options.size_mib, "--iterations", options.iterations]
    for book in books:
        words += ["--codebook", book]
    words += ["--recipe", *recipes]
    run_bench(options, title, "codec", words, len(recipes))
    result = json.loads(out.read_text(encoding="utf-8"))
    return result, {row["recipe"]: row for row in result["rows"]}


def train(options, name):
    model = plan.MODELS[name]
    folder = options.out / name
    say(f"training the {model['title']} for {model['steps']} steps")
    steps = ",".join(f"{steps.start}-{steps.stop - 1}" for steps in (plan.EARLY, plan.LATE))
    done = subprocess.run(
        [options.programs / model["program"], "--local", "--steps", str(model["steps"]),
         "--batch", str(model["batch"]), "--record", folder, "--record-steps", steps],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StudyError(done.stderr.strip())
    say("  " + done.stdout.strip())


def recorded(options, name, kind, steps):
    prefix = "grad" if kind == "gradients" else "weight"
    return [options.out / name / f"{prefix}_{plan.TENSOR}_step{step}.npy" for step in steps]


def own_sets(options):
    for name, model in plan.MODELS.items():
        for kind in ("gradients", "weights"):
            yield {"name": f"{name}-{kind}", "title": f"{kind} of the {model['title']}",
                   "kind": kind, "files": recorded(options, name, kind, plan.LATE),
                   "early": recorded(options, name, kind, plan.EARLY)}


def extra_sets(folder):
    """Files NAME_stepN.npy are one tensor at successive steps; others stand alone."""
    groups = collections.defaultdict(list)
    for path in sorted(folder.rglob("*.npy")):
        match = re.fullmatch(r"(.*)_step(\d+)", path.stem)
        name, step = (match[1], int(match[2])) if match else (path.stem, 0)
        relative = path.parent.relative_to(folder)
        groups[str(relative / name).replace("/", "-")].append((step, path))
    if not groups:
        raise StudyError(f"no .npy files below {folder}")
    for name, files in groups.items():
        files = [path for _, path in sorted(files)][-len(plan.LATE):]
        kind = "weights" if "weight_" in name else "gradients"
        yield {"name": name, "title": f"{kind} {name}", "kind": kind, "files": files, "early": []}


def measure_set(options, data):
    recipes = plan.recipes(data["kind"])
    names = list(dict.fromkeys(recipe for _, recipe in recipes))
    result, rows = measure(options, data["title"], data["files"], names)
    for family, recipe in recipes:
        row = rows[recipe]
        row.setdefault("family", family)
        # With feedback the error of a later step holds what earlier ones owed: a step is judged by
        # the first. A shift has learnt something only later.
        shifted = recipe.startswith(("diana", "ef21"))
        row["step_error"] = row["error"] if shifted else row["first_error"]
    return {key: data[key] for key in ("name", "title", "kind")} | {
        "elements": result["elements"], "steps": len(data["files"]), "rows": rows}


def coded(recipe, book=None):
    return recipe[:-1] + "+huffman" + (f":book={book}" if book else "") + ")"


def study_books(options, sets):
    """Dynamic codebooks beside static ones that learnt from early steps of the same model, and of
    the other one."""
    folder = options.out / "books"
    folder.mkdir(exist_ok=True)
    entries = []
    for data in sets:
        recipes = plan.BOOKS[data["kind"]] if data["early"] else []
        for index, recipe in enumerate(recipes):
            book = f"{data['name']}-{index}"
            run_bench(options, f"codebook {book}", "codebook",
                      ["--recipe", recipe, "--input", *data["early"], "--name", book,
                       "--out", folder / book], 1)
            entries.append((data, index, recipe, book))
    result = []
    for data, index, recipe, book in entries:
        others = [other for candidate, number, _, other in entries
                  if candidate["kind"] == data["kind"] and number == index and other != book]
        for chunk_kib in plan.BOOK_CHUNKS_KIB:
            names = [recipe, coded(recipe), coded(recipe, book), coded(recipe, others[0])]
            _, rows = measure(options, f"books, {data['title']}, {recipe}, {chunk_kib} KiB",
                              data["files"], names, chunk_kib,
                              [folder / book, folder / others[0]])
            result.append({"set": data["name"], "recipe": recipe, "chunk_kib": chunk_kib,
                           "rows": dict(zip(("plain", "dynamic", "own", "other"),
                                            (rows[name] for name in names)))})
    return result


def narrow(path, dtype, folder):
    """The same values as a raw file of two bytes each."""
    import numpy  # comes with matplotlib, and is needed for nothing else
    values = numpy.load(path)
    out = folder / f"{path.stem}.{dtype}"
    if dtype == "f16":
        values.astype("<f2").tofile(out)
    else:
        bits = values.astype("<f4").view("<u4").astype("u8")
        ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype("<u2").tofile(out)
    return out


def study_lossless(options, sets):
    """lossless and xordelta in all three types."""
    folder = options.out / "narrow"
    folder.mkdir(exist_ok=True)
    result = []
    names = ["none(raw)", "none(lossless)", "none(xordelta)"]
    for data in sets:
        for dtype in ("f32", "f16", "bf16"):
            files = data["files"]
            if dtype != "f32":
                files = [narrow(path, dtype, folder) for path in files]
            words = [] if dtype == "f32" else ["--dtype", dtype]
            _, rows = measure(options, f"lossless, {data['title']}, {dtype}", [*files, *words],
                              names)
            result.append({"set": data["name"], "dtype": dtype, "rows": rows})
    return result


def run(options):
    for program in ("tern-bench", *(model["program"] for model in plan.MODELS.values())):
        if not (options.programs / program).exists():
            raise StudyError(f"{options.programs / program} is not there; run make study")
    result_file = options.out / "study.json"
    if options.report_only:
        if not result_file.exists():
            raise StudyError(f"{result_file} is not there; run make study")
        result = json.loads(result_file.read_text(encoding="utf-8"))
    else:
        shutil.rmtree(options.out, ignore_errors=True)
        options.out.mkdir(parents=True)
        for name in plan.MODELS:
            train(options, name)
        own = list(own_sets(options))
        extra = [data for folder in options.extra for data in extra_sets(folder)]
        result = {"commit": commit_name(), "date": time.strftime("%Y-%m-%d"),
                  "processor": processor_name(), "cores": os.cpu_count(), "size_mib": options.size_mib,
                  "sets": [measure_set(options, data) for data in own + extra],
                  "books": study_books(options, own), "lossless": study_lossless(options, own)}
        result_file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        say(f"written: {result_file}")
    options.images.mkdir(parents=True, exist_ok=True)
    drawn = subprocess.run([sys.executable, ROOT / "tools/plot_study.py", result_file,
                            options.images], check=False)
    if drawn.returncode != 0:
        raise StudyError("the pictures could not be drawn")
    replace_section(options.page, "study", study_report.section(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--extra", type=pathlib.Path, action="append", default=[],
                        help="a folder with more recorded .npy files, NAME_stepN.npy")
    parser.add_argument("--size-mib", type=int, default=32, help="tensor whose time is taken")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--report-only", action="store_true",
                        help="measure nothing: the page and pictures from build/study/study.json")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/study")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/codecs.md")
    parser.add_argument("--images", type=pathlib.Path, default=ROOT / "docs/images")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(options)
        return 0
    except (StudyError, ValueError) as error:
        print(f"study: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstudy: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
