"""The codecs beside what is aimed for: a table of aims, each a ratio to the pass e[i] += x[i] of the same
run; and the usual recipes on a recorded gradient. The prototypes' GB/s are of a machine on which that pass
runs at 8.4 to 9.0 GB/s. Where no other aim is set, the prototype's ratio is the aim."""

import json
import pathlib
import shutil
import subprocess

import numpy

from bench_report import markdown_table

COMPUTE = "arithmetic, not memory, is the bound on this processor"
LINES = "memory: lines are fetched before they are overwritten"
DRAWS = "a draw of 32 bits an element, so that the bytes are the same on every target"
STAGES = "quantise, dequantise, subtract: arithmetic, at most 9 GB/s even in cache"
SPARSE = "every value is still compensated and scanned: one and a half passes"
COPY = "the result is copied to what is remembered"
HUFFMAN = "one table look-up a symbol; the prototype coded several symbols a look-up"

# The gradient of one layer at steps of a short training, after its fast beginning.
RECORDED_TENSOR = "layer1.weight"
RECORDED_STEPS = range(100, 108)
RECORDED_RECIPES = ["raw", "bf16", "3lc:s=1", "3lc:s=1,scale=16384", "3lc:s=1.75"]

DELTA_SEED = 1
DELTA_CHANGED = 0.02

# Every byte of a float is a symbol here; the aim is for one symbol a float.
SYMBOLS = "none(raw+huffman)"
SYMBOLS_PER_FLOAT = 4

# (what, recipe, key of the row, aim, GB/s of the prototype, why it may fall short)
AIMS = [
    ("3LC encode with residual, a scale per 64 KiB", "3lc:s=1,scale=16384", "encode", 0.65,
     "6.7-7.5", COMPUTE),
    ("3LC encode with residual, default scale", "3lc:s=1", "encode", 0.55, "-", COMPUTE),
    ("3LC encode with residual, a scale per tensor", "3lc:s=1,scale=tensor", "encode", 0.48,
     "4.2-4.8", COMPUTE),
    ("3LC decode_add", "3lc:s=1", "decode_add", 1.3, "13.5-14.5", COMPUTE),
    ("3LC decode_add, s=1.75", "3lc:s=1.75", "decode_add", 1.45, "13.5-14.5", COMPUTE),
    ("3LC decode", "3lc:s=1", "decode", 0.95, "9", LINES),
    ("1 bit encode with residual", "ef(onebit)", "encode", 0.9, "9.0", STAGES),
    ("1 bit decode_add", "ef(onebit)", "decode_add", 1.5, "15", STAGES),
    ("int8 encode with residual", "ef(int:bits=8)", "encode", 0.75, "7.1-7.4", STAGES),
    ("int8 encode, stochastic", "none(int:bits=8,round=stochastic)", "encode", 0.75, "7.1-7.4",
     DRAWS),
    ("int8 decode_add", "ef(int:bits=8)", "decode_add", 1.2, "11.8", STAGES),
    ("int4 encode with residual", "ef(int:bits=4)", "encode", 0.8, "7.7-8.1", STAGES),
    ("int4 encode, stochastic", "none(int:bits=4,round=stochastic)", "encode", 0.8, "7.7-8.1",
     DRAWS),
    ("int4 decode_add", "ef(int:bits=4)", "decode_add", 1.3, "13.0", STAGES),
    ("4-bit Lloyd + Huffman encode", "ef(lloyd:bits=4+huffman)", "encode", 0.5, "4.4-8.4", HUFFMAN),
    ("4-bit Lloyd + Huffman decode", "ef(lloyd:bits=4+huffman)", "decode", 0.55, "5.5", HUFFMAN),
    ("Huffman alone, encode", SYMBOLS, "encode", 0.75, "7", HUFFMAN),
    ("Huffman alone, decode", SYMBOLS, "decode", 1.4, "5.4-13.7", HUFFMAN),
    ("lossless f32 encode", "none(lossless)", "encode", 0.4, "3.9", HUFFMAN),
    ("lossless f32 decode", "none(lossless)", "decode", 0.4, "3.9", HUFFMAN),
    ("top-1 % with residual", "ef(topk:p=0.01)", "encode", 0.75, "6.6", SPARSE),
    ("top-1 % without", "none(topk:p=0.01)", "encode", 1.4, "15.8", SPARSE),
    ("random-1 % without residual", "none(randk:p=0.01)", "encode", 5.0, "61",
     "all values are scanned for NaN and energy before anything is written"),
    ("random-1 % with residual", "ef(randk:p=0.01)", "encode", 0.8, "8.1", SPARSE),
]
# The same with the kernels for processors without AVX-512, where this one has them.
NARROW_TARGET = "avx2"
NARROW_AIMS = [
    ("3LC encode with residual, a scale per 64 KiB", "3lc:s=1,scale=16384", "encode", 0.42, "3.4",
     COMPUTE),
    ("3LC encode with residual, default scale", "3lc:s=1", "encode", 0.42, "-", COMPUTE),
]
# The same of a bf16 tensor, of which DELTA_CHANGED of the values change between two steps.
DELTA_AIMS = [
    ("bf16 lossless encode", "none(lossless)", "encode", 0.35, "3.6", HUFFMAN),
    ("bf16 lossless decode", "none(lossless)", "decode", 0.3, "2.85", HUFFMAN),
    ("bf16 XOR delta, 2 % changed, encode", "none(xordelta)", "encode", 0.8, "7.4-8.0", STAGES),
    ("bf16 XOR delta, 2 % changed, decode", "none(xordelta)", "decode", 1.2, "11-13", COPY),
]


