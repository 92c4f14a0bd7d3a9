"""What this machine can do of what some tests need. A test may skip itself only where the probe that
tests/allowed_skips.txt names beside it says that something is missing.

A probe returns None, or a sentence that says what is missing.
"""

import ctypes
import fnmatch
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def complaint_of(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else f"{' '.join(command)}: {done.stderr.strip()}"


def root():
    return None if os.geteuid() == 0 else "this user is not root"


def small_tmpfs():
    with tempfile.TemporaryDirectory(prefix="tern-probe-") as folder:
        complaint = complaint_of("mount", "-t", "tmpfs", "-o", "size=64k", "tern-probe", folder)
        return complaint or complaint_of("umount", folder)


def pid_namespaces():
    return root() or complaint_of("unshare", "--pid", "--fork", "true")


def guests():
    """QEMU and what goes with it, and Debian's kernel: there, or fetched now."""
    sys.path.insert(0, str(ROOT / "tests/vm"))
    import guest_kernel  # pylint: disable=import-outside-toplevel
    import run_in_guest  # pylint: disable=import-outside-toplevel
    if missing := run_in_guest.programs_missing():
        return f"not found: {', '.join(missing)}"
    try:
        guest_kernel.find_kernel()
    except (guest_kernel.KernelMissing, OSError) as error:
        return str(error)
    return None


def torch_environment():
    """PyPI's PyTorch in an environment of its own: there, or fetched now."""
    return complaint_of("sh", str(ROOT / "tools/torch_env.sh"))


def cuda_tool(name):
    """The tool in PATH, or where the CUDA Toolkit is installed."""
    folder = pathlib.Path("/usr/local/cuda/bin")
    return shutil.which(name) or shutil.which(name, path=folder)


def cuda_compiler():
    return None if cuda_tool("nvcc") else "there is no nvcc"


def cuda_disassembler():
    found = cuda_tool("nvdisasm") or os.environ.get("TERN_NVDISASM")
    return cuda_compiler() or (None if found else "there is no nvdisasm")


def gpu():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no CUDA driver"
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the CUDA driver sees no GPU"
    return None


def userfaultfd():
    """As shm/absent_pages.cc asks for it; 323 is its number on x86-64, 282 on aarch64."""
    number = {"x86_64": 323, "aarch64": 282}[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, os.O_CLOEXEC | os.O_NONBLOCK | 1)
    if descriptor < 0:
        return f"userfaultfd: {os.strerror(ctypes.get_errno())}"
    os.close(descriptor)
    return None


PROBES = {probe.__name__: probe
          for probe in (root, small_tmpfs, pid_namespaces, guests, torch_environment, cuda_compiler,
                        cuda_disassembler, gpu, userfaultfd)}


def read_allowed_skips(text):
    """(pattern, name of the probe) of each line; # begins the reason."""
    rows = [line.split("#")[0].split() for line in text.split("\n")]
    rows = [row for row in rows if row]
    for row in rows:
        if len(row) != 2:
            raise ValueError(f"tests/allowed_skips.txt: a pattern and a probe are due, not {' '.join(row)}")
        if row[1] not in PROBES:
            raise ValueError(f"tests/allowed_skips.txt: tools/machine_probes.py has no probe {row[1]}")
    return [tuple(row) for row in rows]


def refusals(skipped, allowed, probes=None):
    """Why skips are not allowed, one sentence each. A probe is asked once, and only about a test that skipped."""
    probes = PROBES if probes is None else probes
    answers = {}
    found = []
    for name in skipped:
        asked = [probe for pattern, probe in allowed if fnmatch.fnmatchcase(name, pattern)]
        if not asked:
            found.append(f"{name} skips itself and is not in tests/allowed_skips.txt")
            continue
        for probe in asked:
            if probe not in answers:
                answers[probe] = probes[probe]()
        if not any(answers[probe] for probe in asked):
            found.append(f"{name} skips itself although this machine can run it (probe: {', '.join(asked)})")
    return found
