"""What a figure says of its origin: which commit was measured, and on what processor."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def commit_name():
    """The short hash of HEAD, with `-dirty` if the tree differs from it; "unknown" without git."""
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*"],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def processor_name():
    """As the kernel calls it, with family and model: a name alone may be that of several generations."""
    found = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    if "model name" not in found:
        return "unknown"
    if "cpu family" not in found:
        return found["model name"]
    return f"{found['model name']} (family {found['cpu family']}, model {found.get('model')})"