def write_steps(folder, values):
    """Two steps of a tensor, as raw bf16."""
    random = numpy.random.default_rng(DELTA_SEED)
    steps = [random.standard_normal(values, numpy.float32)]
    steps.append(numpy.where(random.random(values) < DELTA_CHANGED,
                             random.standard_normal(values, numpy.float32), steps[0]))
    files = []
    for number, step in enumerate(steps):
        files.append(folder / f"delta_step{number}.raw")
        (step.view(numpy.uint32) >> 16).astype(numpy.uint16).tofile(files[-1])
    return files


def run(program, recipes, words, file, target="auto"):
    """The rows of `tern-bench codec` on one target, by the recipes as they are asked for."""
    subprocess.run([program, "codec", "--target", target, "--json", file, *map(str, words),
                    "--recipe", *recipes], check=True)
    return dict(zip(recipes, json.loads(file.read_text(encoding="utf-8"))["rows"]))


def measure(program, size_mib, iterations, out, targets):
    """A row for each aim; `targets` are those that this machine has."""
    out = pathlib.Path(out)
    words = ["--size-mib", size_mib, "--iterations", iterations]
    values = size_mib * (1 << 20) // 4
    rows = []
    for aims, target, more in (
            (AIMS, "auto", []),
            (NARROW_AIMS, NARROW_TARGET, []),
            (DELTA_AIMS, "auto", ["--dtype", "bf16", "--input", *write_steps(out, values)])):
        if target not in ("auto", *targets):
            continue
        measured = run(program, list(dict.fromkeys(row[1] for row in aims)), [*words, *more],
                       out / "codec_aims.json", target)
        rows += [related(row, measured) for row in aims]
    return rows


def record_gradients(programs, out):
    """Eight successive gradients of one layer, as the files of a short training."""
    folder = pathlib.Path(out) / "recorded"
    shutil.rmtree(folder, ignore_errors=True)
    first, last = RECORDED_STEPS[0], RECORDED_STEPS[-1]
    subprocess.run([programs / "train_mnist", "--local", "--steps", str(last + 1), "--record", folder,
                    "--record-steps", f"{first}-{last}"], check=True)
    return [folder / f"grad_{RECORDED_TENSOR}_step{step}.npy" for step in RECORDED_STEPS]


def measure_recorded(program, files, size_mib, iterations, out):
    """The usual recipes on what a training has recorded."""
    rows = run(program, RECORDED_RECIPES,
               ["--size-mib", size_mib, "--iterations", iterations, "--input", *files],
               pathlib.Path(out) / "codec_recorded.json")
    return list(rows.values())


def related(row, measured):
    what, recipe, key, limit, prototype, why = row
    factor = SYMBOLS_PER_FLOAT if recipe == SYMBOLS else 1
    ratio = factor * measured[recipe][f"{key}_ratio"]
    return {"aim": what, "recipe": recipe, "target": measured[recipe]["target"], "limit": limit, "measured": ratio, "met": ratio >= limit,
            "gb_per_s": factor * measured[recipe][f"{key}_gb_per_s"],
            "prototype_gb_per_s": prototype, "why": "" if ratio >= limit else why}


def markdown(rows):
    return markdown_table(
        ("codec", "recipe", "target", "prototype GB/s", "GB/s", "of the pass", "aim", "",
         "supposed cause"),
        [(row["aim"], f"`{row['recipe']}`", row["target"], row["prototype_gb_per_s"],
          f"{row['gb_per_s']:.2f}", f"{row['measured']:.2f}", f"{row['limit']:.2f}",
          "met" if row["met"] else "**missed**", row["why"])
         for row in rows])


def recorded_markdown(rows):
    return markdown_table(
        ("recipe", "target", "ratio", "error", "of sums", "residual", "encode", "x", "decode", "x"),
        [(f"`{row['recipe']}`", row["target"], f"{row['compression_ratio']:.2f}",
          f"{row['error']:.3g}", f"{row['sum_error']:.3g}",
          f"{row['residual_energy_over_input_energy'] ** 0.5:.3g}", f"{row['encode_gb_per_s']:.2f}",
          f"{row['encode_ratio']:.2f}", f"{row['decode_gb_per_s']:.2f}", f"{row['decode_ratio']:.2f}")
         for row in rows])
