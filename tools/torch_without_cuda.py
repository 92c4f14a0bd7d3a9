#!/usr/bin/env python3
"""Lets PyPI's PyTorch for x86-64 load without the libraries of CUDA, which take 4 GB: on a machine
without a GPU nothing calls them.

    torch_without_cuda.py FOLDER    of the package, as site-packages/torch

Makes an empty library in FOLDER/lib for each that is missing, with the functions that PyTorch's own
ask for. Each function returns an error, so that PyTorch finds no GPU. Needs gcc, nm and readelf.
"""

import collections
import pathlib
import subprocess
import sys
import tempfile

NO_DEVICE = 100  # cudaErrorNoDevice
FAMILIES = ("libcu", "libnccl", "libnv")
UNVERSIONED = ("cu", "__cu", "nccl", "nvrtc", "nvshmem", "nvml")


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def symbols(library, which):
    """(name, version) of those that are defined or undefined."""
    for line in lines("nm", "-D", which, library):
        name, _, version = line.split()[-1].partition("@")
        yield name, version.lstrip("@")


def needs(library):
    """The libraries that it names, and by library of which versions."""
    named, versions, file = set(), {}, None
    for line in lines("readelf", "-dVW", library):
        if "(NEEDED)" in line:
            named.add(line.split("[")[1].split("]")[0])
        elif " File: " in line:
            file = line.split(" File: ")[1].split()[0]
        elif " Name: " in line and file:
            versions.setdefault(line.split(" Name: ")[1].split()[0], file)
    return named, versions


def main():
    folder = pathlib.Path(sys.argv[1], "lib")
    own = sorted(folder.glob("*.so*"))
    defined = {name for library in own for name, _ in symbols(library, "--defined-only")}
    missing, functions = set(), collections.defaultdict(lambda: collections.defaultdict(set))
    for library in own:
        named, versions = needs(library)
        missing |= {name for name in named
                    if name.startswith(FAMILIES) and not (folder / name).exists()}
        for name, version in symbols(library, "--undefined-only"):
            if version:
                functions[versions.get(version)][version].add(name)
            elif name not in defined and name.startswith(UNVERSIONED):
                functions["libnccl.so.2"][""].add(name)
    with tempfile.TemporaryDirectory() as name:
        for library in missing:
            make(pathlib.Path(name), folder / library, functions[library])
    print(f"{len(missing)} libraries of CUDA stand in {folder}, empty", file=sys.stderr)


def make(scratch, library, by_version):
    """A library with these functions, some of which have versions."""
    source, script = scratch / "functions.c", scratch / "versions"
    source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n"
                              for names in by_version.values() for name in sorted(names)))
    versions = {version: names for version, names in by_version.items() if version}
    script.write_text("".join(
        f"{version} {{ global: {'; '.join(sorted(names))}; }};\n"
        for version, names in versions.items()))
    subprocess.run(["gcc", "-w", "-fno-builtin", "-shared", "-o", library,
                    f"-Wl,-soname,{library.name}",
                    *([f"-Wl,--version-script={script}"] if versions else []), source], check=True)


if __name__ == "__main__":
    main()
