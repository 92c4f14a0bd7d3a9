"""Debian's kernel for the guest: fetched once and kept below build/vm."""

import fcntl
import os
import pathlib
import re
import subprocess
from dataclasses import dataclass

CACHE = pathlib.Path(__file__).resolve().parent.parent.parent / "build/vm"
REMEDY = "run `apt-get update` on a Debian 12 with its archive in reach, or set TERN_VM_KERNEL_DEB to a file"


class KernelMissing(Exception):
    """There is no kernel to be had; the text says why."""


@dataclass(frozen=True)
class Kernel:
    root: pathlib.Path  # the unpacked package
    version: str

    @property
    def image(self):
        return self.root / f"boot/vmlinuz-{self.version}"


def output_of(*command, cwd=None):
    try:
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise KernelMissing(f"there is no program {error.filename}: {REMEDY}") from error
    except subprocess.CalledProcessError as error:
        words = (error.stderr or "").strip().split("\n")[-1]
        raise KernelMissing(f"{' '.join(command)}: {words}; {REMEDY}") from error


def package_file(folder):
    """The package that linux-image-amd64 depends on; the cloud kernel lacks rxe."""
    if given := os.environ.get("TERN_VM_KERNEL_DEB"):
        return given
    depends = output_of("apt-cache", "depends", "linux-image-amd64")
    named = re.search(r"Depends: (linux-image-\d\S*)", depends)
    if not named:
        raise KernelMissing(f"apt-cache knows no kernel package: {REMEDY}")
    output_of("apt-get", "download", named[1], cwd=folder)
    return str(next(folder.glob(f"{named[1]}_*.deb")))


def unpack(target):
    root = target.with_name("kernel.unfinished")
    root.mkdir(exist_ok=True)
    output_of("dpkg-deb", "-x", package_file(root.parent), str(root))
    for version in os.listdir(root / "lib/modules"):
        output_of("/usr/sbin/depmod" if os.path.exists("/usr/sbin/depmod") else "depmod", "-b", str(root), version)
    root.rename(target)


def find_kernel():
    CACHE.mkdir(parents=True, exist_ok=True)
    target = CACHE / "kernel"
    # Tests that start together fetch it once.
    with (CACHE / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            unpack(target)
    return Kernel(target, next(iter(os.listdir(target / "lib/modules"))))
