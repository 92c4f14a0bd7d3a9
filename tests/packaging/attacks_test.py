#!/usr/bin/python3
"""Attacks on the installed service: run by root in a guest, with build/deb filled by `make deb`.

    attacks_test.py FOLDER_WITH_DEBS TERN_ATTACK [SECONDS]

Another user trains over the service and an instance of its template. Beside him each attack of tests/attack
that needs nothing but a user goes on for SECONDS, beside a Soft-RoCE device that the units may use. Then the kernel promises no more memory than it has, and one
user takes all of it.
"""

import json
import pathlib
import pwd
import shutil
import subprocess
import sys

from service import CONFIG, check, find_packages, install_packages, main_pid, run, shown, step, ternctl

SOCKETS = ("/run/tern/ternd.sock", "/run/tern-other/ternd.sock")
CONTROL = "/run/tern/control.sock"
WITH_RXE = pathlib.Path(__file__).resolve().parent.parent / "vm/with_rxe.sh"
DROP_IN = pathlib.Path("/usr/share/tern/drop-ins/rdma.conf")
UNITS = ("ternd.service", "ternd@other.service")
PORT, METRICS_PORT = 7700, 9464
FAILURES = ("lost", "wrong", "joins_failed", "versions_failed")


def user_id(name):
    run("useradd", "--no-create-home", name)
    return pwd.getpwnam(name).pw_uid


class Victim:
    """The job that must not notice."""

    def __init__(self, program, user):
        sockets = [word for socket in SOCKETS for word in ("--socket", socket)]
        self._process = subprocess.Popen([program, "victim", "--user", str(user), *sockets, "--control", CONTROL],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _tell(self, word):
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def beside(self, action):
        """What it met while the action went on, and what that has returned."""
        self._tell("start")
        returned = action()
        self._tell("stop")
        line = self._process.stdout.readline()
        check(line, "the victim has died")
        return json.loads(line), returned

    def end(self):
        self._process.stdin.close()
        self._process.wait()


def attack(program, user, name, seconds):
    return int(run(program, "run", name, "--user", user, "--socket", SOCKETS[0], "--control", CONTROL,
                   "--port", PORT, "--metrics", METRICS_PORT, "--seconds", seconds))


def attacks_of(program):
    for line in run(program, "list").splitlines():
        name, standing, promise = line.split("\t")
        yield name, standing, promise


def main():
    program = pathlib.Path(sys.argv[2]).resolve()
    seconds = sys.argv[3] if len(sys.argv) > 3 else "10"
    run(WITH_RXE, "true")
    install_packages(find_packages(sys.argv[1]))
    for unit in UNITS:
        folder = pathlib.Path(f"/etc/systemd/system/{unit}.d")
        folder.mkdir(parents=True)
        shutil.copy(DROP_IN, folder)
    run("systemctl", "daemon-reload")
    CONFIG.write_text(f'[diagnostics]\nmetrics_listen = "127.0.0.1:{METRICS_PORT}"\n', encoding="utf-8")
    (CONFIG.parent / "other.toml").write_text('[network]\nlisten = "127.0.0.1:7701"\n', encoding="utf-8")
    run("systemctl", "restart", *UNITS)
    alice, mallory = user_id("alice"), user_id("mallory")
    doctor = next(row for row in ternctl("doctor") if row["subject"] == "RDMA")
    check("rxe0" in json.dumps(doctor), f"no device: {doctor}")
    victim = Victim(program, alice)
    daemons = [main_pid(unit) for unit in UNITS]
    for name, standing, promise in attacks_of(program):
        if standing != "plain":
            continue
        step(f"{name}: {promise}")
        met, blows = victim.beside(lambda name=name: attack(program, mallory, name, seconds))
        print(f"   {blows} blows; {met}", flush=True)
        check(blows > 0, f"{name} has not attacked")
        check(not any(met[what] for what in FAILURES) and met["ops"] > 0, f"{name}: {met}")
        check([main_pid(unit) for unit in UNITS] == daemons, f"{name} has ended a daemon")
    victim.end()

    step("one user takes all memory that the kernel promises")
    run("sysctl", "vm.overcommit_memory=2", "vm.overcommit_ratio=95")
    attack(program, mallory, "taken_memory", seconds)
    run("sysctl", "vm.overcommit_memory=0")
    check(shown("NRestarts") == "0" and main_pid() == daemons[0], "the daemon has ended")
    check(ternctl("version"), "the daemon does not answer")
    print("PASSED", flush=True)


if __name__ == "__main__":
    main()
