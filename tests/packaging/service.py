"""The installed service as tests see it; run by root in a guest with a systemd of its own."""

import contextlib
import json
import os
import pathlib
import pwd
import re
import subprocess
import sys
import time

CONFIG = pathlib.Path("/etc/tern/ternd.toml")
CONTROL = pathlib.Path(__file__).resolve().parents[2] / "packaging/debian/control"
# Emulated machines are slow; this only ends what hangs.
PATIENCE_S = 120


def run(*words, status=0, **options):
    """What the command prints; the test fails unless it ends with `status` (None: with any)."""
    print("   " + " ".join(map(str, words))[:110], flush=True)
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **options)
    if status is not None and done.returncode != status:
        fail(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def fail(text):
    print(f"FAILED: {text}", flush=True)
    journal = subprocess.run(["journalctl", "--no-pager", "-n", "40", "-u", "ternd*"], capture_output=True, text=True,
                             check=False)
    print(journal.stdout, flush=True)
    sys.exit(1)


def check(condition, text):
    if not condition:
        fail(text)


def eventually(condition, text):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            fail(f"not within {PATIENCE_S} s: {text}")
        time.sleep(0.1)


def step(text):
    print(f"-- {text}", flush=True)


def shown(name, unit="ternd.service"):
    return run("systemctl", "show", "--property", name, "--value", unit).strip()


def main_pid(unit="ternd.service"):
    return int(shown("MainPID", unit))


def ternctl(*words, **options):
    return json.loads(run("ternctl", "--timeout", "60", "--json", *words, **options))


def logged(text, *options):
    return text in run("journalctl", "--no-pager", "--output", "cat", *options)


def exposure(unit):
    """What systemd's own examination makes of the sandbox, of 10."""
    text = run("systemd-analyze", "security", "--no-pager", unit)
    figure = float(re.search(r"exposure level for \S+: ([0-9.]+)", text)[1])
    print(f"exposure of {unit}: {figure}", flush=True)
    return figure


def find_packages(folder):
    debs = sorted(path for path in pathlib.Path(folder).glob("*.deb") if "-dbgsym" not in path.name)
    found = [path.name.partition("_")[0] for path in debs]
    wanted = sorted(re.findall(r"^Package: (\S+)$", CONTROL.read_text(encoding="utf-8"), re.MULTILINE))
    check(sorted(found) == wanted, f"{folder} has {found}, and not {wanted}: make it with tools/make_deb.sh")
    return debs


def install_packages(debs):
    # Images for containers bring a policy that no package may start a service.
    pathlib.Path("/usr/sbin/policy-rc.d").unlink(missing_ok=True)
    # Indexing all manual pages takes minutes under emulation.
    pathlib.Path("/var/lib/man-db/auto-update").unlink(missing_ok=True)
    run("dpkg", "--install", *debs)


def compile_program(source, folder):
    """With the installed header and library."""
    program = folder / source.stem
    run("cc", source, *run("pkg-config", "--cflags", "--libs", "tern").split(), "-o", program)
    return program


def identity(user):
    """Options with which subprocess runs a command as a user of this machine."""
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": os.getgrouplist(user, entry.pw_gid)}


@contextlib.contextmanager
def acting_as(user):
    """This process is the user's to the kernel."""
    before, entry = os.getgroups(), pwd.getpwnam(user)
    os.setgroups(os.getgrouplist(user, entry.pw_gid))
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)
