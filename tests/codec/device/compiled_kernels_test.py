#!/usr/bin/python3
"""What nvcc made of the kernels, for each architecture.

    compiled_kernels_test.py budgets FOLDER NVCC   registers, stack, spills and static shared memory, as
                                                   ptxas reported them, against codec/device/budgets.toml
    compiled_kernels_test.py sass FOLDER NVCC      the barriers, wide loads and wide stores that it asks for

FOLDER has kernels_ARCHITECTURE.cubin and what ptxas said beside it. NVCC is the compiler, or empty where there is
none. Exit status 77: not run, with the reason.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUDGETS = ROOT / "codec/device/budgets.toml"
NOT_RUN = 77


def read_ptxas(text):
    """{kernel: {what: number}} of the output of ptxas -v."""
    kernels = {}
    kernel = None
    for line in text.split("\n"):
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            kernel = kernels.setdefault(found.group(1), {"static_shared_bytes": 0})
        if kernel is None:
            continue
        if found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
                              line):
            kernel["stack_bytes"] = int(found.group(1))
            kernel["spill_bytes"] = int(found.group(2)) + int(found.group(3))
        if found := re.search(r"Used (\d+) registers", line):
            kernel["registers"] = int(found.group(1))
            if found := re.search(r"(\d+) bytes smem", line):
                kernel["static_shared_bytes"] = int(found.group(1))
    return kernels


def over_budget(architecture, said, budgets):
    """One sentence for each number that is too large, and for each kernel without a row."""
    for name, numbers in sorted(said.items()):
        if name not in budgets:
            yield f"{architecture}: {name} has no row in {BUDGETS.relative_to(ROOT)}"
            continue
        for what in ("registers", "stack_bytes", "spill_bytes", "static_shared_bytes"):
            if numbers[what] > budgets[name][what]:
                yield (f"{architecture}: {name} takes {numbers[what]} {what.replace('_', ' ')}, "
                       f"{budgets[name][what]} at most")
    for name in sorted(set(budgets) - set(said)):
        yield f"{architecture}: {name} has a row in {BUDGETS.relative_to(ROOT)}, but was not compiled"


def missing_in_sass(architecture, sass, budgets):
    """One sentence for each instruction that a kernel should have and has not, and for dropped barriers."""
    functions = dict(re.findall(r"\.section\s+\.text\.(\w+)(.*?)(?=\.section\s+\.text\.|\Z)", sass, re.DOTALL))
    for name, row in sorted(budgets.items()):
        body = functions.get(name, "")
        barriers = len(re.findall(r"\bBAR\.SYNC", body))
        if barriers != row["barriers"]:
            yield f"{architecture}: {name} has {barriers} barriers instead of {row['barriers']}"
        for instruction in row["wide"]:
            base, _, width = instruction.partition(".")
            if not re.search(rf"\b{base}(\.\w+)*\.{width}\b", body):
                yield f"{architecture}: {name} has no {instruction}"


def self_test(budgets):
    """The readers find what they are for."""
    text = ("ptxas info    : Compiling entry function 'a' for 'sm_80'\n"
            "ptxas info    : Function properties for a\n"
            "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
            "ptxas info    : Used 40 registers, used 1 barriers, 16 bytes smem, 380 bytes cmem[0]\n")
    said = read_ptxas(text)
    assert said == {"a": {"stack_bytes": 8, "spill_bytes": 16, "registers": 40, "static_shared_bytes": 16}}, said
    row = {"registers": 39, "stack_bytes": 8, "spill_bytes": 16, "static_shared_bytes": 16,
           "barriers": 1, "wide": ["LDG.128"]}
    assert len(list(over_budget("sm_80", said, {"a": row}))) == 1
    assert len(list(over_budget("sm_80", said, {"b": row}))) == 2
    sass = ".section .text.a,\n LDG.E.128.CONSTANT R4 ;\n BAR.SYNC 0 ;\n.section .text.b,\n LDG.E R4 ;\n"
    assert not list(missing_in_sass("sm_80", sass, {"a": row}))
    assert len(list(missing_in_sass("sm_80", sass, {"b": row}))) == 2
    assert budgets


def disassembler(nvcc):
    beside = pathlib.Path(nvcc).parent / "nvdisasm" if nvcc else None
    if beside is not None and beside.exists():
        return str(beside)
    return os.environ.get("TERN_NVDISASM") or shutil.which("nvdisasm")


def not_run(reason):
    print(f"not run: {reason}")
    return NOT_RUN


def main(what, folder, nvcc):
    budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))["kernel"]
    self_test(budgets)
    if not nvcc:
        return not_run("there is no nvcc, or TERN_WITH_CUDA is OFF; the kernels were not compiled")
    cubins = sorted(pathlib.Path(folder).glob("kernels_*.cubin"))
    if not cubins:
        return not_run(f"nothing was compiled in {folder}: build codec_device_cubins first")
    findings = []
    tool = disassembler(nvcc)
    for cubin in cubins:
        architecture = cubin.stem.removeprefix("kernels_")
        if what == "budgets":
            said = read_ptxas(pathlib.Path(f"{cubin}.ptxas").read_text(encoding="utf-8"))
            for name, numbers in sorted(said.items()):
                print(architecture, name, *(f"{key}={value}" for key, value in sorted(numbers.items())))
            findings += over_budget(architecture, said, budgets)
        elif not tool:
            return not_run("there is no nvdisasm beside nvcc, in PATH or in TERN_NVDISASM "
                           "(PyPI's nvidia-cuda-nvdisasm has it)")
        else:
            sass = subprocess.run([tool, "-c", str(cubin)], capture_output=True, text=True, check=True)
            findings += missing_in_sass(architecture, sass.stdout, budgets)
    print(*findings, sep="\n")
    print(f"{len(cubins)} architectures, {len(budgets)} kernels, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
