#!/usr/bin/python3
"""RDMA in the sandbox of the installed units: run by root in a guest, with build/deb filled by `make deb`.

    rdma_unit_test.py FOLDER_WITH_DEBS

Two instances of the template on a Soft-RoCE device, and two ranks of a user without privileges. The units as
they are keep devices closed, and TCP carries on and says why; with the drop-in frames travel by RDMA.
"""

import pathlib
import shutil
import sys

from ranks import Job
from service import (CONFIG, check, compile_program, eventually, exposure, find_packages, install_packages, main_pid,
                     run, shown, step, ternctl)

HERE = pathlib.Path(__file__).resolve().parent
WITH_RXE = HERE.parent / "vm/with_rxe.sh"
DROP_IN = pathlib.Path("/usr/share/tern/drop-ins/rdma.conf")
UNITS = ("ternd@a", "ternd@b")
FOLDERS = ("/run/tern-a", "/run/tern-b")
ADDRESS = "10.9.0.1"  # of with_rxe.sh
SETTINGS = """
[network]
listen = "{address}:{port}"
[security]
peer_security = "plaintext"
[rdma]
rdma_retry = "1s"
"""


def begin(debs, folder):
    run(WITH_RXE, "true")
    install_packages(debs)
    run("useradd", "--no-create-home", "alice")
    for number, unit in enumerate(UNITS):
        text = SETTINGS.format(address=ADDRESS, port=7710 + number)
        (CONFIG.parent / f"{unit.partition('@')[2]}.toml").write_text(text, encoding="utf-8")
        run("systemctl", "start", unit)
    return compile_program(HERE / "rank.c", folder)


def at(folder, verb):
    return ternctl("--socket", f"{folder}/control.sock", verb)


def lanes(folder):
    return [row for row in at(folder, "peers") if row["lane"] != "control" and row["state"] == "up"]


def finding(folder):
    """What the doctor says of RDMA."""
    return next(row for row in at(folder, "doctor") if row["subject"] == "RDMA")


def reduce_by_rdma(job):
    """A link begins on TCP, and may stay there for as long as an attempt to leave it takes."""
    def are_rdma():
        job.reduce()
        rows = [row for folder in FOLDERS for row in lanes(folder)]
        return rows and all(row["transport"] == "rdma" for row in rows)
    eventually(are_rdma, "all lanes use RDMA")
    before = [row["frames_sent"] for folder in FOLDERS for row in lanes(folder)]
    job.reduce(5)
    rows = [row for folder in FOLDERS for row in lanes(folder)]
    check(all(row["frames_sent"] > sent for row, sent in zip(rows, before)), f"no frames over RDMA: {rows}")
    check(all(row["transport"] == "rdma" and row["failovers"] == 0 for row in rows), f"not by RDMA to the end: {rows}")
    print(f"   {len(rows)} lanes over {rows[0]['transport_note']}", flush=True)


def train(program):
    return Job(program, "alice", "alice-job", FOLDERS, "alice-layer", 100_000)


def check_names_cause_and_remedy(text):
    check("/dev/infiniband/uverbs0 cannot be opened: Operation not permitted" in text, f"no cause: {text}")
    check("install the drop-in share/tern/drop-ins/rdma.conf for its unit" in text, f"no remedy: {text}")


def without_drop_in(program):
    check("infiniband" not in shown("DeviceAllow", UNITS[0]), "the unit opens devices by itself")
    job = train(program)
    job.reduce(5)
    notes = []
    for folder in FOLDERS:
        rows = lanes(folder)
        check(rows and all(row["transport"] == "tcp" for row in rows), f"not by TCP: {rows}")
        notes += [row["transport_note"] for row in rows]
        doctor = finding(folder)
        check(doctor["grade"] == "advice", f"the doctor: {doctor}")
        check_names_cause_and_remedy(doctor["text"])
        check_names_cause_and_remedy(at(folder, "status")["carriers"])
    print("   " + "\n   ".join(notes), flush=True)
    # The end that dials says it; the other is not asked for RDMA, and has that to say of the peer.
    check_names_cause_and_remedy("".join(notes))
    check(all("RDMA" in note for note in notes), "an end does not say why")
    job.end()


def install_drop_in():
    # As docs/operations.md says.
    for unit in ("ternd.service", "ternd@.service"):
        place = pathlib.Path(f"/etc/systemd/system/{unit}.d")
        place.mkdir()
        shutil.copy(DROP_IN, place)
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", "ternd", *UNITS)


def with_drop_in(program):
    install_drop_in()
    for unit in ("ternd.service", "ternd@a.service"):
        check(exposure(unit) < 2.0, f"the sandbox of {unit} is too open")
        check(shown("DevicePolicy", unit) == "closed", "the drop-in opens all devices")
    job = train(program)
    reduce_by_rdma(job)
    for folder in FOLDERS:
        check(at(folder, "status")["carriers"].startswith("RDMA over "), "the daemon's status")
        check(finding(folder)["grade"] == "good", f"the doctor: {finding(folder)}")
    job.end()


def device_comes_later(program):
    """As on a machine whose card is found after the daemon has started: nothing has loaded verbs before."""
    run("systemctl", "stop", *UNITS, *(f"{unit}.socket" for unit in UNITS))
    run("rdma", "link", "delete", "rxe0")
    run("modprobe", "--remove", "rdma_ucm", "rdma_rxe")
    run("modprobe", "--remove", "ib_uverbs", status=None)  # gone already with the last that used it
    check(not pathlib.Path("/sys/module/ib_uverbs").exists(), "the module of verbs is still there")
    run("systemctl", "start", *UNITS)
    check("there is no RDMA device" in at(FOLDERS[0], "status")["carriers"], "a daemon without a device")
    job = train(program)
    job.reduce()
    job.end()
    daemons = [main_pid(unit) for unit in UNITS]
    run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "d0")
    # The links of a group that begins now.
    job = train(program)
    reduce_by_rdma(job)
    check([main_pid(unit) for unit in UNITS] == daemons, "a restart is not needed")
    check(finding(FOLDERS[0])["grade"] == "good", f"the doctor: {finding(FOLDERS[0])}")
    job.end()


def main():
    folder = pathlib.Path("/tmp/rdma_unit_test")
    folder.mkdir()
    folder.chmod(0o755)
    step("two instances on one Soft-RoCE device")
    program = begin(find_packages(sys.argv[1]), folder)
    for text, action in (
            ("devices are closed: TCP, with cause and remedy", without_drop_in),
            ("the drop-in opens verbs, and nothing else", with_drop_in),
            ("a device that comes after the daemon", device_comes_later)):
        step(text)
        action(program)
    print("PASSED", flush=True)


if __name__ == "__main__":
    main()
